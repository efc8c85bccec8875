"""Processes on this machine, one thread each, one shard in hand each; a process that dies is replaced."""

import multiprocessing
import os
import signal
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from multiprocessing.sharedctypes import RawValue
from typing import Any

from fastgaze.core.errors import DataError
from fastgaze.runtime.batch.job import Shard
from fastgaze.runtime.batch.work import ShardReport, Worker, WorkerSetup

# The network has one thread; numpy's matrix products must not add more.
_ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
_MOST_DEATHS = 2
_HOPELESS = 5
_MOST_FALSE_STARTS = 3
_POLL = 0.5
_BEFORE_FIRST = -1


@dataclass(eq=False)
class _Hand:
    """One process, as its driver sees it."""

    process: Any
    pipe: Connection
    position: Any
    """Shared: index of the image it has in hand."""
    shard: Shard | None = None
    started: bool = False


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
        self._deaths: Counter[tuple[str, int]] = Counter()
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
        process = self._context.Process(target=_work, args=(there, self._setup, position), daemon=True)
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
        hand.started, hand.shard, self._false_starts = True, None, 0
        if self._waiting:
            self._give(hand)
        return message if isinstance(message, ShardReport) else None

    def _give(self, hand: _Hand) -> None:
        shard = self._waiting.popleft()
        hand.shard, hand.position.value = shard, _BEFORE_FIRST
        try:
            hand.pipe.send(shard)
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
            self._waiting.appendleft(self._after_death(hand.shard, int(hand.position.value)))
        if self._waiting:
            self._hire()

    def _after_death(self, shard: Shard, index: int) -> Shard:
        if index == _BEFORE_FIRST:
            return shard
        self._deaths[shard.name, index] += 1
        if self._deaths[shard.name, index] < _MOST_DEATHS:
            return shard
        if self._deaths[shard.name, index] >= _HOPELESS:
            raise DataError(f"worker processes keep dying over {shard.name}; give them more memory or take fewer")
        return replace(shard, skip=shard.skip | {index})


def _work(pipe: Connection, setup: WorkerSetup, position: Any) -> None:
    """A process's life: shards in, reports out, until the pipe closes. A message that is text is a failure."""
    # Ctrl-C is the driver's business; it ends its processes itself.
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def at(index: int) -> None:
        position.value = index

    try:
        worker = Worker(setup)
        pipe.send(None)
        while True:
            pipe.send(worker(pipe.recv(), at))
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return
    except Exception as error:  # the driver raises it
        pipe.send(f"{type(error).__name__}: {error}" if not str(error) else str(error))


@contextmanager
def _one_thread() -> Iterator[None]:
    """Environment for processes started meanwhile."""
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
