"""Crop windows of a given ratio that keep what people look at.

A window's worth is the attention it encloses minus the attention it cuts through: what a narrow band along those edges
of the window that lie inside the picture holds beyond an even share. A head at an edge makes that window worse, so
windows slide until their edges run through places where nobody looks. The single most salient point is never used by
itself.

The first candidate is the largest window of the ratio at its best place. The others, of any scale, are ranked by worth
above chance (their worth minus their share of the area) and share at most 40% of their union with an earlier one.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fastgaze.core.errors import ArgumentError
from fastgaze.core.sizes import Size

SCALES = (1.0, 0.8, 0.64, 0.5)
"""Sizes of the windows tried, relative to the largest that fits."""
MOST_OVERLAP = 0.4
"""Candidates share at most this part of their union."""
BAND = 0.03
"""Width of the band along a cutting edge, relative to the window's shorter side."""
_MOST_CANDIDATES = 64
_PLACES = 64

Box = tuple[int, int, int, int]


@dataclass(frozen=True)
class Crop:
    """One window: where it is, how much attention it keeps and how far that is from chance."""

    box: Box
    """(left, top, right, bottom) in pixels; right and bottom are the first column and row outside."""
    mass: float
    """Share of all fixations that the model expects inside the window, 0..1."""
    confidence: float
    """Of the attention that a window of this size placed blindly would lose, the share that this one keeps:
    (mass - area) / (1 - area), at least 0. 1: nothing is lost. 0: any other place would do as well."""
    focal_point: tuple[float, float]
    """(x, y) in pixels: centre of mass of the small square in the window that holds the most attention."""
    scale: float
    """Size relative to the largest window of this ratio that fits."""

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "box": list(self.box),
            "mass": round(self.mass, 6),
            "confidence": round(self.confidence, 6),
            "focal_point": [round(position, 2) for position in self.focal_point],
            "scale": self.scale,
        }


@dataclass(frozen=True)
class _Windows:
    """Windows side by side: worth above chance (n,), boxes (n, 4) and scales (n,)."""

    worth: npt.NDArray[np.float64]
    boxes: npt.NDArray[np.intp]
    scales: npt.NDArray[np.float64]

    @classmethod
    def joined(cls, parts: Sequence["_Windows"]) -> "_Windows":
        columns = zip(*((part.worth, part.boxes, part.scales) for part in parts), strict=True)
        return cls(*(np.concatenate(column) for column in columns))


def parse_ratio(ratio: str | float | tuple[float, float]) -> float:
    """``"16:9"``, ``"4/3"``, ``1.5`` or ``(16, 9)`` -> width over height."""
    try:
        if isinstance(ratio, str):
            match = re.fullmatch(r"\s*([0-9.]+)(?:\s*[:/x]\s*([0-9.]+))?\s*", ratio)
            value = float(match[1]) / float(match[2] or 1) if match else math.nan
        else:
            value = ratio[0] / ratio[1] if isinstance(ratio, tuple) else float(ratio)
    except (TypeError, ValueError, ZeroDivisionError, IndexError):
        value = math.nan
    if not 0.01 <= value <= 100:
        raise ArgumentError(f"ratio {ratio!r} is not width:height between 1:100 and 100:1, such as 16:9")
    return value


def find_crops(
    density: npt.NDArray[np.float32],
    ratio: str | float | tuple[float, float],
    n: int = 1,
    scales: Sequence[float] = SCALES,
    size: Size | None = None,
    integral: "Integral | None" = None,
) -> list[Crop]:
    """The best windows of ``ratio`` (width over height), at most ``n``, best first.

    density: float32 (h, w) on a grid over the picture, sums to 1. scales: sizes tried, relative to the largest window
    that fits, each in (0, 1]. size: (height, width) of the picture, in whose pixels windows are; that of the grid by
    default. integral: of that density and size, if it is at hand.
    """
    if not 1 <= n <= _MOST_CANDIDATES:
        raise ArgumentError(f"n={n} is not between 1 and {_MOST_CANDIDATES}")
    if not scales or not all(0 < scale <= 1 for scale in scales):
        raise ArgumentError(f"scales {tuple(scales)} are not numbers above 0 and at most 1")
    value = parse_ratio(ratio)
    integral = Integral(density, size) if integral is None else integral
    ordered = sorted(set(scales), reverse=True)
    largest = _windows(integral, value, ordered[0])
    first = int(largest.worth.argmax())
    if n == 1:
        return [_describe(integral, largest, first)]
    # The first part stays first, so that ``first`` names the same window in the whole.
    windows = _Windows.joined([largest, *(_windows(integral, value, scale) for scale in ordered[1:])])
    return [_describe(integral, windows, index) for index in _distinct(windows, first, n)]


