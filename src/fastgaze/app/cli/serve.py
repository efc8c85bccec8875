"""``fastgaze serve``: the web page and the HTTP API."""

import logging
import math
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fastgaze.app.cli.common import limit_blas
from fastgaze.core.errors import ArgumentError, require

if TYPE_CHECKING:
    from fastgaze.app.server.access import Access


def serve(
    model: Annotated[
        list[str] | None,
        typer.Option("--model", "-m", help="A bundled name or an .onnx file; repeat it for several. Default: all."),
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on; 0 takes a free one.", min=0, max=65535)] = 8000,
    workers: Annotated[int | None, typer.Option(help="Pictures predicted at once. Default: one per core.")] = None,
    threads: Annotated[int, typer.Option(help="Threads of one prediction.", min=1)] = 1,
    engine: Annotated[str, typer.Option(help="onnxruntime, openvino or openvino-bf16.")] = "onnxruntime",
    max_megabytes: Annotated[float, typer.Option(help="Largest picture, in MB as sent.")] = 32,
    max_megapixels: Annotated[float, typer.Option(help="Largest picture, in megapixels.")] = 50,
    timeout: Annotated[float, typer.Option(help="Seconds for one picture.")] = 10,
    max_in_flight: Annotated[int, typer.Option(help="Requests at once, waiting ones included.")] = 128,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(help="A name that clients may use for this server, beside numbers and localhost; * is any."),
    ] = None,
    cors: Annotated[
        list[str] | None, typer.Option(help="An origin whose pages may use the API, such as https://example.org.")
    ] = None,
    token_file: Annotated[
        Path | None, typer.Option(help="File with a secret: requests need it as a token, or as a signed address.")
    ] = None,
    rate: Annotated[float, typer.Option(help="Requests per second of one client; 0 is no limit.")] = 0,
    drain: Annotated[float, typer.Option(help="Seconds that requests in flight have after SIGTERM.")] = 10,
    examples: Annotated[Path | None, typer.Option(help="Folder of pictures that the page offers.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Log no requests.")] = False,
) -> None:
    """Serve a web page and an HTTP API that tell where people look."""
    limit_blas(threads)
    require("starlette", "serve")
    require("uvicorn", "serve")
    require("python_multipart", "serve")
    if not hasattr(os, "fork"):
        raise ArgumentError("serving needs Linux or macOS; on Windows use WSL or Docker")
    from fastgaze.app.server import api, run
    from fastgaze.app.server.limits import Limits
    from fastgaze.runtime.engines import available_cores

    limits = Limits(
        bytes=_whole(max_megabytes * (1 << 20), "--max-megabytes"),
        pixels=_whole(max_megapixels * 1e6, "--max-megapixels"),
        seconds=timeout,
        in_flight=max_in_flight,
        upload_bytes=max(Limits.upload_bytes, 2 * _whole(max_megabytes * (1 << 20), "--max-megabytes")),
        drain_seconds=drain,
    )
    workers = available_cores() if workers is None else workers
    if not 1 <= workers <= 256:
        raise ArgumentError(f"--workers {workers} is not between 1 and 256")
    names = model or _bundled()
    listening = run.bind(host, port)
    access = _access(allow_host or [], cors or [], token_file, rate, run.is_local(listening))
    settings = api.Settings(names, engine, threads, workers, _examples(examples), access)
    app = api.create_app(settings, limits)
    run.log_to(sys.stderr, logging.WARNING if quiet else logging.INFO)
    typer.echo(f"fastgaze serves {', '.join(app.names)} at {run.address(listening)} (Ctrl+C stops)", err=True)
    if not run.is_local(listening):
        safety = "no encryption" if access.secret else "no password and no encryption"
        typer.echo(f"warning: {host} can be reached from other machines; there is {safety} here", err=True)
    run.make_server(app, limits).run(sockets=[listening])


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


def _examples(folder: Path | None) -> Path | None:
    """The folder given, or that of the checkout when fastgaze runs from one."""
    if folder is None:
        return Path(__file__).parents[1] / "server" / "examples"
    if not folder.is_dir():
        raise ArgumentError(f"--examples {folder} is not a folder")
    return folder


def _whole(value: float, option: str) -> int:
    if not math.isfinite(value):
        raise ArgumentError(f"{option} is not a number above 0")
    return int(value)
