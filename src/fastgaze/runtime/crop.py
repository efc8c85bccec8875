"""Crop windows of a given ratio that keep what people look at, and do not cut heads.

The rule is a pure function of a density (h, w), a map of heads (h', w') from ``runtime.headroom``, the size of the
picture and the ratio. The worth of a window is

    worth = mass - EDGE * cut - HEAD * damage - area

- mass: the attention inside it, from sums over the cells of the density (``Integral``).
- cut: what bands along its four edges hold beyond an even share (``_cut``), so that windows slide until their edges
  run through places where nobody looks. A band reaches ``BAND`` of the window's shorter side, at least one pixel, to
  both sides of its edge.
- damage: the weights of the heads (``headroom.find_heads``) that do not lie whole inside the window, each times how
  likely it does not (``_whole``). People look at eyes and mouth, not at hair, so of two windows with nearly the same
  attention the one that leaves a head whole is better. The weights of a picture add up to at most 1, so ``HEAD`` is
  the most attention that is ever given up for heads. A head that does not fit counts the same in every window.
- area: the window's share of the picture, the same for all windows of one scale.

An edge on the border of the picture cuts nothing and damages nothing. Windows of one scale differ only in their place:
at most ``_PLACES`` + 1 even steps along each axis, rounded to pixels. Of equal windows the most central one wins. The
single most salient point is never used by itself.

The first candidate is the largest window of the ratio at its best place. The others, of any scale, are ranked by worth
and share at most 40% of their union with an earlier one.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from fastgaze.core.errors import ArgumentError
from fastgaze.core.jsonable import Json
from fastgaze.core.sizes import Size, box_to_json, finite_numbers, point_to_json
from fastgaze.runtime.headroom import Array, Head, find_heads

SCALES = (1.0, 0.8, 0.64, 0.5)
"""Sizes of the windows tried, relative to the largest that fits."""
MOST_OVERLAP = 0.4
"""Candidates share at most this part of their union."""
BAND = 0.03
"""Width of the band along a cutting edge, relative to the window's shorter side."""
EDGE = 0.1
"""Attention that a window may lose for each unit that its edges do not cut."""
HEAD = 0.36
"""Attention that a window may lose to leave all heads whole."""
BLUR = 0.08
"""How exactly the edges of a head are known, relative to its size."""
_MOST_CANDIDATES = 64
_PLACES = 64

Values = npt.NDArray[np.float64]
Box = tuple[int, int, int, int]


@dataclass(frozen=True)
class Crop:
    """One window: where it is, how much attention it keeps, and how much of that is owed to looking at the picture."""

    box: Box
    """(left, top, right, bottom) in pixels; right and bottom are the first column and row outside."""
    mass: float
    """Share of all fixations that the model expects inside the window, 0..1."""
    gain: float
    """How much more that is than what a window of this size in the middle of the picture keeps: the difference of the
    two shares. Near 0 where the map says nothing, as on a plain colour, and where the middle is the right place. The
    best window has less than about 0 only if attention was given up for a head (``for_head``); the others have to stay
    away from it, and a window around a focus is where it was asked for."""
    focal_point: tuple[float, float]
    """(x, y) in pixels: centre of mass of the small square in the window that holds the most attention."""
    scale: float
    """Size relative to the largest window of this ratio that fits."""
    object_position: tuple[float, float] | None
    """(x, y) in percent, for CSS: ``object-fit: cover; object-position: x% y%`` shows this window in a box of its
    ratio. None if the window is smaller than the largest one."""
    for_head: bool = False
    """Whether the best window keeps less than one in the middle to leave a head whole that the middle would cut."""

    def to_json(self) -> dict[str, Json]:
        """Plain values."""
        position = self.object_position
        return {
            "box": box_to_json(self.box),
            "mass": round(self.mass, 6),
            "gain": round(self.gain, 6),
            "focal_point": point_to_json(self.focal_point),
            "scale": self.scale,
            "object_position": None if position is None else f"{position[0]:.2f}% {position[1]:.2f}%",
        }


