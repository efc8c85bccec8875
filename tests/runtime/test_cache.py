"""Values are kept up to a number of bytes, those used last the longest."""

import numpy as np

from fastgaze.runtime.cache import ByteCache


def kilobyte() -> np.ndarray:
    return np.zeros(256, np.float32)


def test_the_bytes_stay_below_the_limit() -> None:
    cache: ByteCache[np.ndarray] = ByteCache(10 * 1024)
    for key in range(100):
        cache.get(key, kilobyte)
    assert cache.nbytes == 10 * 1024


def test_what_is_used_stays_and_what_is_not_goes() -> None:
    cache: ByteCache[np.ndarray] = ByteCache(3 * 1024)
    first, second = cache.get("a", kilobyte), cache.get("b", kilobyte)
    for key in range(5):
        cache.get(key, kilobyte)
        assert cache.get("a", kilobyte) is first
    assert cache.get("b", kilobyte) is not second


def test_an_array_that_would_push_out_half_of_the_others_is_not_kept() -> None:
    cache: ByteCache[np.ndarray] = ByteCache(1024)
    assert cache.get("large", kilobyte) is not cache.get("large", kilobyte)
    assert cache.nbytes == 0
