"""Whole residual blocks: what each is worth, and how it goes.

A block computes y = x + f(x), with or without an activation behind. With a mask m on what it adds,

    y_m = x + m (y - x),      g_n = dL_n/dm = sum over maps and positions of (y - x) * dL_n/dy,

it is the block for m = 1 and the identity for m = 0, and delta_loss = 1 / (2 N) * sum over images of g_n^2 as for maps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from fastgaze.pruning.graph import ChannelGraph
from fastgaze.pruning.layers.layer import Handle
from fastgaze.pruning.probe import Probe, Reduction


class BlockSignals:
    """Sums of g_n^2 for every residual block, and the number of images behind each."""

    def __init__(self) -> None:
        self.squared: dict[str, float] = {}
        self.images: dict[str, int] = {}

    def clear(self) -> None:
        """Forget everything."""
        self.squared.clear()
        self.images.clear()

    def delta_loss(self, block: str) -> float | None:
        """The expected rise of the loss if the block became an identity; None if it was not observed."""
        return self.squared[block] / (2 * self.images[block]) if self.images.get(block) else None

    @contextmanager
    def observed(self, graph: ChannelGraph, reduction: Reduction, scale: float) -> Iterator[None]:
        """Add the signals of one batch: one forward and one backward pass inside the block."""
        anchor = torch.zeros((), requires_grad=True)
        handles: list[Handle] = [
            graph.root.get_submodule(name).register_forward_hook(self._hook(name, anchor, reduction, scale))
            for name in graph.blocks
        ]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _hook(self, name: str, anchor: Tensor, reduction: Reduction, scale: float) -> Callable[..., object]:
        def back(added: Tensor, grad: Tensor) -> None:
            images = len(added)
            g = (added.double() * grad.double()).flatten(1).sum(1) * (images if reduction == "mean" else 1) / scale
            if bool(torch.isfinite(g).all()):
                self.squared[name] = self.squared.get(name, 0.0) + float(g.square().sum())
                self.images[name] = self.images.get(name, 0) + images

        def after(_module: nn.Module, args: tuple[Tensor, ...], output: Tensor) -> Tensor | None:
            if not (torch.is_grad_enabled() and args):
                return None
            watched: Tensor = Probe.apply(output, (output - args[0]).detach(), anchor, back)  # type: ignore[no-untyped-call]
            return watched

        return after


def remove_block(graph: ChannelGraph, block: str, optimizers: Sequence[Optimizer] = ()) -> list[int]:
    """Put an identity in the place of a block and take its parameters out of the optimizers; returns its maps."""
    gone = {id(p) for p in graph.root.get_submodule(block).parameters()}
    indices = graph.remove_block(block)
    left = {id(p) for p in graph.root.parameters()}
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            for parameter in [p for p in group["params"] if id(p) in gone - left]:
                optimizer.state.pop(parameter, None)
            group["params"] = [p for p in group["params"] if id(p) not in gone - left]
    return indices
