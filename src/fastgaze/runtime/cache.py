"""What was computed and is kept, up to a number of bytes."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock
from typing import Generic, Protocol, TypeVar


class Sized(Protocol):
    """An array, or anything else that knows its size."""

    @property
    def nbytes(self) -> int:
        """Bytes that it takes."""
        ...


T = TypeVar("T", bound=Sized)


class ByteCache(Generic[T]):
    """Values by key; those not used for longest go first. May be shared between threads."""

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self._held: OrderedDict[Hashable, T] = OrderedDict()
        self._bytes = 0
        self._lock = Lock()

    @property
    def nbytes(self) -> int:
        """Bytes of all that is in it."""
        return self._bytes

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """The value of ``key``, made if it is not there; one that alone would fill half of the room is not kept."""
        with self._lock:
            value = self._held.get(key)
            if value is not None:
                self._held.move_to_end(key)
                return value
        value = make()  # outside the lock: two threads may both make it, none waits
        if 2 * value.nbytes <= self._most:
            self._keep(key, value)
        return value

    def _keep(self, key: Hashable, value: T) -> None:
        with self._lock:
            if key not in self._held:
                self._held[key] = value
                self._bytes += value.nbytes
            while self._bytes > self._most:
                _, oldest = self._held.popitem(last=False)
                self._bytes -= oldest.nbytes
