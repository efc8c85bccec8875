"""Where an encoder should spend its bits: grids of QP offsets from gaze maps, in the forms that encoders read.

At high rate a block's distortion grows as 2^(QP/3) and its bits fall as 2^(-QP/6). The bits that minimise distortion
weighted by the density p are spent when p * distortion is the same everywhere, that is at

    offset = -3 * log2(p / uniform)

times a ``strength``, plus a constant, clipped to the range asked for. The constant is 0 (twice as looked at as the
average: 3 steps better), or, bit-rate neutral, the one that leaves the expected bits as they were:

    sum_b bits_b * 2^(-offset_b / 6) = sum_b bits_b

For small offsets this is a mean offset of zero, weighted by bits. ``bits_b`` is an estimate of what block b costs at an
even QP: sum over pixels of log2(1 + r / 4), where r, in levels of luma, is the smaller of the change to the
neighbouring pixels (what intra prediction leaves) and to the frame before (what inter prediction leaves).

Offsets are written frame by frame in constant memory:

kvazaar  for every frame: columns and rows, then their offsets in raster order; text, or binary for a name in .bin
         (two 32-bit integers, then signed bytes), as ``kvazaar --roi`` documents
svt-av1  for every frame whose map differs from the one before: its number and the offsets of blocks of 64x64 in
         raster order, as ``SvtAv1EncApp --roi-map-file`` reads them
csv      frame, time, row, column, offset
json     size, block and for every frame its time and rows of offsets
"""

import json
import math
import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import IO

import numpy as np
import numpy.typing as npt

from fastgaze.core.errors import ArgumentError, DataError
from fastgaze.core.progress import Clock
from fastgaze.core.sizes import Size, size_to_json
from fastgaze.runtime.predictor import Predictor
from fastgaze.runtime.video.reader import Reader, frame_size
from fastgaze.runtime.video.watch import Seen, Watch, watch

Array = npt.NDArray[np.float64]
Offsets = npt.NDArray[np.int8]

QP_RANGE = 51
"""Of 8-bit H.264 and HEVC."""
# A pixel never costs less than this share of a bit, so that a blank frame has a budget too.
_LEAST_BITS = 0.02
_QUANTISER = 4.0
SVT_BLOCK = 64
SVT_STEPS = 8
_SVT_LEVELS = 7
# log2(p) of a block that nobody looks at; far outside any range.
_LEAST_DENSITY = 1e-9


@dataclass(frozen=True)
class Roi:
    """How gaze becomes QP offsets.

    block: side of a square block in pixels, a multiple of 8; kvazaar's own unit is 64, x264's 16.
    low, high: range of the offsets, low <= 0 <= high; negative is better quality.
    strength: 1 is optimal for quality weighted by the density, 0 does nothing.
    neutral: keep the expected bit rate.
    crf: quality of x264 at which the sizes are compared where neutral offsets are measured.
    """

    block: int = 64
    low: int = -8
    high: int = 8
    strength: float = 1.0
    neutral: bool = False
    crf: float = 23

    def __post_init__(self) -> None:
        if not (8 <= self.block <= 1024 and self.block % 8 == 0):
            raise ArgumentError(f"block={self.block} is not a multiple of 8 between 8 and 1024")
        if not -QP_RANGE <= self.low <= 0 <= self.high <= QP_RANGE:
            raise ArgumentError(f"range {self.low}:{self.high} is not LOW:HIGH with -51 <= LOW <= 0 <= HIGH <= 51")
        if not (math.isfinite(self.strength) and self.strength >= 0):
            raise ArgumentError(f"strength={self.strength} is not a number of at least 0")
        if not 0 <= self.crf <= 51:
            raise ArgumentError(f"crf={self.crf} is not between 0 and 51")


