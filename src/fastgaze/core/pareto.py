"""The Pareto front: what nothing else beats in both cost and loss."""

from collections.abc import Callable, Iterable
from typing import TypeVar

Item = TypeVar("Item")


def pareto(items: Iterable[Item], cost: Callable[[Item], float], loss: Callable[[Item], float]) -> list[Item]:
    """Items that no cheaper or equally cheap one reaches in ``loss`` (lower is better), cheapest first."""
    front: list[Item] = []
    for item in sorted(items, key=lambda one: (cost(one), loss(one))):
        if not front or loss(item) < loss(front[-1]):
            front.append(item)
    return front
