"""Processes on this machine, each with one thread and one shard at a time; a process that dies is replaced."""

import multiprocessing
import os
import signal
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from ctypes import c_longlong
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from multiprocessing.sharedctypes import RawValue

from fastgaze.core.errors import DataError
from fastgaze.runtime.batch.job import Shard
from fastgaze.runtime.batch.work import ShardReport, ShardWorker, WorkerSetup

# The network has one thread; numpy's matrix products must not add more.
_ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
# A worker that ends by itself (a decoder crashes) speaks against the image it had in hand; one that is killed may just
# as well have been the wrong process at the wrong time, or the largest when memory ran out.
_CRASH, _KILL = 2, 1
_MOST_BLAME = 4
_HOPELESS = 10
_MOST_FALSE_STARTS = 3
_POLL = 0.5
_BEFORE_FIRST = -1


@dataclass(eq=False)
class _Hand:
    """One process, as its driver sees it."""

    process: BaseProcess
    pipe: Connection
    position: c_longlong
    """Index of the image that it is working on, in shared memory."""
    shard: Shard | None = None
    awake: bool = False
    """It runs and waits for its setup."""
    started: bool = False
    """It has loaded the model."""


def run_local(shards: Sequence[Shard], setup: WorkerSetup, workers: int) -> Iterator[ShardReport]:
    """Do ``shards``, as they get done; the queue holds one shard per process, so memory stays bounded."""
    pool = _Pool(shards, setup)
    try:
        yield from pool.run(min(workers, len(shards)))
    finally:
        pool.stop()


class _Pool:
    def __init__(self, shards: Sequence[Shard], setup: WorkerSetup) -> None:
        self._waiting = deque(shards)
        self._setup = setup
        # A forked copy of a process that holds threads and locks may hang: start afresh.
        self._context = multiprocessing.get_context("spawn")
        self._hands: list[_Hand] = []
        self._blame: Counter[tuple[str, int]] = Counter()
        self._false_starts = 0

    def run(self, workers: int) -> Iterator[ShardReport]:
        for _ in range(workers):
            self._hire()
        while self._waiting or any(hand.shard for hand in self._hands):
            by_pipe = {hand.pipe: hand for hand in self._hands}
            # A pipe is ready when there is a message, and also when its process has died.
            for pipe in wait(list(by_pipe), timeout=_POLL):
                done = self._hear(by_pipe[pipe])  # type: ignore[index]
                if done is not None:
                    yield done

    def stop(self) -> None:
        """End all processes; files are written atomically, so at any moment."""
        for hand in self._hands:
            hand.process.terminate()
            hand.pipe.close()
        for hand in self._hands:
            hand.process.join()

    def _hire(self) -> None:
        here, there = self._context.Pipe()
        position = RawValue("q", _BEFORE_FIRST)
        # The setup follows over the pipe. Among the arguments it would be written to a pipe whose other end is still
        # open here, so that a process that dies at its start would leave the driver writing for ever.
        process = self._context.Process(target=_work, args=(there, position), daemon=True)
        with _one_thread():
            process.start()
        # Only the process holds this end now, so that its death closes the pipe.
        there.close()
        self._hands.append(_Hand(process, here, position))

    def _hear(self, hand: _Hand) -> ShardReport | None:
        try:
            message = hand.pipe.recv()
        except (EOFError, OSError):
            self._bury(hand)
            return None
        if isinstance(message, str):
            raise DataError(message)
        if not hand.awake:
            hand.awake = True
            self._send(hand, self._setup)
            return None
        hand.started, hand.shard, self._false_starts = True, None, 0
        if self._waiting:
            self._give(hand)
        return message if isinstance(message, ShardReport) else None

    def _give(self, hand: _Hand) -> None:
        hand.shard, hand.position.value = self._waiting.popleft(), _BEFORE_FIRST
        self._send(hand, hand.shard)

    def _send(self, hand: _Hand, message: WorkerSetup | Shard) -> None:
        try:
            hand.pipe.send(message)
        except OSError:
            self._bury(hand)

    def _bury(self, hand: _Hand) -> None:
        """Put the dead process's shard back, mark the image it died over if that happened before, and replace it."""
        self._hands.remove(hand)
        hand.process.join()
        hand.pipe.close()
        if not hand.started:
            self._false_starts += 1
            if self._false_starts >= _MOST_FALSE_STARTS:
                raise DataError(
                    f"worker processes die at start (exit code {hand.process.exitcode}); if this is a script of yours, "
                    "call run under `if __name__ == '__main__':`"
                )
        if hand.shard is not None:
            killed = hand.process.exitcode in (-signal.SIGKILL, -signal.SIGTERM)
            blame = _KILL if killed else _CRASH
            self._waiting.appendleft(self._after_death(hand.shard, int(hand.position.value), blame))
        if self._waiting:
            self._hire()

    def _after_death(self, shard: Shard, index: int, blame: int) -> Shard:
        if index == _BEFORE_FIRST:
            return shard
        self._blame[shard.name, index] += blame
        if self._blame[shard.name, index] < _MOST_BLAME:
            return shard
        if self._blame[shard.name, index] >= _HOPELESS:
            raise DataError(f"worker processes keep dying over {shard.name}; give them more memory or take fewer")
        return replace(shard, skip=shard.skip | {index})


def _work(pipe: Connection, position: c_longlong) -> None:
    """A process's life: setup and shards in, reports out, until the pipe closes. Text is a failure."""
    # Ctrl-C is for the driver, which ends its processes itself.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # So is stdout, for the result; decoders and drivers of file systems may print, also from C.
    with suppress(OSError):
        os.dup2(2, 1)

    def at(index: int) -> None:
        position.value = index

    try:
        pipe.send(None)
        worker = ShardWorker(pipe.recv())
        pipe.send(None)
        while True:
            pipe.send(worker(pipe.recv(), at))
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return
    except Exception as error:  # the driver raises it
        pipe.send(f"{type(error).__name__}: {error}" if not str(error) else str(error))


@contextmanager
def _one_thread() -> Iterator[None]:
    """Set environment variables for processes that are started meanwhile."""
    before = {name: os.environ.get(name) for name in _ONE_THREAD}
    os.environ.update(dict.fromkeys(_ONE_THREAD, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
