"""A video in another shape: a window that follows attention through every shot.

The file is read twice. First every shot is watched and its path is found (``camera``), then the window is cut out of
every frame, scaled and encoded, the sound copied. Between the two only numbers are kept: a few hundred bytes per
second of video.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from fastgaze.core.errors import ArgumentError, DataError
from fastgaze.core.jsonable import Json
from fastgaze.core.pictures import open_picture
from fastgaze.core.progress import Clock, Progress, silent
from fastgaze.core.sizes import Size, size_to_json
from fastgaze.runtime.crop import Integral, parse_ratio, window_size, worth_of_places
from fastgaze.runtime.headroom import Head, find_heads, map_heads
from fastgaze.runtime.predictor import Predictor
from fastgaze.runtime.video.camera import DEFAULT, Steadiness, find_path, keyframes, toward_middle
from fastgaze.runtime.video.overlay import LIMITED, plane, to_420
from fastgaze.runtime.video.reader import Reader, frame_size
from fastgaze.runtime.video.run import PathLike, as_predictor, frames_with_sound
from fastgaze.runtime.video.watch import MOTION, Seen, Watch, color_space, watch
from fastgaze.runtime.video.writer import Writer, check_target

if TYPE_CHECKING:
    from av import VideoFrame

Values = npt.NDArray[np.float64]

PER_SECOND = 6
"""Frames per second that the network looks at, besides the first of every shot."""
HEADS = 0.03
"""What a head counts, relative to a still crop. Narrow windows on groups of people cut some head wherever they are;
with the full weight they avoid all of them and miss what people look at."""
# A keyframe is left out where the straight line between its neighbours is this near, in pixels.
_TOLERANCE = 1.0


@dataclass(frozen=True, eq=False)
class ShotPath:
    """The window's way through one shot."""

    times: Values
    """Seconds, of every frame, (n,)."""
    corners: Values
    """(left, top) of the window in pixels at every frame, (n, 2); whole numbers."""
    mass: float
    """Share of all fixations that the model expects inside the window, mean over the shot, 0..1."""
    central: float
    """The same of a window in the middle."""

    def to_json(self) -> dict[str, Json]:
        """Plain values; between two keyframes the window moves evenly, to within a pixel."""
        chosen = keyframes(self.times, self.corners, _TOLERANCE)
        return {
            "start": round(float(self.times[0]), 6),
            "end": round(float(self.times[-1]), 6),
            "frames": len(self.times),
            "mass": round(self.mass, 6),
            "gain": round(self.mass - self.central, 6),
            "keyframes": [
                {
                    "time": round(float(self.times[index]), 6),
                    "left": int(self.corners[index, 0]),
                    "top": int(self.corners[index, 1]),
                }
                for index in chosen
            ],
        }


@dataclass(frozen=True, eq=False)
class Reframing:
    """Where the window is in every frame of a video."""

    size: Size
    """(height, width) of the frames."""
    window: Size
    """(height, width) of the window, both even."""
    shots: tuple[ShotPath, ...]

    @property
    def frames(self) -> int:
        """Of all shots."""
        return sum(len(shot.times) for shot in self.shots)

    def corners(self) -> Iterator[tuple[int, int]]:
        """(left, top) of the window in every frame, in order."""
        for shot in self.shots:
            for left, top in shot.corners:
                yield int(left), int(top)

    def to_json(self) -> dict[str, Json]:
        """Plain values, in seconds and pixels of the input's upright frames."""
        return {
            "size": size_to_json(self.size),
            "window": size_to_json(self.window),
            "frames": self.frames,
            "shots": [shot.to_json() for shot in self.shots],
        }


def plan(
    path: PathLike,
    ratio: str | float | tuple[float, float],
    model: PathLike | Predictor | None = None,
    steadiness: Steadiness = DEFAULT,
    threads: int | None = None,
    progress: Progress = silent,
) -> Reframing:
    """Find the window of ``ratio`` (width over height, as shown) for every frame of the video at ``path``."""
    return judge(path, [ratio], model, threads, progress).plan(0, steadiness)


