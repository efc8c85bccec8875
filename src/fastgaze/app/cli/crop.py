"""``fastgaze crop``: the best windows of a ratio or a size, listed or cut out."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fastgaze.app.cli import common, pictures
from fastgaze.core.errors import ArgumentError
from fastgaze.core.files import printable
from fastgaze.core.jsonable import Document
from fastgaze.core.sizes import Size, format_size, size_to_json

if TYPE_CHECKING:
    from fastgaze.runtime.crop import Crop
    from fastgaze.runtime.cutting import Cut
    from fastgaze.runtime.gazemap import GazeMap


KINDS = {
    ".jpg": "jpeg",
    ".jpeg": "jpeg",
    ".png": "png",
    ".webp": "webp",
    ".avif": "avif",
    ".gif": "gif",
    ".tif": "tiff",
    ".tiff": "tiff",
}
"""The format of a file that ``--out`` names, by its suffix; ``--format`` takes the same names without the dot."""


@dataclass(frozen=True)
class Wish:
    """One window that is asked for, by its ratio or by the size (height, width) of the result."""

    text: str
    size: Size | None = None

    @property
    def ratio(self) -> str:
        """Width and height, with a colon between them."""
        return self.text if self.size is None else f"{self.size[1]}:{self.size[0]}"

    @property
    def mark(self) -> str:
        """What the name of a file says of the window."""
        return self.text.replace(":", "x").replace("/", "x").strip()


def crop(
    images: pictures.Images,
    ratio: Annotated[
        list[str] | None,
        common.shapes("WIDTH:HEIGHT", "Shape of the window, such as 16:9. Repeat it for several."),
    ] = None,
    size: Annotated[
        list[str] | None,
        common.shapes(
            "WIDTHxHEIGHT", "Exact pixels of the result, such as 1200x630; the shape follows. Repeat it for several."
        ),
    ] = None,
    focus: Annotated[
        str | None, typer.Option(metavar="X,Y", help="Cut around this point of the picture, in pixels.")
    ] = None,
    candidates: Annotated[
        int | None,
        typer.Option(
            "--candidates", "-n", min=1, max=64, help="The most windows to list for a shape: 3, or 1 with --out."
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder for the cropped pictures, or a file for one of them, or - for stdout. Without it, none is "
            "written."
        ),
    ] = None,
    format: Annotated[
        str, typer.Option(help="Format of the cropped pictures: keep, jpeg (or jpg), png, webp, avif, gif or tiff.")
    ] = "keep",
    quality: Annotated[
        int | None,
        typer.Option(min=1, max=100, help="Of JPEG, WebP and AVIF. A JPEG is never written finer than it was."),
    ] = None,
    model: common.Model = None,
    threads: common.Threads = 1,
    engine: common.Engine = "onnxruntime",
    center_bias: pictures.Bias = "model",
    json: common.Json = False,
) -> None:
    """Find the windows that keep the most attention and leave heads whole, best first.

    With --out, the best window of each ratio and size is written as NAME.16x9.jpg or NAME.1200x630.jpg. Format, colour
    profile, EXIF, transparency and animation are kept. With --json, windows come with object-position for CSS, and
    written files with a srcset.
    """
    predictor = pictures.load_model(model, engine, threads)
    from fastgaze.core.pictures import open_picture
    from fastgaze.runtime.cutting import pixels_needed

    format = KINDS.get(f".{format.lower()}", format)
    wishes, point = _wishes(ratio or [], size or []), _point(focus)
    most = candidates or (3 if out is None else 1)
    bias = pictures.read_bias(center_bias)
    file = pictures.file_of(out, KINDS)
    if file is not None:
        format = _format_of(file, format, wishes)
    jobs = pictures.find_jobs(images, out, file)
    piped = out is not None and pictures.goes_to_stdout(jobs, out, json)
    if piped:
        _check_pipe(jobs, wishes)

    def work(job: pictures.Job) -> Document:
        picture = open_picture(job.source)
        wanted = [] if out is None else wishes
        pixels = pixels_needed(picture.size, [(wish.ratio, wish.size) for wish in wanted])
        gaze = predictor.look(picture, pixels).at(None, bias)
        found = {wish: _windows(gaze, wish, point, most) for wish in wishes}
        cuts = {wish: gaze.cut(found[wish][0], wish.size, None, format, quality) for wish in wanted}
        written = [] if job.stem is None else _save(job, cuts)
        if piped:
            sys.stdout.buffer.write(next(iter(cuts.values())).content)
            sys.stdout.buffer.flush()
        elif not json:
            _print(job.label, found, written)
        facts = gaze.to_json() | {"crops": _listed(found)} if json else {}
        return {"name": job.label, **facts, "written": written, "srcset": _srcset(written)}

    results, failures = pictures.run_jobs(jobs, work, "crop")
    if json:
        common.print_json(results)
    pictures.finish(len(jobs), failures)


def _wishes(ratios: Sequence[str], sizes: Sequence[str]) -> list[Wish]:
    from fastgaze.runtime.crop import parse_ratio

    if not ratios and not sizes:
        raise ArgumentError("nothing says what to cut; give --ratio 16:9 or --size 1200x630")
    for text in ratios:
        parse_ratio(text)
    return [*(Wish(text) for text in ratios), *(Wish(text, _size(text)) for text in sizes)]


def _size(text: str) -> Size:
    from fastgaze.runtime.crop import parse_ratio

    size = common.read_size(text)
    try:
        parse_ratio((size[1], size[0]))
    except ArgumentError:
        raise ArgumentError(f"--size {text} is not a shape between 1:100 and 100:1, such as 1200x630") from None
    return size


def _point(focus: str | None) -> tuple[float, float] | None:
    if focus is None:
        return None
    try:
        x, y = (float(part) for part in focus.split(","))
    except ValueError as error:
        raise ArgumentError(f"--focus {focus!r} is not X,Y in pixels of the picture, such as 640,360") from error
    return x, y


def _windows(gaze: "GazeMap", wish: Wish, point: tuple[float, float] | None, candidates: int) -> "list[Crop]":
    return gaze.crop(wish.ratio, candidates) if point is None else [gaze.crop_around(wish.ratio, point)]


def _print(label: str, found: "dict[Wish, list[Crop]]", written: list[Document]) -> None:
    """A line for every window; where files are written, it is a message and not the result, and names the file."""
    show = common.report if written else common.say
    files = [f" -> {facts['file']}" for facts in written] or [""] * len(found)
    for (wish, windows), file in zip(found.items(), files, strict=True):
        for index, window in enumerate(windows):
            show(printable(f"{label} {wish.text}: {_line(window, index == 0)}{'' if index else file}"))


def _listed(found: "dict[Wish, list[Crop]]") -> list[Document]:
    return [{"ratio": wish.ratio, "windows": [each.to_json() for each in windows]} for wish, windows in found.items()]


def _check_pipe(jobs: list[pictures.Job], wishes: list[Wish]) -> None:
    if len(jobs) > 1 or len(wishes) > 1:
        raise ArgumentError(
            f"stdout takes one picture in one shape, not {len(jobs)} in {len(wishes)}; give a folder with --out"
        )
    pictures.refuse_terminal("a picture", "or leave out --out to list the windows")


def _format_of(file: Path, format: str, wishes: list[Wish]) -> str:
    """What the name of the file says, unless ``--format`` says something else."""
    if len(wishes) > 1:
        raise ArgumentError(
            f"--out {file} is one file, but {len(wishes)} shapes are wanted; give a folder, such as --out {file.stem}"
        )
    told = KINDS[file.suffix.lower()]
    if format not in ("keep", told):
        raise ArgumentError(f"--out {file} is a file for {told}, not for --format {format}; leave out one of them")
    return told


def _save(job: pictures.Job, cuts: "dict[Wish, Cut]") -> list[Document]:
    """Write one file for each window; what is told of it."""
    written = []
    for wish, cut in cuts.items():
        path = job.result(f".{wish.mark}{cut.suffix}")
        cut.save(path)
        facts = {"file": str(path), **size_to_json(cut.size), "bytes": len(cut.content), "enlarged": cut.enlarged}
        written.append(facts)
    return written


def _srcset(written: Sequence[Document]) -> str:
    """For the HTML of an image: every file with its width, smallest first."""
    ordered = sorted(written, key=lambda facts: facts["width"])
    return ", ".join(f"{Path(facts['file']).name} {facts['width']}w" for facts in ordered)


def _line(crop: "Crop", best: bool) -> str:
    left, top, right, bottom = crop.box
    x, y = crop.focal_point
    place = f"{format_size((bottom - top, right - left))}+{left}+{top}"
    # Only the best window is free to be in the middle: the others have to stay away from it.
    compared = f" ({_gain(crop)})" if best else ""
    return f"{place} keeps {crop.mass:.0%} of the attention{compared}, focal point ({x:.0f}, {y:.0f})"


def _gain(crop: "Crop") -> str:
    points = round(100 * crop.gain)
    if points == 0:
        return "as much as the middle"
    reason = ", to leave a head whole" if crop.for_head else ""
    return f"{common.counted(abs(points), 'point')} {'more' if points > 0 else 'less'} than the middle{reason}"
