"""Whose turn it is when there is more work than workers.

- A connection whose last picture was good is *known*; all others are *strangers*. Whoever only attacks stays a
  stranger. While known clients wait, strangers get a fifth of the workers' time. While known clients are about but
  none of them waits, strangers may have every worker as long as what they send is good and quick, as that of a simple
  program is that opens a connection for every picture. What is neither counts against their fifth, and then workers
  stay free for known clients. More strangers than can be served in a few seconds are told to come again.
- A picture that takes *long* to decode, as its header says, has a rank of its own below both, whoever sent it: a tenth
  of the workers' time while others wait, half of the workers while others are about, all of them otherwise.
- Within a rank, a task's turn comes by its arrival, its size and the CPU time that its client's address has used
  lately: small pictures overtake large ones, and who asked for little overtakes who asked for much. The first picture
  of a client or of a request overtakes the others of a request and those of a client whose last one was bad. All of
  this is bounded, so that everybody's turn comes.
"""

import asyncio
import enum
import heapq
import itertools
import math
from collections import Counter, OrderedDict
from dataclasses import dataclass
from time import monotonic
from typing import Generic, TypeVar

from fastgaze.app.server.wire import Task

T = TypeVar("T")

_ABOUT_SECONDS = 5.0
# A rank may save up, or overdraw, this many seconds of a worker.
_MOST_SAVED = 0.5
_MOST_OVERDRAWN = 1.0
_TRUSTED = 0.5 * _MOST_SAVED
"""Saved seconds above which strangers may have every worker that known clients do not wait for."""
_SECONDS_PER_BYTE = 3e-6
_SECONDS_PER_PIXEL = 1e-7
_MOST_DELAY = 2.5
QUICK_SECONDS = 0.03
"""CPU time of decoding from which a picture takes long."""
_SECONDS_PER_SECOND = 30.0
_MOST_COST_DELAY = 8.0
_HALF_LIFE = 10.0
_MOST_ADDRESSES = 10_000


class Rank(enum.Enum):
    """Who goes first."""

    KNOWN = "known"
    STRANGER = "strangers"
    LONG = "long"


class Verdict(enum.Enum):
    """What a task turned out to be."""

    GOOD = "answered quickly"
    SEEN = "only looked at: what it needs is known now"
    BAD = "refused, failed or long"


_ABOVE = {Rank.KNOWN: (), Rank.STRANGER: (Rank.KNOWN,), Rank.LONG: (Rank.KNOWN, Rank.STRANGER)}
_SHARES = {Rank.STRANGER: 0.2, Rank.LONG: 0.1}
"""Of the workers' time, while tasks of higher rank wait."""
_MOST_WAITING = {Rank.STRANGER: 32, Rank.LONG: 6}
"""Tasks for each worker, while those of higher rank are about."""


@dataclass(frozen=True)
class Caller:
    """Who sends a request, as far as it matters for its turn."""

    address: str = ""
    known: bool = False
    long: bool = False
    """Whether the picture takes long."""
    behind: bool = False
    """Whether others of the same rank go first: the last picture was bad, or this is not the first of its request."""

    @property
    def rank(self) -> Rank:
        """Of the task."""
        return Rank.LONG if self.long else Rank.KNOWN if self.known else Rank.STRANGER


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
        delay = min(large, _MOST_DELAY) + min(self.used(caller.address), _MOST_DELAY)
        return monotonic() + delay + caller.behind * _MOST_COST_DELAY


class Turns(Generic[T]):
    """Tasks that wait for a worker (a ``T``)."""

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._queues: dict[Rank, list[tuple[float, int, asyncio.Future[T]]]] = {rank: [] for rank in Rank}
        self._left = dict.fromkeys(_SHARES, _MOST_SAVED)
        """Seconds of a worker that each rank has before those above it that wait."""
        self._last = monotonic()
        self._held: Counter[Rank] = Counter()
        self._about_until = dict.fromkeys(Rank, -math.inf)
        self._numbers = itertools.count()

    def waiting(self, *ranks: Rank) -> int:
        """Tasks of these ranks without a worker."""
        return sum(not future.done() for rank in ranks for _, _, future in self._queues[rank])

    def full(self, rank: Rank, turn: float = math.inf) -> bool:
        """Whether so many of that rank wait before ``turn`` that a task had better come again later."""
        most = _MOST_WAITING.get(rank, math.inf) * self._workers
        if not self._about(*_ABOVE[rank]) or len(self._queues[rank]) < most:
            return False
        return sum(due <= turn and not future.done() for due, _, future in self._queues[rank]) >= most

    def add(self, turn: float, rank: Rank) -> "asyncio.Future[T]":
        """A task that waits from now on, for the result of this future."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._queues[rank], (turn, next(self._numbers), future))
        return future

    def next(self) -> "asyncio.Future[T] | None":
        """The future of the task that is due, if there is one that may have a worker now; it gets it."""
        now = monotonic()
        for rank, share in _SHARES.items():
            self._left[rank] = min(self._left[rank] + share * self._workers * (now - self._last), _MOST_SAVED)
        self._last = now
        first = [rank for rank in reversed(_SHARES) if self._left[rank] > 0 and self._held[rank] < self._half]
        then = [rank for rank in Rank if self._may_fill(rank)]
        return next((future for rank in (*first, *then) if (future := self._pop(rank)) is not None), None)

    @property
    def _half(self) -> int:
        """Workers that a rank may have before those above it that wait."""
        return max(self._workers // 2, 1)

    def _may_fill(self, rank: Rank) -> bool:
        """Whether tasks of this rank may have a worker that none above it waits for."""
        if not self._about(*_ABOVE[rank]):
            return True
        return self._held[rank] < self._half if rank is Rank.LONG else self._left[rank] > _TRUSTED

    def _about(self, *ranks: Rank) -> bool:
        return any(monotonic() < self._about_until[rank] for rank in ranks)

    def _pop(self, rank: Rank) -> "asyncio.Future[T] | None":
        queue = self._queues[rank]
        while queue:
            future = heapq.heappop(queue)[2]
            if not future.done():  # somebody still waits
                self._held[rank] += 1
                return future
        return None

    def ended(self, rank: Rank, seconds: float, verdict: Verdict) -> None:
        """A task of that rank has given its worker back, which it had for so long."""
        self._held[rank] -= 1
        if verdict is Verdict.GOOD:
            self._about_until[rank] = monotonic() + _ABOUT_SECONDS
        bad = verdict is Verdict.BAD and rank is Rank.STRANGER
        if rank in self._left and (bad or self.waiting(*_ABOVE[rank])):
            self._left[rank] = max(self._left[rank] - seconds, -_MOST_OVERDRAWN)

    @property
    def retry(self) -> float | None:
        """Seconds after which somebody who waits may have a worker that is idle now; None when nobody waits so."""
        waits = [self._wait(rank) for rank in _SHARES if self.waiting(rank)]
        return min(waits) + 0.005 if waits else None

    def _wait(self, rank: Rank) -> float:
        wanted = _TRUSTED if rank is Rank.STRANGER and self._held[rank] >= self._half else 0.0
        return max(wanted - self._left[rank], 0.0) / (_SHARES[rank] * self._workers)
