"""Normalisation over channels: LayerNorm, RMSNorm and GroupNorm with one group.

Here every channel depends on all others, so a mask behind the layer would not be a removal. The mask m belongs into
the statistics,

    mu = sum m x / sum m,   v = sum m (x - mu)^2 / sum m,   y = gamma (x - mu) / sqrt(v + eps) + beta,

which is the layer itself for m = 1 and the narrower layer for m in {0, 1}. Its derivative adds to g_nk, with
x^ = (x - mu) / sqrt(v + eps), r = v / (v + eps), G = dL/dy, A = sum_j gamma_j G_j and B = sum_j gamma_j G_j x^_j,

    dL/dm_k = - (x^_k A + (x^_k^2 - r) B / 2) / C.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fastgaze.pruning.layers.layer import Handle, Layer, Slicer

EPSILONS = ("eps", "epsilon", "variance_epsilon")  # names that people give it


@dataclass(eq=False)
class LayerNorm(Layer):
    """Normalises the channels of each position together.

    centered  False for RMSNorm
    whole     True if all positions of an image are normalised together, as GroupNorm does
    """

    centered: bool = True
    whole: bool = False

    kind = "layernorm"
    couples = must_stay = True

    def slice(self, cut: Slicer, keep_out: Tensor, keep_in: Tensor) -> None:  # noqa: ARG002 (inputs are outputs here)
        """Scale, shift and the written shape."""
        for name in ("weight", "bias"):
            cut(self.module, name, {0: keep_out})
        _set_shape(self.module, len(keep_out))

    def mask(self, keep: Callable[[], Tensor]) -> list[Handle]:
        """Statistics over the present channels only; the others come out as zero."""
        plain = self.module.forward

        def forward(x: Tensor, *rest: object) -> Tensor:
            mask = keep()
            if bool(mask.all()):
                result: Tensor = plain(x, *rest)
                return result
            index = mask.nonzero().flatten().to(x.device)
            with _narrowed(self.module, index):
                part: Tensor = plain(x.index_select(self.axis, index), *rest)
            return torch.zeros_like(x, dtype=part.dtype).index_copy(self.axis % x.dim(), index, part)

        return [Replaced(self.module, forward)]

    def soft_mask(self, mask: Tensor) -> list[Handle]:
        """The layer with ``mask`` (channels,) of any values in its statistics: the definition behind the derivative."""

        def forward(x: Tensor, *_rest: object) -> Tensor:
            axis = self.axis % x.dim()
            m = mask.to(x).reshape([-1 if d == axis else 1 for d in range(x.dim())])
            axes = tuple(range(1, x.dim())) if self.whole else (axis,)
            total = m.expand_as(x).sum(axes, keepdim=True)
            mean = (m * x).sum(axes, keepdim=True) / total if self.centered else x.new_zeros(())
            variance = (m * (x - mean).square()).sum(axes, keepdim=True) / total
            y = (x - mean) / (variance + self.epsilon()).sqrt()
            for name, join in (("weight", torch.mul), ("bias", torch.add)):
                vector = getattr(self.module, name, None)
                y = y if vector is None else join(y, vector.reshape(m.shape))
            return y

        return [Replaced(self.module, forward)]

    def mask_gradient(self, x: Tensor, grad: Tensor, keep: Tensor) -> Tensor:
        """dL/dm at every element of ``x``, to be added up over positions; zero for channels that are not kept."""
        axis, weight = self.axis % x.dim(), getattr(self.module, "weight", None)
        if weight is not None:
            grad = grad * weight.detach().to(grad).reshape([-1 if d == axis else 1 for d in range(x.dim())])
        if bool(keep.all()):
            return self._derivative(x, grad, axis)
        index = keep.nonzero().flatten().to(x.device)
        part = self._derivative(x.index_select(axis, index), grad.index_select(axis, index), axis)
        return torch.zeros_like(x).index_copy(axis, index, part)

    def _derivative(self, x: Tensor, grad: Tensor, axis: int) -> Tensor:
        axes = tuple(range(1, x.dim())) if self.whole else (axis,)
        mean = x.mean(axes, keepdim=True) if self.centered else x.new_zeros(())
        variance = (x - mean).square().mean(axes, keepdim=True)
        scale = variance + self.epsilon()
        normal = (x - mean) * scale.rsqrt()
        second = (normal.square() - variance / scale) * (grad * normal).sum(axes, keepdim=True) / 2
        first = normal * grad.sum(axes, keepdim=True) if self.centered else 0
        return -(first + second) / (x[0].numel() if self.whole else x.shape[axis])

    def epsilon(self) -> float:
        """The layer's eps."""
        return _epsilon(self.module)


