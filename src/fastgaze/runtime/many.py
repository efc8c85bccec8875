"""Work on many pictures at once: in threads, in order, counted."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

from fastgaze.core.progress import Progress, silent

S = TypeVar("S")
T = TypeVar("T")

_AHEAD = 2
"""Results per thread that may wait for whoever asks for them."""


def in_threads(work: Callable[[S], T], items: Iterable[S], threads: int) -> Iterator[T]:
    """``work`` of every item, in their order. A few items are taken ahead of what has been asked for, never all."""
    if threads == 1:
        yield from map(work, items)
        return
    waiting: deque[Future[T]] = deque()
    with ThreadPoolExecutor(threads, thread_name_prefix="fastgaze") as pool:
        try:
            for item in items:
                waiting.append(pool.submit(work, item))
                if len(waiting) > _AHEAD * threads:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


def counted(results: Iterator[T], total: int | None, progress: Progress | bool) -> Iterator[T]:
    """``results``, with ``progress`` told of each: a function, True for a bar on stderr, or False."""
    with _shown(progress) as tell:
        tell(0, total, "")
        for done, result in enumerate(results, 1):
            tell(done, total, "")
            yield result


@contextmanager
def _shown(progress: Progress | bool) -> Iterator[Progress]:
    if not isinstance(progress, bool):
        yield progress
    elif progress:
        with _bar() as tell:
            yield tell
    else:
        yield silent


@contextmanager
def _bar() -> Iterator[Progress]:
    """A bar on stderr, in a terminal or a notebook; nothing where neither is there to see it."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    console = Console(stderr=True)
    columns = BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn()
    with Bar(*columns, console=console, disable=not (console.is_terminal or console.is_jupyter)) as bar:
        task = bar.add_task("pictures", total=None)
        yield lambda done, total, _: bar.update(task, completed=done, total=total)
