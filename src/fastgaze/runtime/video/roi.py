"""Where an encoder should spend its bits: grids of QP offsets from gaze maps.

At high rate a block's distortion grows as 2^(QP/3) and its bits fall as 2^(-QP/6). The bits that minimise distortion
weighted by the density p are spent when p * distortion is the same everywhere, that is at

    offset = -3 * log2(p / uniform)

times a ``strength``, plus a constant, clipped to the range asked for. The constant is 0 (twice as looked at as the
average: 3 steps better), or, bit-rate neutral, the one that leaves the expected bits as they were:

    sum_b bits_b * 2^(-offset_b / 6) = sum_b bits_b

For small offsets this is a mean offset of zero, weighted by bits. ``bits_b`` is an estimate of what block b costs at an
even QP: sum over pixels of log2(1 + r / 4), where r, in levels of luma, is the smaller of the change to the
neighbouring pixels (what intra prediction leaves) and to the frame before (what inter prediction leaves).
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from fastgaze.core.errors import ArgumentError
from fastgaze.core.pictures import Size
from fastgaze.runtime.clock import Clock
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
# log2(p) of a block that nobody looks at; far outside any range.
_LEAST_DENSITY = 1e-9


@dataclass(frozen=True)
class Roi:
    """How gaze becomes QP offsets.

    block: side of a square block in pixels, a multiple of 8; kvazaar's own unit is 64, x264's 16.
    low, high: range of the offsets, low <= 0 <= high; negative is better quality.
    strength: 1 is optimal for quality weighted by the density, 0 does nothing.
    neutral: keep the expected bit rate.
    """

    block: int = 64
    low: int = -8
    high: int = 8
    strength: float = 1.0
    neutral: bool = False

    def __post_init__(self) -> None:
        if not (8 <= self.block <= 1024 and self.block % 8 == 0):
            raise ArgumentError(f"block={self.block} is not a multiple of 8 between 8 and 1024")
        if not -QP_RANGE <= self.low <= 0 <= self.high <= QP_RANGE:
            raise ArgumentError(f"range {self.low}:{self.high} is not LOW:HIGH with -51 <= LOW <= 0 <= HIGH <= 51")
        if not (math.isfinite(self.strength) and self.strength >= 0):
            raise ArgumentError(f"strength={self.strength} is not a number of at least 0")


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

    def offsets(self, roi: Roi) -> Offsets:
        """QP offsets, int8 (rows, columns)."""
        area = np.outer(*(_lengths(side, roi.block) for side in self.size)) / (self.size[0] * self.size[1])
        density = np.maximum(self.mass / area, _LEAST_DENSITY)
        wanted = -3 * roi.strength * np.log2(density)
        shift = _neutral_shift(wanted, self.bits, roi) if roi.neutral else 0.0
        return _rounded(wanted + shift, roi)


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
        yield _blocks(seen, predictor, roi, luma, None if seen.cut else before)
        before = luma


def _blocks(
    seen: Seen,
    predictor: Predictor,
    roi: Roi,
    luma: npt.NDArray[np.float32],
    before: npt.NDArray[np.float32] | None,
) -> Blocks:
    size, working = frame_size(seen.frame), seen.working
    density = np.exp(predictor.finish(seen.saliency, working, working, predictor.bias()))
    mass = sum_blocks(density, size, roi.block)
    return Blocks(seen.time, size, mass / mass.sum(), sum_blocks(_cost(luma, before), size, roi.block), seen.cut)


def _luma(rgb: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
    weights = np.array([0.2126, 0.7152, 0.0722], np.float32)
    return rgb.astype(np.float32) @ weights


def _cost(luma: npt.NDArray[np.float32], before: npt.NDArray[np.float32] | None) -> npt.NDArray[np.float32]:
    """Estimate of bits a pixel."""
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
