"""What the verbs that read pictures share: which files, which model, and how failures are reported."""

import gc
import glob
import os
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from fastgaze.app.cli.common import STANDARD_STREAM, limit_blas, progress
from fastgaze.core.errors import ArgumentError, FastGazeError
from fastgaze.core.files import printable
from fastgaze.core.jsonable import Json
from fastgaze.runtime.regions import MOST_FIXATIONS

if TYPE_CHECKING:
    from fastgaze.core.center_bias import CenterBias
    from fastgaze.runtime.gazemap import GazeMap
    from fastgaze.runtime.predictor import Predictor
    from fastgaze.runtime.regions import Region

MOST_BESIDE = 1000
"""Pictures found in folders whose results are written beside them: nobody wants that in the whole of a disk."""

Images = Annotated[
    list[str],
    typer.Argument(
        metavar="IMAGES",
        help="Picture files, globs, folders with everything below, or - for stdin.",
        show_default=False,
    ),
]
Bias = Annotated[
    str,
    typer.Option(
        "--center-bias",
        help="Where people look by habit: model (its own, by the kind of the picture), photograph or screen (its own "
        "for that kind), none, or FILE.npy with a log density of shape (height, width).",
    ),
]
Out = Annotated[
    Path | None,
    typer.Option(
        help="Folder for the results, or a file for that of one picture, or - for stdout. By default they lie beside "
        f"each picture; where folders hold more than {MOST_BESIDE:,} pictures, it must be given."
    ),
]

Style = Annotated[
    str,
    typer.Option(
        help="Of the overlay: heat, focus (fog where nobody looks), contours (lines around shares of the attention) "
        "or gray (the map alone)."
    ),
]
Regions = Annotated[
    list[str] | None,
    typer.Option(
        "--region",
        metavar="NAME=LEFT,TOP,WIDTH,HEIGHT",
        help="A box whose attention is measured, in pixels or percent of the picture, or a JSON file of boxes or of "
        "a design's layers. May be repeated.",
        show_default=False,
    ),
]
Fixations = Annotated[
    int,
    typer.Option(min=1, max=MOST_FIXATIONS, help="Fixations within which the chance that a region is seen is given."),
]


@dataclass(frozen=True)
class Job:
    """One picture and the path of its results, without their suffix."""

    label: str
    source: str | bytes
    stem: Path | None
    """None: there is no file to write, or it goes to stdout."""
    file: Path | None = None
    """The one file to write, where ``--out`` names a file and not a folder."""

    def result(self, ending: str) -> Path:
        """Where the result whose name ends so is written."""
        assert self.stem is not None
        return self.file or self.stem.with_name(self.stem.name + ending)


def load_model(name: str | None, engine: str, threads: int) -> "Predictor":
    """Load the model of a verb. Call it before anything else imports numpy, whose own threads are set here."""
    limit_blas(threads)
    # Pillow warns about odd files. What matters is reported, one line per file.
    warnings.simplefilter("ignore")
    from fastgaze.runtime.predictor import load

    return load(name, engine, threads)


def read_bias(text: str) -> "CenterBias":
    """One of ``BIASES`` or a .npy file -> what ``Predictor.predict`` takes."""
    from zipfile import BadZipFile

    import numpy as np

    from fastgaze.core.center_bias import BIASES

    if text in BIASES:
        return BIASES[text]

    try:
        array = np.load(text, allow_pickle=False)
    except (OSError, ValueError, EOFError, BadZipFile) as error:
        raise ArgumentError(
            f"--center-bias {text!r} is none of {', '.join(BIASES)} and no readable .npy file"
        ) from error
    if not isinstance(array, np.ndarray) or array.dtype.kind != "f":
        raise ArgumentError(f"--center-bias {text!r} holds no array of floats; give a log density (h, w)")
    return array


def file_of(out: Path | None, kinds: Collection[str]) -> Path | None:
    """``--out`` itself where it is the name of a file, by its suffix; None for a folder, a stream or nothing.

    kinds: suffixes of the files that the verb can write.
    """
    from fastgaze.core.pictures import SUFFIXES

    if out is None or out.is_dir() or out.suffix.lower() not in (*SUFFIXES, *kinds):
        return None
    if out.suffix.lower() not in kinds:
        raise ArgumentError(f"--out {out}: such files cannot be written; use {', '.join(kinds)}, or give a folder")
    return out


