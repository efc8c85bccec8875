"""Regions for FFmpeg: a filter graph with a few ``addroi`` rectangles for every stretch of a video.

``addroi`` takes no commands and knows no time, so every stretch is a branch of its own: cut out by frame numbers,
marked, and put back together. FFmpeg pays for every filter with every frame, so there are few of both:

- Neighbouring stretches of one shot whose maps are nearly the same become one, and at most ``MOST_STRETCHES`` are left.
- A map becomes the whole frame with its median offset and at most ``MOST_RECTANGLES`` rectangles on top. One after the
  other, the rectangle that brings the picture so far nearest to the map, in least squares, is laid over it. Where they
  overlap, encoders obey the first of the list, so the last one laid is written first.

Bit-rate neutral means measured here, not estimated: the video is encoded with libx264, plain and with its regions, and
all offsets are shifted until both have the same size.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from math import ceil, log2
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

from fastgaze.core.errors import ArgumentError
from fastgaze.core.sizes import Size
from fastgaze.runtime.video.overlay import leave_free, to_420
from fastgaze.runtime.video.reader import Reader
from fastgaze.runtime.video.roi import QP_RANGE, Blocks, Roi, some_frames
from fastgaze.runtime.video.watch import color_space

if TYPE_CHECKING:
    from av import VideoCodecContext, VideoFrame

Array = npt.NDArray[np.float64]
Indices = npt.NDArray[np.signedinteger[Any]]

INTERVAL = 1.0
"""Seconds after which a map may change within a shot."""
MOST_STRETCHES = 240
MOST_RECTANGLES = 10
_SAME = 1.0
"""Root mean square difference, in steps of QP, below which two neighbouring maps are one."""
# Cells along the longer side of the grid on which corners of rectangles lie.
_CELLS = 24
# A rectangle that brings the picture nearer by less than this share of the first error is not worth a filter.
_LEAST_GAIN = 0.01
# Files round the times of frames, Matroska to milliseconds.
_TICK = 0.002
# What neutral offsets are measured with.
_PRESET = "veryfast"
_NEAR = 0.004
_TRIALS = 9
_FIRST_SLOPE, _LEAST_SLOPE = -1 / 6, -0.05
_WINDOW, _MOST_FRAMES = 250, 1500


@dataclass(frozen=True)
class Rectangle:
    """A part of the frame, in pixels, and its offset in steps of QP."""

    left: int
    top: int
    width: int
    height: int
    offset: float

    def filter(self) -> tuple[str, str]:
        """Name and arguments of FFmpeg's filter; its offsets are relative to the whole range of QP."""
        place = f"x={self.left}:y={self.top}:w={self.width}:h={self.height}"
        return "addroi", f"{place}:qoffset={round(100 * self.offset)}/{100 * QP_RANGE}"


def write_ffmpeg(
    frames: Iterable[Blocks], roi: Roi, out: IO[str], interval: float = INTERVAL, source: Path | None = None
) -> None:
    """A filter graph from [0:v] to [out].

    source: the video, which neutral offsets are measured on; without it the bits are only estimated.
    """
    parts = few_stretches(some_frames(frames), roi, interval)
    if roi.neutral:
        shifts = [neutral_shift(source, parts, roi)] * len(parts) if source else [part.shift(roi) for part in parts]
    else:
        shifts = [0.0] * len(parts)
    branches: list[str] = []
    start = 0
    for part, shift in zip(parts, shifts, strict=True):
        name, end = len(branches), start + part.frames
        marks = ["=".join(found.filter()) for found in rectangles(part.wanted(roi) + shift, part.size, roi)]
        steps = [f"trim=start_frame={start}:end_frame={end}", "setpts=PTS-STARTPTS", *marks]
        branches.append(f"[s{name}]{','.join(steps)}[r{name}]")
        start = end
    every = range(len(branches))
    split = f"[0:v]split={len(branches)}{''.join(f'[s{name}]' for name in every)}"
    joined = f"{''.join(f'[r{name}]' for name in every)}concat=n={len(branches)}:v=1:a=0[out]"
    out.write(";\n".join([split, *branches, joined]) + "\n")


def few_stretches(frames: Iterable[Blocks], roi: Roi, interval: float) -> list[Blocks]:
    """Stretches of at least about ``interval`` seconds whose maps differ, at most ``MOST_STRETCHES``."""
    merged: list[Blocks] = []
    for part in stretches(frames, interval):
        if merged and not part.cut and _apart(merged[-1], part, roi) < _SAME:
            merged[-1] = merged[-1].plus(part)
        else:
            merged.append(part)
    gaps = [_apart(one, other, roi) for one, other in pairwise(merged)] if len(merged) > MOST_STRETCHES else []
    while len(merged) > MOST_STRETCHES:
        at = int(np.argmin(gaps))
        merged[at : at + 2] = [merged[at].plus(merged[at + 1])]
        near = slice(max(at - 1, 0), at + 2)
        gaps[near] = [_apart(one, other, roi) for one, other in pairwise(merged[near])]
    return merged