class Integral:
    """Mass of any window of a picture, from sums over the cells of a grid; inside a cell the density counts as even."""

    def __init__(self, density: npt.NDArray[np.float32], size: Size | None = None) -> None:
        """density (h, w) sums to 1; size: (height, width) of the picture that the grid covers, its own by default."""
        cells = (density.shape[0], density.shape[1])
        self.size = cells if size is None else size
        self._per_pixel = (cells[0] / self.size[0], cells[1] / self.size[1])
        self._sums = np.zeros((cells[0] + 1, cells[1] + 1))
        self._sums[1:, 1:] = density.cumsum(axis=0, dtype=np.float64).cumsum(axis=1)

    def mass(
        self, tops: npt.ArrayLike, bottoms: npt.ArrayLike, lefts: npt.ArrayLike, rights: npt.ArrayLike
    ) -> npt.NDArray[np.float64]:
        """Mass of every window [top, bottom) x [left, right) in pixels: (number of tops, number of lefts)."""
        down, across = self._per_pixel
        columns = (_interpolate(self._sums, bottoms, down) - _interpolate(self._sums, tops, down)).T
        difference: npt.NDArray[np.float64] = _interpolate(columns, rights, across) - _interpolate(
            columns, lefts, across
        )
        return difference.T


def _interpolate(values: npt.NDArray[np.float64], at: npt.ArrayLike, per_pixel: float) -> npt.NDArray[np.float64]:
    """Rows of ``values``, ``per_pixel`` of them to a pixel, at the pixels ``at``, linearly; clamped at both ends."""
    last = len(values) - 1
    position = np.clip(np.asarray(at, dtype=np.float64) * per_pixel, 0, last)
    below = np.minimum(position.astype(np.intp), last - 1)
    weight = (position - below)[:, None]
    interpolated: npt.NDArray[np.float64] = values[below] * (1 - weight) + values[below + 1] * weight
    return interpolated


def window_size(size: Size, ratio: float, scale: float) -> Size:
    """(height, width) of a window of ``ratio`` (width over height) in a picture of ``size``."""
    height, width = size
    fit = min(width, height * ratio) * scale
    return max(min(round(fit / ratio), height), 1), max(min(round(fit), width), 1)


def _windows(integral: Integral, ratio: float, scale: float) -> _Windows:
    """Windows of one scale on a grid of places, each with its worth above chance."""
    height, width = window_size(integral.size, ratio, scale)
    free_y, free_x = integral.size[0] - height, integral.size[1] - width
    tops = np.unique(np.linspace(0, free_y, min(free_y, _PLACES) + 1).round())
    lefts = np.unique(np.linspace(0, free_x, min(free_x, _PLACES) + 1).round())
    worth = integral.mass(tops, tops + height, lefts, lefts + width)
    worth -= _cut(integral, tops, lefts, (height, width))
    worth -= height * width / (integral.size[0] * integral.size[1])
    # Of equal windows the most central one wins, so that an even map gives a centred crop.
    worth -= 1e-5 * ((tops - free_y / 2) ** 2)[:, None] / integral.size[0] ** 2
    worth -= 1e-5 * ((lefts - free_x / 2) ** 2)[None, :] / integral.size[1] ** 2
    top, left = (grid.ravel().astype(np.intp) for grid in np.meshgrid(tops, lefts, indexing="ij"))
    boxes = np.stack([left, top, left + width, top + height], axis=1)
    return _Windows(worth.ravel(), boxes, np.full(len(boxes), scale))


