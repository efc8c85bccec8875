"""The threads that work, and how many requests hold a picture at once."""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from fastgaze.app.server.limits import ApiError, Limits

T = TypeVar("T")


class Pool:
    """A fixed number of threads and a bound on requests in flight, waiting ones included."""

    def __init__(self, workers: int, limits: Limits) -> None:
        self.workers = workers
        self._limits = limits
        self._executor = ThreadPoolExecutor(workers, "fastgaze-work")
        self._lock = threading.Lock()
        self._in_flight = 0

    @property
    def in_flight(self) -> int:
        """Requests that hold a picture now; work that outlived its request counts until it ends."""
        return self._in_flight

    @contextlib.contextmanager
    def place(self) -> Iterator[None]:
        """A place for one request, from before its body is read; 503 when none is free."""
        with self._lock:
            if self._in_flight >= self._limits.in_flight:
                message = f"{self._limits.in_flight} requests are in flight; try again in a second"
                raise ApiError(503, "busy", message, {"retry-after": "1"})
            self._in_flight += 1
        try:
            yield
        finally:
            self._leave()

    def _leave(self) -> None:
        with self._lock:
            self._in_flight -= 1

    async def run(self, job: Callable[[], T]) -> T:
        """The job's result; 504 when it does not come in time."""
        future = self._executor.submit(job)
        try:
            async with asyncio.timeout(self._limits.seconds):
                return await asyncio.wrap_future(future)
        except TimeoutError:
            seconds = self._limits.seconds
            raise ApiError(504, "too_slow", f"the picture took longer than {seconds:g} s; send a smaller one") from None
        finally:
            self._abandon(future)

    def _abandon(self, future: Future[T]) -> None:
        """A thread cannot be stopped, so one still at work keeps a place until it ends."""
        if future.done() or future.cancel():
            return
        with self._lock:
            self._in_flight += 1
        future.add_done_callback(lambda _: self._leave())

    def close(self) -> None:
        """Forget what waits and let what runs end."""
        self._executor.shutdown(wait=False, cancel_futures=True)
