"""The server's side of its worker processes: which task goes to which worker when, and what happens when one dies.

There are two kinds. Light workers take everything first; what needs more time or memory than they have comes back
from them with a figure and goes to the heavy ones, which the system runs at low priority. So whatever is sent, pictures
of ordinary size keep their workers.
"""

import asyncio
import contextlib
import heapq
import itertools
import logging
import os
import signal
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from time import monotonic

from fastgaze.app.server import wire
from fastgaze.app.server.budget import Share
from fastgaze.app.server.limits import SMALL_ANSWER, ApiError, Limits
from fastgaze.app.server.nursery import HEAVY, LIGHT
from fastgaze.core.errors import ModelError

logger = logging.getLogger("fastgaze.server")

_START_SECONDS = 60.0
_FORK_SECONDS = 5.0
# A task's turn comes by its arrival and its length: small pictures overtake large ones, which still get theirs.
_SECONDS_PER_BYTE = 1e-6
_HEAVY_WAITING = 8


@dataclass(frozen=True, eq=False)
class Answer:
    """The body of a successful answer."""

    content: memoryview
    media_type: str


class WorkerDiedError(ApiError):
    """500: the process that had the task is gone."""

    def __init__(self) -> None:
        super().__init__(500, "worker_died", "the process that looked at this picture ended; nothing else was lost")


class Nursery:
    """The process that workers are forked from."""

    def __init__(self, models: list[str], engine: str, threads: int, limits: Limits) -> None:
        self._settings = {"models": models, "engine": engine, "threads": threads, "limits": asdict(limits)}
        self._threads = str(threads)
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None

    def start(self) -> None:
        """Start it, or start it again; ModelError when it cannot load the models."""
        self.stop()
        ours, theirs = socket.socketpair()
        with theirs:
            # numpy's own matrix products follow the same number of threads.
            environment = os.environ | dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"), self._threads)
            command = [sys.executable, "-m", "fastgaze.app.server.nursery", str(theirs.fileno())]
            self._process = subprocess.Popen(command, pass_fds=[theirs.fileno()], env=environment)
        self._control = ours
        ours.settimeout(_START_SECONDS)
        try:
            ours.sendall(wire.pack(self._settings))
            outcome = wire.unpack(wire.Outcome, wire.receive(ours)[0])
        except (EOFError, OSError, ValueError) as error:
            raise ModelError("the process that loads the models ended at its start; is there enough memory?") from error
        if outcome.kind != "hello":
            raise ModelError(outcome.message)
        ours.settimeout(1.0)

    def fork(self, kind: bytes) -> socket.socket:
        """The socket to a new worker of that kind; OSError when the nursery is gone."""
        if self._control is None:
            raise OSError("the nursery is not running")
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                socket.send_fds(self._control, [kind], [theirs.fileno()])
            except OSError:
                ours.close()
                raise
        return ours

    def stop(self) -> None:
        """End it; workers end when their own sockets do."""
        if self._control is not None:
            self._control.close()
            self._control = None
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


class ServerWorker:
    """One process that looks at one picture at a time."""

    def __init__(self, pid: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.pid = pid
        self.alive = True
        self._reader = reader
        self._writer = writer

    @property
    def lost(self) -> bool:
        """Whether its end of the socket is closed."""
        return self._reader.at_eof()

    async def call(self, task: wire.Task, content: bytearray) -> tuple[wire.Outcome, bytearray]:
        """What it makes of the task; EOFError or OSError when it dies."""
        self._writer.write(wire.pack(task, len(content)))
        view = memoryview(content)
        for start in range(0, len(content), wire.PIECE):
            self._writer.write(view[start : start + wire.PIECE])
            await self._writer.drain()
        outcome, answer = await receive(self._reader)
        if outcome.last:
            self.end()
        return outcome, answer

    def end(self) -> None:
        """Kill it. Until its socket is closed here its number cannot belong to another process."""
        if self.alive:
            self.alive = False
            if not self.lost:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self.pid, signal.SIGKILL)
            self._writer.close()


