"""From frames to saliency: scale once, run the network, smooth over time, start again at cuts."""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from fastgaze.core.errors import ArgumentError, DataError
from fastgaze.core.progress import Clock
from fastgaze.core.sizes import Size, shrunk
from fastgaze.runtime.predictor import Predictor, View
from fastgaze.runtime.resize import prepare
from fastgaze.runtime.video.motion import Motion
from fastgaze.runtime.video.reader import frame_size, frame_time
from fastgaze.runtime.video.shots import Glance, glance, mark_cuts

if TYPE_CHECKING:
    from av import VideoFrame

Pixels = npt.NDArray[np.uint8]

SMOOTH = 0.2
"""Seconds; with ``MOTION`` what predicts recorded gaze best (``python -m experiments.video_temporal``)."""
MOTION = 0.5
_MOST_MOTION = 10
# Pixels along the longer side that are enough to find cuts.
_CUT_SIDE = 256
# FFmpeg's numbers of "unspecified" colour spaces; HD without a tag is BT.709 by convention.
_UNSPECIFIED = (0, 2)
_BT709 = 1
_HD = 720


@dataclass(frozen=True)
class Watch:
    """How a video is watched.

    smooth: time constant of an exponential mean of log densities, in seconds; 0 is none.
    motion: strength with which motion raises the density of a place (``motion``); 0 leaves it out.
    every: run the network on every n-th frame and at cuts, and interpolate linearly between; holds n frames.
    """

    smooth: float = 0.0
    every: int = 1
    motion: float = 0.0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.smooth) and self.smooth >= 0):
            raise ArgumentError(f"smooth={self.smooth} is not a time in seconds of at least 0")
        if not (math.isfinite(self.motion) and 0 <= self.motion <= _MOST_MOTION):
            raise ArgumentError(f"motion={self.motion} is not between 0 and {_MOST_MOTION}")
        if not 1 <= self.every <= 100:
            raise ArgumentError(f"every={self.every} is not between 1 and 100")


@dataclass(frozen=True, eq=False)
class Seen:
    """One frame with what the network makes of it."""

    frame: "VideoFrame"
    rgb: Pixels
    """(h, w, 3) at the working size."""
    view: View
    """Its saliency is smoothed over time."""
    cut: bool
    """The frame begins a new shot; true for the first."""

    @property
    def time(self) -> float:
        """Seconds."""
        return frame_time(self.frame)


def watch(frames: "Iterable[VideoFrame]", predictor: Predictor, how: Watch, clock: Clock) -> Iterator[Seen]:
    """Every frame in order, with its saliency."""
    smoothed: Seen | None = None
    for seen in _interpolated(_scaled(frames, predictor, clock), predictor, how, clock):
        smoothed = _smoothed(seen, smoothed, how.smooth)
        yield smoothed


@dataclass(frozen=True, eq=False)
class _Scaled:
    frame: "VideoFrame"
    rgb: Pixels
    luma: npt.NDArray[np.float32]
    cut: bool


def _scaled(frames: "Iterable[VideoFrame]", predictor: Predictor, clock: Clock) -> Iterator[_Scaled]:
    """Frames with their working-size RGB, cuts marked."""
    for (frame, rgb, seen), cut in mark_cuts(_glances(frames, FrameScaler(predictor.card.working_size), clock)):
        yield _Scaled(frame, rgb, seen.luma, cut)


def find_cuts(frames: "Iterable[VideoFrame]") -> "Iterator[tuple[VideoFrame, bool]]":
    """Every frame in order, with whether it begins a new shot; no network is needed for that."""
    for (frame, _, _), cut in mark_cuts(_glances(frames, FrameScaler(lambda size: shrunk(size, _CUT_SIDE)), Clock())):
        yield frame, cut


def _glances(
    frames: "Iterable[VideoFrame]", scaler: "FrameScaler", clock: Clock
) -> "Iterator[tuple[tuple[VideoFrame, Pixels, Glance], Glance]]":
    for frame in frames:
        with clock("scale"):
            rgb = scaler(frame)
            seen = glance(rgb, frame_time(frame))
        yield (frame, rgb, seen), seen


