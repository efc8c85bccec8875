"""Physical removal: slice parameters, buffers and optimizer state so that an ordinary smaller network remains."""

from collections.abc import Callable, Sequence
from typing import TypeGuard

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from fastgaze.core.errors import PruningError
from fastgaze.pruning.graph import ChannelGraph, Layer

Slice = Callable[[Tensor], Tensor]


def compact(graph: ChannelGraph, optimizers: Sequence[Optimizer] = ()) -> None:
    """Slice the removed maps out of every layer of the network, in place.

    Parameters are replaced, and with them their entries and states (momentum, Adam moments) in ``optimizers``.
    requires_grad, gradients, dtype and memory format are kept.
    """
    check_states(graph, optimizers)
    for layer in graph.layers:
        keep_out, keep_in = graph.alive[layer.outputs], graph.alive[layer.inputs]
        if not (bool(keep_out.all()) and bool(keep_in.all())):
            _slice_layer(layer, keep_out, keep_in, optimizers)
            layer.outputs, layer.inputs = layer.outputs[keep_out], layer.inputs[keep_in]


def check_states(graph: ChannelGraph, optimizers: Sequence[Optimizer]) -> None:
    """Refuse optimizers whose states cannot be sliced, before anything is."""
    for parameter in (p for layer in graph.layers for p in layer.module.parameters(recurse=False)):
        for optimizer in optimizers:
            for key, value in optimizer.state.get(parameter, {}).items():
                if _is_sliced(value) and value.shape != parameter.shape:
                    what = f"{type(optimizer).__name__} keeps {key} of shape {tuple(value.shape)}"
                    raise PruningError(
                        f"{what} for a parameter {tuple(parameter.shape)}; pruning slices states of the parameter's "
                        "shape (SGD, Adam, AdamW, RMSprop)"
                    )


def _slice_layer(layer: Layer, keep_out: Tensor, keep_in: Tensor, optimizers: Sequence[Optimizer]) -> None:
    out = keep_out.nonzero().flatten()
    if layer.reads:
        inside = keep_in[: len(keep_in) // layer.groups].nonzero().flatten()
        _replace(layer.module, "weight", lambda t: _take(_take(t, 0, out), 1, inside), optimizers)
    elif len(out) != len(keep_out):
        _replace(layer.module, "weight", lambda t: _take(t, 0, out), optimizers)
    if len(out) != len(keep_out):
        _replace(layer.module, "bias", lambda t: _take(t, 0, out), optimizers)
        _slice_buffers(layer.module, out)
    _set_widths(layer, len(out), int(keep_in.sum()))


def _take(tensor: Tensor, dim: int, index: Tensor) -> Tensor:
    return tensor.index_select(dim, index.to(tensor.device))


def _slice_buffers(module: nn.Module, out: Tensor) -> None:
    for name in ("running_mean", "running_var"):
        buffer = getattr(module, name, None)
        if isinstance(buffer, Tensor):
            setattr(module, name, _take(buffer, 0, out))


def _set_widths(layer: Layer, out: int, inside: int) -> None:
    module = layer.module
    if isinstance(module, nn.modules.conv._ConvNd):
        module.out_channels = out
        if layer.kind == "depthwise":
            module.in_channels = module.groups = out // (len(layer.outputs) // module.groups)
        else:
            module.in_channels = inside
    elif isinstance(module, nn.Linear):
        module.out_features, module.in_features = out, inside
    elif isinstance(module, nn.PReLU):
        module.num_parameters = out
    else:
        setattr(module, "num_features", out)  # noqa: B010 (BatchNorm and InstanceNorm)


def _replace(module: nn.Module, name: str, cut: Slice, optimizers: Sequence[Optimizer]) -> None:
    old = getattr(module, name, None)
    if old is None:
        return
    new = nn.Parameter(_cut_like(old, cut), requires_grad=old.requires_grad)
    if old.grad is not None:
        new.grad = _cut_like(old.grad, cut)
    setattr(module, name, new)
    for optimizer in optimizers:
        _replace_in_optimizer(optimizer, old, new, cut)


def _cut_like(tensor: Tensor, cut: Slice) -> Tensor:
    """The slice, in a storage of its own and in the memory format of ``tensor``."""
    sliced = cut(tensor.detach())
    last = tensor.dim() == 4 and tensor.is_contiguous(memory_format=torch.channels_last) and not tensor.is_contiguous()
    return sliced.contiguous(memory_format=torch.channels_last if last else torch.contiguous_format)


def _replace_in_optimizer(optimizer: Optimizer, old: nn.Parameter, new: nn.Parameter, cut: Slice) -> None:
    for group in optimizer.param_groups:
        group["params"] = [new if parameter is old else parameter for parameter in group["params"]]
    if old in optimizer.state:
        state = optimizer.state.pop(old)
        optimizer.state[new] = {k: _cut_like(v, cut) if _is_sliced(v) else v for k, v in state.items()}


def _is_sliced(value: object) -> TypeGuard[Tensor]:
    """Whether an entry of a state has a value for each of the parameter's; step counters do not."""
    return isinstance(value, Tensor) and value.dim() > 0
