"""Whose bytes are looked at next, so that no crowd of clients can hold the event loop.

One thread reads what every client sends. Without an order of its own it would look at all that has arrived before it
turns to anything else: sixty clients that ask for a page again and again would add sixty answers to every step of
everybody else's request. So what arrives is only put aside, its connection is not read meanwhile, and every turn of the
loop looks at a few milliseconds' worth, in the order of these ranks:

- *known*: a picture comes over a connection whose last picture was good.
- *new*: a picture comes over a connection that has not sent one before; at most half of the time.
- *other*: everything else, such as pages, and pictures of whoever sent a bad one last; at most a quarter of the time.

Time that a rank does not use is not saved up beyond a moment, and what it may not use stays free for the workers, which
share the processor's cores. Within a rank, who has used little goes before who has used much, whatever arrived first: a
picture overtakes megabytes of small chunks. That is bounded, so that everybody's turn comes.
"""

import asyncio
import enum
import heapq
import itertools
from collections.abc import Callable
from time import monotonic, thread_time
from typing import Protocol

SLICE_SECONDS = 0.002
"""Looked at in one turn of the loop."""
REQUEST_SECONDS = 0.001
"""Of the loop's time that a request takes after its head has been read, roughly."""
_MOST_SAVED = 0.05
# A connection waits this many seconds for each that it has used, at most so many.
_SECONDS_PER_SECOND = 50.0
_MOST_DELAY = 2.0
_MOST_WAIT = 1.0
"""Of one whose turn it is, before those of higher rank wait for it."""


class Standing(enum.Enum):
    """Who goes first."""

    KNOWN = "known"
    NEW = "new"
    OTHER = "other"


_SHARES = {Standing.NEW: 0.5, Standing.OTHER: 0.25}
"""Of the time of the thread that reads."""


class Waiting(Protocol):
    """A connection with bytes that nobody has looked at."""

    used: float
    """CPU seconds of the loop that its bytes have taken, up to now."""

    def look(self) -> int:
        """Look at them now; the number of requests that began."""
        ...


class Gate:
    """The connections of one server that wait to be looked at.

    clock: seconds. cpu: seconds of CPU time that this thread has used.
    """

    def __init__(self, clock: Callable[[], float] = monotonic, cpu: Callable[[], float] = thread_time) -> None:
        self._clock, self._cpu = clock, cpu
        self._queues: dict[Standing, list[tuple[float, int, Waiting]]] = {standing: [] for standing in Standing}
        self._numbers = itertools.count()
        self._left = dict.fromkeys(_SHARES, _MOST_SAVED)
        """Seconds that each rank may use now; below zero it has used more."""
        self._last = clock()
        self._next: asyncio.Handle | None = None

    def enter(self, connection: Waiting, standing: Standing) -> None:
        """``connection.look`` is called once, when its turn has come."""
        due = self._clock() + min(_SECONDS_PER_SECOND * connection.used, _MOST_DELAY)
        heapq.heappush(self._queues[standing], (due, next(self._numbers), connection))
        if self._next is None or isinstance(self._next, asyncio.TimerHandle):
            self._schedule()

    def let_through(self) -> None:
        """Look at what is due, for as long as one turn may take."""
        self._next = None
        self._refill()
        spent = 0.0
        while spent < SLICE_SECONDS and (standing := self._first()) is not None:
            connection = heapq.heappop(self._queues[standing])[2]
            began = self._cpu()
            requests = connection.look()
            used = self._cpu() - began + requests * REQUEST_SECONDS
            connection.used += used
            spent += used
            if standing in self._left:
                self._left[standing] -= used
        self._schedule()

    def _refill(self) -> None:
        now = self._clock()
        for standing, share in _SHARES.items():
            self._left[standing] = min(self._left[standing] + share * (now - self._last), _MOST_SAVED)
        self._last = now

    def _first(self) -> Standing | None:
        """The rank whose turn it is; None when nobody waits, or only ranks that have used up their time."""
        found = [standing for standing in Standing if self._queues[standing] and self._left.get(standing, 1.0) > 0]
        overdue = self._last - _MOST_WAIT
        return next((standing for standing in found if self._queues[standing][0][0] < overdue), next(iter(found), None))

    def _schedule(self) -> None:
        if self._next is not None:
            self._next.cancel()
            self._next = None
        self._refill()
        loop = asyncio.get_running_loop()
        if self._first() is not None:
            self._next = loop.call_soon(self.let_through)
        elif waits := [-self._left[found] / share for found, share in _SHARES.items() if self._queues[found]]:
            self._next = loop.call_later(min(waits) + 0.001, self.let_through)
