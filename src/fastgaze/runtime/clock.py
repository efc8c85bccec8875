"""Seconds spent in each step of a pipeline whose steps alternate."""

from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter


class Clock:
    """``with clock("network"): ...`` adds to that step; steps do not nest."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, step: str) -> Iterator[None]:
        """Add the time of the block to ``step``."""
        start = perf_counter()
        try:
            yield
        finally:
            self.seconds[step] = self.seconds.get(step, 0.0) + perf_counter() - start

    def add(self, other: dict[str, float]) -> None:
        """Add the seconds of another clock."""
        for step, seconds in other.items():
            self.seconds[step] = self.seconds.get(step, 0.0) + seconds
