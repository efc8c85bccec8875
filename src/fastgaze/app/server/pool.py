"""The server's side of its worker processes: which task goes to which kind, and what happens when a worker dies.

There are two kinds. Light workers take everything first; what needs more time or memory than they have comes back
from them with a figure and goes to the heavy ones, which the system runs at low priority. So whatever is sent, pictures
of ordinary size keep their workers.
"""

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from time import monotonic

from fastgaze.app.server import wire
from fastgaze.app.server.budget import Share
from fastgaze.app.server.lanes import Lane
from fastgaze.app.server.limits import SMALL_ANSWER, ApiError, Limits
from fastgaze.app.server.nursery import HEAVY, LIGHT, LIGHT_SHARE
from fastgaze.app.server.turns import QUICK_SECONDS, Caller, Ledger, later
from fastgaze.app.server.workers import Nursery, ServerWorker
from fastgaze.core.errors import ModelError

logger = logging.getLogger("fastgaze.server")

# Large pictures that may wait, those before which strangers may join them, and the places that strangers may take.
_HEAVY_WAITING, _HEAVY_STRANGERS = 8, 5
_STRANGERS_SHARE = 0.75


@dataclass(frozen=True, eq=False)
class Request:
    """What a worker is to do, and for whom."""

    task: wire.Task
    content: bytearray | memoryview
    caller: Caller
    deadline: float
    """By the clock of ``monotonic``."""
    wanted: Callable[[], bool]
    """Whether somebody still waits for the answer."""


@dataclass(frozen=True, eq=False)
class Answer:
    """The body of a successful answer."""

    content: memoryview
    media_type: str


class WorkerDiedError(ApiError):
    """500: the process that had the task is gone."""

    def __init__(self, seconds: float) -> None:
        super().__init__(500, "worker_died", "the process that looked at this picture ended; nothing else was lost")
        self.seconds = seconds
        """That it had the task: its timer of CPU time ended it, or something else did."""


