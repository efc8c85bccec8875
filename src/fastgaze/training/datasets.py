"""Data sets as training reads them: decoded once to the working size, kept in memory-mapped files.

``PreparedSet`` is one set; ``Workshop`` holds those of the paper in their roles, and says where runs keep their files.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import log
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fastgaze.core.center_bias import GRID, fit_center_bias
from fastgaze.core.errors import DataError
from fastgaze.core.files import new_array, remove_leftovers, replacing
from fastgaze.core.sizes import Size
from fastgaze.core.spec import STRIDE
from fastgaze.data import formats
from fastgaze.data.fixations import FixationSet, held_out
from fastgaze.runtime.card import IMAGENET_MEAN, IMAGENET_STD, WorkingSize
from fastgaze.training.runs import differences, names_digest, read_json, write_json

Module = TypeVar("Module", bound=nn.Module)

CELL = 4  # side in pixels of a cell of the grid on which losses are computed


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

    A small file next to the images says which they are; a cache of an older version has none and is used as it is.
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


def _check_names(file: Path, names: Sequence[str]) -> None:
    owner, facts = file.with_suffix(".json"), {"names": names_digest(names)}
    if not owner.is_file():
        write_json(owner, facts)
    elif differences(read_json(owner), facts):
        raise DataError(f"{file} holds images with other names than the {len(names)} of this set: delete it")


def dataset_center_bias(data: FixationSet) -> NDArray[np.float32]:
    """Log density of all fixations on the fixed grid; every image has the same weight."""
    total = np.zeros(GRID)
    for i in range(len(data)):
        counts = data.counts(i, GRID)
        total += counts / max(counts.sum(), 1)
    return fit_center_bias(total)


def _decode(data: FixationSet, size: tuple[int, int], file: Path) -> None:
    remove_leftovers(file.parent)
    with replacing(file) as part:
        images = new_array(part, np.uint8, (len(data), *size, 3))
        for i in range(len(data)):
            images[i] = data.image(i, size)
        images.flush()


def normalise(images: NDArray[np.uint8]) -> Tensor:
    """uint8 (N, H, W, 3) -> float32 (N, 3, H, W), channels last in memory, ImageNet's mean and spread removed."""
    scale = torch.tensor([1 / (255 * s) for s in IMAGENET_STD])
    shift = torch.tensor([m / s for m, s in zip(IMAGENET_MEAN, IMAGENET_STD, strict=True)])
    pixels = torch.from_numpy(np.array(images))  # a copy: memory-mapped pages cannot be written
    return (pixels * scale - shift).permute(0, 3, 1, 2)


def reduced_precision(place: torch.device, precision: str) -> torch.autocast:
    """Autocast to bf16 if ``precision`` asks for it and the machine computes in it.

    A CPU that has to emulate bf16 takes ten times as long as in fp32, so there fp32 is used.
    """
    native = place.type != "cpu" or torch.ops.mkldnn._is_mkldnn_bf16_supported()
    return torch.autocast(place.type, torch.bfloat16, enabled=precision == "bf16" and native)


def channels_last(module: Module) -> Module:
    """The module with its weights in channels-last order: on a CPU a quarter faster and more."""
    return module.to(memory_format=torch.channels_last)  # type: ignore[no-any-return, call-overload]


MOST_SQUEEZE = 1.2  # a rare shape joins a common one if no side changes by more than this factor


def shared_sizes(sizes: Sequence[Size], least: int) -> list[Size]:
    """The working size of every image; one that fewer than ``least`` images have gives way to a similar common one.

    Otherwise a batch of a rare shape would hold the same few images several times.
    """
    common = [size for size, count in Counter(sizes).items() if count >= least]

    def misfit(size: Size, other: Size) -> float:
        return max(abs(log(a / b)) for a, b in zip(size, other, strict=True))

    def settle(size: Size) -> Size:
        best = min(common, key=lambda other: misfit(size, other), default=size)
        return best if misfit(size, best) <= log(MOST_SQUEEZE) else size

    return [size if size in common else settle(size) for size in sizes]


def by_size(sizes: Sequence[Size], chosen: NDArray[np.bool_]) -> Iterator[tuple[Size, NDArray[np.int64]]]:
    """Each size that some of the ``chosen`` images have, smallest first, with the indices of these images."""
    for size in sorted(set(sizes)):
        indices = np.flatnonzero(chosen & np.array([other == size for other in sizes]))
        if len(indices):
            yield size, indices