@dataclass(frozen=True)
class _Windows:
    """Windows side by side: worth above chance (n,), boxes (n, 4) and scales (n,)."""

    worth: Values
    boxes: npt.NDArray[np.intp]
    scales: Values

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
    integral: "Integral",
    ratio: str | float | tuple[float, float],
    n: int = 1,
    scales: Sequence[float] = SCALES,
    heads: Array | None = None,
) -> list[Crop]:
    """The best windows of ``ratio`` (width over height), at most ``n``, best first.

    integral: of the density of a picture, in whose pixels the windows are. scales: sizes tried, relative to the largest
    window that fits, each in (0, 1]. heads: how likely each cell of a grid (h, w) over the picture belongs to a head.
    """
    if not 1 <= n <= _MOST_CANDIDATES:
        raise ArgumentError(f"n={n} is not between 1 and {_MOST_CANDIDATES}")
    if not scales or not all(0 < scale <= 1 for scale in scales):
        raise ArgumentError(f"scales {tuple(scales)} are not numbers above 0 and at most 1")
    value = parse_ratio(ratio)
    ordered = sorted(set(scales), reverse=True)
    found = [] if heads is None else find_heads(heads)
    largest = _windows(integral, value, ordered[0], found)
    first = int(largest.worth.argmax())
    best = _describe(integral, largest, first)
    best = replace(best, for_head=best.gain < 0 and _is_for_head(integral, best.box, found))
    if n == 1:
        return [best]
    # The first part stays first, so that ``first`` names the same window in the whole.
    windows = _Windows.joined([largest, *(_windows(integral, value, scale, found) for scale in ordered[1:])])
    return [best, *(_describe(integral, windows, index) for index in _distinct(windows, first, n)[1:])]


def _is_for_head(integral: "Integral", box: Box, heads: Sequence[Head]) -> bool:
    """Whether ``box`` leaves a head whole that the window in the middle cuts, and would be worth less without heads."""
    left, top, right, bottom = box
    window, (height, width) = (bottom - top, right - left), integral.size
    tops = np.array([top, (height - window[0]) / 2])
    lefts = np.array([left, (width - window[1]) / 2])
    worth = integral.mass(tops, tops + window[0], lefts, lefts + window[1])
    worth -= EDGE * _cut(integral, tops, lefts, window)
    alone = (_damage([replace(head, weight=1.0)], integral.size, tops, lefts, window) for head in heads)
    return bool(worth[0, 0] < worth[1, 1] and any(damage[0, 0] <= 0.5 < damage[1, 1] for damage in alone))


def crop_around(integral: "Integral", ratio: str | float | tuple[float, float], focus: tuple[float, float]) -> Crop:
    """The largest window of ``ratio`` with ``focus`` (x, y), in pixels, as near to its middle as the picture allows."""
    point = finite_numbers(focus, 2)
    if point is None:
        raise ArgumentError(f"focus {focus!r} is not a point (x, y) in pixels of the picture, such as (640, 360)")
    (height, width), (x, y) = integral.size, point
    if not (0 <= x <= width and 0 <= y <= height):
        raise ArgumentError(f"focus ({x:g}, {y:g}) is not inside the picture of {width}x{height} pixels")
    window_height, window_width = window_size(integral.size, parse_ratio(ratio), 1.0)
    left = min(max(round(x - window_width / 2), 0), width - window_width)
    top = min(max(round(y - window_height / 2), 0), height - window_height)
    box = np.array([[left, top, left + window_width, top + window_height]])
    return replace(_describe(integral, _Windows(np.zeros(1), box, np.ones(1)), 0), focal_point=(x, y))


