"""``fastgaze crop``: the best windows of a ratio."""

import io
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fastgaze.app.cli import common, pictures
from fastgaze.core.errors import ArgumentError
from fastgaze.core.files import replacing

if TYPE_CHECKING:
    from fastgaze.core.pictures import Picture
    from fastgaze.runtime.crop import Crop


def crop(
    images: pictures.Images,
    ratio: Annotated[
        list[str],
        typer.Option(
            metavar="WIDTH:HEIGHT", help="Shape of the window, such as 16:9. Repeat it for several.", show_default=False
        ),
    ],
    candidates: Annotated[
        int, typer.Option("--candidates", "-n", min=1, max=64, help="The most windows to list for a ratio.")
    ] = 3,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for the cropped pictures, or - for stdout. Without it, none is written."),
    ] = None,
    model: common.Model = None,
    threads: common.Threads = 1,
    engine: common.Engine = "onnxruntime",
    center_bias: pictures.Bias = "model",
    json: common.Json = False,
) -> None:
    """Find the windows that keep the most attention, best first.

    With --out, the best window of each ratio is written as NAME.16x9.jpg for a JPEG and as NAME.16x9.png otherwise.
    """
    predictor = pictures.load_model(model, engine, threads)
    from fastgaze.core.pictures import open_picture
    from fastgaze.runtime.crop import parse_ratio

    for text in ratio:
        parse_ratio(text)
    bias = pictures.read_bias(center_bias)
    jobs = pictures.find_jobs(images, out)
    piped = out is not None and pictures.goes_to_stdout(jobs, out, json)
    if piped:
        _check_pipe(jobs, ratio)

    def work(job: pictures.Job) -> dict[str, Any]:
        picture = open_picture(job.source)
        gaze = predictor.look(picture, None if out is None else picture.size).at(None, bias)
        found = {text: gaze.crop(text, candidates) for text in ratio}
        best = {text: crops[0].box for text, crops in found.items()}
        written = [] if out is None or job.stem is None else _write(picture, job.stem, best)
        if piped:
            sys.stdout.buffer.write(next(iter(_cut(picture, best).values()))[1])
            sys.stdout.buffer.flush()
        elif not json:
            show = common.report if written else common.say
            for text, crops in found.items():
                for candidate in crops:
                    show(pictures.printable(f"{job.label} {text}: {_line(candidate)}"))
        facts = gaze.to_json(ratios=ratio, n=candidates) if json else {}
        return {"image": job.label, **facts, "written": written}

    results, failures = pictures.run_jobs(jobs, work, "crop")
    if json:
        common.print_json(results)
    pictures.finish(len(jobs), failures)


def _check_pipe(jobs: list[pictures.Job], ratios: list[str]) -> None:
    if len(jobs) > 1 or len(ratios) > 1:
        raise ArgumentError(
            f"stdout takes one picture in one ratio, not {len(jobs)} in {len(ratios)}; give a folder with --out"
        )
    pictures.refuse_terminal("a picture", "or leave out --out to list the windows")


def _write(picture: "Picture", stem: Path, boxes: dict[str, tuple[int, int, int, int]]) -> list[str]:
    written = []
    for text, (suffix, content) in _cut(picture, boxes).items():
        path = stem.with_name(f"{stem.name}.{text.replace(':', 'x').replace('/', 'x').strip()}{suffix}")
        with replacing(path) as part:
            part.write_bytes(content)
        written.append(str(path))
    return written


def _cut(picture: "Picture", boxes: dict[str, tuple[int, int, int, int]]) -> dict[str, tuple[str, bytes]]:
    """Suffix and bytes of the window of each ratio."""
    from fastgaze.core.pictures import cut

    photo = picture.rgb()
    is_jpeg = picture.format in ("JPEG", "MPO")
    windows = {}
    for text, box in boxes.items():
        buffer = io.BytesIO()
        if is_jpeg:
            cut(photo, box).save(buffer, "JPEG", quality=92)
        else:
            cut(photo, box).save(buffer, "PNG")
        windows[text] = (".jpg" if is_jpeg else ".png", buffer.getvalue())
    return windows


def _line(crop: "Crop") -> str:
    left, top, right, bottom = crop.box
    x, y = crop.focal_point
    place = f"{right - left}x{bottom - top}+{left}+{top}"
    return f"{place} keeps {crop.mass:.0%}, confidence {crop.confidence:.2f}, focal point ({x:.0f}, {y:.0f})"
