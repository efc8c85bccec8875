"""What a network costs, and what removing one map saves in its own layer and in all its readers.

Every cost here is a sum over layers of ``out * (a * (inside + own) + b)`` with the present numbers of channels:
exact integers that follow every removal.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from fastgaze.pruning.graph import ChannelGraph
from fastgaze.pruning.layers.layer import Layer, Position


class Cost(Protocol):
    """A cost of a network with the maps ``alive`` present (bool (maps + 1,), as ``ChannelGraph.alive``)."""

    def total(self, graph: ChannelGraph, alive: Tensor) -> float:
        """The whole network."""
        ...

    def delta_cost(self, graph: ChannelGraph, alive: Tensor) -> Tensor:
        """(maps,), zero or negative: the change of the total if this one map were removed next."""
        ...


class Counted:
    """A cost from two whole numbers for each layer."""

    def __init__(self, size: Sequence[int] | None = None, *, update: bool = True) -> None:
        self.size = None if size is None else tuple(size)
        self.update = update
        self._of: tuple[ChannelGraph, int] | None = None
        self._a = self._b = self._own = self._frozen = torch.zeros(0, dtype=torch.int64)

    @abstractmethod
    def terms(self, layer: Layer, positions: list[Position]) -> tuple[int, int]:
        """``a`` and ``b`` of one layer."""

    def total(self, graph: ChannelGraph, alive: Tensor | None = None) -> int:
        """The whole network, for one image."""
        return int(self.by_layer(graph, alive).sum())

    def by_layer(self, graph: ChannelGraph, alive: Tensor | None = None) -> Tensor:
        """int64 (layers,): the cost of every layer for one image."""
        self._bind(graph)
        out, inside = graph.widths(alive)
        return out * (self._a * (inside + self._own) + self._b)

    def delta_cost(self, graph: ChannelGraph, alive: Tensor | None = None) -> Tensor:
        """int64 (maps,): cost after minus before the removal of each map; 0 for removed maps."""
        self._bind(graph)
        alive = graph.alive if alive is None else alive
        return self._differences(graph, alive) if self.update else self._frozen * alive[:-1]

    def _differences(self, graph: ChannelGraph, alive: Tensor) -> Tensor:
        at = graph.incidence
        out, inside = (width[at.layer] for width in graph.widths(alive))
        a, b, inside = self._a[at.layer], self._b[at.layer], inside + self._own[at.layer]
        before = out * (a * inside + b)
        after = (out - at.out) * (a * (inside - at.inside) + b)
        by_sort = torch.zeros(len(at.sort) + 1, dtype=torch.int64).index_add(0, at.sort, after - before)
        return (by_sort[at.sort_of] * alive)[:-1]

    def _bind(self, graph: ChannelGraph) -> None:
        if self._of == (graph, graph.version):
            return
        positions = graph.positions(self.size)
        terms = [self.terms(layer, positions[layer.name]) for layer in graph.layers]
        self._a, self._b = torch.tensor(terms, dtype=torch.int64).reshape(-1, 2).T.contiguous()
        self._own = torch.tensor([layer.own for layer in graph.layers], dtype=torch.int64)
        self._frozen = self._differences(graph, torch.ones_like(graph.alive))
        self._of = (graph, graph.version)


class Flops(Counted):
    """Floating point operations by the paper's formula, H * W * C_out * (2 * C_in * K^2 + 1).

    H and W are the layer's output size for an input of ``size`` (height, width); without it, the traced size.
    The +1 is counted always, also for layers without a bias. Linear layers count C_out * (2 * C_in + 1) for each
    token, grouped convolutions C_in / groups, transposed ones K^2 for each position they read. All other operations
    are free. Totals and differences are exact integers.

    update  False gives the differences of the traced network for ever, as Molchanov et al. do
    """

    def terms(self, layer: Layer, positions: list[Position]) -> tuple[int, int]:
        """By the layer's own formula."""
        return layer.flops(positions)


class Parameters(Counted):
    """The number of parameters of all layers, normalisation included."""

    def terms(self, layer: Layer, positions: list[Position]) -> tuple[int, int]:  # noqa: ARG002 (no size matters)
        """By the layer's own formula."""
        return layer.weights()


class Memory(Counted):
    """Bytes that a forward pass writes for one image: the outputs of all layers, and their parameters.

    size          of the input, as for :class:`Flops`
    element_size  bytes of a number, 4 for float32
    """

    def __init__(self, size: Sequence[int] | None = None, *, element_size: int = 4, update: bool = True) -> None:
        super().__init__(size, update=update)
        self.element_size = element_size

    def terms(self, layer: Layer, positions: list[Position]) -> tuple[int, int]:
        """Parameters and written positions."""
        a, b = layer.weights()
        return self.element_size * a, self.element_size * (b + sum(p.written for p in positions))