def _apart(one: Blocks, other: Blocks, roi: Roi) -> float:
    if one.mass.shape != other.mass.shape:
        return float("inf")
    return float(np.sqrt(np.square(one.wanted(roi) - other.wanted(roi)).mean()))


def stretches(frames: Iterable[Blocks], interval: float) -> Iterator[Blocks]:
    """Frames together that lie within ``interval`` seconds and within one shot."""
    if not interval > 0:
        raise ArgumentError(f"interval={interval} is not a time in seconds above 0")
    current: Blocks | None = None
    for blocks in frames:
        if current is None:
            current = blocks
        elif blocks.cut or blocks.time - current.time > interval - _TICK or blocks.mass.shape != current.mass.shape:
            yield current
            current = blocks
        else:
            current = current.plus(blocks)
    if current is not None:
        yield current


def rectangles(wanted: Array, size: Size, roi: Roi, most: int = MOST_RECTANGLES) -> list[Rectangle]:
    """Few rectangles that come near the offsets ``wanted`` (rows, columns) of a frame of ``size``, first the uppermost.

    The last one is the whole frame, unless its offset is 0.
    """
    cells, edges = _pooled(np.clip(wanted, roi.low, roi.high), size, roi.block)
    painted = np.full(cells.shape, _hundredths(float(np.median(cells))))
    found = [_rectangle((0, cells.shape[0], 0, cells.shape[1]), edges, float(painted[0, 0]))]
    least = _LEAST_GAIN * float(np.square(cells - painted).sum())
    for _ in range(most):
        box, gain = _best_rectangle(cells, painted)
        if gain <= max(least, 1e-9):
            break
        top, bottom, left, right = box
        inside = (slice(top, bottom), slice(left, right))
        offset = _hundredths(float(cells[inside].mean()))
        painted[inside] = offset
        found.append(_rectangle(box, edges, offset))
    if found[0].offset == 0:
        del found[0]
    return found[::-1]


def _hundredths(value: float) -> float:
    return round(100 * value) / 100


def _pooled(values: Array, size: Size, block: int) -> tuple[Array, tuple[list[int], list[int]]]:
    """Means over groups of blocks, at most ``_CELLS`` each way, and the edges of the groups in pixels."""
    group = ceil(max(values.shape) / _CELLS)
    starts = [np.arange(0, n, group) for n in values.shape]
    sums = np.add.reduceat(np.add.reduceat(values, starts[0], axis=0), starts[1], axis=1)
    counts = [np.diff(np.append(start, n)) for start, n in zip(starts, values.shape, strict=True)]
    rows, columns = ([*(start * block).tolist(), side] for start, side in zip(starts, size, strict=True))
    return sums / np.outer(*counts), (rows, columns)


def _rectangle(box: tuple[int, int, int, int], edges: tuple[list[int], list[int]], offset: float) -> Rectangle:
    rows, columns = edges
    top, bottom, left, right = box
    place = (columns[left], rows[top], columns[right] - columns[left], rows[bottom] - rows[top])
    return Rectangle(*place, offset)


def _best_rectangle(wanted: Array, painted: Array) -> tuple[tuple[int, int, int, int], float]:
    """(top, bottom, left, right) in cells whose painting with its mean lowers the squared error most, and by how much.

    Painting with the mean m of n cells leaves sum w^2 - n m^2 of the error sum (p - w)^2.
    """
    (tops, bottoms), (lefts, rights) = (np.triu_indices(n + 1, 1) for n in wanted.shape)
    area = np.outer(bottoms - tops, rights - lefts)
    error, total, squares = (
        _sums(values, tops, bottoms, lefts, rights)
        for values in (np.square(painted - wanted), wanted, np.square(wanted))
    )
    gain = error - (squares - np.square(total) / area)
    at, across = np.unravel_index(int(gain.argmax()), gain.shape)
    box = (int(tops[at]), int(bottoms[at]), int(lefts[across]), int(rights[across]))
    return box, float(gain[at, across])


def _sums(values: Array, tops: Indices, bottoms: Indices, lefts: Indices, rights: Indices) -> Array:
    """Sum of ``values`` in every rectangle: (number of tops, number of lefts)."""
    integral = np.zeros((values.shape[0] + 1, values.shape[1] + 1))
    integral[1:, 1:] = values.cumsum(axis=0).cumsum(axis=1)
    rows = integral[bottoms] - integral[tops]
    sums: Array = rows[:, rights] - rows[:, lefts]
    return sums