class Pool:
    """All workers, and how many requests are in flight."""

    def __init__(self, nursery: Nursery, workers: int, limits: Limits) -> None:
        self.events: Counter[str] = Counter()
        """Workers that were replaced: grown, died or too_slow; and nurseries."""
        self.in_flight = 0
        """Requests whose picture has arrived and whose answer is not yet written."""
        self._missing = asyncio.Event()
        self._ledger = Ledger()
        shared = (nursery.fork, self.events, self._ledger, self._missing)
        self.light = Lane(LIGHT, workers, *shared)
        self.heavy = Lane(HEAVY, max(workers // 2, 1), *shared)
        self._nursery = nursery
        self._limits = limits
        self._keeper: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Start the workers and keep their number."""
        self._missing.set()
        self._keeper = asyncio.create_task(self._keep())

    def close(self) -> None:
        """End all processes."""
        if self._keeper is not None:
            self._keeper.cancel()
        for lane in (self.light, self.heavy):
            lane.end()
        self._nursery.stop()

    @property
    def ready(self) -> bool:
        """Whether there is a worker of each kind."""
        return bool(self.light.workers and self.heavy.workers)

    @contextlib.contextmanager
    def place(self, caller: Caller) -> Iterator[None]:
        """A place for one request whose picture has arrived; 503 when none is free."""
        most = self._limits.in_flight
        if self.in_flight >= (most if caller.known else max(_STRANGERS_SHARE * most, 1)):
            raise _busy(f"{self.in_flight} requests are in flight")
        self.in_flight += 1
        try:
            yield
        finally:
            self.in_flight -= 1

    async def run(self, request: Request, room: Share) -> Answer | wire.Outcome | None:
        """The answer, with ``room`` taken for one that is not small; None when nobody waits for it any more.

        A form with several pictures has no answer yet, but an outcome of kind "parts" that says where they are.
        ApiError: a refusal of the worker, 504 when it takes too long, 503 when there is no room, 500 when it dies.
        """
        turn = self._ledger.turn(request.task, len(request.content), request.caller)
        outcome, answer = await self._try(self.light, request, turn)
        if outcome.kind == "needs":
            if outcome.size > SMALL_ANSWER:
                await room.wait(outcome.size, request.deadline)
            granted = self._granted(request, turn, outcome)
            outcome, answer = await self._try(*granted)
            if outcome.kind == "needs" and granted[0] is self.light:  # more memory than its header told
                outcome, answer = await self._try(self.heavy, *granted[1:])
        if outcome.kind == "gone":
            return None
        if outcome.kind == "error":
            raise ApiError(outcome.status, outcome.code, outcome.message)
        if outcome.kind == "parts":
            return outcome
        if outcome.kind != "answer":
            logger.error("a worker failed: %s", outcome.message)
            raise ApiError(500, "internal", "the server failed; its log says why")
        return Answer(memoryview(answer), outcome.media_type)

    def _granted(self, request: Request, turn: float, needs: wire.Outcome) -> tuple[Lane, Request, float]:
        """Who does what needs more than it had, and when."""
        lane = self.heavy if needs.heavy else self.light
        caller = replace(request.caller, long=not needs.heavy and needs.cost > QUICK_SECONDS)
        task = replace(request.task, granted=True)
        return lane, replace(request, task=task, caller=caller), later(turn, needs.cost)

    async def _try(self, lane: Lane, request: Request, turn: float) -> tuple[wire.Outcome, bytearray]:
        """A worker's outcome. When a light one dies, another tries: it may have been dead before it got the task.

        One that had the task for longer than light workers have was ended by its timer, and a heavy one tries.
        """
        self._check_waiting(lane, request, turn)
        try:
            return await self._call(lane, request, turn)
        except WorkerDiedError as error:
            if lane is self.heavy:
                raise
            again = self.heavy if error.seconds > LIGHT_SHARE * self._limits.seconds else self.light
            self._check_waiting(again, request, turn)
            return await self._call(again, request, turn)

    def _check_waiting(self, lane: Lane, request: Request, turn: float) -> None:
        if lane is self.heavy and lane.waiting >= (_HEAVY_WAITING if request.caller.known else _HEAVY_STRANGERS):
            raise _busy("too many large pictures wait")
        if lane is self.light and (request.caller.long or not request.task.granted) and lane.full(request.caller, turn):
            raise _busy("too many pictures that take long, or of new clients, wait")

    async def _call(self, lane: Lane, request: Request, turn: float) -> tuple[wire.Outcome, bytearray]:
        async with contextlib.AsyncExitStack() as held:
            try:
                async with asyncio.timeout(request.deadline - monotonic()):
                    worker = await held.enter_async_context(lane.worker(request.caller, turn))
            except TimeoutError:
                raise _busy("no worker was free in time") from None
            if not request.wanted():
                return wire.Outcome("gone"), bytearray()
            return await self._given(worker, request)

    async def _given(self, worker: ServerWorker, request: Request) -> tuple[wire.Outcome, bytearray]:
        start = monotonic()
        try:
            async with asyncio.timeout(request.deadline - start):
                outcome, answer = await worker.call(request.task, request.content)
            self.events["grown"] += outcome.last
            return outcome, answer
        except TimeoutError:
            worker.end()
            self.events["too_slow"] += 1
            raise self._too_slow() from None
        except (EOFError, OSError):
            worker.end()
            self.events["died"] += 1
            raise WorkerDiedError(monotonic() - start) from None
        except BaseException:
            worker.end()  # in the middle of a message
            raise

    def _too_slow(self) -> ApiError:
        return ApiError(504, "too_slow", f"the picture took longer than {self._limits.seconds:g} s; send a smaller one")

    # -- keeping their number -----------------------------------------------------------------------------------------

    async def _keep(self) -> None:
        """Replace workers that are gone, and the nursery before it is missed."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    await self._missing.wait()
            self._missing.clear()
            if self._nursery.lost:
                await self._start_nursery()
            for lane in (self.light, self.heavy):
                while not lane.complete:
                    await self._add(lane)

    async def _add(self, lane: Lane) -> None:
        try:
            await lane.add()
        except (EOFError, OSError):  # TimeoutError is one
            await self._start_nursery()

    async def _start_nursery(self) -> None:
        self.events["nursery"] += 1
        logger.warning("the process that workers come from is gone; starting another")
        try:
            await asyncio.to_thread(self._nursery.start)
        except (ModelError, OSError) as error:
            logger.error("%s", error)
            await asyncio.sleep(1.0)


def _busy(reason: str) -> ApiError:
    return ApiError(503, "busy", f"{reason}; try again in a second", {"retry-after": "1"})