class _Place(NamedTuple):
    """Where a picture is."""

    path: str
    root: Path
    """The folder that the paths of results are relative to."""
    in_folder: bool = False
    """Whether a folder was named that holds the picture, and not the picture itself."""


def find_jobs(images: list[str], out: Path | None, file: Path | None = None, beside: bool = False) -> list[Job]:
    """Every picture that the arguments name, once, in order, with the place of its results.

    file: what ``file_of`` gave for ``out``. beside: without ``out``, results are written beside their pictures; then
    at most ``MOST_BESIDE`` pictures may come from folders.
    """
    if file is not None:
        return [_one_job(find_jobs(images, None), file)]
    if is_stdout(out, json=False):
        return [replace(job, stem=None) for job in find_jobs(images, None)]
    if out is not None and out.exists() and not out.is_dir():
        raise ArgumentError(f"--out {out} is a file; give a folder for the results")
    found: dict[str, _Place] = {}
    for place in (place for argument in images for place in _expand(argument, out)):
        found.setdefault(place.path if place.path == STANDARD_STREAM else os.path.abspath(place.path), place)
    if beside and out is None:
        _check_number(sum(place.in_folder for place in found.values()))
    paths = [place.path for place in found.values()]
    stems = _distinct(paths, [_stem(Path(place.path), place.root, out) for place in found.values()])
    return [
        Job(path, path, stem)
        if path != STANDARD_STREAM
        else Job("stdin", sys.stdin.buffer.read(), None if out is None else out / "stdin")
        for path, stem in zip(paths, stems, strict=True)
    ]


def _check_number(in_folders: int) -> None:
    if in_folders > MOST_BESIDE:
        raise ArgumentError(
            f"the folders hold {in_folders:,} pictures, and results are written beside at most {MOST_BESIDE:,}; "
            "give --out FOLDER for the results, or name fewer pictures"
        )


def _one_job(jobs: list[Job], file: Path) -> Job:
    if len(jobs) != 1:
        raise ArgumentError(
            f"--out {file} is one file, but {len(jobs)} pictures are named; give a folder, such as --out {file.stem}"
        )
    (job,) = jobs
    if isinstance(job.source, str) and file.exists() and os.path.samefile(job.source, file):
        raise ArgumentError(f"--out {file} is the picture itself, which would be lost; give another name")
    return replace(job, stem=file.with_suffix(""), file=file)


def is_stdout(out: Path | None, json: bool) -> bool:
    """Whether ``--out`` is -; then ``--json``, which writes there as well, is refused."""
    if out is None or str(out) != STANDARD_STREAM:
        return False
    if json:
        raise ArgumentError("--json and --out - both write to stdout; give one of them")
    return True


def goes_to_stdout(jobs: Sequence[Job], out: Path | None, json: bool) -> bool:
    """Whether results themselves are written to stdout: with ``--out -``, or for a picture from stdin without --out."""
    is_stdout(out, json)
    return not json and any(job.stem is None for job in jobs)


def refuse_terminal(what: str, instead: str) -> None:
    """Refuse to write bytes to a terminal, which would show them as garbage."""
    if sys.stdout.isatty():
        raise ArgumentError(f"{what} is not written to a terminal; redirect stdout to a file, give --out, {instead}")


def _distinct(paths: Sequence[str], stems: Sequence[Path]) -> list[Path]:
    """No result replaces another: a.jpg and a.png keep their suffix, and a/x.jpg and b/x.jpg are numbered."""
    times = Counter(stems)
    distinct: dict[Path, None] = {}
    for path, stem in zip(paths, stems, strict=True):
        own = Path(path).name
        name, number = stem if times[stem] == 1 else stem.with_name(own), 2
        while name in distinct:
            name, number = stem.with_name(f"{own}-{number}"), number + 1
        distinct[name] = None
    return list(distinct)


def _stem(path: Path, root: Path, out: Path | None) -> Path:
    folder = path.parent if out is None else out / path.parent.relative_to(root)
    return folder / path.stem


