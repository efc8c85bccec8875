"""What moves in a shot beside the camera: people look there.

A frame is compared with the one ``SECONDS`` before, which is first shifted as a whole, as the camera may have moved it.
What differs then, in levels of luma, raises the density p of a place by its motion m,

    p' ~ p * (m + FLOOR)^strength

so that the network's map stays as it is where nothing moves.
"""

from collections import deque

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import sliding_window_view

from fastgaze.core.operators import sharing_matrix

Array = npt.NDArray[np.float32]

SECONDS = 0.12
FLOOR = 2.0
"""Levels: what noise changes."""
# Shares of the longer side that the camera may have moved the picture by: down and right.
_REACH = (0.05, 0.1)
# Levels beyond which a place counts as moved, however much: what moves must not decide how the camera did.
_MOST = 16.0


class Motion:
    """Motion of the frames of a video, one after the other."""

    def __init__(self) -> None:
        self._past: deque[tuple[float, Array]] = deque()

    def see(self, luma: Array, time: float, cut: bool) -> None:
        """The next frame. luma: 0..255, a few dozen cells each way. time: seconds. cut: it begins a shot."""
        if cut:
            self._past.clear()
        self._past.append((time, luma))
        while len(self._past) > 2 and time - self._past[1][0] >= SECONDS:
            self._past.popleft()

    def cue(self, shape: tuple[int, int]) -> Array:
        """log(m + FLOOR) of the last frame on a grid of ``shape``; even at the start of a shot."""
        before, after = self._past[0][1], self._past[-1][1]
        if before is after:
            return np.zeros(shape, np.float32)
        return cue(moved(before, after), shape)


def moved(before: Array, after: Array) -> Array:
    """How much every cell changed beside the shift of the whole picture, in levels, (h, w)."""
    down, right = (max(round(share * max(after.shape)), 1) for share in _REACH)
    around = np.pad(before, ((down, down), (right, right)), mode="edge")
    changes = np.abs(sliding_window_view(around, after.shape) - after).reshape(-1, *after.shape)
    best: Array = changes[np.minimum(changes, _MOST).mean(axis=(1, 2)).argmin()]
    return best


def cue(change: Array, shape: tuple[int, int]) -> Array:
    """log(m + FLOOR), where m is the mean of ``change`` over each cell of a grid of ``shape``."""
    rows, columns = (sharing_matrix(n, cells) * cells / n for n, cells in zip(change.shape, shape, strict=True))
    found: Array = np.log(rows @ change @ columns.T + FLOOR).astype(np.float32)
    return found
