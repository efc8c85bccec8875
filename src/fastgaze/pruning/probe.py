"""Masks and probes at the inputs of the layers that read a map.

A zero at a convolution's output is no longer zero behind BatchNorm, so both sit behind everything that is applied
to a map one channel at a time: at the inputs of the convolutions and linear layers that read it, one mask for all
readers. The gradient of the loss of image n with respect to the mask of map k (equation 9 of the paper) is then

    g_nk = sum over readers, sum over positions of  x * dL_n/dx

and removal is exact for every image size, in training mode too. Layers that normalise over channels have a mask of
their own, whose derivative adds to g_nk (``layers.norms``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import torch
from torch import Tensor, nn

from fastgaze.core.errors import PruningError
from fastgaze.pruning.graph import NORMS, ChannelGraph, evaluation_mode
from fastgaze.pruning.layers.layer import Handle, Images, Layer
from fastgaze.pruning.layers.norms import LayerNorm

Reduction = Literal["mean", "sum"]
NO_BACKWARD = (
    "no backward pass reached the network inside observe(); call backward() in the block, and run the plain network "
    "there if yours is compiled (graph.root)"
)
BUFFER = 2**20  # numbers (4 MB in float32): small enough to stay in a cache


class Scaler(Protocol):
    """torch.amp.GradScaler, or anything else that knows by what the loss is multiplied."""

    def get_scale(self) -> float:
        """The present factor."""
        ...


@dataclass
class Statistics:
    """What the probes have summed since the last removal; float64 (map_count,) each.

    images    images seen, the paper's N
    signed    sum over images of g_nk
    squared   sum over images of g_nk^2
    absolute  sum over images of |g_nk / positions|: the mean over positions, then the absolute value of each image
    activity  sum over images of the mean over positions of |a_nkij|, averaged over the readers of a map
    """

    map_count: int
    images: int = 0
    signed: Tensor = field(init=False)
    squared: Tensor = field(init=False)
    absolute: Tensor = field(init=False)
    activity: Tensor = field(init=False)

    def __post_init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forget everything: after a removal the old signals describe another network."""
        self.images = 0
        self.signed, self.squared, self.absolute, self.activity = torch.zeros(4, self.map_count, dtype=torch.float64)

    def over_ranks(self) -> Statistics:
        """The sums over all processes of torch.distributed, the same in each; these themselves if there is one."""
        if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
            return self
        images = torch.tensor([float(self.images)], dtype=torch.float64)
        packed = torch.cat((images, self.signed, self.squared, self.absolute, self.activity))
        if torch.distributed.get_backend() == "nccl":
            packed = packed.cuda()
        torch.distributed.all_reduce(packed)
        packed = packed.cpu()
        whole = Statistics(self.map_count)
        whole.images = round(float(packed[0]))
        whole.signed, whole.squared, whole.absolute, whole.activity = packed[1:].reshape(4, -1)
        return whole


def map_products(x: Tensor, grad: Tensor) -> Tensor:
    """(N, C, ...) twice -> (N, C): the sum over positions of x * grad, in float32 or better.

    A few images at a time through one small buffer: the product of a whole batch would be written to memory and read
    back, which takes three to six times as long.
    """
    wide = torch.promote_types(x.dtype, torch.float32)
    if x.dim() == 2:
        return x.to(wide) * grad.to(wide)
    at_once = max(1, BUFFER // max(1, x[0].numel()))
    buffer = torch.empty_like(x[:at_once], dtype=wide)
    sums, positions = [], tuple(range(2, x.dim()))
    for first in range(0, len(x), at_once):
        part, other = x[first : first + at_once], grad[first : first + at_once]
        product = buffer[: len(part)]
        torch.mul(part, other, out=product) if x.dtype == wide else product.copy_(part).mul_(other)
        sums.append(product.sum(positions))
    return torch.cat(sums) if len(sums) > 1 else sums[0]


class Probe(torch.autograd.Function):
    """Identity that hands x and dL/dx to ``report`` on the way back."""

    @staticmethod
    def forward(ctx: Any, y: Tensor, x: Tensor, anchor: Tensor, report: Callable[[Tensor, Tensor], None]) -> Tensor:
        del anchor  # requires a gradient, so that the probe runs behind frozen layers too
        ctx.save_for_backward(x)
        ctx.report = report
        return y.view_as(y)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, None, None, None]:
        (x,) = ctx.saved_tensors
        ctx.report(x, grads[0])
        return (grads[0] if ctx.needs_input_grad[0] else None), None, None, None


@dataclass
class _Report:
    """What one layer has said about one batch: (rows, C) each, and where the batch is in the rows."""

    ids: Tensor
    images: Images
    products: list[Tensor] = field(default_factory=list)
    activities: list[Tensor] = field(default_factory=list)
    elements: int = 0  # of one channel, over all rows
    seen: int = 0


