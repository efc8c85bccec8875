"""The kinds of layers that torch has, and how each is sliced; attention and norms over channels have their own modules.

The rules in ``tracing.modules`` decide which maps are tied by each layer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch import Tensor, nn

from fastgaze.pruning.layers.layer import Handle, Layer, Position, Slicer, norms_of_rows, zeroed
from fastgaze.pruning.layers.norms import Replaced
from fastgaze.pruning.layers.weights import cut_weight, normalised


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
        """K^2 for each pair of channels, a bias, and the gain of weight_norm."""
        return prod(self.kernel), int(self.module.bias is not None) + int(normalised(self.module) is not None)

    def magnitudes(self) -> Tensor:
        """float64 (channels out,): L1 norms of the filters."""
        return norms_of_rows(self.module.weight)

    def slice(self, cut: Slicer, keep_out: Tensor, keep_in: Tensor) -> None:
        """Rows and columns of the weight."""
        width = len(self.inputs) // self.groups
        cut_weight(cut, self.module, {0: keep_out, 1: keep_in[keep_in < width]})
        self._cut_rows(cut, keep_out)
        self.module.out_channels, self.module.in_channels = len(keep_out), len(keep_in)

    def _cut_rows(self, cut: Slicer, keep_out: Tensor) -> None:
        """The bias, and what a subclass has for each output besides, such as a gain."""
        for name, parameter in list(self.module.named_parameters(recurse=False)):
            if name not in ("weight", "weight_g", "weight_v") and parameter.shape[:1] == (len(self.outputs),):
                cut(self.module, name, {0: keep_out})


class Standardised(Convolution):
    """A convolution whose weight is computed from all its inputs together, as weight standardisation does.

    A zero at its input is not a removal, so the mask narrows the parameter from which the weight is computed. Signals
    are taken at the input all the same: they leave out what the removal does to the other inputs' weights.
    """

    kind = "standardised conv"

    def mask(self, keep: Callable[[], Tensor]) -> list[Handle]:
        """The layer without its masked inputs."""
        plain = self.module.forward

        def forward(x: Tensor, *rest: object) -> Tensor:
            mask = keep()
            result: Tensor = plain(x, *rest) if bool(mask.all()) else self.without(x, mask, plain)
            return result

        return [Replaced(self.module, forward)]

    def without(self, x: Tensor, mask: Tensor, forward: Callable[[Tensor], Tensor]) -> Tensor:
        """``forward`` of the channels for which ``mask`` is True, which are as many in each group."""
        index, before = mask.nonzero().flatten().to(x.device), self.module.weight
        try:
            self.module._parameters["weight"] = before.index_select(1, index[index < before.shape[1]])
            self.module.in_channels = len(index)
            return forward(x.index_select(1, index))
        finally:
            self.module._parameters["weight"] = before
            self.module.in_channels = len(mask)

    def needed(self, x: Tensor, result: Tensor) -> bool:
        """Whether the module differs from a plain convolution in what it does without half of its inputs."""
        width = len(self.inputs) // self.groups
        if type(self.module).__module__.startswith("torch.nn") or width == 1 or x.is_meta:
            return False
        mask = torch.arange(len(self.inputs)) % width < width // 2
        forward = type(self.module).forward
        narrow = self.without(x, mask, lambda part: forward(self.module, part))
        masked: Tensor = forward(self.module, zeroed(x, mask, 1))
        return not torch.allclose(narrow, masked, rtol=1e-3, atol=1e-5 * float(result.abs().max()))


class Depthwise(Convolution):
    """One input channel for each output channel: carries maps, also with a multiplier."""

    kind = "depthwise"
    reads = makes = must_stay = False
    own = 1

    def slice(self, cut: Slicer, keep_out: Tensor, keep_in: Tensor) -> None:  # noqa: ARG002 (inputs are outputs here)
        """Filters."""
        multiplier = len(self.outputs) // self.groups
        cut_weight(cut, self.module, {0: keep_out})
        self._cut_rows(cut, keep_out)
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

    def slice(self, cut: Slicer, keep_out: Tensor, keep_in: Tensor) -> None:
        """Columns and rows of the weight."""
        width = len(self.outputs) // self.groups
        cut_weight(cut, self.module, {0: keep_in, 1: keep_out[keep_out < width]})
        cut(self.module, "bias", {0: keep_out})
        self.module.out_channels, self.module.in_channels = len(keep_out), len(keep_in)


class DepthwiseTransposed(Depthwise):
    """Transposed convolution with one filter for each channel; weight (channels, multiplier, *kernel)."""

    transposed = True
    flops = Transposed.flops

    def slice(self, cut: Slicer, keep_out: Tensor, keep_in: Tensor) -> None:  # noqa: ARG002 (inputs are outputs here)
        """Filters."""
        multiplier = len(self.outputs) // self.groups
        first = keep_out[keep_out % multiplier == 0] // multiplier
        cut_weight(cut, self.module, {0: first})
        cut(self.module, "bias", {0: keep_out})
        self.module.out_channels = len(keep_out)
        self.module.in_channels = self.module.groups = len(first)


class Linear(Layer):
    """Reads the last dimension, for every token if there are any."""

    kind = "linear"
    reads = makes = must_stay = engine = True
    module: nn.Linear

    def flops(self, positions: list[Position]) -> tuple[int, int]:
        """C_out (2 C_in + 1) for each token."""
        written = sum(p.written for p in positions)
        return 2 * written, written

    def weights(self) -> tuple[int, int]:
        """One for each pair of features, a bias, and the gain of weight_norm."""
        return 1, int(self.module.bias is not None) + int(normalised(self.module) is not None)

    def magnitudes(self) -> Tensor:
        """float64 (features,): L1 norms of the rows."""
        return norms_of_rows(self.module.weight)

    def slice(self, cut: Slicer, keep_out: Tensor, keep_in: Tensor) -> None:
        """Rows and columns of the weight."""
        cut_weight(cut, self.module, {0: keep_out, 1: keep_in})
        cut(self.module, "bias", {0: keep_out})
        self.module.out_features, self.module.in_features = len(keep_out), len(keep_in)


class Embedding(Layer):
    """A table of vectors; its features are maps."""

    kind = "embedding"
    makes = must_stay = True
    module: nn.Embedding

    def weights(self) -> tuple[int, int]:
        """A number for each word and feature."""
        return 0, int(self.module.num_embeddings)

    def magnitudes(self) -> Tensor:
        """float64 (features,): L1 norms of the columns."""
        return norms_of_rows(self.module.weight.T)

    def slice(self, cut: Slicer, keep_out: Tensor, keep_in: Tensor) -> None:  # noqa: ARG002 (reads no maps)
        """Columns of the table."""
        cut(self.module, "weight", {1: keep_out})
        self.module.embedding_dim = len(keep_out)


class ChannelNorm(Layer):
    """Batch or instance normalisation: each channel by itself."""

    kind = "norm"

    def slice(self, cut: Slicer, keep_out: Tensor, keep_in: Tensor) -> None:  # noqa: ARG002 (inputs are outputs here)
        """Scale, shift and statistics."""
        for name in ("weight", "bias", "running_mean", "running_var"):
            cut(self.module, name, {0: keep_out})
        setattr(self.module, "num_features", len(keep_out))  # noqa: B010 (of both kinds)


class GroupNorm(Layer):
    """Normalises groups of channels together; a whole group is one map."""

    kind = "groupnorm"
    must_stay = True
    module: nn.GroupNorm

    def slice(self, cut: Slicer, keep_out: Tensor, keep_in: Tensor) -> None:  # noqa: ARG002 (inputs are outputs here)
        """Scale and shift; the number of groups falls, their width does not."""
        width = len(self.outputs) // self.module.num_groups
        for name in ("weight", "bias"):
            cut(self.module, name, {0: keep_out})
        self.module.num_channels, self.module.num_groups = len(keep_out), len(keep_out) // width


class PReLU(Layer):
    """A slope for each channel."""

    kind = "prelu"
    module: nn.PReLU

    def slice(self, cut: Slicer, keep_out: Tensor, keep_in: Tensor) -> None:  # noqa: ARG002 (inputs are outputs here)
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

    def slice(self, cut: Slicer, keep_out: Tensor, keep_in: Tensor) -> None:  # noqa: ARG002 (inputs are outputs here)
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

    def slice(self, cut: Slicer, keep_out: Tensor, keep_in: Tensor) -> None:  # noqa: ARG002 (no tensor)
        """The new number, in its place in a list if it is in one."""
        key, _, place = self.attribute.partition("[")
        if not place:
            setattr(self.module, key, len(keep_out))
            return
        numbers = getattr(self.module, key)
        chosen = int(place.rstrip("]"))
        setattr(self.module, key, type(numbers)(len(keep_out) if k == chosen else n for k, n in enumerate(numbers)))


@dataclass(eq=False)
class Least(Layer):
    """Maps of which so many must stay that a comparison in the network's code has the same result."""

    least: int = 1

    kind = "comparison"
    must_stay = True

    def weights(self) -> tuple[int, int]:
        """No parameter."""
        return 0, 0

    def slice(self, cut: Slicer, keep_out: Tensor, keep_in: Tensor) -> None:
        """Nothing is stored."""