def _expand(argument: str, out: Path | None) -> Iterator[_Place]:
    """The pictures of a file, a folder, a glob or -."""
    if argument == STANDARD_STREAM:
        yield _Place(STANDARD_STREAM, Path())
    elif os.path.isdir(argument):
        found = [_Place(str(path), Path(argument), in_folder=True) for path in _inside(argument, out)]
        # An empty folder is reported like a bad picture, so that no argument goes unanswered.
        yield from found or [_Place(argument, Path(argument).parent)]
    elif not os.path.lexists(argument) and (matches := sorted(glob.glob(argument, recursive=True))):
        yield from (place for match in matches for place in _expand(match, out))
    else:
        yield _Place(argument, Path(argument).parent)


def _inside(folder: str, out: Path | None) -> Iterator[Path]:
    """Pictures below ``folder`` by suffix; links to folders are not followed.

    Heat maps of an earlier run, hidden files and whatever lies in ``out``, the folder of the results, are left out.
    """
    from fastgaze.core.pictures import is_picture

    results = None if out is None else os.path.realpath(out)
    for parent, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if os.path.realpath(os.path.join(parent, name)) != results)
        yield from (Path(parent, name) for name in sorted(files) if is_picture(name))


def boxes_in_picture(
    regions: "Sequence[Region]", gaze: "GazeMap", job: Job, jobs: Sequence[Job]
) -> dict[str, tuple[float, float, float, float]]:
    """The regions of one picture of ``jobs``, (left, top, right, bottom) by name, each of which must hold a pixel."""
    from fastgaze.runtime.regions import boxes_in

    boxes = boxes_in(regions, gaze.picture_size, jobs.index(job) + 1)
    try:
        gaze.regions(boxes)
    except ArgumentError as error:
        raise ArgumentError(f"{job.label}: {error}") from None
    return boxes


def run_jobs(jobs: list[Job], work: Callable[[Job], dict[str, Json]], verb: str) -> tuple[list[dict[str, Json]], int]:
    """Do ``work`` on every picture and return the results and the number of failures.

    A failure is reported on stderr, and the work continues with the next picture.
    """
    if not jobs:
        raise ArgumentError("no pictures were found; give image files or a folder that holds some")
    results, failures = [], 0
    gc.freeze()  # what was imported stays: to look through it for garbage takes half a millisecond per picture
    with progress() as bar:
        task = bar.add_task(verb, total=len(jobs), visible=len(jobs) > 1)
        for job in jobs:
            try:
                results.append(work(job))
            except (ArgumentError, BrokenPipeError):
                raise  # the same for every picture: an option is out of range, or nobody reads the results
            except FastGazeError as error:
                failures += 1
                _report(job, _named(job, error), results)
            except (OSError, MemoryError) as error:  # a result cannot be written, or a map does not fit
                failures += 1
                _report(job, f"{job.label}: {_reason(error, verb)}", results)
            bar.advance(task)
    return results, failures


def _named(job: Job, error: FastGazeError) -> str:
    """The message with the job's own name: the runtime calls a picture from stdin "bytes"."""
    if isinstance(job.source, bytes):
        return f"{job.label}: {str(error).removeprefix('bytes: ')}"
    # A folder that holds pictures is not a job; they are.
    return f"{job.label} is a folder without pictures" if os.path.isdir(job.source) else str(error)


def _reason(error: OSError | MemoryError, verb: str) -> str:
    if isinstance(error, MemoryError):
        return f"not enough memory; {'give a smaller --size' if verb == 'predict' else 'scale the picture down'}"
    path = error.filename2 or error.filename  # of a rename, the second is the name that was wanted
    return f"cannot write {path}: {error.strerror}" if path else f"cannot write the result: {error.strerror or error}"


def _report(job: Job, message: str, results: list[dict[str, Json]]) -> None:
    message = " ".join(message.split())
    results.append({"name": job.label, "error": message})
    typer.echo(f"fastgaze: {printable(message)}", err=True)


def finish(count: int, failures: int) -> None:
    """Report how many pictures failed, if any did, and exit with code 1."""
    if failures:
        typer.echo(f"fastgaze: {failures} of {count} pictures failed, {count - failures} done", err=True)
        raise typer.Exit(1)
