"""The data in the roles of the paper: pre-training, validation, eye tracking; and where runs keep their files."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from fastgaze.data import formats
from fastgaze.data.fixations import FixationSet, held_out
from fastgaze.models.gaze import GazeModel
from fastgaze.models.spec import STRIDE
from fastgaze.runtime.metadata import WorkingSize
from fastgaze.training.features import Features, extract_features, open_features
from fastgaze.training.prepare import PreparedSet, dataset_center_bias, normalise, prepare
from fastgaze.training.shapes import shared_sizes
from fastgaze.training.stream import Source, fixation_source


@dataclass(frozen=True)
class Workshop:
    """Data sets and the folder of caches and runs.

    data: folder that holds the sets below, each read in ``format``.
    pretraining: the large set (SALICON) that students are distilled on.
    validation: images to stop and choose on, the first ``validation_images`` of them.
    eye_tracking: the small sets; a tenth of each, by a hash of the name, is kept out of everything.
    mixed_shapes: further eye-tracking sets whose images keep their shapes, at about the area of ``size``; a tenth is
        kept out of them too.
    size: (height, width) that all other images are scaled to.
    limit: at most so many images of each set, 0 for all.
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

    @property
    def cache(self) -> Path:
        """Decoded images, features and teacher maps."""
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

    def trained_on(self, mixed_shapes: bool = False) -> list[str]:
        """Names of the sets that a student learns from, for its record."""
        return [self.pretraining, *self.eye_tracking, *(self.mixed_shapes if mixed_shapes else ())]

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
            kept = np.flatnonzero(~held_out(data.names))
            bias = dataset_center_bias(data.subset(kept))
            sets.append(replace(self.prepared(name).subset(kept), center_bias=bias))
        return sets

    @cached_property
    def shaped(self) -> list[PreparedSet]:
        """The sets of mixed shapes without the images that are kept out, one part for each working size."""
        return [part for name in self.mixed_shapes for part in self._shaped_parts(name, kept_out=False)]

    def kept_out(self) -> dict[str, list[Source]]:
        """What is kept out of every eye-tracking set, by its name; each has the centre bias of the other images."""
        found = {}
        for name, kept in zip(self.eye_tracking, self.small, strict=True):
            out = np.flatnonzero(held_out(self.load(name).names))
            found[name] = [fixation_source(replace(self.prepared(name).subset(out), center_bias=kept.center_bias))]
        for name in self.mixed_shapes:
            found[name] = [fixation_source(part) for part in self._shaped_parts(name, kept_out=True)]
        return found

    def _shaped_parts(self, name: str, kept_out: bool) -> list[PreparedSet]:
        data = self.load(name)
        out = held_out(data.names)
        bias = dataset_center_bias(data.subset(~out))
        working = WorkingSize(pixels=self.size[0] * self.size[1], stride=2 * STRIDE)
        sizes = shared_sizes([working(data.size(i)) for i in range(len(data))], least=16)
        parts = []
        for size in sorted(set(sizes)):
            chosen = np.flatnonzero((out == kept_out) & np.array([s == size for s in sizes]))
            if len(chosen):
                role = "kept-out" if kept_out else "training"
                part = prepare(data.subset(chosen), f"{name}{self._suffix}-{role}", size, self.cache)
                parts.append(replace(part, center_bias=bias))
        return parts

    def validation_source(self, model: GazeModel | None = None) -> Source:
        """The first images of the validation set; with ``model``, its trunk's features of them."""
        data = self.prepared(self.validation)
        chosen = np.arange(min(self.validation_images or len(data), len(data)))
        stored = None if model is None else self.features(model, self.validation)[chosen]
        return fixation_source(data.subset(chosen), features=stored)

    def sample(self, count: int = 8) -> torch.Tensor:
        """A few normalised images (count, 3, H, W), to rescale borrowed layers on."""
        return normalise(self.large.images[:count])

    def features_file(self, name: str) -> Path:
        """Where the trunk features of a set are kept."""
        return self.cache / f"vgg19-{name.replace('/', '-')}{self._suffix}.npy"

    def features(self, model: GazeModel | None, name: str) -> Features:
        """Stored trunk features of a whole set, computed now as far as they are missing."""
        if model is not None:
            for _ in self.extract(model, name):
                pass
        return open_features(self.features_file(name))

    def extract(self, model: GazeModel, name: str) -> Iterator[int]:
        """Compute missing features; yields the number of finished images."""
        return extract_features(model, self.prepared(name), self.features_file(name))

    def small_features(self, model: GazeModel) -> list[tuple[PreparedSet, Features]]:
        """Each eye-tracking set with its features, without the images that are kept out."""
        pairs = []
        for name, data in zip(self.eye_tracking, self.small, strict=True):
            keep = np.flatnonzero(~held_out(self.load(name).names))
            pairs.append((data, self.features(model, name)[keep]))
        return pairs


def weighted(sources: Sequence[Source], weight: float) -> list[Source]:
    """Sources that together have ``weight``, each in proportion to its images."""
    total = sum(len(source) for source in sources)
    return [replace(source, weight=weight * len(source) / total) for source in sources]


def mixed_targets(data: PreparedSet, maps: NDArray[np.float16], teacher_share: float) -> NDArray[np.float16]:
    """``teacher_share`` of the teacher's density, the rest the image's own fixations: float16 (n, h, w), mean 1.

    An image without fixations has the teacher's density alone.
    """
    cells = data.grid[0] * data.grid[1]
    totals = data.counts.sum(axis=(1, 2))
    targets = np.array(maps, np.float16)
    for i in np.flatnonzero(totals):
        own = data.counts[i] / totals[i]
        targets[i] = teacher_share * maps[i].astype(np.float32) + (1 - teacher_share) * own * cells
    return targets
