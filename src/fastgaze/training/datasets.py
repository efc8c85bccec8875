"""A data set as training reads it: decoded once to the working size, kept in memory-mapped files."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fastgaze.core.center_bias import GRID, fit_center_bias
from fastgaze.core.errors import DataError
from fastgaze.core.files import replacing
from fastgaze.data.fixations import FixationSet
from fastgaze.runtime.card import IMAGENET_MEAN, IMAGENET_STD

Module = TypeVar("Module", bound=nn.Module)

CELL = 4  # pixels of a side of a cell of the grid on which losses are computed


@dataclass(frozen=True)
class PreparedSet:
    """Images of one size with their fixations on a grid.

    name: of the data set, for logs.
    images: uint8 (n, H, W, 3) RGB, memory-mapped.
    counts: float32 (n, H / 4, W / 4), fixations per cell.
    center_bias: log density of all fixations of the data set, on the fixed grid.
    """

    name: str
    names: tuple[str, ...]
    images: NDArray[np.uint8]
    counts: NDArray[np.float32]
    center_bias: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.names)

    @property
    def size(self) -> tuple[int, int]:
        """(height, width) of the images."""
        return self.images.shape[1], self.images.shape[2]

    @property
    def grid(self) -> tuple[int, int]:
        """(height, width) of the grid on which losses are computed."""
        return self.counts.shape[1], self.counts.shape[2]

    def subset(self, indices: NDArray[np.integer]) -> "PreparedSet":
        """Some of the images, in the order given; the centre bias stays that of the whole set."""
        names = tuple(self.names[i] for i in indices)
        return PreparedSet(self.name, names, self.images[indices], self.counts[indices], self.center_bias)


def prepare(data: FixationSet, name: str, size: tuple[int, int], cache: Path) -> PreparedSet:
    """Decode all images to ``size`` (height, width), or read them back from ``cache``.

    A small file beside the images says whose they are; a cache of an older version has none and is taken as it is.
    """
    file = cache / f"{name.replace('/', '-')}-{size[0]}x{size[1]}.npy"
    if not file.is_file():
        file.with_suffix(".json").unlink(missing_ok=True)
        _decode(data, size, file)
    images = np.load(file, mmap_mode="r")
    if images.shape != (len(data), *size, 3):
        raise DataError(f"{file} holds {images.shape}, but {name} has {len(data)} images of {size}: delete it")
    _check_names(file, data.names)
    grid = (size[0] // CELL, size[1] // CELL)
    counts = np.stack([data.counts(i, grid) for i in range(len(data))]).astype(np.float32)
    return PreparedSet(name, data.names, images, counts, dataset_center_bias(data))


def names_digest(names: Sequence[str]) -> str:
    """Changes with any name and with their order."""
    return hashlib.sha256("\0".join(names).encode()).hexdigest()[:16]


def _check_names(file: Path, names: Sequence[str]) -> None:
    owner, facts = file.with_suffix(".json"), {"names": names_digest(names)}
    if not owner.is_file():
        write_json(owner, facts)
    elif json.loads(owner.read_text()) != facts:
        raise DataError(f"{file} holds images with other names than the {len(names)} of this set: delete it")


def dataset_center_bias(data: FixationSet) -> NDArray[np.float32]:
    """Log density of all fixations on the fixed grid; every image has the same weight."""
    total = np.zeros(GRID)
    for i in range(len(data)):
        counts = data.counts(i, GRID)
        total += counts / max(counts.sum(), 1)
    return fit_center_bias(total)


def _decode(data: FixationSet, size: tuple[int, int], file: Path) -> None:
    with replacing(file) as part:
        images = np.lib.format.open_memmap(part, "w+", np.uint8, (len(data), *size, 3))
        for i in range(len(data)):
            images[i] = data.image(i, size)
        images.flush()


def normalise(images: NDArray[np.uint8]) -> Tensor:
    """uint8 (N, H, W, 3) -> float32 (N, 3, H, W), channels last in memory, ImageNet's mean and spread removed."""
    scale = torch.tensor([1 / (255 * s) for s in IMAGENET_STD])
    shift = torch.tensor([m / s for m, s in zip(IMAGENET_MEAN, IMAGENET_STD, strict=True)])
    pixels = torch.from_numpy(np.array(images))  # a copy: memory-mapped pages cannot be written
    return (pixels * scale - shift).permute(0, 3, 1, 2)


def channels_last(module: Module) -> Module:
    """The module with its weights in channels-last order: on a CPU a quarter faster and more."""
    return module.to(memory_format=torch.channels_last)  # type: ignore[no-any-return, call-overload]


def write_json(path: Path, value: object) -> None:
    """Replace a small file in one step."""
    with replacing(path) as part:
        part.write_text(json.dumps(value))
