"""Images and where people looked in them: the one in-memory form of every data set.

The conventions of ``core.sizes`` hold: sizes are (height, width), fixations are (x, y) in pixels of the image they
belong to, and coordinates are continuous. Therefore the pixel of a point is its floor, a point is inside an image of
(H, W) when 0 <= x < W and 0 <= y < H, and scaling an image from (H, W) to (h, w) moves a point to
(x * w / W, y * h / H).
"""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastgaze.core.errors import ArgumentError, DataError
from fastgaze.core.pictures import read_pixels
from fastgaze.core.sizes import Size


@dataclass(frozen=True, eq=False)
class FixationSet:
    """Images by path with the fixations on them; image i owns the points ``start[i]:start[i + 1]``.

    names:    n names, unique within a set
    paths:    n image files; none is opened before ``image`` asks for it
    sizes:    int32 (n, 2), height and width of the original image, in whose pixels x and y are; the file
              at ``paths[i]`` may be stored smaller
    start:    int64 (n + 1,)
    x, y:     float32 (m,), as recorded: points outside the image are kept here and dropped by the methods
    observer: int32 (m,), number of the observer within its image, -1 where the source pooled them
    """

    names: tuple[str, ...]
    paths: tuple[Path, ...]
    sizes: NDArray[np.int32]
    start: NDArray[np.int64]
    x: NDArray[np.float32]
    y: NDArray[np.float32]
    observer: NDArray[np.int32]

    def __post_init__(self) -> None:
        n, m = len(self.names), len(self.x)
        shapes = (len(self.paths), self.sizes.shape, self.start.shape, self.y.shape, self.observer.shape)
        if shapes != (n, (n, 2), (n + 1,), (m,), (m,)):
            raise DataError(f"{n} names and {m} points do not fit paths, sizes, start, y, observer of {shapes}")
        if self.start[0] != 0 or self.start[-1] != m or np.any(np.diff(self.start) < 0):
            raise DataError(f"start must rise from 0 to the number of points, {m}; it does not")
        if np.any(self.sizes < 1):
            first = self.names[int(np.argmax(np.any(self.sizes < 1, axis=1)))]
            raise DataError(f"image {first!r} has no size; height and width must be at least 1")

    def __len__(self) -> int:
        return len(self.names)

    def points(self, i: int) -> slice:
        """Where the points of image i are in ``x``, ``y`` and ``observer``."""
        return slice(int(self.start[i]), int(self.start[i + 1]))

    def size(self, i: int) -> Size:
        """(height, width) of the original image i."""
        return int(self.sizes[i, 0]), int(self.sizes[i, 1])

    def inside(self, i: int) -> NDArray[np.bool_]:
        """Which of the points of image i lie in the image, (k,)."""
        (height, width), own = self.size(i), self.points(i)
        x, y = self.x[own], self.y[own]
        return (x >= 0) & (x < width) & (y >= 0) & (y < height)

    def fixations(self, i: int, size: Size | None = None) -> NDArray[np.float32]:
        """(x, y) of the fixations inside image i, (k, 2), in pixels of ``size`` or of the original."""
        keep, own = self.inside(i), self.points(i)
        return _scale(np.stack((self.x[own][keep], self.y[own][keep]), axis=1), self.size(i), size)

    def observers(self, i: int) -> NDArray[np.int32]:
        """The observer of each row of ``fixations(i)``, (k,)."""
        return self.observer[self.points(i)][self.inside(i)]

    def counts(self, i: int, grid: Size) -> NDArray[np.int64]:
        """How many fixations fall into each cell of a grid laid over image i; int (h, w)."""
        column, row = self.fixations(i, grid).astype(np.int64).T
        return np.bincount(row * grid[1] + column, minlength=grid[0] * grid[1]).reshape(grid)

    def image(self, i: int, size: Size | None = None) -> NDArray[np.uint8]:
        """Image i as RGB, uint8 (H, W, 3), upright; at its stored size, or resized (antialiased) to ``size``."""
        return read_pixels(self.paths[i], size)

    def subset(self, indices: ArrayLike) -> "FixationSet":
        """The images at ``indices`` (numbers in any order, or a boolean mask)."""
        chosen = np.arange(len(self))[np.asarray(indices, dtype=None if np.size(indices) else np.int64)]
        length = np.diff(self.start)[chosen]
        start = np.concatenate(([0], np.cumsum(length))).astype(np.int64)
        take = np.repeat(self.start[:-1][chosen] - start[:-1], length) + np.arange(start[-1])
        return FixationSet(
            names=tuple(self.names[i] for i in chosen),
            paths=tuple(self.paths[i] for i in chosen),
            sizes=self.sizes[chosen],
            start=start,
            x=self.x[take],
            y=self.y[take],
            observer=self.observer[take],
        )

    def split(self, fraction: float, seed: int) -> tuple["FixationSet", "FixationSet"]:
        """(training, validation) by image; ``fraction`` of the images, rounded, go to validation."""
        if not 0 <= fraction <= 1:
            raise ArgumentError(f"fraction {fraction} is not between 0 and 1, the share of images for validation")
        order = np.random.default_rng(seed).permutation(len(self))
        cut = round(fraction * len(self))
        return self.subset(np.sort(order[cut:])), self.subset(np.sort(order[:cut]))

    def folds(self, k: int, seed: int) -> list[tuple["FixationSet", "FixationSet"]]:
        """k pairs of (training, validation); every image is in exactly one validation set."""
        if not 2 <= k <= len(self):
            raise ArgumentError(f"{k} folds of {len(self)} images: give a number from 2 to the number of images")
        fold = np.empty(len(self), dtype=np.int64)
        fold[np.random.default_rng(seed).permutation(len(self))] = np.arange(len(self)) % k
        return [(self.subset(np.flatnonzero(fold != j)), self.subset(np.flatnonzero(fold == j))) for j in range(k)]


