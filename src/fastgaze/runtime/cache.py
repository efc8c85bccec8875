"""What was computed and is kept, up to a number of bytes."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float32]


class ArrayCache:
    """Arrays by key; those not used for longest go first. May be shared between threads."""

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self._held: OrderedDict[Hashable, Array] = OrderedDict()
        self._bytes = 0
        self._lock = Lock()

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays in it."""
        return self._bytes

    def get(self, key: Hashable, make: Callable[[], Array]) -> Array:
        """The array of ``key``, made if it is not there; one that alone would fill half of the room is not kept."""
        with self._lock:
            if key in self._held:
                self._held.move_to_end(key)
                return self._held[key]
        array = make()  # outside the lock: two threads may both make it, none waits
        if 2 * array.nbytes <= self._most:
            self._keep(key, array)
        return array

    def _keep(self, key: Hashable, array: Array) -> None:
        array.flags.writeable = False
        with self._lock:
            if key not in self._held:
                self._held[key] = array
                self._bytes += array.nbytes
            while self._bytes > self._most:
                _, oldest = self._held.popitem(last=False)
                self._bytes -= oldest.nbytes
