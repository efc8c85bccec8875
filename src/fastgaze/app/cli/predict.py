"""``fastgaze predict``: heat maps, log densities and summaries of pictures."""

import io
import json as jsonlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fastgaze.app.cli import pictures
from fastgaze.app.cli.common import print_json
from fastgaze.core.errors import ArgumentError
from fastgaze.core.sizes import Size, parse_size, shrunk

if TYPE_CHECKING:
    from fastgaze.runtime.gazemap import GazeMap
    from fastgaze.runtime.predictor import Predictor, View

FORMATS = {"png": f"{pictures.MARK}.png", "npy": ".npy", "json": ".json"}


def predict(
    images: pictures.Images,
    out: pictures.Out = None,
    format: Annotated[str, typer.Option(help="Results to write: png (overlay), npy (log density), json.")] = "png",
    model: pictures.Model = None,
    output_size: Annotated[str | None, typer.Option(help="Size of the map, WIDTHxHEIGHT.")] = None,
    threads: pictures.Threads = 1,
    engine: pictures.EngineName = "onnxruntime",
    center_bias: pictures.Bias = "model",
    opacity: Annotated[float, typer.Option(min=0, max=1, help="Of the heat map in the overlay.")] = 0.7,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document about all pictures.")] = False,
) -> None:
    """Where people look in pictures: overlays, log densities, peaks."""
    formats = _parse_formats(format)
    size = None if output_size is None else parse_size(output_size)
    predictor = pictures.load_model(model, engine, threads)
    bias = pictures.read_bias(center_bias)
    jobs = pictures.find_jobs(images, out)
    piped = any(job.stem is None for job in jobs) and not json
    if piped and (len(jobs) > 1 or len(formats) > 1):
        raise ArgumentError("one picture and one format can go through a pipe; give --out DIR for more")

    def work(job: pictures.Job) -> dict[str, Any]:
        gaze = _look(predictor, job, size, "png" in formats).at(size, bias)
        written = [] if job.stem is None else _write(gaze, job.stem, formats, opacity)
        if piped:
            sys.stdout.buffer.write(_encode(gaze, formats[0], opacity))
            sys.stdout.buffer.flush()
        elif not json:
            typer.echo(pictures.printable(_line(job.label, gaze, written)))
        return {"image": job.label, **gaze.to_json(), "written": written}

    results, failures = pictures.run_jobs(jobs, work, "predict")
    if json:
        print_json(results)
    pictures.finish(len(jobs), failures)


def _parse_formats(text: str) -> list[str]:
    formats = list(dict.fromkeys(part.strip().lower() for part in text.split(",") if part.strip()))
    if not formats or not set(formats) <= set(FORMATS):
        raise ArgumentError(f"--format {text!r} is not a list of {', '.join(FORMATS)}, such as png,npy")
    return formats


def _write(gaze: "GazeMap", stem: Path, formats: list[str], opacity: float) -> list[str]:
    stem.parent.mkdir(parents=True, exist_ok=True)
    written = []
    for name in formats:
        path = stem.with_name(stem.name + FORMATS[name])
        path.write_bytes(_encode(gaze, name, opacity))
        written.append(str(path))
    return written


def _look(predictor: "Predictor", job: pictures.Job, size: Size | None, shown: bool) -> "View":
    """The picture as the model sees it; decoded once, as large as the overlay needs it."""
    from fastgaze.core.pictures import open_picture
    from fastgaze.runtime.gazemap import DISPLAY

    picture = open_picture(job.source)
    return predictor.look(picture, (size or shrunk(picture.size, DISPLAY)) if shown else None)


def _encode(gaze: "GazeMap", name: str, opacity: float) -> bytes:
    """The bytes of one result."""
    if name == "json":
        return (jsonlib.dumps(gaze.to_json(), indent=2) + "\n").encode()
    if name == "png":
        from fastgaze.core.pictures import encode_png

        return encode_png(gaze.overlay(opacity))
    import numpy as np

    buffer = io.BytesIO()
    np.save(buffer, gaze.log_density, allow_pickle=False)
    return buffer.getvalue()


def _line(label: str, gaze: "GazeMap", written: list[str]) -> str:
    peaks = ", ".join(f"({peak.x:.0f}, {peak.y:.0f}) {peak.mass:.0%}" for peak in gaze.peaks(3))
    milliseconds = sum(gaze.milliseconds.values())
    return f"{label}: {milliseconds:.1f} ms, looks at {peaks} -> {', '.join(written)}"