def _scale(points: NDArray[np.float32], old: Size, new: Size | None) -> NDArray[np.float32]:
    """Points inside ``old`` moved to ``new``; rounding never pushes one over the right or lower edge."""
    if new is None or new == old:
        return points
    factor = np.array([new[1] / old[1], new[0] / old[0]])
    last = np.nextafter(np.array([new[1], new[0]], dtype=np.float32), np.float32(0))
    scaled: NDArray[np.float32] = np.minimum((points * factor).astype(np.float32), last)
    return scaled


def from_lists(
    names: Sequence[str],
    paths: Sequence[Path],
    sizes: Sequence[Size],
    points: Sequence[ArrayLike],
    observers: Sequence[ArrayLike] | None = None,
) -> FixationSet:
    """A set from per-image lists: points (k, 2) as (x, y) and, where known, observers (k,)."""
    xy = [np.asarray(p, dtype=np.float32).reshape(-1, 2) for p in points]
    who = [np.full(len(p), -1) for p in xy] if observers is None else [np.asarray(o).reshape(-1) for o in observers]
    stacked = np.concatenate([*xy, np.empty((0, 2), np.float32)])
    return FixationSet(
        names=tuple(names),
        paths=tuple(paths),
        sizes=np.asarray(sizes, dtype=np.int32).reshape(-1, 2),
        start=np.concatenate(([0], np.cumsum([len(p) for p in xy]))).astype(np.int64),
        x=np.ascontiguousarray(stacked[:, 0]),
        y=np.ascontiguousarray(stacked[:, 1]),
        observer=np.concatenate([*who, np.empty(0)]).astype(np.int32),
    )


def concatenate(sets: Iterable[FixationSet]) -> FixationSet:
    """One set of all images of ``sets``, in order; a name that occurs twice stays twice."""
    sets = list(sets)
    if not sets:
        raise ArgumentError("no data set was given to concatenate; give at least one")
    offsets = np.cumsum([0, *(len(s.x) for s in sets)])
    return FixationSet(
        names=tuple(name for s in sets for name in s.names),
        paths=tuple(path for s in sets for path in s.paths),
        sizes=np.concatenate([s.sizes for s in sets]),
        start=np.concatenate([[0], *(s.start[1:] + o for s, o in zip(sets, offsets, strict=False))]).astype(np.int64),
        x=np.concatenate([s.x for s in sets]),
        y=np.concatenate([s.y for s in sets]),
        observer=np.concatenate([s.observer for s in sets]),
    )


def file_name(name: str) -> str:
    """A name that can be a file of one folder and a cell of a table: slashes become dashes.

    One that a spreadsheet would take for a formula gets a line in front.
    """
    plain = name.replace("/", "-").replace("\\", "-")
    return f"_{plain}" if plain.startswith(("=", "+", "-", "@")) else plain


def held_out(names: Iterable[str], share: float = 0.1) -> NDArray[np.bool_]:
    """Which images are never trained on: a share chosen by sha256 of the name, the same on every machine, (n,).

    Slashes count as dashes, so that a set written by ``fastgaze data convert`` holds out the same images.
    """
    digests = (hashlib.sha256(file_name(name).encode()).digest()[:8] for name in names)
    return np.array([int.from_bytes(digest, "big") < share * 2**64 for digest in digests], dtype=np.bool_)