async def receive(reader: asyncio.StreamReader) -> tuple[wire.Outcome, bytearray]:
    """The next message of a worker; EOFError or OSError when it dies before."""
    try:
        facts, size = wire.HEADER.unpack(await reader.readexactly(wire.HEADER.size))
        if facts > wire.MOST_FACTS:
            raise OSError("not a message")
        outcome = wire.unpack(wire.Outcome, await reader.readexactly(facts))
        content = bytearray()
        while len(content) < size:
            piece = await reader.read(min(size - len(content), wire.PIECE))
            if not piece:
                raise EOFError
            content += piece
    except (asyncio.IncompleteReadError, ValueError) as error:
        raise EOFError from error
    return outcome, content


class Lane:
    """The workers of one kind and the tasks that wait for them."""

    def __init__(self, kind: bytes, count: int, fork: Callable[[bytes], socket.socket], events: "Counter[str]") -> None:
        self.kind = kind
        self.count = count
        self.workers: set[ServerWorker] = set()
        self.idle: list[ServerWorker] = []
        self.tasks = 0
        """Tasks that workers of this kind were given."""
        self._fork = fork
        self._events = events
        self._waiting: list[tuple[float, int, asyncio.Future[ServerWorker]]] = []
        self._numbers = itertools.count()

    @property
    def waiting(self) -> int:
        """Tasks without a worker."""
        return sum(not future.done() for _, _, future in self._waiting)

    async def add(self) -> None:
        """One more worker."""
        reader, writer = await asyncio.open_connection(sock=self._fork(self.kind))
        try:
            async with asyncio.timeout(_FORK_SECONDS):
                outcome, _ = await receive(reader)
        except BaseException:
            writer.close()
            raise
        worker = ServerWorker(outcome.pid, reader, writer)
        self.workers.add(worker)
        self.free(worker)

    async def take(self, turn: float) -> ServerWorker:
        """A worker, when it is this turn's."""
        while self.idle:
            worker = self.idle.pop()
            if not worker.lost:
                return worker
            self.forget(worker)
        future: asyncio.Future[ServerWorker] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (turn, next(self._numbers), future))
        try:
            return await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled():
                self.free(future.result())
            raise

    def forget(self, worker: ServerWorker) -> None:
        """The worker died while it was idle."""
        self.workers.discard(worker)
        worker.end()
        self._events["died"] += 1

    def free(self, worker: ServerWorker) -> None:
        """The worker is done with its task, or new."""
        while self._waiting:
            future = heapq.heappop(self._waiting)[2]
            if not future.done():
                future.set_result(worker)
                return
        self.idle.append(worker)


