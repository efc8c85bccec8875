"""What several verbs share: options, threads, JSON, lines of text and progress."""

import json
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from typer.core import TyperCommand, TyperOption

from fastgaze.core.errors import ArgumentError
from fastgaze.core.sizes import Size, parse_size

# Names and paths are printed as they are: rich would take [b] for a style and :b: for a picture, in tables too.
out = Console(highlight=False, markup=False, emoji=False)
err = Console(stderr=True, highlight=False, markup=False, emoji=False)

STANDARD_STREAM = "-"
"""Instead of a path: stdin for what is read, stdout for what is written."""


def complete_models(incomplete: str) -> list[str]:
    """Bundled models and .onnx files that begin with ``incomplete``, for the shell's completion."""
    from fastgaze.runtime.zoo import read_index

    names = [str(facts["name"]) for facts in read_index()["models"]]
    folder = Path(incomplete).parent if incomplete else Path()
    files = [str(path) for path in folder.glob("*") if path.suffix == ".onnx" or path.is_dir()]
    return sorted(name for name in (*names, *files) if name.startswith(incomplete))


def complete_engines(incomplete: str) -> list[str]:
    """Names of inference engines that begin with ``incomplete``."""
    from fastgaze.runtime.engines import ENGINES

    return [name for name in ENGINES if name.startswith(incomplete)]


def refuse_stdout(path: Path | None) -> Path | None:
    """The callback of ``--out`` where a file or a folder is needed."""
    if path is not None and str(path) == STANDARD_STREAM:
        raise typer.BadParameter("this verb cannot write to stdout (-); give a path.")
    return path


def shapes(metavar: str, help: str) -> Any:
    """An option that says which windows are wanted, and may be repeated."""
    return typer.Option(metavar=metavar, help=help, show_default=False)


def read_size(text: str, most: int | None = None) -> Size:
    """``--size`` as (height, width), of a picture or a map that is to be made.

    most: pixels, by default as many as any picture may have. The library would refuse more as well, but as (height,
    width). Call it after ``limit_blas``, since it imports numpy.
    """
    from fastgaze.core.pictures import MAX_PIXELS, MAX_SIDE

    size, most = parse_size(text), most or MAX_PIXELS
    if max(size) > MAX_SIDE or size[0] * size[1] > most:
        raise ArgumentError(
            f"--size {text} is not WIDTHxHEIGHT with sides up to {MAX_SIDE} and at most {most / 1e6:g} million pixels, "
            "such as 640x480"
        )
    return size


MODEL_HELP = "Name of a bundled model, or path of an .onnx file."
Model = Annotated[str | None, typer.Option(help=MODEL_HELP, autocompletion=complete_models)]
Engine = Annotated[
    str,
    typer.Option(
        "--engine", help="Inference engine: onnxruntime, openvino or openvino-bf16.", autocompletion=complete_engines
    ),
]
Threads = Annotated[int, typer.Option(min=1, max=1024, help="Threads that compute one prediction.")]
Candidates = Annotated[
    int, typer.Option("--candidates", "-n", min=1, max=64, help="The most windows to give for a ratio.")
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
OutFolder = Annotated[
    Path, typer.Option("--out", help="Folder for the results.", callback=refuse_stdout, show_default=False)
]
OutFile = Annotated[Path, typer.Option("--out", help="File to write.", callback=refuse_stdout, show_default=False)]


class Verb(TyperCommand):
    """A verb of the command line. Every one has ``--quiet``."""

    def get_params(self, ctx: Any) -> list[Any]:
        """The verb's own parameters, ``--quiet``, and ``--help``."""
        *own, help_option = super().get_params(ctx)
        return [*own, _QUIET, help_option]


def _be_quiet(context: object, parameter: object, wanted: bool) -> None:  # noqa: ARG001  # what a callback is given
    err.quiet = err.quiet or wanted


_QUIET = TyperOption(
    param_decls=["--quiet", "-q"],
    is_flag=True,
    default=False,
    expose_value=False,
    callback=_be_quiet,
    help="Leave out progress, notes and the list of written files.",
)


def is_quiet() -> bool:
    """Whether ``--quiet`` was given."""
    return err.quiet


def limit_blas(threads: int | None) -> None:
    """Set the threads of numpy's own matrix products; None leaves them as they are.

    numpy reads the setting once, so this has to be called before its first import.
    """
    if threads is not None:
        os.environ.update(dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"), str(threads)))


def print_json(value: object) -> None:
    """Print one JSON document on stdout; NaN and infinity are refused rather than written as invalid JSON."""
    typer.echo(json.dumps(value, indent=2, allow_nan=False))


def say(text: str) -> None:
    """Print a line of the result on stdout: without markup, and never broken, so that it can be copied."""
    out.print(text, soft_wrap=True)


def report(text: str) -> None:
    """Print a line on stdout about what was done, unless ``--quiet`` was given."""
    if not is_quiet():
        say(text)


def counted(n: int, noun: str) -> str:
    """``1 frame``, ``2 frames``."""
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def note(text: str) -> None:
    """Print a line on stderr that accompanies the results, unless ``--quiet`` was given."""
    err.print(text, soft_wrap=True)


def print_result(facts: dict[str, object], json: bool) -> None:
    """Print facts as JSON, or one per line."""
    if json:
        print_json(facts)
    else:
        for key, value in facts.items():
            say(f"{key}: {value}")


def progress() -> Progress:
    """A progress bar on stderr with count, time used and time left; invisible when stderr is not a terminal."""
    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=err,
        disable=is_quiet() or not err.is_terminal,
        # rich would send stdout to this bar's console, so results meant for a file or a pipe would land on stderr.
        redirect_stdout=sys.stdout.isatty(),
    )