def worth_of_places(
    integral: "Integral", ratio: float, heads: Sequence[Head] = ()
) -> tuple[npt.NDArray[np.intp], Values]:
    """Every place tried for the largest window of ``ratio`` (width over height): boxes (n, 4), and worth (n,).

    What a window that moves through the frames of a video is chosen by.
    """
    windows = _windows(integral, ratio, 1.0, heads)
    return windows.boxes, windows.worth


class Integral:
    """Mass of any window of a picture, from sums over the cells of a grid; inside a cell the density counts as even."""

    def __init__(self, density: npt.NDArray[np.float32], size: Size | None = None) -> None:
        """density (h, w) sums to 1; size: (height, width) of the picture that the grid covers, its own by default."""
        cells = (density.shape[0], density.shape[1])
        self.size = cells if size is None else size
        self._per_pixel = (cells[0] / self.size[0], cells[1] / self.size[1])
        self._sums = np.zeros((cells[0] + 1, cells[1] + 1))
        np.cumsum(density, axis=1, dtype=np.float64, out=self._sums[1:, 1:])
        np.cumsum(self._sums, axis=0, out=self._sums)

    def mass(self, tops: npt.ArrayLike, bottoms: npt.ArrayLike, lefts: npt.ArrayLike, rights: npt.ArrayLike) -> Values:
        """Mass of every window [top, bottom) x [left, right) in pixels: (number of tops, number of lefts)."""
        down, across = self._per_pixel
        return _rises(_rises(self._sums, tops, bottoms, down).T, lefts, rights, across).T


def _rises(values: Values, starts: npt.ArrayLike, ends: npt.ArrayLike, per_pixel: float) -> Values:
    """By how much the rows of ``values``, ``per_pixel`` of them to a pixel, rise from each start to its end, in pixels.

    Linear between rows, clamped at both ends; starts and ends at once, since calls take longer than the arithmetic.
    """
    last = len(values) - 1
    position = np.minimum(np.maximum(np.array([starts, ends], np.float64) * per_pixel, 0), last)
    below = np.minimum(position.astype(np.intp), last - 1)
    weight = (position - below)[:, :, None]
    low = values[below]
    low += (values[below + 1] - low) * weight
    rises: Values = low[1] - low[0]
    return rises


def window_size(size: Size, ratio: float, scale: float) -> Size:
    """(height, width) of a window of ``ratio`` (width over height) in a picture of ``size``."""
    height, width = size
    fit = min(width, height * ratio) * scale
    return max(min(round(fit / ratio), height), 1), max(min(round(fit), width), 1)


def _windows(integral: Integral, ratio: float, scale: float, heads: Sequence[Head]) -> _Windows:
    """Windows of one scale on a grid of places, each with its worth above chance."""
    height, width = window_size(integral.size, ratio, scale)
    free_y, free_x = integral.size[0] - height, integral.size[1] - width
    tops = np.unique(np.linspace(0, free_y, min(free_y, _PLACES) + 1).round())
    lefts = np.unique(np.linspace(0, free_x, min(free_x, _PLACES) + 1).round())
    worth = integral.mass(tops, tops + height, lefts, lefts + width)
    worth -= EDGE * _cut(integral, tops, lefts, (height, width))
    worth -= HEAD * _damage(heads, integral.size, tops, lefts, (height, width))
    worth -= height * width / (integral.size[0] * integral.size[1])
    # Of equal windows the most central one wins, so that an even map gives a centred crop.
    worth -= 1e-5 * ((tops - free_y / 2) ** 2)[:, None] / integral.size[0] ** 2
    worth -= 1e-5 * ((lefts - free_x / 2) ** 2)[None, :] / integral.size[1] ** 2
    top, left = (grid.ravel().astype(np.intp) for grid in np.meshgrid(tops, lefts, indexing="ij"))
    boxes = np.stack([left, top, left + width, top + height], axis=1)
    return _Windows(worth.ravel(), boxes, np.full(len(boxes), scale))


