"""Masks and probes at the inputs of the layers that read a map.

A zero at a convolution's output is no longer zero behind BatchNorm, so both sit behind everything that is applied
to a map one channel at a time: at the inputs of the convolutions and linear layers that read it, one mask for all
readers. The gradient of the loss of image n with respect to the mask of map k (equation 9 of the paper) is then

    g_nk = sum over readers, sum over positions of  x * dL_n/dx

and removal is exact for every image size, in training mode too.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from fastgaze.core.errors import PruningError
from fastgaze.pruning.graph import ChannelGraph, Layer, evaluation_mode

Reduction = Literal["mean", "sum"]
BUFFER = 2**20  # numbers (4 MB in float32): small enough to stay in a cache


@dataclass
class Statistics:
    """What the probes have summed since the last removal; float64 (maps,) each.

    images    images seen, the paper's N
    squared   sum over images of g_nk^2
    absolute  sum over images of |g_nk / positions|: the mean over positions, then the absolute value of each image
    activity  sum over images of the mean over positions of |a_nkij|, averaged over the readers of a map
    """

    maps: int
    images: int = 0
    squared: Tensor = field(init=False)
    absolute: Tensor = field(init=False)
    activity: Tensor = field(init=False)

    def __post_init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forget everything: after a removal the old signals describe another network."""
        self.images = 0
        self.squared, self.absolute, self.activity = (torch.zeros(self.maps, dtype=torch.float64) for _ in range(3))


