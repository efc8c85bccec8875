"""A bound on bytes that clients make the server hold, in which the slowest client gives way."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic

from fastgaze.app.server.limits import ApiError

# A client has this long before it may be called slow, and this rate keeps it from being called so.
PROTECTED_SECONDS = 1.0
SLOW_BYTES_PER_SECOND = 256 << 10
_RETRY_SECONDS = 0.1


@dataclass(eq=False)
class Transfer:
    """Bytes on their way to or from one client."""

    give_up: Callable[[], None]
    """Ends the transfer at once."""
    start: float = field(default_factory=monotonic)
    moved: int = 0
    last: float = field(default_factory=monotonic)
    """When bytes moved last."""

    def move(self, n: int) -> None:
        """``n`` more bytes have moved."""
        self.moved += n
        self.last = monotonic()

    def deadline(self, patience: float, rate: int) -> float:
        """When it has failed unless more bytes move: after silence, or below the average rate once patience is over."""
        return min(self.last + patience, self.start + patience + self.moved / rate)

    def pace(self, now: float) -> float:
        """Bytes per second so far, none after a silence; infinite while it is too early to say."""
        if now - self.start <= PROTECTED_SECONDS:
            return float("inf")
        # The sockets' own buffers take megabytes at once, so that an average alone would say little.
        return 0.0 if now - self.last > PROTECTED_SECONDS else self.moved / (now - self.start)


@dataclass(eq=False)
class Share:
    """What one request holds of a budget."""

    budget: "Budget"
    bytes: int = 0
    transfer: Transfer | None = None
    """Set while the bytes depend on a client's pace; only then may they be taken away."""

    def take(self, n: int) -> bool:
        """``n`` more bytes, if there is room or a slow client can be given up for it."""
        if not self.budget.make_room(n, self):
            return False
        self.bytes += n
        self.budget.held += n
        return True

    async def wait(self, n: int, deadline: float) -> None:
        """``take``, as soon as that is possible; 503 when it is not by ``deadline``."""
        while not self.take(n):
            if monotonic() + _RETRY_SECONDS > deadline:
                raise self.budget.full()
            await asyncio.sleep(_RETRY_SECONDS)

    def absorb(self, other: "Share") -> None:
        """Hold what ``other`` holds."""
        self.bytes += other.bytes
        other.bytes = 0
        other.release()

    def keep(self, n: int) -> None:
        """Give back all but ``n`` bytes."""
        extra = max(self.bytes - n, 0)
        self.bytes -= extra
        self.budget.held -= extra

    def release(self) -> None:
        """Give everything back."""
        self.budget.held -= self.bytes
        self.bytes = 0
        self.transfer = None
        self.budget.shares.discard(self)


class Budget:
    """At most ``most`` bytes, held in shares."""

    def __init__(self, most: int, what: str) -> None:
        self.most = most
        self.held = 0
        self.given_up = 0
        """Slow clients that had to give way."""
        self.shares: set[Share] = set()
        self._what = what

    def share(self) -> Share:
        """An empty share."""
        share = Share(self)
        self.shares.add(share)
        return share

    def make_room(self, n: int, asking: Share) -> bool:
        """Whether ``n`` bytes are free; the slowest clients are given up until they are, or until none is slow."""
        now = monotonic()
        while self.held + n > self.most:
            others = (share for share in self.shares if share is not asking and share.transfer and share.bytes)
            slowest = min(others, key=lambda share: _pace(share, now), default=None)
            if slowest is None or _pace(slowest, now) > SLOW_BYTES_PER_SECOND:
                return False
            self.given_up += 1
            transfer = slowest.transfer
            slowest.release()
            if transfer is not None:
                transfer.give_up()
        return True

    def full(self) -> ApiError:
        """503."""
        message = f"{self._what} of other requests take all the memory that is set aside; try again in a second"
        return ApiError(503, "busy", message, {"retry-after": "1"})


def _pace(share: Share, now: float) -> float:
    return share.transfer.pace(now) if share.transfer else float("inf")
