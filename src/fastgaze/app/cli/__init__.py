"""The ``fastgaze`` command: one function a verb, results on stdout, progress on stderr.

Each module of this package holds the verbs of one subject and imports what they need inside them,
so that ``fastgaze --version`` is instant. A user's error is one line and exit code 2; ``--debug``
shows the traceback.
"""

import sys
from typing import Annotated

import typer

from fastgaze import __version__
from fastgaze.app.cli import (
    audit,
    batch,
    bench,
    crop,
    data,
    demo,
    evaluate,
    export,
    info,
    predict,
    roi,
    serve,
    train,
    video,
    workshop,
    zoo,
)
from fastgaze.core.errors import FastGazeError

app = typer.Typer(
    name="fastgaze",
    help="Where people look in an image, on a CPU, in milliseconds.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
PICTURES, SCALE, SCORES, WORKSHOP = "Pictures", "Video, batches, server", "Models, data, scores", "Workshop"
app.command("predict", rich_help_panel=PICTURES)(predict.predict)
app.command("crop", rich_help_panel=PICTURES)(crop.crop)
app.command("demo", rich_help_panel=PICTURES)(demo.demo)
app.command("serve", rich_help_panel=SCALE)(serve.serve)
app.command("video", rich_help_panel=SCALE)(video.video)
app.command("roi", rich_help_panel=SCALE)(roi.roi)
app.command("batch", rich_help_panel=SCALE)(batch.batch)
app.command("models", rich_help_panel=SCORES)(zoo.models)
app.command("info", rich_help_panel=SCORES)(info.info)
app.command("bench", rich_help_panel=SCORES)(bench.bench)
app.add_typer(data.app, name="data", rich_help_panel=SCORES)
app.command("evaluate", rich_help_panel=SCORES)(evaluate.evaluate)
app.command("submit", rich_help_panel=SCORES)(evaluate.submit)
app.command("audit", rich_help_panel=SCORES)(audit.audit)
app.command("train", rich_help_panel=WORKSHOP)(train.train)
app.command("teacher", rich_help_panel=WORKSHOP)(workshop.teacher)
app.command("distill", rich_help_panel=WORKSHOP)(workshop.distill)
app.command("maps", rich_help_panel=WORKSHOP)(workshop.maps)
app.command("prune", rich_help_panel=WORKSHOP)(workshop.prune)
app.command("narrow", rich_help_panel=WORKSHOP)(workshop.narrow)
app.command("sweep", rich_help_panel=WORKSHOP)(workshop.sweep)
app.command("export", rich_help_panel=WORKSHOP)(export.export)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"fastgaze {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Options before the verb; both are acted on elsewhere (``_print_version``, ``main``)."""


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; exits the process."""
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        code = app(arguments, prog_name="fastgaze", standalone_mode=False)
    except typer.TyperException as error:
        code = _complain(error.format_message())
    except (FastGazeError, OSError) as error:
        if "--debug" in arguments:
            raise
        code = _complain(_reason(error))
    except (typer.Abort, KeyboardInterrupt):
        typer.echo("fastgaze: interrupted", err=True)
        code = 130
    sys.exit(code)


def _reason(error: FastGazeError | OSError) -> str:
    """What went wrong; for a file that cannot be read or written, which one and why."""
    if isinstance(error, FastGazeError) or error.filename is None:
        return str(error)
    return f"cannot use {error.filename}: {error.strerror}"


def _complain(message: str) -> int:
    if message:  # without arguments the help is printed and nothing is left to say
        typer.echo(f"fastgaze: {' '.join(message.split())}", err=True)
    return 2
