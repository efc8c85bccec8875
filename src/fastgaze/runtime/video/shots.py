"""Where one shot ends and the next begins.

Two frames of one shot show the same things, a little moved, larger or brighter. So a frame is cut into blocks, each of
which is looked for nearby in the other frame; what is not found there, weighted by contrast, is how much has changed
(``unlike``). Brightness plays no part in it. Where much is missing, the frames are first laid over each other as a fast
pan or zoom would have moved them; if much is missing even then, the change of the colours' histogram adds to it
(``change``).

A shot begins at a frame that

1. changes much from the frame before,
2. much more than its neighbours do, as it must in a fast pan or in noise,
3. shows what the next frames show too, as the single frame of a flash does not,
4. and resembles none of the frames within ``REACH`` seconds before it, nor does any within ``REACH`` seconds after it
   resemble the last frame of the old shot: after a flash the old shot is back,
5. and is not plain for less than ``REACH`` seconds, as a flash is, or a fade at the end.

Frames are held back only while such a frame waits for those after it.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import sliding_window_view

from fastgaze.core.operators import bilinear_matrix, sharing_matrix
from fastgaze.core.sizes import Size, shrunk

Array = npt.NDArray[np.float32]
Item = TypeVar("Item")

CHANGE = 0.45
"""``change`` above which a frame may begin a shot."""
UNLIKE = 0.2
"""The part of it that blocks must have: colours alone change in a fade too."""
STANDS_OUT = 2.0
"""How many times the change of its neighbours that of a cut must be."""
REACH = 0.35
"""Seconds before and after a cut in which no frame of the one shot may resemble the other."""
MOST_HELD = 24
"""Frames held back at most while a cut is decided."""
_SIDE = 64
_BLOCK = 12
_SEARCH = 8
_BINS = 16
# Levels of contrast below which a block or a frame counts as plain.
_PLAIN = 3.0
# Share of their contrast that two frames may differ by on average, pixel by pixel, and be alike without a search.
_STILL = 0.12
# Share of both frames, and of their contrast, that must lie in their common part after a pan.
_COMMON = 0.4
# Factors by which a zoom may have enlarged the picture; what lies between is found by the search for blocks.
_ZOOMS = (1.3, 1.7, 2.2)
# Levels by which the mean of the common part may differ.
_SAME_LIGHT = 24.0
_LUMA = np.array([0.299, 0.587, 0.114], np.float32)


@dataclass(frozen=True, eq=False)
class Glance:
    """As much of a frame as is needed to compare it with another."""

    time: float
    """Seconds."""
    luma: Array
    """0..255, with a longer side of at most 64."""
    colours: npt.NDArray[np.float64]
    """Shares of 16 levels of each colour, (3, 16), each row sums to 1."""
    size: Size
    """(height, width) of the pixels that it was made of."""


def glance(rgb: npt.NDArray[np.uint8], time: float) -> Glance:
    """rgb: (h, w, 3), a frame of any size; a few hundred pixels wide is plenty."""
    height, width = rgb.shape[:2]
    rows, columns = _means((height, width))
    small = np.ascontiguousarray(rows @ (rgb @ _LUMA) @ columns.T)
    levels = rgb[::4, ::4] >> 4
    counts = [np.bincount(levels[:, :, channel].ravel(), minlength=_BINS) for channel in range(3)]
    return Glance(time, small, np.array(counts) / (levels.shape[0] * levels.shape[1]), (height, width))


@lru_cache(maxsize=4)
def _means(size: Size) -> tuple[Array, Array]:
    """Matrices whose products with a picture from both sides are means over its cells."""
    pairs = zip(size, shrunk(size, _SIDE), strict=True)
    rows, columns = ((sharing_matrix(n, cells) * cells / n).astype(np.float32) for n, cells in pairs)
    return rows, columns


def change(before: Glance, after: Glance) -> float:
    """How much two frames differ, 0..2: what is not found again, plus the change of the colours; 0 if nearly still."""
    contrast = float(before.luma.std() + after.luma.std()) + _PLAIN
    if float(np.abs(after.luma - before.luma).mean()) <= _STILL * contrast:
        return 0.0
    missing = unlike(before.luma, after.luma)
    if missing <= UNLIKE:
        return missing
    for one, other in _as_the_camera_may_have_moved(before.luma, after.luma):
        if (left := unlike(one, other)) <= UNLIKE:
            return left
    return missing + 0.5 * float(np.abs(after.colours - before.colours).sum(axis=1).max())


def unlike(before: Array, after: Array) -> float:
    """Share of the contrast of ``after`` (h, w) that is not found within 8 pixels in ``before``, 0..1.

    For a block t and a place with the window w, both without their means, it is |w - t|^2 / (|w|^2 + |t|^2 + r), where
    r makes plain blocks equal; of all places the best counts.
    """
    block = min(_BLOCK, *after.shape)
    tops, lefts = (_starts(side, block) for side in after.shape)
    around = np.pad(before, _SEARCH, mode="edge")
    reach = 2 * _SEARCH + 1
    windows = sliding_window_view(around, (block, block))
    sums, squares = (_window_sums(values, block) for values in (around, np.square(around)))
    plain, missing, weights = block * block * _PLAIN**2, 0.0, 0.0
    for top in tops:
        for left in lefts:
            place = (slice(top, top + reach), slice(left, left + reach))
            part = after[top : top + block, left : left + block]
            part = part - part.mean()
            energy = float(np.square(part).sum())
            product = windows[place].reshape(reach * reach, -1) @ part.ravel()
            energies = (squares[place] - np.square(sums[place]) / (block * block)).ravel() + energy + plain
            best = float(((2 * product + plain) / energies).max())
            weight = (energy / block**2) ** 0.5 + 1
            missing, weights = missing + weight * (1 - best), weights + weight
    return min(max(missing / weights, 0.0), 1.0)


def _as_the_camera_may_have_moved(before: Array, after: Array) -> Iterator[tuple[Array, Array]]:
    """Both frames as they lie over each other after a fast pan, and after zooms in and out."""
    if (both := overlap(before, after)) is not None:
        yield both
    for factor in _ZOOMS:
        # A middle that shows nothing would be found in every picture.
        if (near := _enlarged(before, factor)).var() > _COMMON * before.var():
            yield near, after
        if (near := _enlarged(after, factor)).var() > _COMMON * after.var():
            yield before, near


def _enlarged(values: Array, factor: float) -> Array:
    """The middle of a picture, enlarged to its size."""
    sides = [max(round(side / factor), 2) for side in values.shape]
    (top, left), (height, width) = ((n - side) // 2 for n, side in zip(values.shape, sides, strict=True)), sides
    rows, columns = (bilinear_matrix(side, n) for side, n in zip(sides, values.shape, strict=True))
    enlarged: Array = (rows @ values[top : top + height, left : left + width] @ columns.T).astype(np.float32)
    return enlarged


def overlap(before: Array, after: Array) -> tuple[Array, Array] | None:
    """What both frames (h, w) show if the camera has only turned: equal parts of both, at the shift at which they
    correlate best. None if the common part never holds enough of the contrast of both, or if its light has changed.
    """
    height, width = after.shape
    one, other = (values - values.mean() for values in (before, after))
    inside = np.ones_like(one)
    products = _correlation(one, other)
    energies = _correlation(np.square(one), inside), _correlation(inside, np.square(other))
    least = [_COMMON * float(np.square(values).sum()) for values in (one, other)]
    area = _correlation(inside, inside)
    valid = (area > _COMMON * height * width) & (energies[0] > least[0]) & (energies[1] > least[1])
    if not valid.any():
        return None
    scores = np.where(valid, products / np.sqrt(np.maximum(energies[0] * energies[1], 1e-6)), -1)
    row, column = np.unravel_index(int(scores.argmax()), scores.shape)
    down, right = int(row) - height + 1, int(column) - width + 1
    both = before[_slices(down, right, after.shape)], after[_slices(-down, -right, after.shape)]
    return None if abs(float(both[0].mean() - both[1].mean())) > _SAME_LIGHT else both


def _correlation(one: Array, other: Array) -> Array:
    """Sum over pixels of one[y + down, x + right] * other[y, x], for all shifts: (2h - 1, 2w - 1), 0 in the middle."""
    shape = (2 * one.shape[0] - 1, 2 * one.shape[1] - 1)
    spectrum = np.fft.rfft2(one, shape) * np.fft.rfft2(other[::-1, ::-1], shape)
    found: Array = np.fft.irfft2(spectrum, shape).astype(np.float32)
    return found


def _slices(down: int, right: int, shape: tuple[int, ...]) -> tuple[slice, slice]:
    """The part of a frame that lies on the other one, which is shifted by (down, right)."""
    height, width = shape
    return slice(max(down, 0), height + min(down, 0)), slice(max(right, 0), width + min(right, 0))


def _starts(side: int, block: int) -> list[int]:
    """Where blocks begin along one side: as many as fit, in the middle of it."""
    count = side // block
    first = (side - count * block) // 2
    return [first + index * block for index in range(count)]


def _window_sums(values: Array, block: int) -> npt.NDArray[np.float64]:
    """Sum of ``values`` over every window of ``block`` x ``block``."""
    sums = np.zeros((values.shape[0] + 1, values.shape[1] + 1))
    sums[1:, 1:] = values.cumsum(axis=0, dtype=np.float64).cumsum(axis=1)
    found: npt.NDArray[np.float64] = (
        sums[block:, block:] - sums[:-block, block:] - sums[block:, :-block] + sums[:-block, :-block]
    )
    return found


@dataclass(frozen=True, eq=False)
class _Step(Generic[Item]):
    """A frame, and how much it changes from the one before; infinity for the first, and where the size changes."""

    item: Item
    glance: Glance
    change: float


def mark_cuts(frames: Iterable[tuple[Item, Glance]]) -> Iterator[tuple[Item, bool]]:
    """Every item in order, with whether its frame begins a shot; the first does."""
    past: deque[_Step[Item]] = deque(maxlen=MOST_HELD)
    waiting: deque[_Step[Item]] = deque()
    last: Glance | None = None
    for item, seen in frames:
        waiting.append(_Step(item, seen, _step(last, seen)))
        last = seen
        yield from _decided(past, waiting, whole=False)
    yield from _decided(past, waiting, whole=True)


def _step(before: Glance | None, after: Glance) -> float:
    return float("inf") if before is None or before.size != after.size else change(before, after)


def _decided(past: deque[_Step[Item]], waiting: deque[_Step[Item]], whole: bool) -> Iterator[tuple[Item, bool]]:
    """What can be said of the frames that wait. whole: no frame comes after them."""
    while waiting:
        first, now = waiting[0], waiting[-1].glance.time
        if CHANGE < first.change < float("inf"):
            if not (whole or now - first.glance.time > REACH or len(waiting) >= MOST_HELD):
                return
            after = _near(waiting, first)
            brief = _plain(first) and ((whole and len(after) == len(waiting)) or not all(map(_plain, after)))
            cut = not brief and _begins_shot(_near(past, first), after)
        else:
            cut = first.change > CHANGE
        if cut and first.change == float("inf"):
            past.clear()
        past.append(waiting.popleft())
        yield first.item, cut


def _plain(step: _Step[Item]) -> bool:
    """Whether a frame shows nothing."""
    return float(step.glance.luma.std()) < _PLAIN


def _near(steps: Iterable[_Step[Item]], to: _Step[Item]) -> list[_Step[Item]]:
    return [step for step in steps if abs(step.glance.time - to.glance.time) <= REACH]


def _begins_shot(before: list[_Step[Item]], after: list[_Step[Item]]) -> bool:
    """Whether the first frame of ``after`` begins a shot; both lists are in order and end at the reach."""
    first = after[0]
    usual = [step.change for step in (*before, *after[1:]) if step.change < float("inf")]
    if usual and first.change <= STANDS_OUT * float(np.percentile(usual, 75)):
        return False
    following = after[1:3]
    if following and not any(_alike(first, step) for step in following):
        return False
    return not (
        any(_alike(step, first) for step in before) or any(_alike(before[-1], step) for step in after[1:] if before)
    )


def _alike(one: _Step[Item], other: _Step[Item]) -> bool:
    return one.glance.size == other.glance.size and change(one.glance, other.glance) <= CHANGE
