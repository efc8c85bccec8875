"""Handwritten digits in the four original files (IDX, gzip or plain), for the LeNet table of the paper."""

import gzip
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fastgaze.core.errors import DataError

VALIDATION = 7_000  # of the 60,000 training digits, as in the paper
_TYPES: dict[int, np.dtype[np.generic]] = {
    0x08: np.dtype("u1"),
    0x09: np.dtype("i1"),
    0x0B: np.dtype(">i2"),
    0x0C: np.dtype(">i4"),
}


@dataclass(frozen=True)
class Digits:
    """images uint8 (N, 28, 28), 0 is background; labels int64 (N,), 0 to 9."""

    images: NDArray[np.uint8]
    labels: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True)
class MNIST:
    """53,000 digits to train on, 7,000 to validate, 10,000 to test."""

    train: Digits
    validation: Digits
    test: Digits


def load_mnist(folder: Path, seed: int = 0) -> MNIST:
    """Read the four files in ``folder``; ``seed`` chooses the 7,000 validation digits among the 60,000."""
    known = _digits(folder, "train")
    order = np.random.default_rng(seed).permutation(len(known))
    held_out = min(VALIDATION, len(known) // 2)
    parts = [Digits(known.images[k], known.labels[k]) for k in (order[held_out:], order[:held_out])]
    return MNIST(parts[0], parts[1], _digits(folder, "t10k"))


def _digits(folder: Path, part: str) -> Digits:
    images = read_idx(_find(folder, f"{part}-images-idx3-ubyte"))
    labels = read_idx(_find(folder, f"{part}-labels-idx1-ubyte"))
    if images.ndim != 3 or labels.shape != images.shape[:1]:
        raise DataError(f"{folder}: {part} has images {images.shape} and labels {labels.shape}; one label an image")
    return Digits(images.astype(np.uint8, copy=False), labels.astype(np.int64))


def _find(folder: Path, name: str) -> Path:
    for path in (folder / f"{name}.gz", folder / name):
        if path.is_file():
            return path
    raise DataError(f"{folder}: no {name}.gz and no {name}; put the four MNIST files there")


def read_idx(path: Path) -> NDArray[np.generic]:
    """An array from an IDX file: two zero bytes, type, number of dimensions, big-endian sizes, values."""
    try:
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(f"{path}: damaged gzip file ({error}); fetch it again") from error
    if len(content) < 4 or content[:2] != b"\0\0" or content[2] not in _TYPES:
        raise DataError(f"{path}: not an IDX file of integers; expected the original MNIST files")
    dtype, start = _TYPES[content[2]], 4 + 4 * content[3]
    shape = tuple(int(n) for n in np.frombuffer(content[4:start], ">u4"))
    if len(content) != start + int(np.prod(shape)) * dtype.itemsize:
        raise DataError(f"{path}: {len(content)} bytes do not hold an array {shape}; the file is truncated")
    values: NDArray[np.generic] = np.frombuffer(content, dtype, offset=start)
    return values.reshape(shape)
