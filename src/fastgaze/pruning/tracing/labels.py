"""Which map every element of a tensor belongs to, and which maps must go together.

While a network is traced, each tensor carries a :class:`Label`: whole numbers in the shape of the tensor, stored
with size 1 along every dimension on which they do not vary. Operations that only move data (reshape, permute,
chunk, pixel shuffle, indexing) are applied to these numbers themselves, so that none of them needs a rule.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass

import torch
from torch import Tensor

NONE = 0  # the number of what belongs to no map: the network's input, constants


@dataclass(frozen=True)
class Label:
    """What a tensor's elements are; both have the tensor's rank.

    ids     int64: the provisional map of every element, 0 where there is none
    images  int64: the image of the batch that every element was computed from
    """

    ids: Tensor
    images: Tensor

    def axes(self) -> list[int]:
        """Dimensions along which the map changes."""
        return [d for d, n in enumerate(self.ids.shape) if n > 1]

    def along(self, axis: int, size: int) -> Tensor:
        """int64 (size,): the maps along one dimension, which must be the only one on which they vary."""
        return self.ids.movedim(axis, -1).reshape(-1)[: self.ids.shape[axis]].expand(size).contiguous()


def blank(rank: int) -> Label:
    """The label of a tensor without maps."""
    zeros = torch.zeros((1,) * rank, dtype=torch.int64)
    return Label(zeros, zeros)


def squeezed(values: Tensor) -> Tensor:
    """``values`` with size 1 along every dimension on which they do not vary."""
    if values.numel() == 1:
        return values
    for axis, size in enumerate(values.shape):
        if size > 1:
            first = values.narrow(axis, 0, 1)
            if torch.equal(values, first.expand_as(values)):
                values = first
    return values


def aligned(values: Tensor, rank: int) -> Tensor:
    """``values`` with dimensions of size 1 in front, as broadcasting does."""
    return values.reshape((1,) * (rank - values.dim()) + tuple(values.shape))


def broadcast(one: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
    """Both in their common shape."""
    rank = max(one.dim(), other.dim())
    one, other = aligned(one, rank), aligned(other, rank)
    shape = [max(a, b) if min(a, b) else 0 for a, b in zip(one.shape, other.shape, strict=True)]
    return one.expand(shape), other.expand(shape)


class Ties:
    """Union-find over provisional maps, and the reasons why some of them stay."""

    def __init__(self) -> None:
        self._parent = array("q", [NONE])
        self._made = [False]  # whether a layer makes it; labels of parameters are not maps by themselves
        self._roots = torch.zeros(1, dtype=torch.int64)
        self._current = True
        self.kept: list[tuple[Tensor, str]] = []

    def new(self, shape: tuple[int, ...], *, made: bool) -> Tensor:
        """Fresh numbers in this shape."""
        first, count = len(self._parent), torch.Size(shape).numel()
        self._parent.extend(range(first, first + count))
        self._made.extend([made] * count)
        self._current = False
        return torch.arange(first, first + count).reshape(shape)

    def root(self, index: int) -> int:
        """The number that stands for all that ``index`` is tied to."""
        parent = self._parent
        while parent[index] != index:
            parent[index] = parent[parent[index]]
            index = parent[index]
        return index

    def roots(self, ids: Tensor) -> Tensor:
        """The same for every number in ``ids``."""
        if not self._current:
            table = torch.frombuffer(self._parent, dtype=torch.int64).clone()
            while not torch.equal(table, onward := table[table]):
                table = onward
            self._roots, self._current = table, True
        return self._roots[ids]

    def tie(self, one: Tensor, other: Tensor) -> Tensor:
        """These go together, element by element; returns those that are tied to no map at all."""
        one, other = broadcast(self.roots(one), self.roots(other))
        differs = one != other
        one, other = one[differs], other[differs]
        alone = (one == NONE) | (other == NONE)
        for a, b in set(zip(one[~alone].tolist(), other[~alone].tolist(), strict=True)):
            self._join(a, b)
        return torch.maximum(one, other)[alone]

    def _join(self, a: int, b: int) -> None:
        low, high = sorted((self.root(a), self.root(b)))
        if low != high:
            self._parent[high] = low
            self._made[low] = self._made[low] or self._made[high]
            self._current = False

    def keep(self, ids: Tensor, reason: str) -> None:
        """None of these may go."""
        chosen = torch.unique(ids)
        chosen = chosen[chosen != NONE]
        if len(chosen):
            self.kept.append((chosen, reason))

    def any_made(self, ids: Tensor) -> bool:
        """Whether a layer makes one of these maps."""
        return any(self._made[k] for k in torch.unique(self.roots(ids)).tolist())

    def same(self, one: Tensor, other: Tensor, times: int, divide: int) -> bool:
        """Whether ``one`` holds every map ``times / divide`` as often as ``other``: then its width follows."""
        a, b = (torch.unique(self.roots(ids), return_counts=True) for ids in (one, other))
        return torch.equal(a[0], b[0]) and torch.equal(a[1] * divide, b[1] * times)
