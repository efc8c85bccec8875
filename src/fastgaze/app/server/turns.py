"""Whose turn it is when there is more work than workers.

- A connection whose last picture was good is *known*; all others are *strangers*. Whoever only attacks stays a
  stranger. While known clients wait, strangers get a quarter of the workers' time. While known clients are about but
  none of them waits, strangers may have every worker as long as what they send is good and quick, as that of a simple
  program is that opens a connection for every picture. What is neither counts against their quarter, and then workers
  stay free for known clients. More strangers than can be served in a second or two are told to come again.
- Within a kind, a task's turn comes by its arrival, its size and the CPU time that its client's address has used
  lately: small pictures overtake large ones, and who asked for little overtakes who asked for much. A picture that will
  take long, as its header says, lets all others pass for seconds, whoever sent it. All of this is bounded, so that
  everybody's turn comes.
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

_STRANGERS_SHARE = 0.25
_ABOUT_SECONDS = 5.0
# Strangers may save up, or overdraw, this many seconds of a worker.
_MOST_SAVED = 0.5
_MOST_OVERDRAWN = 1.0
_TRUSTED = 0.5 * _MOST_SAVED
"""Saved seconds above which strangers may have every worker that known clients do not wait for."""
_MOST_WAITING = 12
"""Strangers who wait for each worker while known clients are about."""
_SECONDS_PER_BYTE = 3e-6
_SECONDS_PER_PIXEL = 1e-7
_MOST_DELAY = 2.5
QUICK_SECONDS = 0.1
"""CPU time of decoding up to which a picture keeps its place in the queue."""
_SECONDS_PER_SECOND = 30.0
_MOST_COST_DELAY = 8.0
_HALF_LIFE = 10.0
_MOST_ADDRESSES = 10_000


@dataclass(frozen=True)
class Caller:
    """Who sends a request, as far as it matters for its turn."""

    address: str = ""
    known: bool = False


def later(turn: float, cost: float) -> float:
    """When a task is due that takes ``cost`` seconds of CPU time and would be due at ``turn`` if it took none."""
    return turn + min(_SECONDS_PER_SECOND * cost, _MOST_COST_DELAY)


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
        large = _SECONDS_PER_BYTE * size + _SECONDS_PER_PIXEL * pixels
        # Each has its own bound: behind a proxy all clients have one address, and sizes still decide.
        return monotonic() + min(large, _MOST_DELAY) + min(self.used(caller.address), _MOST_DELAY)


class Turns(Generic[T]):
    """Tasks that wait for a worker (a ``T``)."""

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._queues: dict[bool, list[tuple[float, int, asyncio.Future[T]]]] = {True: [], False: []}
        self._strangers_left = _MOST_SAVED
        """Seconds of a worker that strangers have left while known clients are about."""
        self._last = monotonic()
        self._strangers_held = 0
        self._known_until = 0.0
        self._numbers = itertools.count()

    def waiting(self, known: bool) -> int:
        """Tasks of that kind without a worker."""
        return sum(not future.done() for _, _, future in self._queues[known])

    def full(self, known: bool) -> bool:
        """Whether a task of that kind had better come again later."""
        throttled = not known and monotonic() < self._known_until
        return throttled and self.waiting(False) >= _MOST_WAITING * self._workers

    def add(self, turn: float, known: bool) -> "asyncio.Future[T]":
        """A task that waits from now on, for the result of this future."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        if known:
            self._known_until = monotonic() + _ABOUT_SECONDS
        heapq.heappush(self._queues[known], (turn, next(self._numbers), future))
        return future

    def next(self) -> "asyncio.Future[T] | None":
        """The future of the task that is due, if there is one that may have a worker now; it gets it."""
        now = monotonic()
        saved = self._strangers_left + _STRANGERS_SHARE * self._workers * (now - self._last)
        self._strangers_left, self._last = min(saved, _MOST_SAVED), now
        if self._strangers_held < self._half and self._strangers_left > 0:
            return self._pop(False) or self._pop(True)
        trusted = now > self._known_until or self._strangers_left > _TRUSTED
        return self._pop(True) or (self._pop(False) if trusted else None)

    @property
    def _half(self) -> int:
        """Workers that strangers may have before known clients that wait."""
        return max(self._workers // 2, 1)

    def _pop(self, known: bool) -> "asyncio.Future[T] | None":
        queue = self._queues[known]
        while queue:
            future = heapq.heappop(queue)[2]
            if not future.done():  # somebody still waits
                self._strangers_held += not known
                return future
        return None

    def ended(self, known: bool, seconds: float, good: bool) -> None:
        """A task of that kind has given its worker back after so much time; whether it was good and quick."""
        if known:
            return
        self._strangers_held -= 1
        if not good or self.waiting(True):
            self._strangers_left = max(self._strangers_left - seconds, -_MOST_OVERDRAWN)

    @property
    def retry(self) -> float | None:
        """Seconds after which a stranger who waits may have a worker that is idle now; None when nobody waits so."""
        if not self.waiting(False) or self.waiting(True):
            return None
        wanted = 0.0 if self._strangers_held < self._half else _TRUSTED
        return max(wanted - self._strangers_left, 0.0) / (_STRANGERS_SHARE * self._workers) + 0.005