@dataclass(frozen=True)
class Workshop:
    """The data in the roles of the paper, and the folder of caches and runs.

    data: folder that holds the sets below, each read in ``format``.
    pretraining: the large set (SALICON) that students are distilled on.
    validation: images to stop and choose on, the first ``validation_images`` of them.
    eye_tracking: the small sets; ``kept_out_share`` of each, by a hash of the name, is kept out of everything.
    mixed_shapes: further eye-tracking sets whose images keep their shapes, at about the area of ``size``; the
        same share is kept out of them.
    size: (height, width) that all other images are scaled to.
    limit: use at most this many images of each set; 0 for all.
    """

    data: Path
    runs: Path
    pretraining: str = "salicon/train"
    validation: str = "salicon/val"
    eye_tracking: tuple[str, ...] = ("osie", "eyecrowd")
    mixed_shapes: tuple[str, ...] = ()
    format: str = "auto"
    size: tuple[int, int] = (240, 320)
    limit: int = 0
    validation_images: int = 200
    kept_out_share: float = 0.1

    @property
    def cache(self) -> Path:
        """Decoded images and features."""
        return self.runs / "cache"

    @property
    def _suffix(self) -> str:
        return f"-{self.limit}" if self.limit else ""

    def load(self, name: str) -> FixationSet:
        """A set as it is on disk."""
        data = formats.load(self.format, self.data / name)
        return data.subset(np.arange(min(self.limit, len(data)))) if self.limit else data

    def prepared(self, name: str) -> PreparedSet:
        """A set at the working size."""
        return prepare(self.load(name), name + self._suffix, self.size, self.cache)

    def held_out(self, data: FixationSet) -> NDArray[np.bool_]:
        """Which images of an eye-tracking set are kept out, (n,)."""
        return held_out(data.names, self.kept_out_share)

    @cached_property
    def large(self) -> PreparedSet:
        """The pre-training set."""
        return self.prepared(self.pretraining)

    @cached_property
    def small(self) -> list[PreparedSet]:
        """The eye-tracking sets without the images that are kept out, which their centre biases do not know either."""
        sets = []
        for name in self.eye_tracking:
            data = self.load(name)
            kept = np.flatnonzero(~self.held_out(data))
            bias = dataset_center_bias(data.subset(kept))
            sets.append(replace(self.prepared(name).subset(kept), center_bias=bias))
        return sets

    @cached_property
    def shaped(self) -> list[PreparedSet]:
        """The sets of mixed shapes without the images that are kept out, one part for each working size."""
        return [part for name in self.mixed_shapes for part in self._shaped_parts(name, kept_out=False)]

    def kept_out(self) -> dict[str, list[PreparedSet]]:
        """What is kept out of every eye-tracking set, by its name, with the centre bias of the other images."""
        found = {}
        for name, kept in zip(self.eye_tracking, self.small, strict=True):
            out = np.flatnonzero(self.held_out(self.load(name)))
            found[name] = [replace(self.prepared(name).subset(out), center_bias=kept.center_bias)]
        return found | {name: self._shaped_parts(name, kept_out=True) for name in self.mixed_shapes}

    def _shaped_parts(self, name: str, kept_out: bool) -> list[PreparedSet]:
        data = self.load(name)
        out = self.held_out(data)
        bias = dataset_center_bias(data.subset(~out))
        working = WorkingSize(pixels=self.size[0] * self.size[1], stride=2 * STRIDE)
        sizes = shared_sizes([working(data.size(i)) for i in range(len(data))], least=16)
        role = f"{name}{self._suffix}-{'kept-out' if kept_out else 'training'}"
        return [
            replace(prepare(data.subset(chosen), role, size, self.cache), center_bias=bias)
            for size, chosen in by_size(sizes, out == kept_out)
        ]

    @cached_property
    def validation_set(self) -> PreparedSet:
        """The images of the validation set that runs are stopped on."""
        data = self.prepared(self.validation)
        return data.subset(np.arange(min(self.validation_images or len(data), len(data))))

    def sample(self, count: int = 8) -> Tensor:
        """A few normalised images (count, 3, H, W), to rescale borrowed layers on."""
        return normalise(self.large.images[:count])

    def features_file(self, name: str) -> Path:
        """Where the trunk features of a set are kept."""
        return self.cache / f"vgg19-{name.replace('/', '-')}{self._suffix}.npy"
