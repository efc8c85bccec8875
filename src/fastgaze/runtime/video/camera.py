"""The path of a window through a shot: where it shows most, still when it can be, smooth when it moves.

At every moment each place of the window has a worth (``runtime.crop``). The path x_t through a shot maximises

    sum_t [(1 - MIDDLE) worth_t(x_t) + MIDDLE g(x_t)] dt_t  -  MOVE * sum_t |x_t - x_(t-1)|

with |x_t - x_(t-1)| <= SPEED dt_t, where x is measured in lengths of the frame. Viewers of films look at the middle
more than those of photographs, whom the network knows, and where the network errs the middle is the safest place: g is
the share of a Gaussian around the middle, with the standard deviation SPREAD, that the window keeps. The sum of
absolute steps makes the window stand still unless a move pays for the whole rest of the shot; the path is found exactly
by dynamic programming. What is left are stretches of rest joined by ramps; a Hann window of ``EASE`` seconds over time
turns the ramps into moves that start and stop gently.
"""

from dataclasses import dataclass
from math import erf, sqrt

import numpy as np
import numpy.typing as npt

Values = npt.NDArray[np.float64]

MOVE = 0.25
"""Attention times seconds that a move across the length of the frame has to gain. This and ``MIDDLE`` are what keeps
the most recorded fixations (``python -m experiments.video_reframe``)."""
MIDDLE = 0.2
"""Share of the attention that is expected around the middle, whatever the network says."""
SPREAD = 0.12
"""Lengths of the frame."""
SPEED = 0.5
"""Lengths of the frame per second."""
EASE = 2.0
"""Seconds."""


@dataclass(frozen=True)
class Steadiness:
    """How unwilling the window is to move; see above."""

    move: float = MOVE
    middle: float = MIDDLE
    speed: float = SPEED
    ease: float = EASE


DEFAULT = Steadiness()


def toward_middle(worth: Values, places: Values, length: float, share: float) -> Values:
    """Worth (n, p) of the places (p,) of a window, ``share`` of it what the window keeps of a Gaussian in the middle.

    length: of the window, along the axis of the places; both in lengths of the frame.
    """
    edges = (np.array([places, places + length]) - 0.5) / (SPREAD * sqrt(2))
    before, after = ([erf(edge) / 2 for edge in row] for row in edges)
    mixed: Values = (1 - share) * worth + share * (np.array(after) - np.array(before))
    return mixed


def find_path(worth: Values, times: Values, places: Values, frames: Values, how: Steadiness = DEFAULT) -> Values:
    """Where the window is at every frame of one shot, in the unit of ``places``, (number of frames,).

    worth: (n, p), at the moments ``times`` (n,) in seconds, of the places (p,), in lengths of the frame. frames: times
    of all frames in order.
    """
    chosen = places[_best_indices(worth, times, places, how)]
    return _eased(np.interp(frames, times, chosen), frames, how.ease)


def _best_indices(worth: Values, times: Values, places: Values, how: Steadiness) -> npt.NDArray[np.intp]:
    """The path that maximises the sum above, as indices of places, by dynamic programming."""
    distance = np.abs(places[:, None] - places)
    last = len(times) - 1
    seconds = np.gradient(times) if last else np.ones(1)
    best, came = worth[0] * seconds[0], np.zeros(worth.shape, np.intp)
    for index in range(1, last + 1):
        reach = max(how.speed * (times[index] - times[index - 1]), float(distance[0].max()) / max(len(places) - 1, 1))
        total = best[:, None] - np.where(distance <= reach + 1e-9, how.move * distance, np.inf)
        came[index] = total.argmax(axis=0)
        best = total.max(axis=0) + worth[index] * seconds[index]
    path = np.zeros(last + 1, np.intp)
    path[last] = best.argmax()
    for index in range(last, 0, -1):
        path[index - 1] = came[index, path[index]]
    return path


def _eased(path: Values, times: Values, seconds: float) -> Values:
    """The mean of the path around every moment, weighted by a Hann window; beyond its ends the path stands still."""
    if len(path) < 3 or seconds <= 0:
        return path
    step = float(np.median(np.diff(times)))
    reach = max(round(seconds / 2 / step), 1) if step > 0 else 1
    window = np.hanning(2 * reach + 3)[1:-1]
    eased: Values = np.convolve(np.pad(path, reach, mode="edge"), window / window.sum(), mode="valid")
    return eased


def keyframes(times: Values, positions: Values, tolerance: float) -> list[int]:
    """The fewest frames that straight lines between them need to stay within ``tolerance`` of the path, or nearly so.

    positions: (n, 2). The widest gap is split until none is too wide (Douglas and Peucker).
    """
    kept, open_ = {0, len(times) - 1}, [(0, len(times) - 1)]
    while open_:
        first, last = open_.pop()
        if last - first < 2:
            continue
        share = ((times[first:last] - times[first]) / (times[last] - times[first]))[:, None]
        gap = np.abs(positions[first:last] - positions[first] - share * (positions[last] - positions[first])).max(
            axis=1
        )
        if gap.max() > tolerance:
            middle = first + int(gap.argmax())
            kept.add(middle)
            open_ += [(first, middle), (middle, last)]
    return sorted(kept)
