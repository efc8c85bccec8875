"""The workers of one kind: one gets the next task, and one more stands by, forked and warm, for the moment one dies."""

import asyncio
import contextlib
import socket
from collections import Counter
from collections.abc import AsyncIterator, Callable
from time import monotonic

from fastgaze.app.server.turns import Caller, Ledger, Rank, Turns
from fastgaze.app.server.workers import ServerWorker


class Lane:
    """The workers of one kind and the tasks that wait for them."""

    def __init__(
        self,
        kind: bytes,
        count: int,
        fork: Callable[[bytes], socket.socket],
        events: "Counter[str]",
        ledger: Ledger,
        missing: asyncio.Event,
    ) -> None:
        self.count = count
        self.workers: set[ServerWorker] = set()
        self.tasks = 0
        """Tasks that workers of this kind were given."""
        self.cpu_seconds = {rank.value: 0.0 for rank in Rank}
        """That tasks have used, by their rank."""
        self._kind = kind
        self._fork = fork
        self._events = events
        self._ledger = ledger
        self._missing = missing
        self._idle: list[ServerWorker] = []
        self._spare: ServerWorker | None = None
        self._turns = Turns[ServerWorker](count)
        self._timer: asyncio.TimerHandle | None = None

    @property
    def waiting(self) -> int:
        """Tasks without a worker."""
        return self._turns.waiting(*Rank)

    def full(self, caller: Caller, turn: float) -> bool:
        """Whether so many wait before this turn that a task of this caller had better come again later."""
        return self._turns.full(caller.rank, turn)

    @property
    def complete(self) -> bool:
        """Whether no worker is missing."""
        return len(self.workers) >= self.count and self._spare is not None

    async def add(self) -> None:
        """One more worker."""
        worker = await ServerWorker.connect(self._fork(self._kind))
        if len(self.workers) >= self.count and self._spare is None:
            self._spare = worker
        else:
            self._admit(worker)
        worker.when_lost(lambda: self._lose(worker))

    @contextlib.asynccontextmanager
    async def worker(self, caller: Caller, turn: float) -> AsyncIterator[ServerWorker]:
        """A worker, when it is this turn's."""
        future = self._turns.add(turn, caller.rank)
        self._match()
        try:
            found = await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled():
                self._give_back(future.result(), caller, 0.0)
            raise
        self.tasks += 1
        began = monotonic()
        try:
            yield found
        finally:
            self._ledger.charge(caller.address, found.used)
            self.cpu_seconds[caller.rank.value] += found.used
            # Others could not have it meanwhile, whether it computed or waited for a core.
            self._give_back(found, caller, monotonic() - began)

    def end(self) -> None:
        """End them all."""
        if self._timer is not None:
            self._timer.cancel()
        for worker in (*self.workers, *([self._spare] if self._spare else [])):
            worker.end()

    def _give_back(self, worker: ServerWorker, caller: Caller, seconds: float) -> None:
        self._turns.ended(caller.rank, seconds, worker.verdict)
        if worker.alive and not worker.lost:
            self._idle.append(worker)
            self._match()
        else:
            self._replace(worker)

    def _lose(self, worker: ServerWorker) -> None:
        """The worker has died. One that has a task comes back by itself."""
        if worker is self._spare or worker in self._idle:
            self._events["died"] += 1
            self._replace(worker)

    def _replace(self, worker: ServerWorker) -> None:
        worker.end()
        self.workers.discard(worker)
        if worker in self._idle:
            self._idle.remove(worker)
        if worker is self._spare:
            self._spare = None
        if len(self.workers) < self.count and self._spare is not None:
            spare, self._spare = self._spare, None
            self._admit(spare)
        self._missing.set()

    def _admit(self, worker: ServerWorker) -> None:
        self.workers.add(worker)
        self._idle.append(worker)
        self._match()

    def _match(self) -> None:
        """Give idle workers to the tasks that are due."""
        while self._idle and (future := self._turns.next()) is not None:
            future.set_result(self._idle.pop())
        if self._idle and self._timer is None and (wait := self._turns.retry) is not None:
            self._timer = asyncio.get_running_loop().call_later(wait, self._match_again)

    def _match_again(self) -> None:
        self._timer = None
        self._match()
