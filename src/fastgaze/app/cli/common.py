"""What several verbs share: threads, sizes, JSON, lines of text, tables and progress."""

import json
import os
import sys
from typing import Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

# Names and paths are printed as they are: rich would take [b] for a style and :b: for a picture, in tables too.
out = Console(highlight=False, markup=False, emoji=False)
err = Console(stderr=True, highlight=False, markup=False, emoji=False)


def limit_blas(threads: int | None) -> None:
    """Threads of numpy's own matrix products, None: as they are. It reads them once: call this before its import."""
    if threads is not None:
        os.environ.update(dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"), str(threads)))


def print_json(value: Any) -> None:
    """One JSON document on stdout; NaN and infinity are refused rather than written as invalid JSON."""
    typer.echo(json.dumps(value, indent=2, allow_nan=False))


def say(text: str) -> None:
    """A line on stdout as it is: no markup, and as long as it is, so that it can be copied."""
    out.print(text, soft_wrap=True)


def note(text: str) -> None:
    """``say`` on stderr: what goes along with the results."""
    err.print(text, soft_wrap=True)


def progress() -> Progress:
    """A progress bar on stderr with count, time used and time left; silent when stderr is no terminal."""
    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=err,
        disable=not err.is_terminal,
        # rich would send stdout to this bar's console, so results meant for a file or a pipe would land on stderr.
        redirect_stdout=sys.stdout.isatty(),
    )