def map_products(x: Tensor, grad: Tensor) -> Tensor:
    """(N, C, ...) twice -> (N, C): the sum over positions of x * grad, in float32 or better.

    A few images at a time through one small buffer: the product of a whole batch would be written to memory and read
    back, which takes three to six times as long.
    """
    wide = torch.promote_types(x.dtype, torch.float32)
    if x.dim() == 2:
        return x.to(wide) * grad.to(wide)
    at_once = max(1, BUFFER // x[0].numel())
    buffer = torch.empty_like(x[:at_once], dtype=wide)
    sums, positions = [], tuple(range(2, x.dim()))
    for first in range(0, len(x), at_once):
        part, other = x[first : first + at_once], grad[first : first + at_once]
        product = buffer[: len(part)]
        torch.mul(part, other, out=product) if x.dtype == wide else product.copy_(part).mul_(other)
        sums.append(product.sum(positions))
    return torch.cat(sums) if len(sums) > 1 else sums[0]


class _Probe(torch.autograd.Function):
    """Identity that reports x * dL/dx, summed over positions, on the way back."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, anchor: Tensor, report: Any) -> Tensor:
        del anchor  # requires a gradient, so that the probe runs behind frozen layers too
        ctx.save_for_backward(x)
        ctx.report = report
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, None, None]:
        (x,) = ctx.saved_tensors
        ctx.report(map_products(x, grads[0]))
        return (grads[0] if ctx.needs_input_grad[0] else None), None, None


class _Collector:
    """Gathers what the probes of one backward pass report."""

    def __init__(self, graph: ChannelGraph, gradient: bool, activity: bool) -> None:
        self.graph = graph
        self.gradient = gradient
        self.activity = activity
        self.anchor = torch.zeros((), requires_grad=True)
        self.products: dict[int, list[Tensor]] = {}
        self.positions: dict[int, int] = {}
        self.activities: dict[int, list[Tensor]] = {}

    def hook(self, number: int, layer: Layer) -> Any:
        def report(product: Tensor) -> None:
            self._add(self.products, number, layer, product)

        def before(_module: nn.Module, args: tuple[Tensor, ...]) -> tuple[Tensor, ...] | None:
            x = args[0]
            if self.activity:
                self._add(self.activities, number, layer, x.detach().abs().reshape(*x.shape[:2], -1).double().mean(-1))
            if not (self.gradient and torch.is_grad_enabled()):
                return None
            self.positions[number] = x[0, 0].numel()
            return (_Probe.apply(x, self.anchor, report), *args[1:])  # type: ignore[no-untyped-call]

        return before

    def _add(self, to: dict[int, list[Tensor]], number: int, layer: Layer, value: Tensor) -> None:
        to.setdefault(number, []).append(value)
        if len(to[number]) > layer.calls:
            raise PruningError(f"{layer.name} ran more often than in the trace; open one observe() for each batch")

    def flush(self, statistics: Statistics, reduction: Reduction) -> None:
        """Add one batch. Sum over readers first, then square, then add up images."""
        if self.gradient:
            self._flush_gradient(statistics, reduction)
        if self.activity:
            self._flush_activity(statistics)

    def _flush_gradient(self, statistics: Statistics, reduction: Reduction) -> None:
        if not any(self.graph.reads_prunable(layer) for layer in self.graph.layers):
            raise PruningError("the network has no map that can be pruned: all are inputs, outputs or tied to them")
        if not self.products:
            raise PruningError("no backward pass reached the network inside observe(); call backward() in the block")
        ids = torch.cat([self.graph.layers[number].inputs for number in self.products])
        weight = torch.cat([self._mean_weight(number) for number in self.products])
        layers = [torch.stack(p).sum(0) if len(p) > 1 else p[0] for p in self.products.values()]
        products = torch.cat(layers, 1).double().cpu()
        images = len(products)
        if reduction == "mean":
            products *= images  # dL_n/dx, not the gradient of the batch's mean
        g, mean = torch.zeros(2, images, statistics.maps + 1, dtype=torch.float64)
        ids = ids.expand(images, -1)
        g.scatter_add_(1, ids, products)  # index_add_ would walk through the channels one by one
        mean.scatter_add_(1, ids, products * weight)
        statistics.images += images
        statistics.squared += g.square().sum(0)[:-1]
        statistics.absolute += mean.abs().sum(0)[:-1]

    def _mean_weight(self, number: int) -> Tensor:
        """float64 (channels in,): 1 / positions of the channel's map, which a flatten spreads over several channels."""
        inputs = self.graph.layers[number].inputs
        return 1.0 / (self.positions[number] * torch.bincount(inputs)[inputs]).double()

    def _flush_activity(self, statistics: Statistics) -> None:
        total = torch.zeros(statistics.maps + 1, dtype=torch.float64)
        channels = torch.zeros_like(total)
        images = 0
        for number, values in self.activities.items():
            inputs = self.graph.layers[number].inputs
            for value in values:
                total.index_add_(0, inputs, value.sum(0).cpu())
                channels.index_add_(0, inputs, torch.ones(len(inputs), dtype=torch.float64))
                images = value.shape[0]
        if not self.gradient:
            statistics.images += images
        statistics.activity += (total / channels.clamp(min=1))[:-1]


@contextmanager
def probed(
    graph: ChannelGraph,
    statistics: Statistics,
    *,
    reduction: Reduction = "mean",
    gradient: bool = True,
    activity: bool = False,
    freeze_norm: bool = True,
) -> Iterator[None]:
    """Add the statistics of one batch: one forward and one backward pass inside the block.

    reduction    how the loss combined the images: "mean" (undone here) or "sum"
    gradient     collect g_nk in the backward pass
    activity     collect mean |a| in the forward pass
    freeze_norm  normalisation uses running statistics in the block: batch statistics would couple the images
    """
    if reduction not in ("mean", "sum"):
        raise PruningError(f"reduction {reduction!r} is not known; the loss is a 'mean' or a 'sum' over images")
    collector = _Collector(graph, gradient, activity)
    handles: list[RemovableHandle] = []
    try:
        for number, layer in enumerate(graph.layers):
            if graph.reads_prunable(layer):
                handles.append(layer.module.register_forward_pre_hook(collector.hook(number, layer)))
        norms = [layer.module for layer in graph.layers if layer.kind == "norm" and freeze_norm]
        with evaluation_mode(norms):
            yield
    finally:
        for handle in handles:
            handle.remove()
    collector.flush(statistics, reduction)


class Masks:
    """Multiplies removed maps by zero at their readers' inputs until :meth:`remove` is called."""

    def __init__(self, graph: ChannelGraph) -> None:
        self._handles = [
            layer.module.register_forward_pre_hook(_mask_hook(graph, layer), prepend=True) for layer in graph.readers
        ]

    def remove(self) -> None:
        """Take the masks out again."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()


def _mask_hook(graph: ChannelGraph, layer: Layer) -> Any:
    def before(_module: nn.Module, args: tuple[Tensor, ...]) -> tuple[Tensor, ...] | None:
        x, mask = args[0], graph.alive[layer.inputs]
        if bool(mask.all()):
            return None
        return (x * mask.to(x).view(1, -1, *(1,) * (x.dim() - 2)), *args[1:])

    return before


@contextmanager
def masked(graph: ChannelGraph) -> Iterator[None]:
    """Removed maps are zero for their readers inside the block, wherever these layers run."""
    masks = Masks(graph)
    try:
        yield
    finally:
        masks.remove()