class FrameScaler:
    """A frame of any pixel format -> RGB of another size, by libswscale in one pass."""

    def __init__(self, size: Callable[[Size], Size]) -> None:
        """size: gives the (height, width) wanted for that of a frame."""
        from av.error import FFmpegError
        from av.video.reformatter import VideoReformatter

        self._wanted = size
        self._reformatter, self._failure = VideoReformatter(), FFmpegError

    def __call__(self, frame: "VideoFrame") -> Pixels:
        height, width = self._wanted(frame_size(frame))
        try:
            small = self._reformatter.reformat(
                frame,
                width=width,
                height=height,
                format="rgb24",
                src_colorspace=color_space(frame),
                interpolation="AREA",
                threads=1,
            )
        except self._failure as error:
            kind = f"{frame.format.name} frames with colour matrix {int(frame.colorspace)}"
            reason = f"FFmpeg cannot turn {kind} into RGB ({error.strerror})"
            raise DataError(f"{reason}; convert the video first") from error
        return np.asarray(small.to_ndarray(), np.uint8)


def color_space(frame: "VideoFrame") -> int:
    """FFmpeg's number of the frame's YUV matrix; BT.709 for untagged HD, BT.601 for what is smaller."""
    space = int(frame.colorspace)
    if space in _UNSPECIFIED:
        return _BT709 if frame.height >= _HD else 5
    return space


def _interpolated(frames: Iterable[_Scaled], predictor: Predictor, how: Watch, clock: Clock) -> Iterator[Seen]:
    """Saliency of every frame; between the frames that the network saw, linear, but never across a cut."""
    waiting: list[_Scaled] = []
    last: View | None = None
    motion = Motion()
    for item in frames:
        motion.see(item.luma, frame_time(item.frame), item.cut)
        if last is not None and not item.cut and len(waiting) < how.every - 1:
            waiting.append(item)
            continue
        with clock("network"):
            size = frame_size(item.frame)
            pixels = prepare(item.rgb, (item.rgb.shape[0], item.rgb.shape[1]), predictor.card, size)
            now = predictor.see(pixels, size)
        if how.motion:
            with clock("motion"):
                shape = (now.saliency.shape[0], now.saliency.shape[1])
                now = replace(now, saliency=now.saliency + np.float32(how.motion) * motion.cue(shape))
        if last is not None:
            yield from _between(waiting, last, last if item.cut else now)
        waiting, last = [], now
        yield Seen(item.frame, item.rgb, now, item.cut)
    if last is not None:
        yield from _between(waiting, last, last)


def _between(waiting: list[_Scaled], before: View, after: View) -> Iterator[Seen]:
    for index, item in enumerate(waiting, 1):
        yield Seen(item.frame, item.rgb, _mixed(before, after, index / (len(waiting) + 1)), item.cut)


def _smoothed(seen: Seen, before: Seen | None, seconds: float) -> Seen:
    """Exponential mean with time constant ``seconds``: weight of the new frame 1 - exp(-dt / seconds).

    The tail is linear up to the softmax, so a mean of saliencies is a geometric mean of densities.
    """
    if seconds == 0 or before is None or seen.cut:
        return seen
    weight = 1 - math.exp(-max(seen.time - before.time, 0.0) / seconds)
    return replace(seen, view=_mixed(before.view, seen.view, weight))


def _mixed(before: View, after: View, weight: float) -> View:
    """``after`` with the mean of both, in which it has ``weight`` (0..1): of the saliency, and of what kind of picture
    they show."""
    saliency = before.saliency + np.float32(weight) * (after.saliency - before.saliency)
    screen = after.screen
    if before.screen is not None and screen is not None:
        screen = before.screen + weight * (screen - before.screen)
    return replace(after, saliency=saliency, screen=screen)
