"""``fastgaze predict``: heat maps, log densities and summaries of pictures."""

import io
import json as jsonlib
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fastgaze.app.cli import common, pictures
from fastgaze.core.errors import ArgumentError
from fastgaze.core.files import HEAT_MAP, printable, write_whole
from fastgaze.core.jsonable import Json
from fastgaze.core.sizes import Size, shrunk
from fastgaze.runtime.regions import FIXATIONS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from PIL import Image

    from fastgaze.runtime.gazemap import GazeMap
    from fastgaze.runtime.predictor import Predictor, View
    from fastgaze.runtime.regions import RegionAttention

FORMATS = {"png": f"{HEAT_MAP}.png", "npy": ".npy", "json": ".json"}
KINDS = {".png": "png", ".jpg": "png", ".jpeg": "png", ".webp": "png", ".npy": "npy", ".json": "json"}
"""What a file that ``--out`` names holds, by its suffix."""


@dataclass(frozen=True)
class Wanted:
    """What is told about a picture, and how its overlay is drawn; see ``runtime.regions`` and ``runtime.render``."""

    peaks: int
    boxes: "Mapping[str, Sequence[float]]"
    fixations: int
    style: str
    opacity: float | None
    legend: bool

    def found(self, gaze: "GazeMap") -> "tuple[RegionAttention, ...]":
        """What the regions draw."""
        return gaze.regions(self.boxes, self.fixations)

    def overlay(self, gaze: "GazeMap") -> "Image.Image":
        """The picture with the map, and with the regions."""
        return gaze.overlay(self.opacity, style=self.style, legend=self.legend, regions=self.found(gaze))

    def to_json(self, gaze: "GazeMap") -> dict[str, Json]:
        """What was found."""
        return gaze.to_json(self.peaks, regions=self.boxes, fixations=self.fixations)


def predict(
    images: pictures.Images,
    out: pictures.Out = None,
    format: Annotated[
        str | None,
        typer.Option(
            help="What to write: png (overlay), npy (log density), json (summary); several as png,json. By default "
            "png, or what the name of the file says.",
            show_default=False,
        ),
    ] = None,
    model: common.Model = None,
    size: Annotated[
        str | None,
        typer.Option(
            metavar="WIDTHxHEIGHT", help="Size of the map. By default that of the picture.", show_default=False
        ),
    ] = None,
    peaks: Annotated[int, typer.Option(min=1, max=64, help="The most peaks to list for a picture.")] = 5,
    threads: common.Threads = 1,
    engine: common.Engine = "onnxruntime",
    center_bias: pictures.Bias = "model",
    style: pictures.Style = "heat",
    opacity: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=1,
            help="Of what is drawn; by default 0.7 for heat, 0.85 for focus, 1 for lines.",
            show_default=False,
        ),
    ] = None,
    legend: Annotated[bool, typer.Option("--legend", help="Add a strip to the overlay that explains it.")] = False,
    region: pictures.Regions = None,
    fixations: pictures.Fixations = FIXATIONS,
    json: common.Json = False,
) -> None:
    """Predict where people look in pictures, as overlays, log densities or summaries.

    The results lie beside each picture, as NAME.gaze.png, NAME.npy and NAME.json, or in the folder given with --out.
    For one picture, --out may also name a file that ends in .png, .jpg, .webp, .npy or .json.
    """
    from fastgaze.runtime.regions import check_pictures, parse_regions

    predictor = pictures.load_model(model, engine, threads)
    map_size = None if size is None else common.read_size(size)
    file = pictures.file_of(out, KINDS)
    formats = _parse_formats(format, file)
    bias = pictures.read_bias(center_bias)
    jobs = pictures.find_jobs(images, out, file, beside=True)
    regions = parse_regions(region or [])
    check_pictures(regions, len(jobs))
    piped = pictures.goes_to_stdout(jobs, out, json)
    if piped:
        _check_pipe(jobs, formats)

    def work(job: pictures.Job) -> dict[str, Json]:
        gaze = _look(predictor, job, map_size, "png" in formats).at(map_size, bias)
        boxes = pictures.boxes_in_picture(regions, gaze, job, jobs)
        wanted = Wanted(peaks, boxes, fixations, style, opacity, legend)
        written = [] if job.stem is None else _write(gaze, job, formats, wanted)
        if piped:
            sys.stdout.buffer.write(_encode(gaze, f".{formats[0]}", wanted))
            sys.stdout.buffer.flush()
        elif not json:
            common.report(printable(_line(job.label, gaze, written)))
            for found in wanted.found(gaze):
                common.report(printable(_region_line(found, fixations)))
        return {"name": job.label, **wanted.to_json(gaze), "written": written}

    results, failures = pictures.run_jobs(jobs, work, "predict")
    if json:
        common.print_json(results)
    pictures.finish(len(jobs), failures)


