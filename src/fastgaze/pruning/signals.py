"""Pruning signals: how much the loss is expected to rise when a map is removed.

Each is a small callable: (graph, statistics) -> float64 (maps,), higher means more important. Entries of removed
maps mean nothing. ``needs`` names the statistics that the probes must collect.
"""

from dataclasses import dataclass
from typing import ClassVar, Protocol

import torch
from torch import Tensor

from fastgaze.core.errors import PruningError
from fastgaze.pruning.graph import ChannelGraph
from fastgaze.pruning.probe import Statistics


class Signal(Protocol):
    """One score for each map."""

    @property
    def needs(self) -> frozenset[str]:
        """Subset of {"gradient", "activity"}."""
        ...

    def __call__(self, graph: ChannelGraph, statistics: Statistics) -> Tensor:
        """float64 (maps,)."""
        ...


@dataclass(frozen=True)
class Fisher:
    """delta_loss_k = 1 / (2 N) * sum over images of g_nk^2.

    first_order  add the linear term of equation 5, -1 / N * sum over images of g_nk, which is zero where the loss has
                 been minimised; scores may then be negative. The paper found that it hurts.
    """

    first_order: bool = False
    needs: ClassVar[frozenset[str]] = frozenset({"gradient"})

    def __call__(self, graph: ChannelGraph, statistics: Statistics) -> Tensor:  # noqa: ARG002 (one protocol for all)
        """float64 (maps,), in units of the loss."""
        images = _images(statistics)
        second = statistics.squared / (2 * images)
        return second - statistics.signed / images if self.first_order else second


@dataclass(frozen=True)
class Molchanov:
    """Molchanov et al. (2017): mean over images of |mean over positions of a * dL/da|.

    normalized  divide by the L2 norm over all maps of the same layer
    """

    normalized: bool = True
    needs: ClassVar[frozenset[str]] = frozenset({"gradient"})

    def __call__(self, graph: ChannelGraph, statistics: Statistics) -> Tensor:
        """float64 (maps,)."""
        scores = statistics.absolute / _images(statistics)
        return _layer_normalized(graph, scores) if self.normalized else scores


@dataclass(frozen=True)
class L1Activity:
    """L1A: mean over images and positions of |a_nkij|, as the readers of a map see it."""

    needs: ClassVar[frozenset[str]] = frozenset({"activity"})

    def __call__(self, graph: ChannelGraph, statistics: Statistics) -> Tensor:  # noqa: ARG002 (one protocol for all)
        """float64 (maps,)."""
        return statistics.activity / _images(statistics)


@dataclass(frozen=True)
class L1Weight:
    """L1W: the L1 norm of the weights that make a map, added up over tied producers; biases do not count."""

    needs: ClassVar[frozenset[str]] = frozenset()

    def __call__(self, graph: ChannelGraph, statistics: Statistics) -> Tensor:  # noqa: ARG002 (one protocol for all)
        """float64 (maps,)."""
        scores = torch.zeros(len(graph.maps) + 1, dtype=torch.float64)
        for layer in graph.makers:
            scores.index_add_(0, layer.outputs, layer.magnitudes())
        return scores[:-1]


@dataclass(frozen=True)
class Random:
    """Uniform numbers, new ones after every removal: the baseline that any signal must beat."""

    seed: int = 0
    needs: ClassVar[frozenset[str]] = frozenset()

    def __call__(self, graph: ChannelGraph, statistics: Statistics) -> Tensor:  # noqa: ARG002 (one protocol for all)
        """float64 (maps,) in [0, 1)."""
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + int(graph.alive.sum()))
        return torch.rand(len(graph.maps), generator=generator, dtype=torch.float64)


def _images(statistics: Statistics) -> int:
    if statistics.images == 0:
        raise PruningError("no image was observed since the last removal; run a batch inside observe() first")
    return statistics.images


def _layer_normalized(graph: ChannelGraph, scores: Tensor) -> Tensor:
    """Divide by the root of the sum of squares over the present maps of the first layer that makes each map."""
    names = {layer.name: k for k, layer in enumerate(graph.layers)}
    home = torch.tensor([names[m.producers[0][0]] for m in graph.maps], dtype=torch.int64)
    present = torch.where(graph.alive[:-1], scores, 0.0)
    norm = torch.zeros(len(graph.layers), dtype=torch.float64).index_add(0, home, present.square()).sqrt()
    return scores / norm[home].clamp(min=torch.finfo(torch.float64).tiny)
