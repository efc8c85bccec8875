"""Classes of somebody's own that do what a convolution or a linear layer does, with a weight of their own.

``F.conv2d(x, self.weight * self.scale)`` and ``x @ self.w + self.b`` stand in many networks. Such a module is known by
what it computes: without some of its inputs it must do what it does when they are zero, and without some rows of its
weight what it does for the others.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from fastgaze.pruning.layers.layer import Layer, Position, Slicer, norms_of_rows, zeroed

WIDTHS = {"rows": ("out_channels", "out_features"), "columns": ("in_channels", "in_features")}


class Weight(NamedTuple):
    """How a module holds its weight.

    name     of the parameter
    vectors  names of parameters with a number for each output, such as a bias
    rows     the dimension of the weight that its outputs have
    columns  the dimension that its inputs have
    axis     the channels' dimension in what the module reads and makes
    """

    name: str
    vectors: tuple[str, ...]
    rows: int
    columns: int
    axis: int


CONVOLUTION = Weight("weight", ("bias",), rows=0, columns=1, axis=1)


@dataclass(eq=False)
class Handmade(Layer):
    """A convolution without groups or a linear layer, by what it does; engines are not asked for its time."""

    weight: Weight = CONVOLUTION

    kind = "own class"
    reads = makes = must_stay = True
    module: Any

    @property
    def kernel(self) -> tuple[int, ...]:
        """The other dimensions of the weight."""
        return tuple(getattr(self.module, self.weight.name).shape[2:])

    def flops(self, positions: list[Position]) -> tuple[int, int]:
        """As a convolution or a linear layer."""
        written = sum(p.written for p in positions)
        return 2 * prod(self.kernel) * written, written

    def weights(self) -> tuple[int, int]:
        """The kernel for each pair of channels, and the vectors."""
        return prod(self.kernel), len(self.weight.vectors)

    def magnitudes(self) -> Tensor:
        """float64 (channels out,): L1 norms of the rows."""
        return norms_of_rows(getattr(self.module, self.weight.name).movedim(self.weight.rows, 0))

    def slice(self, cut: Slicer, keep_out: Tensor, keep_in: Tensor) -> None:
        """Rows and columns of the weight, and what there is for each row."""
        cut(self.module, self.weight.name, {self.weight.rows: keep_out, self.weight.columns: keep_in})
        for name in self.weight.vectors:
            cut(self.module, name, {0: keep_out})
        _set_widths(self.module, "rows", len(keep_out))
        _set_widths(self.module, "columns", len(keep_in))


def weight_of(module: nn.Module, x: Tensor) -> Weight | None:
    """How a module without parts uses its weight on ``x``, if it does what a layer of torch would do."""
    with torch._C.DisableTorchFunction(), torch._C._DisableTorchDispatch():  # the tracer must not see this trial
        wide = [name for name, p in module.named_parameters(recurse=False) if p.dim() > 1]
        if len(wide) != 1 or x.is_meta or x.dim() < 2 or any(True for _ in module.children()):
            return None
        found = [weight for weight in _options(module, wide[0], x) if _agrees(module, weight, x)]
    return found[0] if len(found) == 1 else None


def _options(module: nn.Module, name: str, x: Tensor) -> Iterator[Weight]:
    """A convolution has its outputs first; a matrix may have them first or last."""
    weight = module.get_parameter(name)
    places = ((0, 1, -1), (1, 0, -1)) if weight.dim() == 2 else ((0, 1, 1),)
    for rows, columns, axis in places:
        vectors = [(key, p) for key, p in module.named_parameters(recurse=False) if key != name]
        fits = all(p.shape == (weight.shape[rows],) for _, p in vectors)
        same_rank = axis == -1 or weight.dim() == x.dim()
        if fits and same_rank and x.shape[axis] == weight.shape[columns] and weight.shape[columns] > 1:
            yield Weight(name, tuple(key for key, _ in vectors), rows, columns, axis)


def _agrees(module: nn.Module, weight: Weight, x: Tensor) -> bool:
    """Whether every other input, and every other output, can be left out."""
    ins, outs = x.shape[weight.axis], module.get_parameter(weight.name).shape[weight.rows]
    some = torch.arange(ins)[::2], torch.arange((outs - 1) % 2, outs, 2)
    try:
        whole: Tensor = module.forward(x)
        masked: Tensor = module.forward(zeroed(x, torch.arange(ins) % 2 == 0, weight.axis))
        with _narrowed(module, weight, "columns", some[0]):
            narrow: Tensor = module.forward(x.index_select(weight.axis, some[0].to(x.device)))
        with _narrowed(module, weight, "rows", some[1]):
            fewer: Tensor = module.forward(x)
        rest = whole.index_select(weight.axis, some[1].to(x.device))
    except Exception:
        return False  # it does not work with fewer channels
    return whole.shape[weight.axis] == outs and _close(narrow, masked) and _close(fewer, rest)


@contextmanager
def _narrowed(module: nn.Module, weight: Weight, side: str, index: Tensor) -> Iterator[None]:
    """Some rows or columns of the weight only, inside the block."""
    names = (weight.name, *(weight.vectors if side == "rows" else ()))
    before = {name: module.get_parameter(name) for name in names}
    parameters: dict[str, Any] = module._parameters
    numbers = {key: module.__dict__[key] for key in WIDTHS[side] if key in module.__dict__}
    try:
        for name, value in before.items():
            axis = getattr(weight, side) if name == weight.name else 0
            parameters[name] = value.index_select(axis, index.to(value.device))
        _set_widths(module, side, len(index))
        yield
    finally:
        parameters.update(before)
        module.__dict__.update(numbers)


def _set_widths(module: nn.Module, side: str, width: int) -> None:
    for key in WIDTHS[side]:
        if key in module.__dict__:
            module.__dict__[key] = width


def _close(one: Tensor, other: Tensor) -> bool:
    close = one.shape == other.shape and one.is_floating_point()
    return close and torch.allclose(one, other, rtol=1e-3, atol=1e-5 * float(other.abs().max()) + 1e-12)