def neutral_shift(source: Path, parts: Sequence[Blocks], roi: Roi) -> float:
    """What has to be added to all offsets so that libx264 makes a file of the same size as without any, in steps of QP.

    Of a long video pieces of 250 frames are encoded.
    """
    plain = _encoded_bytes(source, parts, None, roi.crf)
    tried: list[tuple[float, float]] = []
    shift = 0.0
    for _ in range(_TRIALS):
        maps = [rectangles(part.wanted(roi) + shift, part.size, roi) for part in parts]
        tried.append((shift, log2(_encoded_bytes(source, parts, maps, roi.crf) / plain)))
        if abs(tried[-1][1]) <= _NEAR:
            break
        shift = _next_shift(tried)
    return min(tried, key=lambda pair: abs(pair[1]))[0]


def _next_shift(tried: Sequence[tuple[float, float]]) -> float:
    """The shift to try after those ``tried``, each with the log2 of the ratio of sizes that it gave.

    Between the nearest shifts that make the file too large and too small, where the line between them says, but well
    away from both, since sizes do not follow a line. Until there are both, the secant of the last two leads on; at
    first, a step changes the bits by about 2^(1/6).
    """
    large = max((pair for pair in tried if pair[1] > 0), default=None)
    small = min((pair for pair in tried if pair[1] <= 0), default=None)
    if large is not None and small is not None and large[0] < small[0]:
        share = large[1] / (large[1] - small[1])
        return large[0] + min(max(share, 0.1), 0.9) * (small[0] - large[0])
    slope, (shift, excess) = _FIRST_SLOPE, tried[-1]
    if len(tried) > 1 and shift != tried[-2][0]:
        slope = min((excess - tried[-2][1]) / (shift - tried[-2][0]), _LEAST_SLOPE)
    return float(np.clip(shift - excess / slope, -QP_RANGE, QP_RANGE))


def _encoded_bytes(
    source: Path, parts: Sequence[Blocks], maps: Sequence[Sequence[Rectangle]] | None, crf: float
) -> int:
    """Bytes of the video, or of pieces of it, encoded with these rectangles in every part; None is a plain encode."""
    ends = np.cumsum([part.frames for part in parts])
    every = ceil(int(ends[-1]) / _MOST_FRAMES)
    total, last, encoder = 0, -1, None
    markers: dict[int, Marker] = {}
    height, width = parts[0].size
    with Reader(source) as reader:
        rate = Fraction(reader.rate).limit_denominator(1001)
        for index, frame in enumerate(reader.frames()):
            piece = index // _WINDOW
            if piece % every:
                continue
            plain = to_420(frame, height & ~1, width & ~1, color_space(frame))
            plain.pts, plain.time_base = index, 1 / rate
            if encoder is None or (every > 1 and piece != last):
                total += 0 if encoder is None else _drain(encoder, None)
                encoder = _make_encoder(plain, rate, crf)
            part = min(int(np.searchsorted(ends, index, side="right")), len(parts) - 1)
            if maps is not None:
                if part not in markers:
                    markers = {part: Marker(plain, maps[part])}
                plain = markers[part](plain)
            total, last = total + _drain(encoder, leave_free(plain)), piece
    return total + (0 if encoder is None else _drain(encoder, None))


def _make_encoder(frame: "VideoFrame", rate: Fraction, crf: float) -> "VideoCodecContext":
    from av import CodecContext

    encoder = CodecContext.create("libx264", "w")
    encoder.width, encoder.height, encoder.pix_fmt = frame.width, frame.height, "yuv420p"
    encoder.time_base, encoder.framerate = 1 / rate, rate
    encoder.options, encoder.thread_count = {"preset": _PRESET, "crf": str(crf)}, 1
    return encoder


def _drain(encoder: "VideoCodecContext", frame: "VideoFrame | None") -> int:
    return sum(packet.size for packet in encoder.encode(frame))


class Marker:
    """Marks frames with rectangles, by FFmpeg's own filter."""

    def __init__(self, frame: "VideoFrame", marks: Sequence[Rectangle]) -> None:
        """frame: one like those to be marked."""
        from av.filter import Graph

        self._graph = Graph()
        source = self._graph.add_buffer(
            width=frame.width, height=frame.height, format=frame.format, time_base=frame.time_base
        )
        nodes = [source, *(self._graph.add(*mark.filter()) for mark in marks), self._graph.add("buffersink")]
        for before, after in pairwise(nodes):
            before.link_to(after)
        self._graph.configure()

    def __call__(self, frame: "VideoFrame") -> "VideoFrame":
        """The frame with the rectangles as side data."""
        self._graph.push(frame)
        marked = cast("VideoFrame", self._graph.pull())
        marked.pts, marked.time_base = frame.pts, frame.time_base
        return marked