@dataclass(frozen=True, eq=False)
class Judgement:
    """What every place of a window is worth throughout a video, for windows of one or several ratios."""

    size: Size
    """(height, width) of the frames."""
    shapes: tuple[float, ...]
    """Width over height of each window, in pixels of the frames."""
    shots: "tuple[_Shot, ...]"

    def plan(self, number: int, steadiness: Steadiness = DEFAULT) -> Reframing:
        """The way of the window with the ratio of this number."""
        window = _even(window_size(self.size, self.shapes[number], 1.0))
        return Reframing(
            self.size, window, tuple(shot.path(number, self.size, window, steadiness) for shot in self.shots)
        )


def judge(
    path: PathLike,
    ratios: Sequence[str | float | tuple[float, float]],
    model: PathLike | Predictor | None = None,
    threads: int | None = None,
    progress: Progress = silent,
) -> Judgement:
    """Watch the video at ``path`` once, for windows of all ``ratios``."""
    predictor = as_predictor(model, threads)
    with Reader(path, threads) as reader:
        shapes = tuple(parse_ratio(ratio) / float(reader.stream.sample_aspect_ratio or 1) for ratio in ratios)
        every = max(round(reader.rate / PER_SECOND), 1)
        shots: list[_Shot] = []
        frames = watch(reader.frames(), predictor, Watch(every=every, motion=MOTION), Clock())
        for index, seen in enumerate(frames, 1):
            if seen.cut:
                shots.append(_Shot(shapes, every))
            shots[-1].add(seen)
            progress(index, reader.expected_frames, Path(path).name)
    if not shots:
        raise DataError(f"{path} holds no frame that can be decoded")
    return Judgement(shots[0].size, shapes, tuple(shots))


def reframe(
    path: PathLike,
    out: PathLike,
    ratio: str | float | tuple[float, float],
    size: Size | None = None,
    model: PathLike | Predictor | None = None,
    steadiness: Steadiness = DEFAULT,
    preset: str = "superfast",
    crf: float = 20,
    threads: int | None = None,
    progress: Progress = silent,
) -> Reframing:
    """Write the video at ``path`` to ``out`` (.mp4, .mov or .mkv) in another shape, sound and times as they are.

    ratio: width over height. size: (height, width) of the result in square pixels, by default that of the window.
    progress: counts the frames of both passes.
    """
    if size is not None and not all(side >= 2 and side % 2 == 0 for side in size):
        raise ArgumentError(f"size {size} is not (height, width) of even numbers, which the encoder needs")
    with Reader(path, threads) as reader:
        check_target(Path(out), reader, preset, crf)
    found = plan(path, ratio, model, steadiness, threads, _half(progress, 0))
    corners, corner, done = found.corners(), (0, 0), _half(progress, found.frames)
    with Reader(path, threads) as reader, Writer(Path(out), reader, preset, crf, threads, size is not None) as writer:
        cutter = _WindowCutter(found.size, found.window, size or found.window)
        for index, frame in enumerate(frames_with_sound(reader, writer, Clock()), 1):
            corner = next(corners, corner)
            writer.frame(cutter(frame, *corner))
            done(index, reader.expected_frames, Path(path).name)
    return found


def _half(progress: Progress, before: int) -> Progress:
    """One of two passes over the same frames, of which ``before`` are done."""
    return lambda done, total, note: progress(before + done, None if total is None else 2 * total, note)


def _even(size: Size) -> Size:
    height, width = (max(side & ~1, 2) for side in size)
    return height, width


