"""Interleaved timing, the one way in which experiments compare speeds.

Machines are shared and clocks change, so what is compared runs in turn within the same rounds, a ratio is formed
within a round, and the median over rounds counts. CPU time is what other processes disturb least.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from fastgaze.core.progress import Clock, Seconds

Key = TypeVar("Key", bound=Hashable)
Timed = Callable[[], Clock]
"""Does its work once and returns what each step took."""
Times = npt.NDArray[np.float64]
"""(rounds, steps, 2): milliseconds of wall time and of CPU time."""
STEPS = ("prepare", "network", "tail")
SLOW = 400.0  # milliseconds; what takes longer runs once in a round


def timed(work: Callable[[], object]) -> Timed:
    """A function without a clock of its own, as a network."""

    def run() -> Clock:
        clock = Clock()
        with clock("network"):
            work()
        return clock

    return run


def interleave(runs: Mapping[Key, Timed], rounds: int, repeats: int, steps: Sequence[str] = STEPS) -> dict[Key, Times]:
    """Every run in every round, of which ``steps`` count; the one with the median CPU time of ``repeats`` stands."""
    counts = {key: _repeats(run, repeats, steps) for key, run in runs.items()}
    found: dict[Key, list[Times]] = {key: [] for key in runs}
    for _ in range(rounds):
        for key, run in runs.items():
            found[key].append(_middle(run, counts[key], steps))
    return {key: np.array(values) for key, values in found.items()}


def _repeats(run: Timed, repeats: int, steps: Sequence[str]) -> int:
    """Warm up, and see how often it can run in a round."""
    _middle(run, 1, steps)  # the first calls build matrices and allocate
    return 1 if _middle(run, 1, steps)[:, 1].sum() > SLOW else repeats


def _middle(run: Timed, repeats: int, steps: Sequence[str]) -> Times:
    """(steps, 2) milliseconds."""
    found = 1e3 * np.array([_steps(run(), steps) for _ in range(repeats)])
    middle: Times = found[np.argsort(found[:, :, 1].sum(axis=1))[repeats // 2]]
    return middle


def _steps(clock: Clock, steps: Sequence[str]) -> list[tuple[float, float]]:
    """(wall, CPU) seconds of every step; what an array needs before it is scaled counts as preparation."""
    times = dict(clock.steps)
    times["prepare"] = times.get("prepare", Seconds()) + times.pop("decode", Seconds())
    return [(times.get(step, Seconds()).wall, times.get(step, Seconds()).cpu) for step in steps]


def cpu(times: Times) -> npt.NDArray[np.float64]:
    """CPU milliseconds of every round, all steps together."""
    total: npt.NDArray[np.float64] = times[:, :, 1].sum(axis=1)
    return total


def wall(times: Times) -> npt.NDArray[np.float64]:
    """Wall milliseconds of every round, all steps together."""
    total: npt.NDArray[np.float64] = times[:, :, 0].sum(axis=1)
    return total


def median(values: npt.NDArray[np.float64], digits: int = 3) -> float:
    """Rounded for a record."""
    return round(float(np.median(values)), digits)


def spread(values: npt.NDArray[np.float64], digits: int = 3) -> list[float]:
    """The 10th and the 90th percentile over rounds."""
    return [round(float(edge), digits) for edge in np.percentile(values, [10, 90])]
