"""``fastgaze roi``: QP offsets for video encoders."""

import io
import re
import shlex
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated

import typer

from fastgaze.app.cli.common import STANDARD_STREAM, Model, limit_blas, note, progress, report
from fastgaze.app.cli.video import AllThreads, Every, Moving, Smooth, Source
from fastgaze.core.errors import ArgumentError
from fastgaze.core.files import printable, replacing

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

    from fastgaze.runtime.video.roi import Blocks, Roi


def roi(
    source: Source,
    out: Annotated[
        Path | None,
        typer.Option(help="File to write; NAME.bin is kvazaar's binary form. By default, or with -, stdout."),
    ] = None,
    format: Annotated[
        str, typer.Option(help="Form: kvazaar, svt-av1, ffmpeg (libx264, libx265), csv or json.")
    ] = "kvazaar",
    range: Annotated[
        str, typer.Option(help="LOW:HIGH, the lowest and the highest QP offset; negative is better quality.")
    ] = "-8:8",
    neutral: Annotated[bool, typer.Option("--neutral", help="Keep the bit rate as it is.")] = False,
    crf: Annotated[
        float, typer.Option(help="Quality of x264 that --neutral is for, from 0 (best) to 51, with --format ffmpeg.")
    ] = 23,
    strength: Annotated[
        float, typer.Option(help="Factor of all offsets; 1 is optimal for quality weighted by attention.")
    ] = 1.0,
    block: Annotated[int, typer.Option(help="Side of a block in pixels; kvazaar works with 64, x264 with 16.")] = 64,
    interval: Annotated[float, typer.Option(help="Seconds for which a map holds, with --format ffmpeg.")] = 1.0,
    model: Model = None,
    smooth: Smooth = 0.2,
    motion: Moving = 0.5,
    every: Every = 1,
    threads: AllThreads = None,
) -> None:
    """Write where an encoder should spend its bits, as a grid of QP offsets for every frame."""
    limit_blas(threads)
    from fastgaze.runtime.predictor import load
    from fastgaze.runtime.video import Reader, Watch
    from fastgaze.runtime.video.roi import TEXT, Roi, watch_blocks

    if format not in (*TEXT, "ffmpeg"):
        raise ArgumentError(f"--format {format!r} is not one of {', '.join((*TEXT, 'ffmpeg'))}")
    if out is not None and str(out) == STANDARD_STREAM:
        out = None
    low, high = _parse_range(range)
    settings = Roi(block, low, high, strength, neutral, crf)
    with Reader(source, threads) as reader, progress() as bar:
        task = bar.add_task(source.name, total=reader.expected_frames)
        frames = watch_blocks(reader, load(model, threads=threads), settings, Watch(smooth, every, motion))
        _write(bar.track(frames, task_id=task), settings, format, out, interval, source)
    if format == "ffmpeg" and out is not None:
        command = ["ffmpeg", "-i", str(source), "-filter_complex_script", str(out), "-map", "[out]", "-map", "0:a?"]
        quality = ["-crf", f"{crf:g}"] if neutral else []
        note(shlex.join([*command, "-c:v", "libx264", *quality, "OUT.mp4"]))
    elif out is not None:
        report(f"wrote {printable(str(out))}")


def _write(
    frames: "Iterable[Blocks]", settings: "Roi", format: str, out: Path | None, interval: float, source: Path
) -> None:
    from fastgaze.runtime.video.addroi import write_ffmpeg
    from fastgaze.runtime.video.roi import TEXT, write_kvazaar_binary

    if format == "kvazaar" and out is not None and out.suffix == ".bin":
        with _replacing(out) as raw, io.BufferedWriter(raw) as binary:
            write_kvazaar_binary(frames, settings, binary)
        return
    with ExitStack() as stack:
        stream: IO[str] = sys.stdout
        if out is not None:
            stream = stack.enter_context(io.TextIOWrapper(io.BufferedWriter(stack.enter_context(_replacing(out)))))
        if format == "ffmpeg":
            write_ffmpeg(frames, settings, stream, interval, source)
        else:
            TEXT[format](frames, settings, stream)


@contextmanager
def _replacing(out: Path) -> "Iterator[_File]":
    """A file that takes the place of ``out`` when it is whole. A pipe or a device has no place to take."""
    if out.exists() and not out.is_file():
        yield _File(out, out)
        return
    with replacing(out) as part:
        yield _File(part, out)


class _File(io.FileIO):
    """A file to write. Its errors are told apart from those of the video that is read at the same time."""

    def __init__(self, path: Path, shown: Path) -> None:
        """shown: what errors name."""
        with _writing(shown):
            super().__init__(path, "w")
        self._path = shown

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
        raise ArgumentError(f"--range {text!r} is not LOW:HIGH, such as -8:8")
    return int(match[1]), int(match[2])
