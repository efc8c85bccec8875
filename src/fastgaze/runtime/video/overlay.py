"""A heat map over a frame, in the frame's own YUV planes.

The map is coloured while it is small; FFmpeg enlarges it and lays it over the frame with SIMD code and buffers that it
uses again. Fresh memory for every frame would cost more than the arithmetic.
"""

from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

from fastgaze.core.sizes import Size
from fastgaze.runtime import render
from fastgaze.runtime.video.watch import color_space

if TYPE_CHECKING:
    from av import VideoFrame
    from av.filter.context import FilterContext

Plane = npt.NDArray[np.uint8]

REDUCTION = 8
"""The heat map is computed at this fraction of the frame."""
# Red and blue shares of luma: BT.709 for HD, BT.2020 for HDR, BT.601 for everything else.
_LUMA = {1: (0.2126, 0.0722), 9: (0.2627, 0.0593)}
_BT601 = (0.299, 0.114)
_TICK = Fraction(1, 25)
LIMITED = 1
"""FFmpeg's number of the range in which luma is 16..235."""
_FULL = 2


def heat_size(size: Size) -> Size:
    """(height, width) of the heat map for frames of ``size``; even, as 4:2:0 wants."""
    height, width = (max(round(side / REDUCTION / 2), 1) * 2 for side in size)
    return height, width


class Painter:
    """Paints heat maps over (or instead of) the frames of one video.

    The result is 8-bit 4:2:0 of even size and limited range, and says which YUV matrix it has.
    """

    def __init__(self, opacity: float = 0.7, alone: bool = False) -> None:
        """opacity: at the hottest point, 0..1. alone: the map without the picture."""
        self._opacity, self._alone = render.checked_opacity(opacity), alone
        self._size: Size | None = None
        self._space: int | None = None
        self._graph: _Graph | None = None

    def __call__(self, frame: "VideoFrame", heat: Plane) -> "VideoFrame":
        """A new yuv420p frame with the time of ``frame``. heat: uint8 (h, w), even, 255 at the hottest point."""
        time = frame.pts, frame.time_base
        # A file may change its size and matrix midway; a video cannot.
        self._size = self._size or (max(frame.height & ~1, 2), max(frame.width & ~1, 2))
        self._space = self._space or color_space(frame)
        plain = to_420(frame, *self._size, self._space)
        small = _colored(heat, 1.0 if self._alone else self._opacity, self._alone, self._space)
        if self._graph is None or self._graph.heat_size != heat.shape:
            self._graph = _Graph(plain, small, self._alone)
        painted = self._graph(plain, small)
        for item in (plain, painted):
            item.pts, item.time_base = time
        painted.colorspace, painted.color_range = self._space, LIMITED
        painted.color_primaries, painted.color_trc = frame.color_primaries, frame.color_trc
        return painted


def to_420(frame: "VideoFrame", height: int, width: int, space: int) -> "VideoFrame":
    """The frame as yuv420p of this size, limited range and YUV matrix; itself if it is that already."""
    before = color_space(frame)
    same = (frame.height, frame.width, before) == (height, width, space) and frame.color_range != _FULL
    if frame.format.name == "yuv420p" and same:
        return frame
    return frame.reformat(
        width=width,
        height=height,
        format="yuv420p",
        src_colorspace=before,
        dst_colorspace=space,
        dst_color_range=LIMITED,
        threads=1,
    )


def leave_free(frame: "VideoFrame") -> "VideoFrame":
    """The same frame, of which the encoder may choose the kind (I, P or B).

    A decoded frame keeps the kind that it had in its file, and encoders obey that.
    """
    from av.video.frame import PictureType

    frame.pict_type = PictureType.NONE
    return frame


class _Graph:
    """FFmpeg's ``scale`` and ``overlay``, for frames and maps of one size."""

    def __init__(self, frame: "VideoFrame", small: "VideoFrame", alone: bool) -> None:
        from av.filter import Graph

        self.heat_size = (small.height, small.width)
        self._graph = Graph()
        self._graph.threads = 1
        self._count = 0
        self._frames = None if alone else self._source(frame)
        self._maps, self._sink = self._source(small), self._graph.add("buffersink")
        enlarge = self._graph.add("scale", f"w={frame.width}:h={frame.height}:flags=bilinear")
        self._maps.link_to(enlarge)
        if self._frames is None:
            plain = self._graph.add("format", "yuv420p")
            enlarge.link_to(plain)
            plain.link_to(self._sink)
        else:
            over = self._graph.add("overlay", "format=yuv420")
            self._frames.link_to(over, 0, 0)
            enlarge.link_to(over, 0, 1)
            over.link_to(self._sink)
        self._graph.configure()

    def _source(self, frame: "VideoFrame") -> "FilterContext":
        return self._graph.add_buffer(width=frame.width, height=frame.height, format=frame.format, time_base=_TICK)

    def __call__(self, frame: "VideoFrame", small: "VideoFrame") -> "VideoFrame":
        # FFmpeg pairs frames by their times, and those of a file may stand still or run backwards.
        self._count += 1
        for item in (frame, small):
            item.pts, item.time_base = self._count, _TICK
        if self._frames is not None:
            self._frames.push(frame)
        self._maps.push(small)
        return cast("VideoFrame", self._sink.pull())


def _colored(heat: Plane, opacity: float, alone: bool, space: int) -> "VideoFrame":
    """The heat map as a yuva420p frame: colour by level, opacity by level."""
    from av import VideoFrame

    small = VideoFrame(heat.shape[1], heat.shape[0], "yuva420p")
    table = _table(opacity, alone, space)
    # Four neighbours share one chroma sample.
    shared = heat[::2, ::2]
    for index, levels in enumerate((heat, shared, shared, heat)):
        plane(small, index)[:] = table[index][levels]
    return small


def plane(frame: "VideoFrame", index: int) -> Plane:
    """One plane of an 8-bit planar frame as a writable view (height, width)."""
    data: Any = frame.planes[index]  # a buffer, which its stubs do not say
    rows = np.frombuffer(data, np.uint8)[: data.line_size * data.height].reshape(data.height, data.line_size)
    return rows[:, : data.width]


@lru_cache(maxsize=8)
def _table(opacity: float, alone: bool, space: int) -> Plane:
    """Y, U, V and opacity (0..255) of 256 levels of heat, (4, 256)."""
    rgba = np.insert(render.on_black(), 3, 255, axis=1) if alone else render.palette(opacity)
    yuv = _to_yuv(rgba[:, :3], *_LUMA.get(space, _BT601))
    return np.round(np.vstack([yuv, rgba[:, 3]])).astype(np.uint8)


def _to_yuv(rgb: npt.NDArray[np.uint8], red: float, blue: float) -> npt.NDArray[np.float64]:
    """RGB (n, 3) -> Y in 16..235, U and V in 16..240, (3, n)."""
    r, g, b = rgb.T / 255
    luma = red * r + (1 - red - blue) * g + blue * b
    planes = [16 + 219 * luma, 128 + 112 * (b - luma) / (1 - blue), 128 + 112 * (r - luma) / (1 - red)]
    return np.array(planes)
