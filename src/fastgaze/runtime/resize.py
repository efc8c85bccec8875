"""Scale a picture, normalise it and lay it out by channel, in one pass.

Pillow's antialiased bilinear filter, without its two roundings to 8 bits. Along an axis the filter is a matrix with a
narrow band, so a few neighbouring outputs read a short stretch of the input: one small dense product each. From 512x384
to 320x240 this takes half the time of Pillow's resize and the normalisation after it. A picture at least twice as large
as asked is first halved by the mean of two by two pixels, as files are where whole blocks fit (``core.pictures``).

A network that learned from images which had been scaled twice, to S pixels and from there to its working size of W,
learned from soft ones. A filter of half-width a has the variance a^2 / 6, and variances add up: a picture of more than
S pixels becomes as soft in one pass if the filter is wider by sqrt(1 + W / S).
"""

from dataclasses import dataclass
from functools import lru_cache
from math import sqrt

import numpy as np
import numpy.typing as npt

from fastgaze.core.sizes import Size
from fastgaze.runtime.card import ModelCard

Array = npt.NDArray[np.float32]

# Outputs per product; more of them waste arithmetic on zeros, fewer spend it on calls.
_ROWS, _COLUMNS = 8, 16
# Of W / S: training hardly enlarges images, and a file may say anything. Below 3, a filter without a change of size
# reaches one neighbour at each side.
_MOST_ENLARGED = 2.0


@dataclass(frozen=True, eq=False)
class Band:
    """Outputs ``start``..``stop`` of an axis from inputs ``first``..``last``: weights (stop - start, last - first)."""

    start: int
    stop: int
    first: int
    last: int
    weights: Array


@lru_cache(maxsize=64)
def bands(n_in: int, n_out: int, step: int, softness: float = 1.0) -> tuple[Band, ...]:
    """The filter from ``n_in`` to ``n_out`` samples in bands of ``step`` outputs; the weights of an output sum to 1.

    softness: how much wider the filter is than antialiasing needs.
    """
    scale = n_in / n_out
    support = softness * max(scale, 1.0)
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


def prepare(photo: npt.NDArray[np.uint8], working: Size, card: ModelCard, size: Size | None = None) -> Array:
    """Upright RGB (H, W, 3) of any size -> what the model's network takes: float32 (3, *working), normalised.

    size: (height, width) of the picture before it was decoded smaller, that of ``photo`` by default.
    """
    std: Array = np.float32(255) * np.array(card.std, np.float32)
    scale: Array = np.float32(1) / std
    offset: Array = np.float32(-255) * np.array(card.mean, np.float32) / std
    softness = _softness(size or (photo.shape[0], photo.shape[1]), working, card)
    if photo.shape[:2] != working or softness > 1:
        return planes(photo, working, scale, offset, softness)
    pixels = np.empty((3, *working), np.float32)
    for channel in range(3):
        np.multiply(photo[:, :, channel], scale[channel], out=pixels[channel])
        pixels[channel] += offset[channel]
    return pixels


def _softness(size: Size, working: Size, card: ModelCard) -> float:
    """How much wider than usual the filter is for a picture of ``size``."""
    if not 0 < card.seen_pixels < size[0] * size[1]:
        return 1.0
    return sqrt(1 + min(working[0] * working[1] / card.seen_pixels, _MOST_ENLARGED))


def planes(rgb: npt.NDArray[np.uint8], size: Size, scale: Array, offset: Array, softness: float = 1.0) -> Array:
    """uint8 (H, W, 3) -> float32 (3, *size): scaled to ``size`` (height, width), times scale (3,), plus offset (3,).

    softness: as for ``bands``.
    """
    if _can_halve(rgb.shape[:2], size):
        exactly = softness > 1 and (2 * size[0], 2 * size[1]) == rgb.shape[:2]
        scaled = _halved_softly(rgb, scale, softness) if exactly else _halved(rgb, scale)
        if scaled.shape[1:] != size:
            scaled = _columns(_rows(scaled, size[0], softness), size[1], softness)
    else:
        scaled = _columns(_rows_apart(rgb, size[0], scale, softness), size[1], softness)
    scaled += offset[:, None, None]
    return scaled


def _can_halve(given: Size, size: Size) -> bool:
    """Whether two by two pixels can become one and leave at least ``size``."""
    return all(n_in % 2 == 0 and n_in >= 2 * n_out for n_in, n_out in zip(given, size, strict=True))


def _halved(rgb: npt.NDArray[np.uint8], scale: Array) -> Array:
    """uint8 (H, W, 3) -> float32 (3, H / 2, W / 2): the mean of two by two pixels, times scale (3,)."""
    height, width = rgb.shape[0] // 2, rgb.shape[1] // 2
    flat = rgb.reshape(len(rgb), -1)
    pairs = np.add(flat[0::2], flat[1::2], dtype=np.uint16).reshape(height, width, 2, 3)
    out = np.empty((3, height, width), np.float32)
    for channel, plane in enumerate(out):
        np.add(pairs[:, :, 0, channel], pairs[:, :, 1, channel], out=plane)
        plane *= scale[channel] / 4
    return out


def _rows_apart(rgb: npt.NDArray[np.uint8], height: int, scale: Array, softness: float) -> Array:
    """uint8 (H, W, 3) -> float32 (3, height, W), times scale (3,)."""
    width = rgb.shape[1]
    flat = rgb.reshape(len(rgb), -1)
    rows = np.empty((height, width, 3), np.float32)
    for band in bands(len(rgb), height, _ROWS, softness):
        part = rows[band.start : band.stop].reshape(-1, 3 * width)
        np.matmul(band.weights, flat[band.first : band.last].astype(np.float32), out=part)
    apart = np.empty((3, height, width), np.float32)
    for channel, plane in enumerate(apart):
        np.multiply(rows[:, :, channel], scale[channel], out=plane)
    return apart


def _rows(image: Array, height: int, softness: float) -> Array:
    """(3, H, W) -> (3, height, W)."""
    out = np.empty((3, height, image.shape[2]), np.float32)
    for band in bands(image.shape[1], height, _ROWS, softness):
        np.matmul(band.weights, image[:, band.first : band.last], out=out[:, band.start : band.stop])
    return out


def _columns(image: Array, width: int, softness: float) -> Array:
    """(3, H, W) -> (3, H, width)."""
    height, n_in = image.shape[1:]
    flat = image.reshape(3 * height, n_in)
    out = np.empty((3 * height, width), np.float32)
    for band in bands(n_in, width, _COLUMNS, softness):
        np.matmul(flat[:, band.first : band.last], band.weights.T, out=out[:, band.start : band.stop])
    return out.reshape(3, height, width)


def _halved_softly(rgb: npt.NDArray[np.uint8], scale: Array, softness: float) -> Array:
    """``_halved``, then the filter of ``bands`` without a change of size, which reaches one neighbour at each side.

    One channel after the other, which fits the cache: half the time of products with nearly diagonal bands.
    """
    side = np.float32(1 - 1 / softness)
    total = 1 + 2 * side
    image = _halved(rgb, scale / total**2)  # what the filter divides by, along both axes
    sums = np.empty_like(image[0])
    for plane in image:
        for x, y in ((plane, sums), (plane.T, sums.T)):
            ends = [(x[end] + side * x[inner]) * (total / (1 + side)) for end, inner in ((0, 1), (-1, -2))]
            np.add(x[:-2], x[2:], out=y[1:-1])
            y[1:-1] *= side
            x[1:-1] += y[1:-1]
            x[0], x[-1] = ends
    return image
