"""``fastgaze serve``: the web page and the HTTP API."""

import logging
import math
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fastgaze.app.cli.common import limit_blas
from fastgaze.core.errors import ArgumentError, require

if TYPE_CHECKING:
    from fastgaze.runtime.predictor import Predictor


def serve(
    model: Annotated[
        list[str] | None,
        typer.Option("--model", "-m", help="A bundled name or an .onnx file; repeat it for several. Default: all."),
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on; 0 takes a free one.", min=0, max=65535)] = 8000,
    workers: Annotated[int | None, typer.Option(help="Pictures predicted at once. Default: one a core.")] = None,
    threads: Annotated[int, typer.Option(help="Threads of one prediction.", min=1)] = 1,
    engine: Annotated[str, typer.Option(help="onnxruntime, openvino or openvino-bf16.")] = "onnxruntime",
    max_megabytes: Annotated[float, typer.Option(help="Largest picture, in MB as sent.")] = 32,
    max_megapixels: Annotated[float, typer.Option(help="Largest picture, in megapixels.")] = 50,
    timeout: Annotated[float, typer.Option(help="Seconds for one picture.")] = 10,
    max_in_flight: Annotated[int, typer.Option(help="Requests at once, waiting ones included.")] = 16,
    examples: Annotated[Path | None, typer.Option(help="Folder of pictures that the page offers.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Log no requests.")] = False,
) -> None:
    """Serve a web page and an HTTP API that tell where people look."""
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
    # Pillow warns about every odd file that a client sends; the client gets an answer instead.
    warnings.filterwarnings("ignore", module="PIL")
    run.log_to(sys.stderr, logging.WARNING if quiet else logging.INFO)
    names = ", ".join(predictor.name for predictor in predictors)
    typer.echo(f"fastgaze serves {names} at {run.address(listening)} (Ctrl+C stops)", err=True)
    if not run.is_local(listening):
        typer.echo(
            f"warning: {host} can be reached from other machines; there is no password and no encryption here", err=True
        )
    # The thread that answers takes its turn between the working ones within half a millisecond instead of five.
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
