"""The processes that look at pictures, as the server sees them: the nursery and the workers forked from it."""

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict
from time import monotonic

from fastgaze.app.server import wire
from fastgaze.app.server.limits import Limits
from fastgaze.app.server.turns import Verdict
from fastgaze.core.errors import ModelError

_START_SECONDS = 60.0
_FORK_SECONDS = 5.0
_LONG_SECONDS = 0.2
"""CPU time of a task that is not quick: several times that of a picture of ordinary size."""


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

    @property
    def lost(self) -> bool:
        """Whether the process has ended."""
        return self._process is None or self._process.poll() is not None

    def stop(self) -> None:
        """End it; workers end when their own sockets do."""
        if self._control is not None:
            self._control.close()
            self._control = None
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


class _Watched(asyncio.StreamReaderProtocol):
    """Says at once that the other side is gone, also while nobody reads."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        super().__init__(reader)
        self.lost = False
        self.on_lost: Callable[[], None] = lambda: None

    def eof_received(self) -> bool:
        """The worker's end is closed."""
        super().eof_received()
        if not self.lost:
            self.lost = True
            self.on_lost()
        return True


class ServerWorker:
    """One process that looks at one picture at a time."""

    def __init__(
        self, pid: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, protocol: _Watched
    ) -> None:
        self.pid = pid
        self.alive = True
        self.used = 0.0
        """CPU seconds of its last task; seconds of any kind when it did not live to say so."""
        self.verdict = Verdict.SEEN
        """On its last task."""
        self._reader = reader
        self._writer = writer
        self._protocol = protocol

    @classmethod
    async def connect(cls, connection: socket.socket) -> "ServerWorker":
        """The worker at the other end of that socket, when it says that it is ready; EOFError or OSError otherwise."""
        reader = asyncio.StreamReader()
        protocol = _Watched(reader)
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_connection(lambda: protocol, sock=connection)
        try:
            async with asyncio.timeout(_FORK_SECONDS):
                outcome, _ = await receive(reader)
        except BaseException:
            transport.close()
            raise
        return cls(outcome.pid, reader, asyncio.StreamWriter(transport, protocol, reader, loop), protocol)

    @property
    def lost(self) -> bool:
        """Whether its end of the socket is closed."""
        return self._protocol.lost

    def when_lost(self, do: Callable[[], None]) -> None:
        """Call ``do`` when its end of the socket is closed, at once if it is."""
        self._protocol.on_lost = do
        if self.lost:
            do()

    async def call(self, task: wire.Task, content: bytearray | memoryview) -> tuple[wire.Outcome, bytearray]:
        """What it makes of the task; EOFError or OSError when it dies."""
        start, self.used, self.verdict = monotonic(), 0.0, Verdict.BAD
        try:
            self._writer.write(wire.pack(task, len(content)))
            view = memoryview(content)
            for place in range(0, len(content), wire.PIECE):
                self._writer.write(view[place : place + wire.PIECE])
                await self._writer.drain()
            outcome, answer = await receive(self._reader)
        except BaseException:
            self.used = monotonic() - start
            raise
        self.used = max(outcome.seconds, 0.0)
        if outcome.kind in ("answer", "needs", "parts") and self.used < _LONG_SECONDS:
            self.verdict = Verdict.GOOD if outcome.kind == "answer" else Verdict.SEEN
        if outcome.last:
            self.end()
        return outcome, answer

    def end(self) -> None:
        """Kill it. Until its socket is closed here its number cannot belong to another process."""
        if self.alive:
            self.alive = False
            self._protocol.on_lost = lambda: None
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