def _parse_formats(text: str | None, file: Path | None) -> list[str]:
    told = "png" if file is None else KINDS[file.suffix.lower()]
    text = told if text is None else text
    formats = list(dict.fromkeys(part.strip().lower() for part in text.split(",") if part.strip()))
    if not formats or not set(formats) <= set(FORMATS):
        raise ArgumentError(f"--format {text!r} is not a list of {', '.join(FORMATS)}, such as png,npy")
    if file is not None and formats != [told]:
        raise ArgumentError(f"--out {file} is a file for {told}, not for --format {text}; leave out one of them")
    return formats


def _check_pipe(jobs: list[pictures.Job], formats: list[str]) -> None:
    if len(jobs) > 1 or len(formats) > 1:
        raise ArgumentError(
            f"stdout takes one picture in one format, not {len(jobs)} in {len(formats)}; give a folder with --out"
        )
    if formats != ["json"]:
        pictures.refuse_terminal(f"a {formats[0].upper()} file", "or ask for --format json")


def _write(gaze: "GazeMap", job: pictures.Job, formats: list[str], wanted: Wanted) -> list[str]:
    written = []
    for name in formats:
        path = job.result(FORMATS[name])
        write_whole(path, _encode(gaze, path.suffix.lower(), wanted))
        written.append(str(path))
    return written


def _look(predictor: "Predictor", job: pictures.Job, size: Size | None, shown: bool) -> "View":
    """Run the network on the picture, which is decoded once, as large as the overlay needs it."""
    from fastgaze.core.pictures import open_picture
    from fastgaze.runtime.gazemap import DISPLAY

    picture = open_picture(job.source)
    return predictor.look(picture, (size or shrunk(picture.size, DISPLAY)) if shown else None)


def _encode(gaze: "GazeMap", suffix: str, wanted: Wanted) -> bytes:
    """The bytes of one result, of the kind that ``suffix`` names."""
    if suffix == ".json":
        return (jsonlib.dumps(wanted.to_json(gaze), indent=2) + "\n").encode()
    if suffix != ".npy":
        from fastgaze.core.encoding import encode

        return encode(wanted.overlay(gaze), suffix)
    import numpy as np

    buffer = io.BytesIO()
    np.save(buffer, gaze.log_density, allow_pickle=False)
    return buffer.getvalue()


def _line(label: str, gaze: "GazeMap", written: list[str]) -> str:
    peaks = ", ".join(f"({peak.x:.0f}, {peak.y:.0f}) {peak.mass:.0%}" for peak in gaze.peaks(3))
    milliseconds = sum(gaze.milliseconds.values())
    return f"{label}: {milliseconds:.1f} ms, people look at {peaks} -> {', '.join(written)}"


def _region_line(found: "RegionAttention", fixations: int) -> str:
    return (
        f"  {found.name}: {found.share:.1%} of the attention, {found.lift:.2g} times its share of the area, "
        f"rank {found.rank}; seen within {fixations} fixations with a chance of {found.seen:.0%}"
    )