class _Shot:
    """What is gathered of a shot while it is watched."""

    def __init__(self, ratios: Sequence[float], every: int) -> None:
        self.size: Size = (0, 0)
        self._every = every
        self._times: list[float] = []
        self._looks: list[int] = []
        self._judged = [_Judged(ratio) for ratio in ratios]

    def add(self, seen: Seen) -> None:
        """One frame; those that the network saw are judged."""
        if not self._times:
            self.size = frame_size(seen.frame)
        if len(self._times) % self._every == 0:
            self._looks.append(len(self._times))
            integral = Integral(seen.view.at(seen.view.working).density, self.size)
            heads = _lighter(find_heads(map_heads(open_picture(seen.rgb))))
            for judged in self._judged:
                judged.add(integral, heads)
        self._times.append(seen.time)

    def path(self, number: int, size: Size, window: Size, how: Steadiness) -> ShotPath:
        """The path for one of the ratios, for frames of ``size`` and a window that is a little smaller to be even."""
        judged, times = self._judged[number], np.array(self._times)
        length, side = (size[1], window[1]) if judged.axis == 0 else (size[0], window[0])
        worth = toward_middle(np.array(judged.worth, np.float64), judged.places, side / length, how.middle)
        places = find_path(worth, times[self._looks], judged.places, times, how)
        free = np.array([size[1] - window[1], size[0] - window[0]], np.float64)
        corners = np.tile(np.rint(free / 2), (len(times), 1))
        corners[:, judged.axis] = np.clip(np.rint(places * length), 0, free[judged.axis])
        masses = np.array(judged.mass, np.float64)
        held = [np.interp(places[at], judged.places, row) for at, row in zip(self._looks, masses, strict=True)]
        return ShotPath(times, corners, float(np.mean(held)), float(masses[:, masses.shape[1] // 2].mean()))


class _Judged:
    """Worth and mass of every place of a window of one ratio, at every moment that was looked at."""

    def __init__(self, ratio: float) -> None:
        self._ratio = ratio
        self.axis = 0
        """On which the window can move: 0 is x, 1 is y."""
        self.places: Values = np.zeros(0)
        """Along that axis, in lengths of the frame."""
        self.worth: list[npt.NDArray[np.float32]] = []
        self.mass: list[npt.NDArray[np.float32]] = []

    def add(self, integral: Integral, heads: Sequence[Head]) -> None:
        """One more moment."""
        boxes, worth = worth_of_places(integral, self._ratio, heads)
        left, top, right, bottom = boxes.T
        across = len(np.unique(top)) == 1
        rows, columns = (1, None) if across else (None, 1)
        mass = integral.mass(top[:rows], bottom[:rows], left[:columns], right[:columns])
        self.axis = 0 if across else 1
        self.places = left / integral.size[1] if across else top / integral.size[0]
        self.worth.append(worth.astype(np.float32))
        self.mass.append(mass.ravel().astype(np.float32))


def _lighter(heads: Sequence[Head]) -> list[Head]:
    """The heads of a frame as a moving window counts them."""
    return [replace(head, weight=HEADS * head.weight) for head in heads]


class _WindowCutter:
    """Cuts windows of one size out of frames and scales them."""

    def __init__(self, size: Size, window: Size, result: Size) -> None:
        self._size, self._window, self._result = size, window, result
        self._space: int | None = None

    def __call__(self, frame: "VideoFrame", left: int, top: int) -> "VideoFrame":
        """A new yuv420p frame with the time of ``frame``."""
        self._space = self._space or color_space(frame)
        whole = to_420(frame, *self._size, self._space)
        part = _cut(whole, left, top, self._window)
        if self._result != self._window:
            height, width = self._result
            part = part.reformat(width=width, height=height, interpolation="BICUBIC", threads=1)
        part.pts, part.time_base = frame.pts, frame.time_base
        part.colorspace, part.color_range = self._space, LIMITED
        part.color_primaries, part.color_trc = frame.color_primaries, frame.color_trc
        return part


def _cut(frame: "VideoFrame", left: int, top: int, window: Size) -> "VideoFrame":
    """The window of a yuv420p frame, to the pixel; chroma, of half the size, is interpolated at odd corners."""
    from av import VideoFrame

    part = VideoFrame(window[1], window[0], "yuv420p")
    plane(part, 0)[:] = plane(frame, 0)[top : top + window[0], left : left + window[1]]
    for index in (1, 2):
        source, target = plane(frame, index), plane(part, index)
        rows = _halved(source, top, target.shape[0])
        target[:] = _halved(rows.T, left, target.shape[1]).T
    return part


def _halved(values: npt.NDArray[np.uint8], start: int, count: int) -> npt.NDArray[np.uint8]:
    """``count`` rows from ``start`` / 2 on; between two rows their mean."""
    first = start // 2
    rows = values[first : first + count]
    if start % 2 == 0:
        return rows
    after = values[np.minimum(np.arange(first + 1, first + 1 + count), len(values) - 1)]
    mean: npt.NDArray[np.uint8] = ((rows.astype(np.uint16) + after + 1) >> 1).astype(np.uint8)
    return mean