class _Collector:
    """Gathers what the probes of one backward pass report."""

    def __init__(self, graph: ChannelGraph, gradient: bool, activity: bool) -> None:
        self.graph, self.gradient, self.activity = graph, gradient, activity
        self.anchor = torch.zeros((), requires_grad=True)
        self.reports: dict[int, _Report] = {}

    def install(self) -> list[Handle]:
        """Hooks at all layers whose maps could go."""
        handles: list[Handle] = []
        for number, layer in enumerate(self.graph.layers):
            if self.graph.reads_prunable(layer) and not (layer.couples and not self.gradient):
                ids = layer.outputs if layer.couples else layer.inputs
                report = self.reports[number] = _Report(ids, layer.images)
                watch = (
                    self._beside(layer, report)
                    if isinstance(layer, LayerNorm)
                    else layer.probe(self._before(layer, report))
                )
                handles += watch
        return handles

    def _before(self, layer: Layer, report: _Report) -> Callable[[Tensor], Tensor]:
        """What a reader's input passes through."""

        def back(x: Tensor, grad: Tensor) -> None:
            report.products.append(map_products(_rows(x, layer), _rows(grad, layer)))

        def watch(x: Tensor) -> Tensor:
            if self._is_first(layer, report) and self.activity:
                rows = _rows(x.detach(), layer)
                report.activities.append(rows.abs().reshape(*rows.shape[:2], -1).double().mean(-1))
            if not (self.gradient and torch.is_grad_enabled()):
                return x
            report.elements = x.numel() // max(1, x.shape[layer.axis])
            probed: Tensor = Probe.apply(x, x, self.anchor, back)  # type: ignore[no-untyped-call]
            return probed

        return watch

    def _beside(self, layer: LayerNorm, report: _Report) -> list[Handle]:
        """The derivative of the mask inside a norm over channels, from its input and the gradient of its output."""

        def back(x: Tensor, grad: Tensor) -> None:
            keep = self.graph.alive[layer.outputs]
            terms = layer.mask_gradient(x.double(), grad.double(), keep)
            rows = _rows(terms, layer)
            report.products.append(rows if rows.dim() == 2 else rows.flatten(2).sum(2))

        def after(_module: nn.Module, args: tuple[Tensor, ...], output: Tensor) -> Tensor | None:
            self._is_first(layer, report)
            if not torch.is_grad_enabled():
                return None
            report.elements = output.numel() // max(1, output.shape[layer.axis])
            probed: Tensor = Probe.apply(output, args[0].detach(), self.anchor, back)  # type: ignore[no-untyped-call]
            return probed

        return [layer.module.register_forward_hook(after, prepend=True)]

    def _is_first(self, layer: Layer, report: _Report) -> bool:
        """Whether this is the forward pass; activation checkpointing runs layers again in the backward pass."""
        if torch._C._current_graph_task_id() != -1:
            return False
        report.seen += 1
        if report.seen > layer.calls * layer.sources:
            raise PruningError(f"{layer.name} ran more often than in the trace; open one observe() for each batch")
        return True

    def flush(self, statistics: Statistics, reduction: Reduction, scale: float) -> None:
        """Add one batch. Sum over readers first, then square, then add up images."""
        if not self.reports and self.gradient:
            raise PruningError(nothing_prunable(self.graph))
        if self.gradient:
            self._flush_gradient(statistics, reduction, scale)
        if self.activity:
            self._flush_activity(statistics)

    def _flush_gradient(self, statistics: Statistics, reduction: Reduction, scale: float) -> None:
        told = [report for report in self.reports.values() if report.products]
        if not told:
            raise PruningError(NO_BACKWARD)
        count = self._images([(r.images, len(r.products[0])) for r in told])
        factor = (count if reduction == "mean" else 1) / scale  # dL_n/dx, not the gradient of the batch's mean
        products = torch.cat([_per_image(r.products, r.images, count) for r in told], 1) * factor
        if scale != 1 and not bool(torch.isfinite(products).all()):
            return  # the scaler will skip this step too
        ids = torch.cat([report.ids for report in told]).expand(count, -1)
        weight = torch.cat([_mean_weight(report, count) for report in told])
        g, mean = torch.zeros(2, count, statistics.map_count + 1, dtype=torch.float64)
        g.scatter_add_(1, ids, products)  # index_add_ would walk through the channels one by one
        mean.scatter_add_(1, ids, products * weight)
        statistics.images += count
        statistics.signed += g.sum(0)[:-1]
        statistics.squared += g.square().sum(0)[:-1]
        statistics.absolute += mean.abs().sum(0)[:-1]

    def _images(self, rows: list[tuple[Images, int]]) -> int:
        """How many images the batch had: what layers with one row for each image saw."""
        plain = [count for images, count in rows if images.parts == 1]
        return min(plain) if plain else min(count // images.parts for images, count in rows)

    def _flush_activity(self, statistics: Statistics) -> None:
        total = torch.zeros(statistics.map_count + 1, dtype=torch.float64)
        channels = torch.zeros_like(total)
        told = [report for report in self.reports.values() if report.activities]
        count = self._images([(r.images, len(r.activities[0])) for r in told]) if told else 0
        for report in told:
            for value in report.activities:
                total.index_add_(0, report.ids, value.sum(0).cpu() * count / len(value))
                channels.index_add_(0, report.ids, torch.ones(len(report.ids), dtype=torch.float64))
        if not self.gradient:
            statistics.images += count
        statistics.activity += (total / channels.clamp(min=1))[:-1]


def _rows(x: Tensor, layer: Layer) -> Tensor:
    """``x`` with the batch in front and the channels next."""
    if (layer.images.axis, layer.axis) == (0, 1) or (x.dim() == 2 and layer.images.axis == 0):
        return x
    return x.movedim((layer.images.axis, layer.axis % x.dim()), (0, 1))


def _per_image(products: list[Tensor], images: Images, count: int) -> Tensor:
    """float64 (images, C): rows of the same image added up, over all calls."""
    total: Tensor | None = None
    for product in products:
        if len(product) % count:
            raise PruningError(f"a layer read {len(product)} rows from a batch of {count} images; use whole batches")
        rows = product.double().cpu()
        if len(rows) != count:
            rows = (
                rows.reshape(-1, count, rows.shape[1]).sum(0)
                if images.inner
                else rows.reshape(count, -1, rows.shape[1]).sum(1)
            )
        total = rows if total is None else total + rows
    assert total is not None
    return total


def _mean_weight(report: _Report, count: int) -> Tensor:
    """float64 (C,): 1 / positions of the channel's map, which a flatten spreads over several channels."""
    positions = report.elements // count
    return 1.0 / (positions * torch.bincount(report.ids)[report.ids]).double()


def nothing_prunable(graph: ChannelGraph) -> str:
    """Why a network cannot be pruned at all."""
    why = "; ".join(str(kept) for kept in graph.kept[:3]) or "all are inputs, outputs or tied to them"
    return f"the network has no map that can be pruned: {why}"


@contextmanager
def probed(
    graph: ChannelGraph,
    statistics: Statistics,
    *,
    reduction: Reduction = "mean",
    gradient: bool = True,
    activity: bool = False,
    freeze_norm: bool = True,
    loss_scale: float | Scaler = 1.0,
) -> Iterator[None]:
    """Add the statistics of one batch: one forward and one backward pass inside the block.

    reduction    how the loss combined the images: "mean" (undone here) or "sum"
    gradient     collect g_nk in the backward pass
    activity     collect mean |a| in the forward pass
    freeze_norm  normalisation uses running statistics in the block: batch statistics would couple the images
    loss_scale   what the loss was multiplied by before backward(), or the GradScaler that did it (undone here)
    """
    if reduction not in ("mean", "sum"):
        raise PruningError(f"reduction {reduction!r} is not known; the loss is a 'mean' or a 'sum' over images")
    scale = float(loss_scale) if isinstance(loss_scale, int | float) else float(loss_scale.get_scale())
    collector = _Collector(graph, gradient, activity)
    handles = collector.install()
    try:
        norms = [module for module in graph.root.modules() if isinstance(module, NORMS) and freeze_norm]
        with evaluation_mode(norms):
            yield
    finally:
        for handle in reversed(handles):
            handle.remove()
    collector.flush(statistics, reduction, scale)


class Masks:
    """Multiplies removed maps by zero at their readers' inputs until :meth:`remove` is called."""

    def __init__(self, graph: ChannelGraph) -> None:
        self._handles: list[Handle] = []
        for layer in graph.layers:
            if layer.reads or layer.couples:
                self._handles += layer.mask(_alive(graph, layer))

    def remove(self) -> None:
        """Take the masks out again."""
        for handle in reversed(self._handles):
            handle.remove()
        self._handles.clear()


def _alive(graph: ChannelGraph, layer: Layer) -> Callable[[], Tensor]:
    return lambda: graph.alive[layer.outputs if layer.couples else layer.inputs]


@contextmanager
def masked(graph: ChannelGraph) -> Iterator[None]:
    """Removed maps are zero for their readers inside the block, wherever these layers run."""
    masks = Masks(graph)
    try:
        yield
    finally:
        masks.remove()
