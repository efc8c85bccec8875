"""What a crop has to know besides attention: where a cut would hurt.

People look at eyes and mouth, so attention alone never sees the hair, and of two windows that keep the same attention
one may clip a crown. A small convolutional network (``bundled/parts/heads.onnx``, made by ``python -m
experiments.heads``) says how likely each part of a picture belongs to a head, from crown to chin. It is the trunk of a
small gaze network, which knows what heads look like because people look at them, tuned to the heads that a face
detector found in pictures of SALICON, EyeCrowd and UEyes. Its only use is to choose among windows: it counts nobody and
tells nobody apart, and what it finds is never shown or stored.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from fastgaze.core.pictures import Picture
from fastgaze.core.sizes import Size
from fastgaze.runtime import zoo
from fastgaze.runtime.card import ModelCard
from fastgaze.runtime.engines import Engine, make_engine
from fastgaze.runtime.resize import prepare

FILE = zoo.BUNDLED / "parts" / "heads.onnx"
LIKELY = 0.6
"""Cells of at least this value form heads."""
OUTLINE = 0.5
"""Where the value falls below this, a head ends: a crown or a chin in part of a cell still counts."""
LEAST = 0.015
"""Share of the picture that all heads together must have to count in full."""
ALONE = 4.0
"""How much one head counts for more than several that share its area: some window keeps it whole at little cost, while
few keep all of a group, and those cost attention. Of two equal heads each counts 1/16."""

Array = npt.NDArray[np.float32]
Cell = tuple[int, int]


@dataclass(frozen=True)
class Head:
    """A connected region of likely cells. Edges are shares of the picture's width and height, 0..1."""

    left: float
    top: float
    right: float
    bottom: float
    weight: float
    """What damage to it counts, 0..1: its highest value, times its share of the strength of all heads in the picture,
    or of ``LEAST`` of the picture where they have less, to the power of ``ALONE``. The strength of a head is its area
    times the square of its highest value: round things are less likely heads, and take less from real ones."""


def pixels_needed(size: Size) -> Size:
    """(height, width) at which ``map_heads`` looks at a picture of ``size``: who decodes it at least so large once does
    not have to do it again."""
    card, _ = _network()
    return card.working_size(size)


def map_heads(picture: Picture) -> Array:
    """How likely each cell of a grid over the picture belongs to a head, float32 (h, w), 0..1."""
    card, engine = _network()
    working = pixels_needed(picture.size)
    (found,) = engine(prepare(picture.pixels(working), working, card)[None])
    heads: Array = found[0, 0]
    return heads


@lru_cache(maxsize=1)
def _network() -> tuple[ModelCard, Engine]:
    path, content, card = zoo.read_model(FILE)
    return card, make_engine(path, content, threads=1)


def find_heads(grid: Array) -> list[Head]:
    """The heads of a map (h, w), in the order of their first cells, by rows.

    A head is a region of cells of at least ``LIKELY`` that touch along their sides. Its edges lie where the highest
    value of each row, or column, through the region and beyond it passes ``OUTLINE``: linear between the centres of
    cells, and on the border of the picture for a head that reaches it.
    """
    regions = _regions(grid >= LIKELY)
    highest = [max(float(grid[cell]) for cell in region) for region in regions]
    strengths = [len(region) * value**2 for region, value in zip(regions, highest, strict=True)]
    total = max(sum(strengths), LEAST * grid.size)
    return [
        _head(grid, region, value * (strength / total) ** ALONE)
        for region, value, strength in zip(regions, highest, strengths, strict=True)
    ]


def _regions(likely: npt.NDArray[np.bool_]) -> list[list[Cell]]:
    """Cells (row, column) of each region."""
    waiting = {(int(row), int(column)): None for row, column in np.argwhere(likely)}  # a set that keeps its order
    regions = []
    while waiting:
        region = [next(iter(waiting))]
        del waiting[region[0]]
        for row, column in region:  # grows while it is read
            for cell in ((row - 1, column), (row, column - 1), (row, column + 1), (row + 1, column)):
                if cell in waiting:
                    del waiting[cell]
                    region.append(cell)
        regions.append(region)
    return regions


def _head(grid: Array, region: Sequence[Cell], weight: float) -> Head:
    rows, columns = (slice(min(places), max(places) + 1) for places in zip(*region, strict=True))
    top, bottom = _extent(grid[:, columns].max(axis=1), rows)
    left, right = _extent(grid[rows].max(axis=0), columns)
    return Head(left, top, right, bottom, weight)


def _extent(highest: Array, inside: slice) -> tuple[float, float]:
    """Where the values (n,) of rows or columns pass ``OUTLINE`` before and after those ``inside``, in shares of n."""
    n, first, last = len(highest), inside.start, inside.stop - 1
    while first > 0 and highest[first - 1] >= OUTLINE:
        first -= 1
    while last < n - 1 and highest[last + 1] >= OUTLINE:
        last += 1
    start = 0.0 if first == 0 else first + 0.5 - _passing(highest[first], highest[first - 1])
    end = float(n) if last == n - 1 else last + 0.5 + _passing(highest[last], highest[last + 1])
    return start / n, end / n


def _passing(inside: np.float32, outside: np.float32) -> float:
    """How far from one centre to the next the value falls to ``OUTLINE``, 0..1."""
    return float((inside - OUTLINE) / (inside - outside))
