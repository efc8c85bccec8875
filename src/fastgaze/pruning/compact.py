"""Physical removal: slice parameters, buffers and optimizer state so that an ordinary smaller network remains."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeGuard

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from fastgaze.core.errors import PruningError
from fastgaze.pruning.graph import ChannelGraph


def compact(graph: ChannelGraph, optimizers: Sequence[Optimizer] = ()) -> None:
    """Slice the removed maps out of every layer of the network, in place.

    Parameters are replaced, and with them their entries and states (momentum, Adam moments) in ``optimizers``.
    requires_grad, gradients, dtype and memory format are kept.
    """
    check_states(graph, optimizers)
    cut = _Cut(optimizers)
    for layer in graph.layers:
        keep_out, keep_in = graph.alive[layer.outputs], graph.alive[layer.inputs]
        if not (bool(keep_out.all()) and bool(keep_in.all())):
            layer.slice(cut, keep_out.nonzero().flatten(), keep_in.nonzero().flatten())
            layer.outputs, layer.inputs = layer.outputs[keep_out], layer.inputs[keep_in]


def check_states(graph: ChannelGraph, optimizers: Sequence[Optimizer]) -> None:
    """Refuse optimizers whose states cannot be sliced, before anything is."""
    for parameter in _parameters(graph):
        for optimizer in optimizers:
            for key, value in optimizer.state.get(parameter, {}).items():
                if _is_sliced(value) and value.shape != parameter.shape:
                    what = f"{type(optimizer).__name__} keeps {key} of shape {tuple(value.shape)}"
                    raise PruningError(
                        f"{what} for a parameter {tuple(parameter.shape)}; pruning slices states of the parameter's "
                        "shape (SGD, Adam, AdamW, RMSprop)"
                    )


def _parameters(graph: ChannelGraph) -> Iterator[nn.Parameter]:
    for module in dict.fromkeys(layer.module for layer in graph.layers):
        yield from module.parameters(recurse=False)


class _Cut:
    """Replaces tensors of modules by slices of them; see :class:`fastgaze.pruning.layers.layer.Slicer`."""

    def __init__(self, optimizers: Sequence[Optimizer]) -> None:
        self.optimizers = optimizers

    def __call__(self, module: nn.Module, name: str, index: Mapping[int, Tensor]) -> None:
        """Keep ``index[axis]`` along each given axis of ``module.name``."""
        old = getattr(module, name, None)
        if not isinstance(old, Tensor) or all(len(keep) == old.shape[axis] for axis, keep in index.items()):
            return
        if not isinstance(old, nn.Parameter):
            setattr(module, name, _cut_like(old, index))
            return
        new = nn.Parameter(_cut_like(old, index), requires_grad=old.requires_grad)
        if old.grad is not None:
            new.grad = _cut_like(old.grad, index)
        setattr(module, name, new)
        for optimizer in self.optimizers:
            _replace_in_optimizer(optimizer, old, new, index)


def _cut_like(tensor: Tensor, index: Mapping[int, Tensor]) -> Tensor:
    """The slice, in a storage of its own and in the memory format of ``tensor``."""
    sliced = tensor.detach()
    for axis, keep in index.items():
        sliced = sliced.index_select(axis, keep.to(tensor.device))
    last = tensor.dim() == 4 and tensor.is_contiguous(memory_format=torch.channels_last) and not tensor.is_contiguous()
    return sliced.contiguous(memory_format=torch.channels_last if last else torch.contiguous_format)


def _replace_in_optimizer(
    optimizer: Optimizer, old: nn.Parameter, new: nn.Parameter, index: Mapping[int, Tensor]
) -> None:
    for group in optimizer.param_groups:
        group["params"] = [new if parameter is old else parameter for parameter in group["params"]]
    if old in optimizer.state:
        state = optimizer.state.pop(old)
        optimizer.state[new] = {k: _cut_like(v, index) if _is_sliced(v) else v for k, v in state.items()}


def _is_sliced(value: object) -> TypeGuard[Tensor]:
    """Whether an entry of a state has a value for each of the parameter's; step counters do not."""
    return isinstance(value, Tensor) and value.dim() > 0
