"""Scale a picture, normalise it and lay it out by channel, in one go.

Pillow's antialiased bilinear filter, without its two roundings to 8 bits. Along an axis the filter is a matrix with a
narrow band, so a few neighbouring outputs read a short stretch of the input: one small dense product each. From 384x512
to 240x320 this takes half the time of Pillow's resize and the normalisation after it. At half the size exactly, the
mean of two by two pixels stands in for the filter, as everywhere that whole blocks fit (``runtime.image``).
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float32]
Size = tuple[int, int]

# Outputs a product; more of them waste arithmetic on zeros, fewer spend it on calls.
_ROWS, _COLUMNS = 8, 16


@dataclass(frozen=True, eq=False)
class Band:
    """Outputs ``start``..``stop`` of an axis from inputs ``first``..``last``: weights (stop - start, last - first)."""

    start: int
    stop: int
    first: int
    last: int
    weights: Array


@lru_cache(maxsize=64)
def bands(n_in: int, n_out: int, step: int) -> tuple[Band, ...]:
    """The filter from ``n_in`` to ``n_out`` samples in bands of ``step`` outputs; the weights of an output sum to 1."""
    scale = n_in / n_out
    support = max(scale, 1.0)
    centers = (np.arange(n_out) + 0.5) * scale
    first = np.maximum((centers - support + 0.5).astype(np.intp), 0)
    reads = first[:, None] + np.arange(int(np.ceil(2 * support)) + 1)
    weights = (1 - np.abs(reads + 0.5 - centers[:, None]) / support).clip(min=0)
    weights[reads >= n_in] = 0
    weights /= weights.sum(axis=1, keepdims=True)
    return tuple(
        _band(start, reads[start : start + step], weights[start : start + step], n_in)
        for start in range(0, n_out, step)
    )


def _band(start: int, reads: npt.NDArray[np.intp], weights: npt.NDArray[np.float64], n_in: int) -> Band:
    """Outputs from ``start`` on, as one block: the inputs that each reads and their weights, both (outputs, reads)."""
    first, count = int(reads[0, 0]), len(reads)
    block = np.zeros((count, int(reads[-1, -1]) + 1 - first), np.float32)
    block[np.arange(count)[:, None], reads - first] = weights
    last = min(first + block.shape[1], n_in)
    return Band(start, start + count, first, last, np.ascontiguousarray(block[:, : last - first]))


def planes(rgb: npt.NDArray[np.uint8], size: Size, scale: Array, offset: Array) -> Array:
    """uint8 (H, W, 3) -> float32 (3, *size): scaled to ``size`` (height, width), times scale (3,), plus offset (3,)."""
    if rgb.shape[:2] == (2 * size[0], 2 * size[1]):
        return _halved(rgb, scale, offset)
    (height, width), n_in = size, rgb.shape[1]
    flat = rgb.reshape(len(rgb), -1)
    rows = np.empty((height, flat.shape[1]), np.float32)
    for band in bands(len(rgb), height, _ROWS):
        np.matmul(band.weights, flat[band.first : band.last].astype(np.float32), out=rows[band.start : band.stop])
    apart = np.empty((3, height, n_in), np.float32)
    for channel, plane in enumerate(apart):
        np.multiply(rows.reshape(height, n_in, 3)[:, :, channel], scale[channel], out=plane)
    out = np.empty((3 * height, width), np.float32)
    for band in bands(n_in, width, _COLUMNS):
        reads = apart.reshape(3 * height, n_in)[:, band.first : band.last]
        np.matmul(reads, band.weights.T, out=out[:, band.start : band.stop])
    scaled = out.reshape(3, height, width)
    scaled += offset[:, None, None]
    return scaled


def _halved(rgb: npt.NDArray[np.uint8], scale: Array, offset: Array) -> Array:
    """The same at half the size, by the mean of two by two pixels."""
    height, width = rgb.shape[0] // 2, rgb.shape[1] // 2
    flat = rgb.reshape(len(rgb), -1)
    pairs = np.add(flat[0::2], flat[1::2], dtype=np.uint16).reshape(height, width, 2, 3)
    out = np.empty((3, height, width), np.float32)
    for channel, plane in enumerate(out):
        np.add(pairs[:, :, 0, channel], pairs[:, :, 1, channel], out=plane)
        plane *= scale[channel] / 4
        plane += offset[channel]
    return out
