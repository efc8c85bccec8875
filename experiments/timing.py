"""Interleaved timing, the one way in which experiments compare speeds.

Machines are shared and clocks change, so what is compared runs in turn within the same rounds, a ratio is formed
within a round, and the median over rounds counts. CPU time is what other processes disturb least.
"""

from collections.abc import Callable, Hashable, Mapping
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from fastgaze.evaluation.bench import Marks, mark

Key = TypeVar("Key", bound=Hashable)
Timed = Callable[[], Marks]
"""Does its work once and returns a mark (wall seconds, CPU seconds) before, between and after its steps."""
Times = npt.NDArray[np.float64]
"""(rounds, steps, 2): milliseconds of wall time and of CPU time."""
SLOW = 400.0  # milliseconds; what takes longer runs once in a round


def timed(work: Callable[[], object]) -> Timed:
    """A function without marks of its own as one step."""

    def run() -> Marks:
        before = mark()
        work()
        return [before, mark()]

    return run


def interleave(runs: Mapping[Key, Timed], rounds: int, repeats: int) -> dict[Key, Times]:
    """Every run in every round; within a round the one with the median CPU time of ``repeats`` counts."""
    counts = {key: _repeats(run, repeats) for key, run in runs.items()}
    found: dict[Key, list[Times]] = {key: [] for key in runs}
    for _ in range(rounds):
        for key, run in runs.items():
            found[key].append(_middle(run, counts[key]))
    return {key: np.array(values) for key, values in found.items()}


def _repeats(run: Timed, repeats: int) -> int:
    """Warm up, and see how often it can run in a round."""
    _middle(run, 1)  # the first calls build matrices and allocate
    return 1 if _middle(run, 1)[:, 1].sum() > SLOW else repeats


def _middle(run: Timed, repeats: int) -> Times:
    """(steps, 2) milliseconds."""
    found = 1e3 * np.diff(np.array([run() for _ in range(repeats)]), axis=1)
    steps: Times = found[np.argsort(found[:, :, 1].sum(axis=1))[repeats // 2]]
    return steps


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
