"""How long work tells the caller how far it is: one kind of callback everywhere."""

from collections.abc import Callable

Progress = Callable[[int, int | None, str], None]
"""Called with (done, total, note): finished units, units in all (None if that is not known), and a few words."""


def silent(done: int, total: int | None, note: str) -> None:
    """Tell nobody."""