def _cut(
    integral: Integral, tops: npt.NDArray[np.float64], lefts: npt.NDArray[np.float64], window: tuple[int, int]
) -> npt.NDArray[np.float64]:
    """Mass above chance in the bands along the edges that cut the picture; an edge on the border cuts nothing."""
    (height, width), (window_height, window_width) = integral.size, window
    band = max(BAND * min(window), 1.0)
    total = np.zeros((len(tops), len(lefts)))
    for y in (tops, tops + window_height):
        mass = integral.mass(y - band, y + band, lefts, lefts + window_width)
        total += (mass - _chance(y, band, height, window_width / width)[:, None]).clip(min=0)
    for x in (lefts, lefts + window_width):
        mass = integral.mass(tops, tops + window_height, x - band, x + band)
        total += (mass - _chance(x, band, width, window_height / height)[None, :]).clip(min=0)
    return total


def _chance(edge: npt.NDArray[np.float64], band: float, length: int, share: float) -> npt.NDArray[np.float64]:
    """Mass of an even map in the band around each edge; infinite where the edge is the border of the picture."""
    inside = np.minimum(edge + band, length) - np.maximum(edge - band, 0)
    chance: npt.NDArray[np.float64] = np.where((edge > 0) & (edge < length), inside / length * share, np.inf)
    return chance


def _distinct(windows: _Windows, first: int, n: int) -> list[int]:
    """``first`` and the best windows after it that overlap little with all chosen before."""
    chosen = [first]
    worth = windows.worth.copy()
    while len(chosen) < n:
        worth[_overlap(windows.boxes, windows.boxes[chosen[-1]]) > MOST_OVERLAP] = -np.inf
        best = int(worth.argmax())
        if worth[best] == -np.inf:
            break
        chosen.append(best)
    return chosen


def _overlap(boxes: npt.NDArray[np.intp], box: npt.NDArray[np.intp]) -> npt.NDArray[np.float64]:
    """Intersection over union of every one of ``boxes`` (n, 4) with ``box``."""
    width = (np.minimum(boxes[:, 2], box[2]) - np.maximum(boxes[:, 0], box[0])).clip(min=0)
    height = (np.minimum(boxes[:, 3], box[3]) - np.maximum(boxes[:, 1], box[1])).clip(min=0)
    areas = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    union = areas + (box[2] - box[0]) * (box[3] - box[1]) - width * height
    overlap: npt.NDArray[np.float64] = width * height / union
    return overlap


def _describe(integral: Integral, windows: _Windows, index: int) -> Crop:
    left, top, right, bottom = box = _box(windows.boxes[index])
    mass = float(integral.mass([top], [bottom], [left], [right]).clip(0, 1)[0, 0])
    area = (bottom - top) * (right - left) / (integral.size[0] * integral.size[1])
    confidence = 1.0 if area == 1 else max((mass - area) / (1 - area), 0.0)
    return Crop(box, mass, confidence, _focal_point(integral, box), float(windows.scales[index]))


def _box(row: npt.NDArray[np.intp]) -> Box:
    left, top, right, bottom = (int(edge) for edge in row)
    return left, top, right, bottom


def _focal_point(integral: Integral, box: Box) -> tuple[float, float]:
    left, top, right, bottom = box
    side = max(min(right - left, bottom - top) // 5, 1)
    tops = np.unique(np.linspace(top, bottom - side, min(bottom - side - top, _PLACES) + 1).round())
    lefts = np.unique(np.linspace(left, right - side, min(right - side - left, _PLACES) + 1).round())
    mass = integral.mass(tops, tops + side, lefts, lefts + side)
    i, j = np.unravel_index(int(mass.argmax()), mass.shape)
    y, x = float(tops[i]), float(lefts[j])
    edges = np.linspace(0, side, min(side, _PLACES) + 1)
    rows = integral.mass(y + edges[:-1], y + edges[1:], [x], [x + side])[:, 0]
    columns = integral.mass([y], [y + side], x + edges[:-1], x + edges[1:])[0]
    if rows.sum() <= 0:
        return x + side / 2, y + side / 2
    middles = (edges[:-1] + edges[1:]) / 2
    return float(x + columns @ middles / columns.sum()), float(y + rows @ middles / rows.sum())
