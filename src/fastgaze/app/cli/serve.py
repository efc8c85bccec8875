"""``fastgaze serve``: the web page and the HTTP API."""

import logging
import math
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fastgaze.app.cli import common
from fastgaze.app.cli.common import limit_blas
from fastgaze.core.errors import ArgumentError, require

if TYPE_CHECKING:
    from fastgaze.runtime.predictor import Predictor


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
    ] = 16,
    examples: Annotated[
        Path | None,
        typer.Option(help="Folder of pictures that the page offers instead of its own.", show_default=False),
    ] = None,
) -> None:
    """Serve a web page and an HTTP API that show where people look.

    With --quiet, requests are not logged.
    """
    limit_blas(threads)
    require("starlette", "serve")
    require("uvicorn", "serve")
    require("python_multipart", "serve")
    from fastgaze.app.server import api, run
    from fastgaze.app.server.limits import Limits
    from fastgaze.runtime.engines import available_cores

    limits = Limits(
        bytes=_whole(max_megabytes * (1 << 20), "--max-megabytes"),
        pixels=_whole(max_megapixels * 1e6, "--max-megapixels"),
        seconds=timeout,
        in_flight=max_in_flight,
    )
    workers = available_cores() if workers is None else workers
    if not 1 <= workers <= 256:
        raise ArgumentError(f"--workers {workers} is not between 1 and 256")
    predictors = _load(model or [], engine, threads)
    app = api.create_app(predictors, limits, workers, _examples(examples))
    listening = run.bind(host, port)
    # Pillow warns about every odd file that a client sends. The client gets an answer instead.
    warnings.filterwarnings("ignore", module="PIL")
    run.log_to(sys.stderr, logging.WARNING if common.is_quiet() else logging.INFO)
    names = ", ".join(predictor.name for predictor in predictors)
    typer.echo(f"fastgaze serves {names} at {run.address(listening)} (Ctrl+C stops it)", err=True)
    if not run.is_local(listening):
        typer.echo(
            f"warning: other machines can reach {host}, and the server asks for no password and does not encrypt",
            err=True,
        )
    # The thread that answers gets its turn between the working threads after half a millisecond instead of five.
    sys.setswitchinterval(0.0005)
    run.make_server(app, limits).run(sockets=[listening])


def _load(names: list[str], engine: str, threads: int) -> "list[Predictor]":
    from fastgaze.runtime import zoo
    from fastgaze.runtime.predictor import load

    if not names:
        names = [bundled.name for bundled in zoo.models()]
    if not names:
        raise ArgumentError("no trained model is bundled yet; give one made with `fastgaze export`: --model FILE.onnx")
    return [load(name, engine, threads) for name in names]


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