class Replaced:
    """Another ``forward`` for one module until ``remove`` is called."""

    def __init__(self, module: nn.Module, forward: Callable[..., object]) -> None:
        self.module = module
        self.before = module.__dict__.get("forward")
        module.forward = forward

    def remove(self) -> None:
        """The module's own forward again."""
        if self.before is None:
            del self.module.__dict__["forward"]
        else:
            self.module.forward = self.before


@contextmanager
def _narrowed(module: nn.Module, index: Tensor) -> Iterator[None]:
    """Scale and shift of some channels only, inside the block."""
    before = dict(module._parameters)
    width = _width(module)
    try:
        for name, value in before.items():
            if value is not None:
                module._parameters[name] = value.index_select(0, index)  # type: ignore[assignment]
        _set_shape(module, len(index))
        yield
    finally:
        module._parameters.update(before)
        _set_shape(module, width)


def _epsilon(module: nn.Module) -> float:
    given = next((getattr(module, name) for name in EPSILONS if hasattr(module, name)), None)
    return float(torch.finfo(torch.float32).eps if given is None else given)


def _width(module: Any) -> int:
    """Channels that are normalised together; 0 if they have more than one dimension."""
    if isinstance(module, nn.GroupNorm):
        return int(module.num_channels)
    shape = getattr(module, "normalized_shape", None)
    if shape is None:
        return len(module.weight)
    return int(shape) if isinstance(shape, int) else int(shape[0]) if len(shape) == 1 else 0


def _set_shape(module: Any, width: int) -> None:
    if isinstance(module, nn.GroupNorm):
        module.num_channels = width
    elif hasattr(module, "normalized_shape"):
        shape = module.normalized_shape
        module.normalized_shape = width if isinstance(shape, int) else type(shape)([width])


def handmade(module: nn.Module, x: Tensor) -> bool:
    """Whether a class of somebody's own, without parts, does what LayerNorm or RMSNorm do.

    ConvNeXt's norm of images and many others are written out, with means over channels that no rule can follow.
    """
    named = "norm" in type(module).__name__.lower() or any(hasattr(module, name) for name in EPSILONS)
    if not named or not isinstance(getattr(module, "weight", None), nn.Parameter):
        return False
    with torch._C.DisableTorchFunction(), torch._C._DisableTorchDispatch():  # the tracer must not see this trial
        shapes = {tuple(tensor.shape) for tensor in (*module.parameters(), *module.buffers())}
        if x.is_meta or len(shapes) != 1 or len(shapes.pop()) != 1 or any(True for _ in module.children()):
            return False
        result = module.forward(x)
        return isinstance(result, Tensor) and recognised(module, x, result) is not None


def recognised(module: Any, x: Tensor, result: Tensor) -> tuple[int, bool, bool] | None:
    """(axis, centered, whole) if the module did on ``x`` what its class promises; a subclass may do more."""
    weight, bias = getattr(module, "weight", None), getattr(module, "bias", None)
    if isinstance(module, nn.GroupNorm):
        expected = F.group_norm(x, 1, weight, bias, module.eps)
        return (1, True, True) if _close(result, expected) else None
    width = _width(module)
    for axis, centered in ((x.dim() - 1, True), (1, True), (x.dim() - 1, False), (1, False)):
        if x.dim() > 1 and x.shape[axis] == width:
            moved = x.movedim(axis, -1)
            found = F.layer_norm(moved, (width,), eps=_epsilon(module)) if centered else _rms(moved, _epsilon(module))
            found = found if weight is None else found * weight
            found = found if bias is None else found + bias
            if _close(result, found.movedim(-1, axis)):
                return axis - x.dim() if axis == x.dim() - 1 else axis, centered, False
    return None


def _rms(x: Tensor, epsilon: float) -> Tensor:
    return x * (x.square().mean(-1, keepdim=True) + epsilon).rsqrt()


def _close(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and torch.allclose(one.double(), other.double(), rtol=1e-3, atol=1e-4)
