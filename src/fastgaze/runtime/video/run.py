"""What users call: maps of a video, and a video with its heat map."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter, process_time
from typing import TYPE_CHECKING

import numpy as np

from fastgaze.core.center_bias import CenterBias
from fastgaze.core.errors import ArgumentError, DataError
from fastgaze.core.jsonable import Json
from fastgaze.core.progress import Clock, Progress
from fastgaze.core.sizes import Size
from fastgaze.runtime.gazemap import GazeMap
from fastgaze.runtime.predictor import Predictor, load
from fastgaze.runtime.video.overlay import Painter, heat_size
from fastgaze.runtime.video.reader import Reader, frame_size, frame_time
from fastgaze.runtime.video.watch import Seen, Watch, find_cuts, watch
from fastgaze.runtime.video.writer import Writer

if TYPE_CHECKING:
    from av import VideoFrame

PathLike = str | os.PathLike[str]
MODES = ("overlay", "map")
_PLAIN = Watch()


@dataclass(frozen=True)
class VideoReport:
    """How a rendering went."""

    frames: int
    shots: int
    """Stretches between cuts."""
    seconds: float
    cpu_seconds: float
    """Of all threads."""
    milliseconds: dict[str, float]
    """Per frame: decode, scale, network, motion, tail, overlay, encode."""

    @property
    def fps(self) -> float:
        """Frames per second, end to end."""
        return self.frames / self.seconds if self.seconds else 0.0

    def to_json(self) -> dict[str, Json]:
        """Plain values."""
        return {
            "frames": self.frames,
            "shots": self.shots,
            "seconds": round(self.seconds, 3),
            "cpu_seconds": round(self.cpu_seconds, 3),
            "fps": round(self.fps, 2),
            "milliseconds_per_frame": {step: round(time, 3) for step, time in self.milliseconds.items()},
        }


def maps(
    path: PathLike,
    model: PathLike | Predictor | None = None,
    size: Size | None = None,
    watching: Watch = _PLAIN,
    center_bias: CenterBias = "model",
    threads: int | None = None,
) -> Iterator[tuple[float, GazeMap]]:
    """Yield (time in seconds, gaze map) of every frame of the video at ``path``, in order and in constant memory.

    size: (height, width) of the maps, that of the frames by default; a smaller one is faster.
    """
    predictor = as_predictor(model, threads)
    with Reader(path, threads) as reader:
        for seen in watch(reader.frames(), predictor, watching, Clock()):
            yield seen.time, seen.view.at(size, center_bias)


def cuts(path: PathLike, threads: int | None = None) -> Iterator[float]:
    """Yield the times in seconds at which shots begin in the video at ``path``, that of the first frame included.

    A shot begins at a hard cut; pans, zooms, fades and flashes do not begin one. threads: of the decoder.
    """
    with Reader(path, threads) as reader:
        for frame, cut in find_cuts(reader.frames()):
            if cut:
                yield frame_time(frame)


def render(
    path: PathLike,
    out: PathLike,
    model: PathLike | Predictor | None = None,
    mode: str = "overlay",
    opacity: float = 0.7,
    watching: Watch = _PLAIN,
    preset: str = "superfast",
    crf: float = 23,
    threads: int | None = None,
    progress: Progress | None = None,
) -> VideoReport:
    """Write the video at ``path`` with its heat map to ``out`` (.mp4, .mov or .mkv), the sound copied.

    mode: "overlay", or "map" for the maps alone. progress: counts the frames that are done. An interruption
    (KeyboardInterrupt) finishes the file before it is raised again.
    """
    if mode not in MODES:
        raise ArgumentError(f"no mode {mode!r}; choose from {', '.join(MODES)}")
    predictor = as_predictor(model, threads)
    painter = Painter(opacity, alone=mode == "map")
    clock, start, cpu = Clock(), perf_counter(), process_time()
    frames = shots = 0
    with Reader(path, threads) as reader, Writer(Path(out), reader, preset, crf, threads) as writer:
        for seen in watch(frames_with_sound(reader, writer, clock), predictor, watching, clock):
            _draw(seen, painter, writer, clock)
            frames, shots = frames + 1, shots + seen.cut
            if progress is not None:
                progress(frames, reader.expected_frames, Path(path).name)
    if frames == 0:
        raise DataError(f"{path} holds no frame that can be decoded")
    return VideoReport(frames, shots, perf_counter() - start, process_time() - cpu, clock.milliseconds(frames))


def as_predictor(model: PathLike | Predictor | None, threads: int | None) -> Predictor:
    """A model by name or path, or one that is loaded already."""
    return model if isinstance(model, Predictor) else load(model, threads=threads)


def frames_with_sound(reader: Reader, writer: Writer, clock: Clock) -> "Iterator[VideoFrame]":
    """Frames; the packets of sound between them go straight to the output."""
    for kind, item in reader.items(clock):
        if kind == "frame":
            yield item
        else:
            with clock("encode"):
                writer.sound(item)


def _draw(seen: Seen, painter: Painter, writer: Writer, clock: Clock) -> None:
    with clock("tail"):
        heat = seen.view.at().heat(heat_size(frame_size(seen.frame)))
    with clock("overlay"):
        painted = painter(seen.frame, np.asarray(heat))
    with clock("encode"):
        writer.frame(painted)
