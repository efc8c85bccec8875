"""Places that draw the eye by themselves: local maxima of the density, and how much attention each of them has.

Two maxima closer than a tenth of the picture's diagonal are one. A maximum at the very border is none if anything
within that tenth exceeds it: maps go on evenly over the last few pixels, where a slope towards the border ends in a
maximum. A peak's mass is that of the cells around it, within the same tenth, which are nearer to it than to any other
peak: every cell belongs to one peak at most, so that the shares of all peaks never add up to more than 1.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fastgaze.core.sizes import Size

Array = npt.NDArray[np.float32]

REACH = 0.1
"""Of the diagonal: the least distance between two peaks, and the most of what belongs to one."""


@dataclass(frozen=True)
class Peak:
    """A place that draws the eye by itself: a local maximum of the density."""

    x: float
    y: float
    """Pixels of the picture; the centre of the first pixel is at 0.5."""
    mass: float
    """Share of all fixations expected around it and nearer to it than to any other peak, 0..1."""
    density: float
    """Probability of the one pixel at its place."""

    def to_json(self) -> dict[str, float]:
        """Plain values."""
        return {"x": round(self.x, 2), "y": round(self.y, 2), "mass": round(self.mass, 6), "density": self.density}


def find_peaks(density: Array, size: Size) -> list[Peak]:
    """All peaks of a density on a grid (h, w) over a picture of ``size`` (height, width), by mass, most first."""
    cell = np.array(size) / density.shape  # height and width of a cell in pixels
    reach = max(REACH * float(np.hypot(*size)), 1.0)
    cells = _distinct(density, _maxima(density), cell, reach)
    masses = _masses(density, cells, cell, reach)
    places = (cells + 0.5 + _within(density, cells)) * cell
    pixel = density[cells[:, 0], cells[:, 1]] / cell.prod()
    found = [
        Peak(float(x), float(y), min(float(mass), 1.0), float(probability))
        for (y, x), mass, probability in zip(places, masses, pixel, strict=True)
    ]
    return sorted(found, key=lambda peak: -peak.mass)


def _maxima(density: Array) -> npt.NDArray[np.intp]:
    """(row, column) of every cell that none of its eight neighbours exceeds, (m, 2), highest first."""
    width = density.shape[1]
    padded = np.pad(density, 1, constant_values=-np.inf)
    tall = np.maximum(np.maximum(padded[:-2], padded[1:-1]), padded[2:])
    highest = np.maximum(np.maximum(tall[:, :width], tall[:, 1 : width + 1]), tall[:, 2:])
    rows, columns = np.nonzero(density >= highest)
    order = np.argsort(-density[rows, columns], kind="stable")
    return np.stack([rows[order], columns[order]], axis=1)


def _distinct(
    density: Array, cells: npt.NDArray[np.intp], cell: npt.NDArray[np.float64], reach: float
) -> npt.NDArray[np.intp]:
    """Those of the maxima ``cells`` (m, 2), highest first, that are farther than ``reach`` from all before them.

    Every place that is kept takes those around it out at once, so that an even map costs no more than another.
    """
    kept = []
    while len(cells):
        if _ends_a_slope(density, cells[0], cell, reach):
            cells = cells[1:]
            continue
        kept.append(cells[0])
        distances = ((cells - cells[0]) * cell) ** 2
        cells = cells[distances.sum(axis=1) > reach**2]
    return np.array(kept)


def _ends_a_slope(density: Array, place: npt.NDArray[np.intp], cell: npt.NDArray[np.float64], reach: float) -> bool:
    """Whether a maximum (row, column) lies at the border and something within reach exceeds it."""
    inside = (place > 0) & (place < np.array(density.shape) - 1)
    if inside.all():
        return False
    window, distance = _around(density.shape, place, cell, reach)
    return bool((density[window][distance <= reach**2] > density[tuple(place)]).any())


def _around(
    shape: tuple[int, ...], place: npt.NDArray[np.intp], cell: npt.NDArray[np.float64], reach: float
) -> tuple[tuple[slice, slice], npt.NDArray[np.float64]]:
    """The window of a grid of ``shape`` that holds everything within reach, and its squared distances in pixels."""
    spans = np.ceil(reach / cell).astype(int)
    starts, ends = np.maximum(place - spans, 0), np.minimum(place + spans + 1, shape)
    down, across = (
        ((np.arange(start, end) - middle) * side) ** 2
        for start, end, middle, side in zip(starts, ends, place, cell, strict=True)
    )
    rows, columns = (slice(int(start), int(end)) for start, end in zip(starts, ends, strict=True))
    return (rows, columns), down[:, None] + across


def _within(density: Array, cells: npt.NDArray[np.intp]) -> npt.NDArray[np.float64]:
    """How far from the middle of its cell each maximum lies, (m, 2), down and across, in cells, -0.5..0.5.

    It is the top of the parabola through the cell and its two neighbours; at the picture's border it stays the middle.
    """
    padded = np.pad(density.astype(np.float64), 1, mode="reflect")
    rows, columns = cells.T + 1
    offsets = np.zeros(cells.shape)
    for axis, (down, across) in enumerate(((1, 0), (0, 1))):
        before, after = padded[rows - down, columns - across], padded[rows + down, columns + across]
        bend = before - 2 * padded[rows, columns] + after
        np.divide(before - after, 2 * bend, out=offsets[:, axis], where=bend < 0)
    return offsets.clip(-0.5, 0.5)


def _masses(
    density: Array, cells: npt.NDArray[np.intp], cell: npt.NDArray[np.float64], reach: float
) -> npt.NDArray[np.float64]:
    """Mass of the cells that belong to each of ``cells`` (m, 2): within reach, and nearer to it than to the others."""
    nearest = np.full(density.shape, reach**2)
    owner = np.full(density.shape, -1)
    for index, middle in enumerate(cells):
        window, distance = _around(density.shape, middle, cell, reach)
        closer = distance <= nearest[window]
        nearest[window][closer] = distance[closer]
        owner[window][closer] = index
    owned = owner >= 0
    return np.bincount(owner[owned], weights=density[owned], minlength=len(cells)).astype(np.float64)
