"""What a network costs, and what removing one map saves in its own layer and in all its readers."""

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from fastgaze.pruning.graph import ChannelGraph


class Cost(Protocol):
    """A cost of a network with the maps ``alive`` present (bool (maps + 1,), as ``ChannelGraph.alive``)."""

    def total(self, graph: ChannelGraph, alive: Tensor) -> float:
        """The whole network."""
        ...

    def delta_cost(self, graph: ChannelGraph, alive: Tensor) -> Tensor:
        """(maps,), zero or negative: the change of the total if this one map were removed next."""
        ...


class Flops:
    """Floating point operations by the paper's formula, H * W * C_out * (2 * C_in * K^2 + 1).

    H and W are the layer's output size for an input of ``size`` (height, width); without it, the traced size.
    The +1 is counted always, also for layers without a bias. Linear layers count C_out * (2 * C_in + 1), grouped
    convolutions C_in / groups. All other operations are free. Totals and differences are exact integers.

    update  False gives the differences of the traced network for ever, as Molchanov et al. do
    """

    def __init__(self, size: Sequence[int] | None = None, *, update: bool = True) -> None:
        self.size = None if size is None else tuple(size)
        self.update = update
        self._frozen = torch.zeros(0, dtype=torch.int64)
        self._of: ChannelGraph | None = None
        self._positions = torch.zeros(0, dtype=torch.int64)
        self._taps = torch.zeros(0, dtype=torch.int64)
        self._own = torch.zeros(0, dtype=torch.int64)

    def total(self, graph: ChannelGraph, alive: Tensor | None = None) -> int:
        """FLOPs for one image."""
        return int(self.by_layer(graph, alive).sum())

    def by_layer(self, graph: ChannelGraph, alive: Tensor | None = None) -> Tensor:
        """int64 (layers,): FLOPs of every layer for one image."""
        self._bind(graph)
        out, inside = graph.widths(alive)
        return self._positions * out * (self._taps * (inside + self._own) + 1)

    def delta_cost(self, graph: ChannelGraph, alive: Tensor | None = None) -> Tensor:
        """int64 (maps,): FLOPs after minus before the removal of each map; 0 for removed maps."""
        self._bind(graph)
        if not self.update:
            return self._frozen
        return self._differences(graph, graph.alive if alive is None else alive)

    def _differences(self, graph: ChannelGraph, alive: Tensor) -> Tensor:
        at = graph.incidence
        out, inside = (width[at.layer] for width in graph.widths(alive))
        taps, inside = self._taps[at.layer], inside + self._own[at.layer]
        before = out * (taps * inside + 1)
        after = (out - at.out) * (taps * (inside - at.inside) + 1)
        change = self._positions[at.layer] * (after - before)
        by_sort = torch.zeros(len(at.sort) + 1, dtype=torch.int64).index_add(0, at.sort, change)
        return (by_sort[at.sort_of] * alive)[:-1]

    def _bind(self, graph: ChannelGraph) -> None:
        """Per layer: output positions over all calls, 2 K^2, and the one input channel of a depthwise filter."""
        if self._of is graph:
            return
        shapes = graph.shapes(self.size)
        costly = [layer.kind in ("conv", "linear", "depthwise") for layer in graph.layers]
        positions = [sum(torch.Size(s).numel() for s in shapes[layer.name]) for layer in graph.layers]
        self._positions = torch.tensor([p * c for p, c in zip(positions, costly, strict=True)])
        self._taps = torch.tensor([2 * torch.Size(layer.kernel).numel() for layer in graph.layers])
        self._own = torch.tensor([int(layer.kind == "depthwise") for layer in graph.layers])
        self._frozen = self._differences(graph, torch.ones_like(graph.alive))
        self._of = graph