def _cut(integral: Integral, tops: Values, lefts: Values, window: tuple[int, int]) -> Values:
    """Mass above chance in the bands along the edges that cut the picture; an edge on the border cuts nothing."""
    (height, width), (window_height, window_width) = integral.size, window
    band = max(BAND * min(window), 1.0)
    total = np.zeros((len(tops), len(lefts)))
    # A window from border to border has no edge there that cuts.
    for y in (tops, tops + window_height) if window_height < height else ():
        mass = integral.mass(y - band, y + band, lefts, lefts + window_width)
        total += (mass - _chance(y, band, height, window_width / width)[:, None]).clip(min=0)
    for x in (lefts, lefts + window_width) if window_width < width else ():
        mass = integral.mass(tops, tops + window_height, x - band, x + band)
        total += (mass - _chance(x, band, width, window_height / height)[None, :]).clip(min=0)
    return total


def _chance(edge: Values, band: float, length: int, share: float) -> Values:
    """Mass of an even map in the band around each edge; infinite where the edge is the border of the picture."""
    inside = np.minimum(edge + band, length) - np.maximum(edge - band, 0)
    chance: Values = np.where((edge > 0) & (edge < length), inside / length * share, np.inf)
    return chance


def _damage(heads: Sequence[Head], size: Size, tops: Values, lefts: Values, window: Size) -> Values:
    """Expected damage of every window to heads: the weights of those that are not whole inside it, (tops, lefts)."""
    damage = np.zeros((len(tops), len(lefts)))
    for head in heads:
        down = _whole((head.top * size[0], head.bottom * size[0]), tops, window[0], size[0])
        across = _whole((head.left * size[1], head.right * size[1]), lefts, window[1], size[1])
        damage += head.weight * (1 - np.outer(down, across))
    return damage


def _whole(head: tuple[float, float], starts: Values, length: int, free: int) -> Values:
    """How likely a head from ``head[0]`` to ``head[1]`` lies between each start and start + length, along one axis.

    Its edges are known to ``BLUR`` of its size: one half where an edge of the window touches it. The border of the
    picture, at 0 and ``free``, cuts nothing.
    """
    ends = starts + length
    before = np.where(starts > 0, head[0] - starts, np.inf)
    after = np.where(ends < free, ends - head[1], np.inf)
    whole: Values = (0.5 + np.minimum(before, after) / (2 * BLUR * (head[1] - head[0]))).clip(0, 1)
    return whole


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


def _overlap(boxes: npt.NDArray[np.intp], box: npt.NDArray[np.intp]) -> Values:
    """Intersection over union of every one of ``boxes`` (n, 4) with ``box``."""
    width = (np.minimum(boxes[:, 2], box[2]) - np.maximum(boxes[:, 0], box[0])).clip(min=0)
    height = (np.minimum(boxes[:, 3], box[3]) - np.maximum(boxes[:, 1], box[1])).clip(min=0)
    areas = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    union = areas + (box[2] - box[0]) * (box[3] - box[1]) - width * height
    overlap: Values = width * height / union
    return overlap


def _describe(integral: Integral, windows: _Windows, index: int) -> Crop:
    left, top, right, bottom = box = _box(windows.boxes[index])
    height, width = integral.size
    scale = float(windows.scales[index])
    middle = ((width - right + left) / 2, (height - bottom + top) / 2)
    mass, central = (_mass(integral, corner, (bottom - top, right - left)) for corner in ((left, top), middle))
    position = (_percent(left, width - right), _percent(top, height - bottom)) if scale == 1 else None
    return Crop(box, mass, mass - central, _focal_point(integral, box), scale, position)


def _mass(integral: Integral, corner: tuple[float, float], window: Size) -> float:
    left, top = corner
    return float(integral.mass([top], [top + window[0]], [left], [left + window[1]]).clip(0, 1)[0, 0])


def _percent(before: int, after: int) -> float:
    return 100 * before / (before + after) if before + after else 50.0


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
