"""``fastgaze roi``: QP offsets for encoders."""

import io
import re
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fastgaze.app.cli.common import limit_blas, note, progress
from fastgaze.core.errors import ArgumentError

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


def roi(
    video: Annotated[Path, typer.Argument(help="A video that FFmpeg can read.")],
    format: Annotated[str, typer.Option(help="kvazaar, ffmpeg, csv or json.")] = "kvazaar",
    out: Annotated[
        Path | None, typer.Option(help="The file to write; .bin is kvazaar's binary form; or stdout.")
    ] = None,
    range: Annotated[str, typer.Option(help="Lowest and highest QP offset, LOW:HIGH; negative is better.")] = "-8:8",
    neutral: Annotated[bool, typer.Option("--neutral", help="Keep the expected bit rate.")] = False,
    strength: Annotated[float, typer.Option(help="1: optimal for quality weighted by the density.")] = 1.0,
    block: Annotated[int, typer.Option(help="Side of a block in pixels; kvazaar's unit is 64, x264's 16.")] = 64,
    interval: Annotated[float, typer.Option(help="Seconds of one map in FFmpeg's form.")] = 1.0,
    model: Annotated[str | None, typer.Option(help="A bundled model or an .onnx file.")] = None,
    smooth: Annotated[float, typer.Option(help="Smoothing over time in seconds; starts anew at cuts; 0: none.")] = 0.2,
    every: Annotated[int, typer.Option(help="Run the network on every n-th frame and interpolate.")] = 1,
    threads: Annotated[int | None, typer.Option(help="Of decoder and network each; all cores.")] = None,
) -> None:
    """Where an encoder should spend its bits: a grid of QP offsets for every frame."""
    limit_blas(threads)
    from fastgaze.runtime.predictor import load
    from fastgaze.runtime.video import Reader, Watch
    from fastgaze.runtime.video.roi import TEXT, Roi, watch_blocks

    if format not in TEXT:
        raise ArgumentError(f"no format {format!r}; there are {', '.join(TEXT)}")
    low, high = _parse_range(range)
    settings = Roi(block, low, high, strength, neutral)
    with Reader(video, threads) as reader, progress() as bar:
        task = bar.add_task(video.name, total=reader.expected_frames)
        frames = watch_blocks(reader, load(model, threads=threads), settings, Watch(smooth, every))
        _write(bar.track(frames, task_id=task), settings, format, out, interval)
    if format == "ffmpeg" and out is not None:
        command = ["ffmpeg", "-i", str(video), "-filter_complex_script", str(out), "-map", "[out]", "-map", "0:a?"]
        note(shlex.join([*command, "-c:v", "libx264", "OUT.mp4"]))


def _write(frames: Any, settings: Any, format: str, out: Path | None, interval: float) -> None:
    from fastgaze.runtime.video.roi import TEXT, write_ffmpeg, write_kvazaar_binary

    if format == "kvazaar" and out is not None and out.suffix == ".bin":
        with io.BufferedWriter(_File(out)) as binary:
            write_kvazaar_binary(frames, settings, binary)
        return
    with nullcontext(sys.stdout) if out is None else io.TextIOWrapper(io.BufferedWriter(_File(out))) as stream:
        if format == "ffmpeg":
            write_ffmpeg(frames, settings, stream, interval)
        else:
            TEXT[format](frames, settings, stream)


class _File(io.FileIO):
    """A file to write. Its errors are told from those of the video, which is read meanwhile."""

    def __init__(self, path: Path) -> None:
        with _writing(path):
            super().__init__(path, "w")
        self._path = path

    def write(self, content: "ReadableBuffer") -> int:
        with _writing(self._path):
            return super().write(content)


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ArgumentError(f"cannot write {path}: {error.strerror or error}") from error


def _parse_range(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"\s*([+-]?\d+)\s*[:,]\s*([+-]?\d+)\s*", text)
    if match is None:
        raise ArgumentError(f"range {text!r} is not LOW:HIGH, such as -8:8")
    return int(match[1]), int(match[2])
