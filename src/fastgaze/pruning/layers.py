"""The kinds of layers: one class for each says how it is sliced, what it costs and where its mask sits.

A layer *makes* maps (convolutions, linear layers), or it only *carries* them (normalisation, depthwise
convolutions, parameters that are added or multiplied). Which maps are tied is decided by its rule in ``modules.py``.

Every cost of a layer is ``out * (a * (inside + own) + b)``, where ``out`` is its present number of output channels
and ``inside`` its present number of input channels per group; the class gives ``own``, and ``a`` and ``b`` for
FLOPs, parameters and activations.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any, ClassVar, NamedTuple, Protocol

import torch
from torch import Tensor, nn


class Cut(Protocol):
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
class Layer:
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

    def measure(self, x: Any, result: Any, batch: int) -> Position:
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

    def slice(self, cut: Cut, keep_out: Tensor, keep_in: Tensor) -> None:
        """Keep these channels (indices) of its tensors and write its new widths down."""
        raise NotImplementedError

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


def _on_input(change: Callable[[Tensor], Tensor]) -> Any:
    """A hook that changes what a module reads, given by position or by name."""

    def before(_module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        if args:
            return (change(args[0]), *args[1:]), kwargs
        name = next(iter(kwargs))
        return args, {**kwargs, name: change(kwargs[name])}

    return before


def measured(x: Any, result: Any, axis: int, batch: int) -> Position:
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


class Convolution(Layer):
    """Dense or grouped; weight (out, in / groups, *kernel)."""

    kind = "conv"
    reads = makes = must_stay = engine = True
    module: Any

    @property
    def groups(self) -> int:
        """Groups of the convolution."""
        return int(self.module.groups)

    @property
    def kernel(self) -> tuple[int, ...]:
        """Kernel size."""
        return tuple(self.module.kernel_size)

    @property
    def stride(self) -> tuple[int, ...]:
        """Stride."""
        return tuple(self.module.stride)

    @property
    def dilation(self) -> tuple[int, ...]:
        """Dilation."""
        return tuple(self.module.dilation)

    def flops(self, positions: list[Position]) -> tuple[int, int]:
        """H W C_out (2 C_in K^2 + 1)."""
        written = sum(p.written for p in positions)
        return 2 * prod(self.kernel) * written, written

    def weights(self) -> tuple[int, int]:
        """K^2 for each pair of channels, and a bias."""
        return prod(self.kernel), int(self.module.bias is not None)

    def magnitudes(self) -> Tensor:
        """float64 (channels out,): L1 norms of the filters."""
        return norms_of_rows(self.module.weight)

    def slice(self, cut: Cut, keep_out: Tensor, keep_in: Tensor) -> None:
        """Rows and columns of the weight."""
        width = len(self.inputs) // self.groups
        cut(self.module, "weight", {0: keep_out, 1: keep_in[keep_in < width]})
        cut(self.module, "bias", {0: keep_out})
        self.module.out_channels, self.module.in_channels = len(keep_out), len(keep_in)


class Depthwise(Convolution):
    """One input channel for each output channel: carries maps, also with a multiplier."""

    kind = "depthwise"
    reads = makes = must_stay = False
    own = 1

    def slice(self, cut: Cut, keep_out: Tensor, keep_in: Tensor) -> None:  # noqa: ARG002 (inputs are outputs here)
        """Filters."""
        multiplier = len(self.outputs) // self.groups
        cut(self.module, "weight", {0: keep_out})
        cut(self.module, "bias", {0: keep_out})
        self.module.out_channels = len(keep_out)
        self.module.in_channels = self.module.groups = len(keep_out) // multiplier


class Transposed(Convolution):
    """Transposed convolution; weight (in, out / groups, *kernel); each position that is read costs K^2."""

    kind = "transposed"
    transposed = True

    def flops(self, positions: list[Position]) -> tuple[int, int]:
        """H_in W_in C_out 2 C_in K^2 + H W C_out."""
        return 2 * prod(self.kernel) * sum(p.read for p in positions), sum(p.written for p in positions)

    def magnitudes(self) -> Tensor:
        """float64 (channels out,): L1 norms of the filters."""
        weight = self.module.weight.unflatten(0, (self.groups, -1)).transpose(1, 2).flatten(0, 1)
        return norms_of_rows(weight)

    def slice(self, cut: Cut, keep_out: Tensor, keep_in: Tensor) -> None:
        """Columns and rows of the weight."""
        width = len(self.outputs) // self.groups
        cut(self.module, "weight", {0: keep_in, 1: keep_out[keep_out < width]})
        cut(self.module, "bias", {0: keep_out})
        self.module.out_channels, self.module.in_channels = len(keep_out), len(keep_in)


class DepthwiseTransposed(Depthwise):
    """Transposed convolution with one filter for each channel; weight (channels, multiplier, *kernel)."""

    transposed = True
    flops = Transposed.flops

    def slice(self, cut: Cut, keep_out: Tensor, keep_in: Tensor) -> None:  # noqa: ARG002 (inputs are outputs here)
        """Filters."""
        multiplier = len(self.outputs) // self.groups
        first = keep_out[keep_out % multiplier == 0] // multiplier
        cut(self.module, "weight", {0: first})
        cut(self.module, "bias", {0: keep_out})
        self.module.out_channels = len(keep_out)
        self.module.in_channels = self.module.groups = len(first)


class Linear(Layer):
    """Reads the last dimension, for every token if there are any."""

    kind = "linear"
    reads = makes = must_stay = engine = True
    module: Any

    def flops(self, positions: list[Position]) -> tuple[int, int]:
        """C_out (2 C_in + 1) for each token."""
        written = sum(p.written for p in positions)
        return 2 * written, written

    def weights(self) -> tuple[int, int]:
        """One for each pair of features, and a bias."""
        return 1, int(self.module.bias is not None)

    def magnitudes(self) -> Tensor:
        """float64 (features,): L1 norms of the rows."""
        return norms_of_rows(self.module.weight)

    def slice(self, cut: Cut, keep_out: Tensor, keep_in: Tensor) -> None:
        """Rows and columns of the weight."""
        cut(self.module, "weight", {0: keep_out, 1: keep_in})
        cut(self.module, "bias", {0: keep_out})
        self.module.out_features, self.module.in_features = len(keep_out), len(keep_in)


class Embedding(Layer):
    """A table of vectors; its features are maps."""

    kind = "embedding"
    makes = must_stay = True
    module: Any

    def weights(self) -> tuple[int, int]:
        """A number for each word and feature."""
        return 0, int(self.module.num_embeddings)

    def magnitudes(self) -> Tensor:
        """float64 (features,): L1 norms of the columns."""
        return norms_of_rows(self.module.weight.T)

    def slice(self, cut: Cut, keep_out: Tensor, keep_in: Tensor) -> None:  # noqa: ARG002 (reads no maps)
        """Columns of the table."""
        cut(self.module, "weight", {1: keep_out})
        self.module.embedding_dim = len(keep_out)


class ChannelNorm(Layer):
    """Batch or instance normalisation: each channel by itself."""

    kind = "norm"

    def slice(self, cut: Cut, keep_out: Tensor, keep_in: Tensor) -> None:  # noqa: ARG002 (inputs are outputs here)
        """Scale, shift and statistics."""
        for name in ("weight", "bias", "running_mean", "running_var"):
            cut(self.module, name, {0: keep_out})
        setattr(self.module, "num_features", len(keep_out))  # noqa: B010 (of both kinds)


class GroupNorm(Layer):
    """Normalises groups of channels together; a whole group is one map."""

    kind = "groupnorm"
    must_stay = True
    module: Any

    def slice(self, cut: Cut, keep_out: Tensor, keep_in: Tensor) -> None:  # noqa: ARG002 (inputs are outputs here)
        """Scale and shift; the number of groups falls, their width does not."""
        width = len(self.outputs) // self.module.num_groups
        for name in ("weight", "bias"):
            cut(self.module, name, {0: keep_out})
        self.module.num_channels, self.module.num_groups = len(keep_out), len(keep_out) // width


class PReLU(Layer):
    """A slope for each channel."""

    kind = "prelu"
    module: Any

    def slice(self, cut: Cut, keep_out: Tensor, keep_in: Tensor) -> None:  # noqa: ARG002 (inputs are outputs here)
        """Slopes."""
        cut(self.module, "weight", {0: keep_out})
        self.module.num_parameters = len(keep_out)


@dataclass(eq=False)
class TensorLayer(Layer):
    """A parameter, buffer or plain tensor of a module that is combined with maps: layer scale, position codes."""

    attribute: str = ""

    kind = "tensor"

    def weights(self) -> tuple[int, int]:
        """Its elements for each channel, if it is a parameter."""
        tensor = getattr(self.module, self.attribute)
        return 0, tensor.numel() // tensor.shape[self.axis] if isinstance(tensor, nn.Parameter) else 0

    def slice(self, cut: Cut, keep_out: Tensor, keep_in: Tensor) -> None:  # noqa: ARG002 (inputs are outputs here)
        """Along the dimension that holds the maps."""
        cut(self.module, self.attribute, {self.axis: keep_out})


@dataclass(eq=False)
class Number(Layer):
    """A whole number that a module holds, such as ``num_heads``: the size of a dimension that may shrink."""

    attribute: str = ""

    kind = "number"
    must_stay = True

    def weights(self) -> tuple[int, int]:
        """No parameter."""
        return 0, 0

    def slice(self, cut: Cut, keep_out: Tensor, keep_in: Tensor) -> None:  # noqa: ARG002 (no tensor)
        """The new number."""
        setattr(self.module, self.attribute, len(keep_out))
