"""Deflate in numpy: zlib reads what it writes, and it is small where that is possible."""

import zlib

import numpy as np
import pytest

from fastgaze.core.deflate import _CHUNK, code_lengths, codes, compress

RNG = np.random.default_rng(0)


def noise(spread: float, size: int) -> np.ndarray:
    """Differences of a grainy photograph: near 0, modulo 256."""
    return np.round(RNG.normal(0, spread, size)).astype(np.int64).astype(np.uint8)


@pytest.mark.parametrize("size", [0, 1, 5, _CHUNK - 1, *(2 * _CHUNK + odd for odd in range(4))])
@pytest.mark.parametrize("spread", [3.0, 80.0])
def test_zlib_reads_every_byte(size: int, spread: float) -> None:
    content = noise(spread, size)
    assert zlib.decompress(compress(content)) == content.tobytes()


def test_rare_bytes_and_bytes_that_the_sample_missed_are_kept() -> None:
    content = noise(4.0, 3 * _CHUNK)
    content[1::70_001] = 130
    steep = np.repeat(np.arange(24, dtype=np.uint8), [2**k for k in range(24)])[-4 * _CHUNK :]
    for given in (content, RNG.permutation(steep), np.full(2 * _CHUNK, 7, np.uint8)):
        assert zlib.decompress(compress(given)) == given.tobytes()


def test_it_is_as_small_as_huffman_codes_allow() -> None:
    content = noise(5.0, 4 * _CHUNK)
    share = np.bincount(content, minlength=256) / content.size
    entropy = -(share[share > 0] * np.log2(share[share > 0])).sum()
    assert len(compress(content)) * 8 < 1.03 * entropy * content.size


def test_flat_content_shrinks_to_almost_nothing() -> None:
    content = np.zeros(4 * _CHUNK, np.uint8)
    content[::5000] = 9
    assert len(compress(content)) < content.size / 100


@pytest.mark.parametrize("counts", [[1, 1], [5, 1, 1], [2**k for k in range(40)], [1] * 257])
def test_codes_are_complete_prefix_codes_of_at_most_15_bits(counts: list[int]) -> None:
    lengths = code_lengths(np.array(counts))
    assert max(lengths) <= 15
    assert sum(2.0**-length for length in lengths) == 1
    texts = [f"{code:0{length}b}"[::-1] for code, length in zip(codes(lengths), lengths, strict=True)]
    assert not [one for one in texts for other in texts if one != other and other.startswith(one)]
    assert len(set(texts)) == len(counts)
