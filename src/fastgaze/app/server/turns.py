"""Whose turn it is when there is more work than workers.

- A connection that brought a good picture before is *known*; all others are *strangers*. Whoever only attacks stays a
  stranger. When both wait, known clients get three seconds of work for every second of the strangers', who never hold
  more than half of the workers meanwhile. When only one kind waits, it gets everything.
- Within a kind, a task's turn comes by its arrival, its size and the CPU time that its client's address has used
  lately: small pictures overtake large ones, and who asked for little overtakes who asked for much. All of this is
  bounded, so that everybody's turn comes.
"""

import asyncio
import heapq
import itertools
from collections import OrderedDict
from dataclasses import dataclass
from time import monotonic
from typing import Generic, TypeVar

from fastgaze.app.server.wire import Task

T = TypeVar("T")

_KNOWN_SHARE = 3
_ABOUT_SECONDS = 5.0
_SECONDS_PER_BYTE = 1e-6
_SECONDS_PER_PIXEL = 3e-8
_MOST_DEBT = 5.0
_HALF_LIFE = 10.0
_MOST_ADDRESSES = 10_000


@dataclass(frozen=True)
class Caller:
    """Who sends a request, as far as it matters for its turn."""

    address: str = ""
    known: bool = False


class Ledger:
    """CPU seconds that every address has used lately: half of them are forgotten every ten seconds."""

    def __init__(self) -> None:
        self._used: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def used(self, address: str) -> float:
        """Seconds."""
        seconds, then = self._used.get(address, (0.0, 0.0))
        return float(seconds * 0.5 ** ((monotonic() - then) / _HALF_LIFE))

    def charge(self, address: str, seconds: float) -> None:
        """The address has used so much more."""
        self._used[address] = (self.used(address) + seconds, monotonic())
        self._used.move_to_end(address)
        if len(self._used) > _MOST_ADDRESSES:
            self._used.popitem(last=False)

    def turn(self, task: Task, size: int, caller: Caller) -> float:
        """When the task of ``size`` bytes is due: the smallest number goes first."""
        wanted = task.options["size"] if task.options else None
        pixels = wanted[0] * wanted[1] if wanted else 0
        debt = min(self.used(caller.address), _MOST_DEBT)
        return monotonic() + _SECONDS_PER_BYTE * size + _SECONDS_PER_PIXEL * pixels + debt


class Turns(Generic[T]):
    """Tasks that wait for a worker (a ``T``)."""

    def __init__(self, workers: int) -> None:
        self._most_strangers = max(workers // 2, 1)
        self._queues: dict[bool, list[tuple[float, int, asyncio.Future[T]]]] = {True: [], False: []}
        self._used = {True: 0.0, False: 0.0}
        """Seconds by kind, those of known clients divided by their share."""
        self._held = {True: 0, False: 0}
        self._known_until = 0.0
        self._numbers = itertools.count()

    def waiting(self, known: bool) -> int:
        """Tasks of that kind without a worker."""
        return sum(not future.done() for _, _, future in self._queues[known])

    def add(self, turn: float, known: bool) -> "asyncio.Future[T]":
        """A task that waits from now on, for the result of this future."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        if not self.waiting(known):  # what was not used while nobody waited is not saved up
            self._used[known] = max(self._used.values())
        if known:
            self._known_until = monotonic() + _ABOUT_SECONDS
        heapq.heappush(self._queues[known], (turn, next(self._numbers), future))
        return future

    def next(self) -> "asyncio.Future[T] | None":
        """The future of the task that is due, if there is one that may have a worker now; it gets it."""
        for known in sorted(self._queues, key=lambda kind: (self._used[kind], not kind)):
            queue = self._queues[known]
            while queue and queue[0][2].done():  # nobody waits any more
                heapq.heappop(queue)
            if queue and (known or not self._enough_strangers()):
                self._held[known] += 1
                return heapq.heappop(queue)[2]
        return None

    def _enough_strangers(self) -> bool:
        return self._held[False] >= self._most_strangers and monotonic() < self._known_until

    def ended(self, known: bool, seconds: float) -> None:
        """A task of that kind has given its worker back after so much CPU time."""
        self._held[known] -= 1
        self._used[known] += seconds / (_KNOWN_SHARE if known else 1)
