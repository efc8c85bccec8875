"""``fastgaze serve``: the web page and the HTTP API."""

import logging
import math
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fastgaze.app.cli import common
from fastgaze.app.cli.common import limit_blas
from fastgaze.core.errors import ArgumentError, require

if TYPE_CHECKING:
    from fastgaze.app.server.access import Access


def serve(
    model: Annotated[
        list[str] | None,
        typer.Option(
            "--model",
            "-m",
            help=f"{common.MODEL_HELP} Repeat it for several. By default all bundled models.",
            autocompletion=common.complete_models,
            show_default=False,
        ),
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on; 0 takes a free one.", min=0, max=65535)] = 8000,
    workers: Annotated[
        int | None,
        typer.Option(help="Pictures worked on at once. By default as many as there are cores.", show_default=False),
    ] = None,
    threads: common.Threads = 1,
    engine: common.Engine = "onnxruntime",
    max_megabytes: Annotated[float, typer.Option(help="Largest picture that is accepted, in MB as it is sent.")] = 32,
    max_megapixels: Annotated[float, typer.Option(help="Largest picture that is accepted, in megapixels.")] = 50,
    timeout: Annotated[float, typer.Option(help="Seconds that one picture may take.")] = 10,
    max_in_flight: Annotated[
        int, typer.Option(help="Requests that are accepted at once, including those that wait.")
    ] = 128,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            help="A name by which clients may call this server, besides numbers and localhost; * allows all names. "
            "Repeat it for several.",
            show_default=False,
        ),
    ] = None,
    cors: Annotated[
        list[str] | None,
        typer.Option(
            help="An origin whose pages may use the API, such as https://example.org. Repeat it for several.",
            show_default=False,
        ),
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(
            help="File with a secret. Every request must then carry it as a token or be signed with it.",
            show_default=False,
        ),
    ] = None,
    rate: Annotated[float, typer.Option(help="Requests per second that one client may send; 0 sets no limit.")] = 0,
    drain: Annotated[float, typer.Option(help="Seconds that requests in flight still have after SIGTERM.")] = 10,
    examples: Annotated[
        Path | None,
        typer.Option(help="Folder of pictures that the page offers instead of its own.", show_default=False),
    ] = None,
) -> None:
    """Serve a web page and an HTTP API that show where people look.

    With --quiet, requests are not logged.
    """
    limit_blas(threads)
    _check_system()
    from fastgaze.app.server import api, run
    from fastgaze.app.server.limits import Limits
    from fastgaze.runtime.engines import available_cores

    most = _whole(max_megabytes * (1 << 20), "--max-megabytes")
    limits = Limits(
        bytes=most,
        pixels=_whole(max_megapixels * 1e6, "--max-megapixels"),
        seconds=timeout,
        in_flight=max_in_flight,
        upload_bytes=max(Limits.upload_bytes, 2 * most),
        drain_seconds=drain,
    )
    workers = available_cores() if workers is None else workers
    if not 1 <= workers <= 256:
        raise ArgumentError(f"--workers {workers} is not between 1 and 256")
    listening = run.bind(host, port)
    access = _access(allow_host or [], cors or [], token_file, rate, run.is_local(listening))
    settings = api.ServerSettings(model or _bundled(), engine, threads, workers, _examples(examples), access)
    app = api.create_app(settings, limits)
    run.log_to(sys.stderr, logging.WARNING if common.is_quiet() else logging.INFO)
    typer.echo(f"fastgaze serves {', '.join(app.names)} at {run.address(listening)} (Ctrl+C stops it)", err=True)
    if not run.is_local(listening):
        safety = "does not encrypt" if access.secret else "asks for no password and does not encrypt"
        typer.echo(f"warning: other machines can reach {host}, and the server {safety}", err=True)
    run.make_server(app, limits).run(sockets=[listening])


def _check_system() -> None:
    """Refuse where serving cannot work, before anything is loaded."""
    if not hasattr(os, "fork"):
        raise ArgumentError(
            "this system cannot fork processes, which serving needs: use Linux, macOS, WSL or Docker, "
            "or make a page that needs no server with `fastgaze site`"
        )
    for package in ("starlette", "uvicorn", "python_multipart"):
        require(package, "serve")


def _bundled() -> list[str]:
    from fastgaze.runtime import zoo

    names = [bundled.name for bundled in zoo.models()]
    if not names:
        raise ArgumentError("no trained model is bundled yet; give one made with `fastgaze export`: --model FILE.onnx")
    return names


def _access(hosts: list[str], origins: list[str], token_file: Path | None, rate: float, local: bool) -> "Access":
    from fastgaze.app.server.access import Access

    secret = ""
    if token_file is not None:
        try:
            secret = token_file.read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ArgumentError(f"--token-file {token_file} cannot be read: {error}") from error
        if not secret:
            raise ArgumentError(f"--token-file {token_file} is empty")
    # Only this machine's own browser can be tricked into naming a server that no other machine can reach.
    return Access(tuple(hosts or ([] if local else ["*"])), tuple(origins), secret, rate)


def _examples(folder: Path | None) -> Path:
    """The folder that was given, or the package's own."""
    if folder is None:
        from fastgaze.app.demo import EXAMPLES

        return EXAMPLES
    if not folder.is_dir():
        raise ArgumentError(f"--examples {folder} is not a folder")
    return folder


def _whole(value: float, option: str) -> int:
    if not math.isfinite(value):
        raise ArgumentError(f"{option} is not a number above 0")
    return int(value)
