"""How long work reports its progress, and how long its steps took."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter, process_time

Progress = Callable[[int, int | None, str], None]
"""Called with (done, total, note): finished units, all units (None if that is not known), and a few words."""


def silent(done: int, total: int | None, note: str) -> None:
    """A ``Progress`` that does nothing."""


@dataclass(frozen=True)
class Seconds:
    """Time that one step took."""

    wall: float = 0.0
    cpu: float = 0.0
    """The time of all threads of the process."""

    def __add__(self, other: "Seconds") -> "Seconds":
        return Seconds(self.wall + other.wall, self.cpu + other.cpu)


class Clock:
    """Seconds spent in each step of a pipeline whose steps alternate.

    ``with clock("network"): ...`` adds to that step; steps do not nest.
    """

    def __init__(self) -> None:
        self.steps: dict[str, Seconds] = {}

    @contextmanager
    def __call__(self, step: str) -> Iterator[None]:
        """Add the time of the block to ``step``."""
        wall, cpu = perf_counter(), process_time()
        try:
            yield
        finally:
            self.add({step: Seconds(perf_counter() - wall, process_time() - cpu)})

    def add(self, steps: Mapping[str, Seconds]) -> None:
        """Add the times of another clock."""
        for step, seconds in steps.items():
            self.steps[step] = self.steps.get(step, Seconds()) + seconds

    def milliseconds(self, count: int = 1) -> dict[str, float]:
        """Wall milliseconds of every step, divided by ``count``."""
        return {step: 1e3 * seconds.wall / count for step, seconds in self.steps.items()}