@dataclass(frozen=True, eq=False)
class Blocks:
    """What is known of every block of a frame, or of several frames together."""

    time: float
    """Seconds, of the first frame."""
    size: Size
    """(height, width) of the frame."""
    mass: Array
    """Share of fixations in each block, (rows, columns), sums to 1. The last row and column may be cut off."""
    bits: Array
    """Estimate of each block's cost, in arbitrary units, (rows, columns)."""
    cut: bool
    frames: int = 1

    def plus(self, other: "Blocks") -> "Blocks":
        """Both together, each frame with equal weight."""
        frames = self.frames + other.frames
        mass = (self.mass * self.frames + other.mass * other.frames) / frames
        return Blocks(self.time, self.size, mass, self.bits + other.bits, self.cut, frames)

    def wanted(self, roi: Roi) -> Array:
        """Offsets by the rule above, before they are shifted, clipped and rounded, (rows, columns)."""
        area = np.outer(*(_lengths(side, roi.block) for side in self.size)) / (self.size[0] * self.size[1])
        density = np.maximum(self.mass / area, _LEAST_DENSITY)
        offsets: Array = -3 * roi.strength * np.log2(density)
        return offsets

    def shift(self, roi: Roi) -> float:
        """The constant that keeps the expected bits; 0 if they need not stay."""
        return _neutral_shift(self.wanted(roi), self.bits, roi) if roi.neutral else 0.0

    def offsets(self, roi: Roi) -> Offsets:
        """QP offsets, int8 (rows, columns)."""
        return _rounded(self.wanted(roi) + self.shift(roi), roi)


def _rounded(wanted: Array, roi: Roi) -> Offsets:
    return np.rint(np.clip(wanted, roi.low, roi.high)).astype(np.int8)


def expected_bits(offsets: npt.NDArray[np.number], bits: Array) -> float:
    """Bits with these offsets, relative to bits with none."""
    return float((bits * np.exp2(-offsets.astype(np.float64) / 6)).sum() / bits.sum())


def _neutral_shift(wanted: Array, bits: Array, roi: Roi) -> float:
    """The constant at which the rounded offsets leave the expected bits as they were, by bisection."""
    reach = float(np.abs(wanted).max()) + QP_RANGE
    low, high = -reach, reach
    for _ in range(40):
        middle = (low + high) / 2
        # Larger offsets, fewer bits.
        if expected_bits(_rounded(wanted + middle, roi), bits) > 1:
            low = middle
        else:
            high = middle
    return min((low, high), key=lambda shift: abs(expected_bits(_rounded(wanted + shift, roi), bits) - 1))


def watch_blocks(reader: Reader, predictor: Predictor, roi: Roi, how: Watch) -> Iterator[Blocks]:
    """Every frame's blocks, in order and in constant memory."""
    before: npt.NDArray[np.float32] | None = None
    for seen in watch(reader.frames(), predictor, how, Clock()):
        luma = _luma(seen.rgb)
        yield _blocks(seen, roi, luma, None if seen.cut else before)
        before = luma


def _blocks(
    seen: Seen,
    roi: Roi,
    luma: npt.NDArray[np.float32],
    before: npt.NDArray[np.float32] | None,
) -> Blocks:
    size = frame_size(seen.frame)
    mass = sum_blocks(seen.view.at(seen.view.working).density, size, roi.block)
    return Blocks(seen.time, size, mass / mass.sum(), sum_blocks(_cost(luma, before), size, roi.block), seen.cut)


