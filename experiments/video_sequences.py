"""The sequences with recorded gaze, as the experiments on video read them; not a script."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fastgaze.core.sizes import Size

Values = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Sequence:
    """One sequence and the fixations of all its viewers."""

    name: str
    path: Path
    size: Size
    """(height, width)."""
    rate: float
    frames: int
    start: Values
    """Seconds at which each fixation begins, (n,)."""
    end: Values
    points: Values
    """(x, y) in pixels, (n, 2)."""

    def at(self, time: float) -> Values:
        """Points that are fixated at this moment, one for every viewer whose eyes rest, (k, 2)."""
        return self.points[(self.start <= time) & (time < self.end)]

    def around(self, time: float, reach: float) -> Values:
        """Points of all fixations that touch the time from ``reach`` seconds before to as many after, (k, 2)."""
        return self.points[(self.start <= time + reach) & (time - reach < self.end)]

    def moments(self) -> Iterator[float]:
        """The time of every frame."""
        for index in range(self.frames):
            yield index / self.rate


def read_sequences(folder: Path) -> list[Sequence]:
    """All sequences of a folder with ``fixations.npz``; fixations outside of the frame are left out."""
    with np.load(folder / "fixations.npz") as arrays:
        return [_sequence(arrays, index, folder) for index in range(len(arrays["name"]))]


def _sequence(arrays: "np.lib.npyio.NpzFile", index: int, folder: Path) -> Sequence:
    own = slice(int(arrays["start"][index]), int(arrays["start"][index + 1]))
    height, width = int(arrays["height"][index]), int(arrays["width"][index])
    points = np.column_stack([arrays["x"][own], arrays["y"][own]]).astype(np.float64)
    inside = (points >= 0).all(axis=1) & (points < [width, height]).all(axis=1)
    start = arrays["time_ms"][own] / 1e3
    name = str(arrays["name"][index])
    return Sequence(
        name,
        folder / f"{name}.avi",
        (height, width),
        float(arrays["fps"][index]),
        int(arrays["frames"][index]),
        start[inside],
        (start + arrays["duration_ms"][own] / 1e3)[inside],
        points[inside],
    )


def halves(sequences: list[Sequence]) -> tuple[list[Sequence], list[Sequence]]:
    """The half that settings are chosen on, and the half that they are reported on: by turns in the order of names."""
    ordered = sorted(sequences, key=lambda sequence: sequence.name)
    return ordered[::2], ordered[1::2]
