"""What a layer is: one object says how it is sliced, what widths it has, what it costs and where its mask sits.

A layer *makes* maps (convolutions, linear layers), or it only *carries* them (normalisation, depthwise
convolutions, parameters that are added or multiplied). ``kinds.py`` has the classes for torch's own layers.

Every cost of a layer is ``out * (a * (inside + own) + b)``, where ``out`` is its present number of output channels
and ``inside`` its present number of input channels per group; the class gives ``own``, and ``a`` and ``b`` for
FLOPs, parameters and activations.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple, Protocol

import torch
from torch import Tensor, nn


class Slicer(Protocol):
    """Replaces a tensor of a module by a slice of it, in optimizers too."""

    def __call__(self, module: nn.Module, name: str, index: Mapping[int, Tensor]) -> None:
        """Keep ``index[axis]`` along each given axis of ``module.name``; nothing happens if it is None."""
        ...


class Handle(Protocol):
    """Something that is installed until it is removed."""

    def remove(self) -> None:
        """Take it out again."""
        ...


class Position(NamedTuple):
    """One call of a layer for one image: numbers of input and output positions, and spatial output size."""

    read: int
    written: int
    spatial: tuple[int, ...]


class Images(NamedTuple):
    """Where the batch is in the tensor that a layer reads.

    axis   its dimension
    inner  True if images alternate (0, 1, 0, 1), False if each holds a stretch (0, 0, 1, 1), as windows do
    parts  how often each image occurred in the trace
    """

    axis: int = 0
    inner: bool = False
    parts: int = 1


BATCH_FIRST = Images()


@dataclass(eq=False)
class Layer(ABC):
    """One module with channels, or a part of one.

    name     of the module, and of the part
    inputs   int64 (channels in,): the map of every present input channel; empty for layers that only carry
    outputs  int64 (channels out,): the map of every present output channel
    calls    how often one forward pass runs the module
    axis     the channels' dimension in what it reads
    """

    name: str
    module: nn.Module
    inputs: Tensor
    outputs: Tensor
    calls: int = 1
    axis: int = 1
    images: Images = BATCH_FIRST
    positions: list[Position] = field(default_factory=list)

    kind: ClassVar[str] = "layer"
    reads: ClassVar[bool] = False  # masks and probes sit at its input
    makes: ClassVar[bool] = False  # its outputs are maps of their own
    must_stay: ClassVar[bool] = False  # it keeps at least one output
    own: ClassVar[int] = 0  # input channels of an output channel besides those in ``inputs``
    engine: ClassVar[bool] = False  # an engine spends time on it: it has a LayerShape
    transposed: ClassVar[bool] = False
    couples: ClassVar[bool] = False  # its channels depend on each other, so that it has a mask of its own
    sources: ClassVar[int] = 1  # tensors that one call may read

    @property
    def groups(self) -> int:
        """Groups of a convolution, else 1."""
        return 1

    @property
    def kernel(self) -> tuple[int, ...]:
        """Kernel size of a convolution, else ()."""
        return ()

    @property
    def stride(self) -> tuple[int, ...]:
        """Stride of a convolution, else ()."""
        return ()

    @property
    def dilation(self) -> tuple[int, ...]:
        """Dilation of a convolution, else ()."""
        return ()

    def measure(self, x: object, result: object, batch: int) -> Position:
        """Positions of one call, for one image."""
        return measured(x, result, self.axis, batch)

    def magnitudes(self) -> Tensor:
        """float64 (channels out,): the L1 norm of the weights that make each output channel."""
        return torch.zeros(len(self.outputs), dtype=torch.float64)

    def flops(self, positions: list[Position]) -> tuple[int, int]:  # noqa: ARG002 (nothing unless a subclass says so)
        """``a`` and ``b`` of its floating point operations."""
        return 0, 0

    def weights(self) -> tuple[int, int]:
        """``a`` and ``b`` of its number of parameters."""
        return 0, sum(1 for p in self.module.parameters(recurse=False) if p.dim() == 1)

    @abstractmethod
    def slice(self, cut: Slicer, keep_out: Tensor, keep_in: Tensor) -> None:
        """Keep these channels (indices) of its tensors and write its new widths down."""

    def mask(self, keep: Callable[[], Tensor]) -> list[Handle]:
        """Hooks that zero its input channels where ``keep()`` (bool (channels in,)) is False."""
        if not self.reads:
            return []

        def masked(x: Tensor) -> Tensor:
            mask = keep()
            return x if bool(mask.all()) else zeroed(x, mask, self.axis)

        return [self.module.register_forward_pre_hook(_on_input(masked), prepend=True, with_kwargs=True)]

    def probe(self, watch: Callable[[Tensor], Tensor]) -> list[Handle]:
        """Hooks that pass what it reads through ``watch``."""

        return [self.module.register_forward_pre_hook(_on_input(watch), with_kwargs=True)]


def _on_input(change: Callable[[Tensor], Tensor]) -> Callable[..., object]:
    """A hook that changes what a module reads, given by position or by name."""

    def before(_module: nn.Module, args: tuple[Tensor, ...], kwargs: dict[str, Tensor]) -> tuple[object, object]:
        if args:
            return (change(args[0]), *args[1:]), kwargs
        name = next(iter(kwargs))
        return args, {**kwargs, name: change(kwargs[name])}

    return before


def measured(x: object, result: object, axis: int, batch: int) -> Position:
    """Positions for one image of a tensor that is read and one that is written, if it is a tensor."""
    if not isinstance(x, Tensor):
        return Position(1, 1, ())
    read = _positions(x, axis, batch)
    if not isinstance(result, Tensor):
        return Position(read, read, (read,))
    written = _positions(result, axis, batch)
    return Position(read, written, tuple(result.shape[2:]) if axis == 1 else (written,) if result.dim() > 2 else ())


def _positions(x: Tensor, axis: int, batch: int) -> int:
    return x.numel() // max(1, x.shape[axis]) // batch if x.dim() else 1


def norms_of_rows(weight: Tensor) -> Tensor:
    """float64 (rows,): the sum of absolute values."""
    return weight.detach().abs().flatten(1).double().sum(1).cpu()


def zeroed(x: Tensor, mask: Tensor, axis: int) -> Tensor:
    """``x`` with zeros where ``mask`` is False along ``axis``."""
    shape = [1] * x.dim()
    shape[axis % x.dim()] = len(mask)
    return x * mask.to(x).view(shape)