def _luma(rgb: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
    weights = np.array([0.2126, 0.7152, 0.0722], np.float32)
    return rgb.astype(np.float32) @ weights


def _cost(luma: npt.NDArray[np.float32], before: npt.NDArray[np.float32] | None) -> npt.NDArray[np.float32]:
    """Estimate of bits per pixel."""
    across = np.abs(np.diff(luma, axis=1, prepend=luma[:, :1]))
    down = np.abs(np.diff(luma, axis=0, prepend=luma[:1]))
    residual = (across + down) / 2
    if before is not None and before.shape == luma.shape:
        residual = np.minimum(residual, np.abs(luma - before))
    return (np.log2(1 + residual / _QUANTISER) + _LEAST_BITS).astype(np.float32)


def sum_blocks(values: npt.NDArray[np.float32], size: Size, block: int) -> Array:
    """Sums over blocks of a frame of ``size`` from a smaller map of the whole frame; cells on edges are shared."""
    rows = _share(values.shape[0], size[0], block)
    columns = _share(values.shape[1], size[1], block)
    sums: Array = rows @ values.astype(np.float64) @ columns.T
    return sums


def _lengths(side: int, block: int) -> npt.NDArray[np.intp]:
    """Pixels of each block along one side; the last may be shorter."""
    edges = np.append(np.arange(0, side, block), side)
    return np.diff(edges)


@lru_cache(maxsize=16)
def _share(cells: int, side: int, block: int) -> Array:
    """(blocks, cells): which share of each cell of the map lies in each block, along one side."""
    starts = np.arange(0, side, block, dtype=np.float64)
    ends = np.minimum(starts + block, side)
    cell = side / cells
    left = np.arange(cells) * cell
    overlap = np.minimum(ends[:, None], left + cell) - np.maximum(starts[:, None], left)
    share: Array = np.clip(overlap, 0, None) / cell
    return share


def write_kvazaar(frames: Iterable[Blocks], roi: Roi, out: IO[str]) -> None:
    """Text: a line ``columns rows``, then a line of columns * rows offsets, for every frame."""
    for blocks in some_frames(frames):
        offsets = blocks.offsets(roi)
        out.write(f"{offsets.shape[1]} {offsets.shape[0]}\n{' '.join(map(str, offsets.ravel()))}\n")


def write_kvazaar_binary(frames: Iterable[Blocks], roi: Roi, out: IO[bytes]) -> None:
    """Binary, little endian: int32 columns, int32 rows, then columns * rows int8 offsets, for every frame."""
    for blocks in some_frames(frames):
        offsets = blocks.offsets(roi)
        out.write(struct.pack("<ii", offsets.shape[1], offsets.shape[0]) + offsets.tobytes())


def write_svt_av1(frames: Iterable[Blocks], roi: Roi, out: IO[str]) -> None:
    """One line for every map: the number of the first frame that it holds for, then its offsets in raster order.

    AV1's quantiser has 256 steps; about eight of them, in the usual range, are one of H.264. A map may hold no more
    than eight different offsets.
    """
    if roi.block != SVT_BLOCK:
        raise ArgumentError(f"block={roi.block} is not {SVT_BLOCK}, the only size of blocks that SVT-AV1 reads")
    levels, before = np.linspace(roi.low, roi.high, _SVT_LEVELS), ""
    for index, blocks in enumerate(some_frames(frames)):
        nearest = np.abs(blocks.offsets(roi)[..., None] - levels).argmin(axis=-1)
        values = " ".join(str(round(SVT_STEPS * level)) for level in levels[nearest].ravel())
        if values != before:
            out.write(f"{index} {values}\n")
            before = values


def write_csv(frames: Iterable[Blocks], roi: Roi, out: IO[str]) -> None:
    """One line per block."""
    some = some_frames(frames)
    out.write("frame,time,row,column,qp_offset\n")
    for index, blocks in enumerate(some):
        for (row, column), offset in np.ndenumerate(blocks.offsets(roi)):
            out.write(f"{index},{blocks.time:.6f},{row},{column},{offset}\n")


def write_json(frames: Iterable[Blocks], roi: Roi, out: IO[str]) -> None:
    """One document, one line per frame."""
    first, rest = _first(frames)
    head = {"block": roi.block, "range": [roi.low, roi.high], "neutral": roi.neutral, "size": size_to_json(first.size)}
    out.write(json.dumps(head)[:-1] + ', "frames": [')
    for index, blocks in enumerate(rest):
        line = {"time": round(blocks.time, 6), "qp_offset": blocks.offsets(roi).tolist()}
        out.write((",\n" if index else "\n") + json.dumps(line))
    out.write("\n]}\n")


def some_frames(frames: Iterable[Blocks]) -> Iterator[Blocks]:
    """The same frames; an error if there is none."""
    return _first(frames)[1]


def _first(frames: Iterable[Blocks]) -> tuple[Blocks, Iterator[Blocks]]:
    """The first frame, and all of them; an error if there is none."""
    iterator = iter(frames)
    first = next(iterator, None)
    if first is None:
        raise DataError("the video holds no frame that can be decoded")
    return first, chain([first], iterator)


TEXT: dict[str, Callable[[Iterable[Blocks], Roi, IO[str]], None]] = {
    "kvazaar": write_kvazaar,
    "svt-av1": write_svt_av1,
    "csv": write_csv,
    "json": write_json,
}
"""Writers by the name of their form; that for FFmpeg is in ``addroi``."""
