"""The ``fastgaze`` command: one function per verb, results on stdout, progress on stderr.

Each module of this package holds the verbs of one subject and imports what they need inside the functions, so that
``fastgaze --version`` is instant. A user's error is one line and exit code 2; ``--debug`` shows the traceback.
"""

import sys
from collections.abc import Callable
from typing import Annotated

import typer

from fastgaze import __version__
from fastgaze.app.cli import (
    audit,
    batch,
    bench,
    calibrate,
    common,
    compare,
    crop,
    data,
    demo,
    evaluate,
    export,
    models,
    predict,
    renamed,
    report,
    roi,
    serve,
    site,
    train,
    video,
    workshop,
)
from fastgaze.core.errors import FastGazeError

app = typer.Typer(
    name="fastgaze",
    help="Predict where people look in a picture, on a CPU, in milliseconds.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _add(panel: str, *verbs: Callable[..., None]) -> None:
    for verb in verbs:
        app.command(rich_help_panel=panel, cls=common.Verb)(verb)


_add("Pictures", predict.predict, crop.crop, compare.compare, report.report, demo.demo)
_add("Server, video, many pictures", serve.serve, site.site, video.video, video.reframe, roi.roi, batch.batch)
_add("Models, data, scores", models.models, models.info, bench.bench, evaluate.evaluate, evaluate.submit, audit.audit)
app.add_typer(data.app, name="data", rich_help_panel="Models, data, scores")
_add("Your own models", train.train, calibrate.calibrate, export.export)
app.add_typer(workshop.app, name="workshop", rich_help_panel="Your own models")


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"fastgaze {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_print_version, is_eager=True)
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Options before the verb. ``_print_version`` and ``main`` act on them."""


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit the process."""
    arguments = sys.argv[1:] if arguments is None else arguments
    common.err.quiet = False
    try:
        code = app(arguments, prog_name="fastgaze", standalone_mode=False)
    except typer.TyperException as error:
        code = _complain(renamed.new_spelling(arguments) or error.format_message())
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
    return f"cannot use {error.filename2 or error.filename}: {error.strerror}"


def _complain(message: str) -> int:
    if message:  # without arguments the help has been printed and nothing is left to say
        typer.echo(f"fastgaze: {' '.join(message.split())}", err=True)
    return 2
