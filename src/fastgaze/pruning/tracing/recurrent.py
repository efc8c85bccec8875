"""Recurrent layers: what they read may go, their own units stay.

A unit is read by all others at the next step, inside of the layer, where no mask reaches. Columns of the weights that
read the input are ordinary.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from fastgaze.pruning.layers.layer import Layer, Position, Slicer
from fastgaze.pruning.tracing.modules import images_of
from fastgaze.pruning.tracing.operations import RULES, blocks
from fastgaze.pruning.tracing.tracer import Call


class Recurrent(Layer):
    """nn.LSTM, nn.GRU and nn.RNN, and their cells; weight_ih (gates * hidden, in)."""

    kind = "recurrent"
    reads = makes = must_stay = True
    module: Any

    @property
    def gates(self) -> int:
        """Rows of the weights for each unit: 4, 3 or 1."""
        return int(len(self._reading()[0]) // self.module.hidden_size)

    def _reading(self) -> list[Tensor]:
        return [getattr(self.module, name) for name in self._names()]

    def _names(self) -> list[str]:
        """The weights that read the input: those of the first layer, in both directions."""
        names = ("weight_ih", "weight_ih_l0", "weight_ih_l0_reverse")
        return [name for name in names if hasattr(self.module, name)]

    def _inside(self, biases: int) -> int:
        """Weights of one output that read no input: its own layer's, and those of the layers above."""
        hidden, directions = self.module.hidden_size, len(self._names())
        above = getattr(self.module, "num_layers", 1) - 1
        return int(self.gates * (hidden + biases + above * (directions * hidden + hidden + biases)))

    def flops(self, positions: list[Position]) -> tuple[int, int]:
        """Two for each weight of each gate and step, as in a linear layer, and one for the bias."""
        steps = sum(p.read for p in positions)
        layers = getattr(self.module, "num_layers", 1)
        return 2 * self.gates * steps, steps * (2 * self._inside(0) + self.gates * layers)

    def weights(self) -> tuple[int, int]:
        """Of every gate: a column for each input, the recurrent ones and two biases."""
        return self.gates, self._inside(2 * int(bool(self.module.bias)))

    def slice(self, cut: Slicer, keep_out: Tensor, keep_in: Tensor) -> None:  # noqa: ARG002 (units stay)
        """Columns of the weights that read the input."""
        for name in self._names():
            cut(self.module, name, {1: keep_in})
        self.module.input_size = len(keep_in)
        if isinstance(self.module, nn.RNNBase):
            self.module.flatten_parameters()


def recurrent(call: Call) -> None:
    """A layer over a sequence, or one step of a cell."""
    module: Any = call.target
    sequence = isinstance(module, nn.RNNBase)
    x = call.args[0] if call.args else call.kwargs.get("input")
    if not isinstance(x, Tensor) or x.dim() != (3 if sequence else 2) or (sequence and module.proj_size):
        blocks(call, "reads a packed sequence or no batch, or projects its units")
        return
    for state in (tensor for tensor in call.tensors() if tensor is not x):
        call.keep(call.label(state).ids, "starts from them")
    ids = call.channels(x, -1)
    width = module.hidden_size * (2 if getattr(module, "bidirectional", False) else 1)
    images = images_of(call, x, -1, ids)
    layer = call.layer(Recurrent(call.path, module, ids, call.new_maps(width), axis=-1, images=images))
    reason = call.tracer.note(call.name, "reads its own units at the next step")
    call.tracer.ties.keep(layer.outputs, reason)
    _put_results(call, x, layer.outputs, images.axis if sequence else 0)


def _put_results(call: Call, x: Tensor, outputs: Tensor, batch: int) -> None:
    """The units stay, so that only images need to be known: those of a sequence are where they were, or second."""
    images = call.label(x).images
    for tensor in (leaf for leaf in tree_leaves(call.result) if isinstance(leaf, Tensor)):
        place = batch if tensor.dim() == x.dim() and tensor.shape[-1] == len(outputs) else tensor.dim() - 2
        where = images.amax(tuple(d for d in range(x.dim()) if d != batch)).flatten()
        shape = [-1 if d == place else 1 for d in range(tensor.dim())]
        blank = torch.zeros((1,) * tensor.dim(), dtype=torch.int64)
        call.set_label(tensor, blank, where.reshape(shape) if len(where) in (1, tensor.shape[place]) else blank)


RULES.update(dict.fromkeys((nn.RNNBase, nn.RNNCellBase), recurrent))