class Pool:
    """All workers, and how many requests are in flight."""

    def __init__(self, nursery: Nursery, workers: int, limits: Limits) -> None:
        self.events: Counter[str] = Counter()
        """Workers that were replaced: grown, died or too_slow; and nurseries."""
        self.light = Lane(LIGHT, workers, nursery.fork, self.events)
        self.heavy = Lane(HEAVY, max(workers // 2, 1), nursery.fork, self.events)
        self.in_flight = 0
        """Requests whose picture has arrived and whose answer is not yet written."""
        self._nursery = nursery
        self._limits = limits
        self._keeper: asyncio.Task[None] | None = None
        self._missing = asyncio.Event()

    async def open(self) -> None:
        """Start the workers and keep their number."""
        self._missing.set()
        self._keeper = asyncio.create_task(self._keep())

    def close(self) -> None:
        """End all processes."""
        if self._keeper is not None:
            self._keeper.cancel()
        for worker in (*self.light.workers, *self.heavy.workers):
            worker.end()
        self._nursery.stop()

    @property
    def ready(self) -> bool:
        """Whether there is a worker of each kind."""
        return bool(self.light.workers and self.heavy.workers)

    @contextlib.contextmanager
    def place(self) -> Iterator[None]:
        """A place for one request whose picture has arrived; 503 when none is free."""
        if self.in_flight >= self._limits.in_flight:
            raise _busy(f"{self.in_flight} requests are in flight")
        self.in_flight += 1
        try:
            yield
        finally:
            self.in_flight -= 1

    async def run(self, task: wire.Task, content: bytearray, room: Share, wanted: Callable[[], bool]) -> Answer | None:
        """The answer, with ``room`` taken for one that is not small; None when nobody waits for it any more.

        ApiError: a refusal of the worker, 504 when it takes too long, 503 when there is no room, 500 when it dies.
        """
        deadline = monotonic() + self._limits.seconds
        turn = monotonic() + _SECONDS_PER_BYTE * len(content)
        outcome, answer = await self._first(task, content, turn, deadline, wanted)
        if outcome.kind == "needs":
            lane = self.heavy if outcome.heavy else self.light
            if outcome.heavy and lane.waiting >= _HEAVY_WAITING:
                raise _busy("too many large pictures wait")
            if outcome.size > SMALL_ANSWER:
                await room.wait(outcome.size, deadline)
            granted = replace(task, granted=True)
            outcome, answer = await self._call(lane, granted, content, monotonic(), deadline, wanted)
        if outcome.kind == "gone":
            return None
        if outcome.kind == "error":
            raise ApiError(outcome.status, outcome.code, outcome.message)
        if outcome.kind != "answer":
            logger.error("a worker failed: %s", outcome.message)
            raise ApiError(500, "internal", "the server failed; its log says why")
        return Answer(memoryview(answer), outcome.media_type)

    async def _first(
        self, task: wire.Task, content: bytearray, turn: float, deadline: float, wanted: Callable[[], bool]
    ) -> tuple[wire.Outcome, bytearray]:
        """A light worker's outcome. When it dies another one tries: it may have been dead before it got the task."""
        try:
            return await self._call(self.light, task, content, turn, deadline, wanted)
        except WorkerDiedError:
            return await self._call(self.light, task, content, turn, deadline, wanted)

    async def _call(
        self, lane: Lane, task: wire.Task, content: bytearray, turn: float, deadline: float, wanted: Callable[[], bool]
    ) -> tuple[wire.Outcome, bytearray]:
        try:
            async with asyncio.timeout(deadline - monotonic()):
                worker = await lane.take(turn)
        except TimeoutError:
            raise _busy("no worker was free in time") from None
        start = monotonic()
        try:
            if not wanted():
                return wire.Outcome("gone"), bytearray()
            lane.tasks += 1
            async with asyncio.timeout(deadline - start):
                outcome, answer = await worker.call(task, content)
            self.events["grown"] += outcome.last
            return outcome, answer
        except TimeoutError:
            worker.end()
            self.events["too_slow"] += 1
            raise self._too_slow() from None
        except (EOFError, OSError):
            worker.end()
            self.events["died"] += 1
            # Its timer of CPU time ended it, or something else did.
            raise self._too_slow() if monotonic() - start > 0.25 * self._limits.seconds else WorkerDiedError() from None
        except BaseException:
            worker.end()  # in the middle of a message
            raise
        finally:
            self._return(lane, worker)

    def _return(self, lane: Lane, worker: ServerWorker) -> None:
        if worker.alive:
            lane.free(worker)
        else:
            lane.workers.discard(worker)
            self._missing.set()

    def _too_slow(self) -> ApiError:
        return ApiError(504, "too_slow", f"the picture took longer than {self._limits.seconds:g} s; send a smaller one")

    # -- keeping their number -----------------------------------------------------------------------------------------

    async def _keep(self) -> None:
        """Replace workers that are gone. An idle one that dies is noticed within a second."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    await self._missing.wait()
            self._missing.clear()
            for lane in (self.light, self.heavy):
                self._forget_dead(lane)
                while len(lane.workers) < lane.count:
                    await self._add(lane)

    def _forget_dead(self, lane: Lane) -> None:
        for worker in [worker for worker in lane.idle if worker.lost]:
            lane.idle.remove(worker)
            lane.forget(worker)

    async def _add(self, lane: Lane) -> None:
        try:
            await lane.add()
        except (EOFError, OSError):  # TimeoutError is one
            self.events["nursery"] += 1
            logger.warning("the process that workers come from is gone; starting another")
            try:
                await asyncio.to_thread(self._nursery.start)
            except (ModelError, OSError) as error:
                logger.error("%s", error)
                await asyncio.sleep(1.0)


def _busy(reason: str) -> ApiError:
    return ApiError(503, "busy", f"{reason}; try again in a second", {"retry-after": "1"})
