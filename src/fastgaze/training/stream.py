"""Batches as a pure function of (seed, step): a killed run continues with exactly the batches it would have seen.

Several sources are mixed by weight inside each batch. Every source is passed through in shuffled epochs, and
how many of its items stand before a step follows from arithmetic, so no state needs to be kept.
"""

from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fastgaze.core.errors import ArgumentError
from fastgaze.training.datasets import PreparedSet, normalise


@dataclass(frozen=True)
class Source:
    """What a network learns from: inputs of one size and, for each, a density on the loss grid.

    inputs: uint8 images (n, H, W, 3), or float16 features of a frozen trunk (n, maps, h, w).
    targets: (n, grid height, grid width), each at least 0; ``scale`` times them sum to 1.
    center_bias: float32 log density on any grid, (h, w) for all or (n, h, w), one for each.
    weight: share of a batch that comes from this source.
    """

    name: str
    inputs: NDArray[np.uint8] | NDArray[np.float16]
    targets: NDArray[np.floating]
    center_bias: NDArray[np.float32]
    weight: float = 1.0
    scale: float = 1.0

    def __len__(self) -> int:
        return len(self.inputs)

    @property
    def grid(self) -> tuple[int, int]:
        """(height, width) of the loss grid."""
        return self.targets.shape[1], self.targets.shape[2]


@dataclass(frozen=True)
class Batch:
    """inputs (N, ...) float32, targets (N, *grid), center_bias (N, h, w)."""

    inputs: Tensor
    targets: Tensor
    center_bias: Tensor

    @property
    def grid(self) -> tuple[int, int]:
        """(height, width) of the loss grid."""
        return self.targets.shape[1], self.targets.shape[2]


def fixation_source(data: PreparedSet, weight: float = 1.0, features: NDArray[np.float16] | None = None) -> Source:
    """The fixations themselves as targets; images that nobody looked at are left out."""
    totals = data.counts.sum(axis=(1, 2))
    seen = np.flatnonzero(totals > 0)
    inputs = data.images if features is None else features
    if len(seen) < len(data):
        inputs = inputs[seen]
    return Source(data.name, inputs, data.counts[seen] / totals[seen, None, None], data.center_bias, weight)


def weighted(sources: Sequence[Source], weight: float) -> list[Source]:
    """Sources that together have ``weight``, each in proportion to its images."""
    total = sum(len(source) for source in sources)
    return [replace(source, weight=weight * len(source) / total) for source in sources]


def in_order(source: Source, batch: int) -> Iterator[Batch]:
    """Every item of a source once, unflipped."""
    for first in range(0, len(source), batch):
        yield _collate([_item(source, i, flip=False) for i in range(first, min(first + batch, len(source)))])


class Stream:
    """An endless, reproducible sequence of batches from weighted sources.

    Sources of different sizes do not mix in one batch: each batch comes from the sources of one size, drawn
    in proportion to the weight of that size.
    """

    def __init__(self, sources: Sequence[Source], batch: int, seed: int, flips: bool) -> None:
        if not sources or any(len(source) == 0 or source.weight <= 0 for source in sources):
            raise ArgumentError("a stream needs at least one source, each with images and a weight above 0")
        sizes: dict[tuple[int, ...], list[Source]] = {}
        for source in sources:
            sizes.setdefault(source.inputs.shape[1:], []).append(source)
        self._groups = list(sizes.values())
        self._turns = _Rota([sum(source.weight for source in group) for group in self._groups])
        self._rotas = [_Rota([source.weight for source in group]) for group in self._groups]
        self._batch, self._seed, self._flips = batch, seed, flips

    def batch(self, step: int, rank: int = 0, world: int = 1) -> Batch:
        """The batch of a step; with several processes, the part that ``rank`` of ``world`` computes."""
        items = self._items(step)[rank::world]
        flips = np.random.default_rng((self._seed, step)).random(self._batch)[rank::world] < 0.5 * self._flips
        return _collate([_item(source, index, flip) for (source, index), flip in zip(items, flips, strict=True)])

    def prefetched(self, first: int, last: int, rank: int = 0, world: int = 1) -> Generator[Batch, None, None]:
        """Batches of the steps from ``first`` to before ``last``, each made while the one before it is used."""
        with ThreadPoolExecutor(1) as pool:
            coming = pool.submit(self.batch, first, rank, world)
            for step in range(first, last):
                batch = coming.result()
                coming = pool.submit(self.batch, step + 1, rank, world)
                yield batch

    def _items(self, step: int) -> list[tuple[Source, int]]:
        """Source and index within it of every item of a step's batch."""
        g, turn = self._turns.at(step)
        items = []
        for place in range(turn * self._batch, (turn + 1) * self._batch):
            s, position = self._rotas[g].at(place)
            source = self._groups[g][s]
            epoch, index = divmod(position, len(source))
            items.append((source, int(_permutation(self._seed, g, s, epoch, len(source))[index])))
        return items


class _Rota:
    """Which source has its turn at every place of an endless sequence, in proportion to weights.

    Turns follow the golden-ratio sequence, which keeps each share to within a few turns at every place.
    """

    def __init__(self, weights: Sequence[float]) -> None:
        self._bounds = np.cumsum(weights)[:-1] / np.sum(weights)
        self._whose = self._before = np.empty(0, np.int64)

    def at(self, place: int) -> tuple[int, int]:
        """(number of the source, number of turns it had before)."""
        if place >= len(self._whose):
            self._extend(2 * place + 1024)
        return int(self._whose[place]), int(self._before[place])

    def _extend(self, length: int) -> None:
        self._whose = np.searchsorted(self._bounds, np.arange(length) * _GOLDEN % 1, side="right")
        self._before = np.empty(length, np.int64)
        for who in range(len(self._bounds) + 1):
            turns = np.flatnonzero(self._whose == who)
            self._before[turns] = np.arange(len(turns))


_GOLDEN = (5**0.5 - 1) / 2


@lru_cache(maxsize=64)
def _permutation(seed: int, group: int, source: int, epoch: int, n: int) -> NDArray[np.int64]:
    return np.random.default_rng((seed, group, source, epoch)).permutation(n)


def _item(
    source: Source, index: int, flip: bool
) -> tuple[NDArray[np.generic], NDArray[np.float32], NDArray[np.float32]]:
    inputs, target = source.inputs[index], source.targets[index].astype(np.float32) * np.float32(source.scale)
    bias = source.center_bias if source.center_bias.ndim == 2 else source.center_bias[index]
    return (inputs[:, ::-1], target[:, ::-1], bias[:, ::-1]) if flip else (inputs, target, bias)


def _collate(items: list[tuple[NDArray[np.generic], NDArray[np.float32], NDArray[np.float32]]]) -> Batch:
    inputs, targets, biases = (np.stack(column) for column in zip(*items, strict=True))
    tensor = normalise(inputs) if inputs.dtype == np.uint8 else torch.from_numpy(inputs).float()
    return Batch(tensor, torch.from_numpy(targets), torch.from_numpy(biases))
