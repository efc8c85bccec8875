"""The feature maps of a network: who makes each, who reads it, and which must go together.

A *map* is the unit of pruning. Usually it is one output channel of one convolution or linear layer. Residual
additions, grouped convolutions and layers that are called twice tie several channels to one map, because they
can only be removed together. Every layer knows the map of each of its channels, so that removing maps, masking
them and counting what they cost are arithmetic on these lists.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor, nn
from torch.func import functional_call

from fastgaze.core.errors import PruningError

if TYPE_CHECKING:
    from fastgaze.pruning.cost import Cost

Kind = Literal["conv", "linear", "depthwise", "norm", "prelu"]
NORMS = (nn.modules.batchnorm._BatchNorm, nn.modules.instancenorm._InstanceNorm)


@dataclass(eq=False)
class Layer:
    """One module with channels.

    ``conv`` and ``linear`` read maps and make new ones; ``depthwise``, ``norm`` and ``prelu`` only carry maps along.

    inputs   int64 (channels in,): the map of every present input channel; empty for layers that only carry
    outputs  int64 (channels out,): the map of every present output channel
    calls    how often one forward pass runs the module
    """

    name: str
    kind: Kind
    module: nn.Module
    inputs: Tensor
    outputs: Tensor
    calls: int = 1

    @property
    def reads(self) -> bool:
        """Whether masks and probes sit at this layer's input."""
        return self.kind in ("conv", "linear")

    @property
    def groups(self) -> int:
        """Groups of a convolution, else 1."""
        return self.module.groups if isinstance(self.module, nn.modules.conv._ConvNd) else 1

    @property
    def kernel(self) -> tuple[int, ...]:
        """Kernel size of a convolution, else ()."""
        return tuple(self.module.kernel_size) if isinstance(self.module, nn.modules.conv._ConvNd) else ()

    @property
    def stride(self) -> tuple[int, ...]:
        """Stride of a convolution, else ()."""
        return tuple(self.module.stride) if isinstance(self.module, nn.modules.conv._ConvNd) else ()


@dataclass(frozen=True)
class Map:
    """One prunable unit.

    producers  (layer name, channel in the traced network) of every channel that this map ties together
    prunable   False for the network's outputs and for whatever is tied to its inputs or outputs
    """

    index: int
    producers: tuple[tuple[str, int], ...]
    prunable: bool

    def __str__(self) -> str:
        return "+".join(f"{name}[{channel}]" for name, channel in self.producers)


@dataclass(frozen=True)
class Incidence:
    """Which maps have channels in which layers.

    Maps with the same channels in the same layers are of one sort: usually all maps of a layer. There are few sorts,
    so that costs of thousands of maps take a fraction of a millisecond.

    sort_of  int64 (maps + 1,): the sort of every map
    sort, layer, out, inside  int64 (pairs,): in this layer, a map of this sort has ``out`` output channels and
                              ``inside`` input channels of each group
    """

    sort_of: Tensor
    sort: Tensor
    layer: Tensor
    out: Tensor
    inside: Tensor


@dataclass(eq=False)
class ChannelGraph:
    """Maps and layers of ``root``, made by :meth:`trace`.

    Vectors over maps have one entry for each map of the traced network, removed ones included, so that a map keeps
    its index for ever. ``alive`` has one entry more, always True: the network's own input.
    """

    root: nn.Module
    layers: list[Layer]
    maps: list[Map]
    input_shape: tuple[int, ...]
    alive: Tensor = field(init=False)
    prunable: Tensor = field(init=False)
    incidence: Incidence = field(init=False)

    def __post_init__(self) -> None:
        self.alive = torch.ones(len(self.maps) + 1, dtype=torch.bool)
        self.prunable = torch.tensor([m.prunable for m in self.maps], dtype=torch.bool)
        self.incidence = _incidence(self.layers, len(self.maps))
        self._probed = torch.cat((self.prunable, torch.zeros(1, dtype=torch.bool)))
        self._producers = _producers(self.layers, len(self.maps))

    @staticmethod
    def trace(module: nn.Module, example_input: Tensor) -> ChannelGraph:
        """Trace ``module`` with torch.fx; ``example_input`` is a batch (N, C, ...) that it accepts.

        The module runs once, in evaluation mode and without gradients; it is not changed.
        Operations whose effect on channels is not known are refused by name.
        """
        from fastgaze.pruning.trace import trace_channels

        layers, maps = trace_channels(module, example_input)
        return ChannelGraph(module, layers, maps, tuple(example_input.shape))

    @property
    def readers(self) -> list[Layer]:
        """The layers at whose inputs masks and probes sit, in the order of execution."""
        return [layer for layer in self.layers if layer.reads]

    def reads_prunable(self, layer: Layer) -> bool:
        """Whether ``layer`` reads any map that could be removed."""
        return layer.reads and bool(self._probed[layer.inputs].any())

    def layer(self, name: str) -> Layer:
        """The layer of this name."""
        for layer in self.layers:
            if layer.name == name:
                return layer
        known = ", ".join(layer.name for layer in self.layers)
        raise PruningError(f"no layer {name!r}; the layers of this network are {known}")

    def maps_of(self, names: Iterable[str]) -> Tensor:
        """bool (maps,): the maps that the named layers make or carry."""
        chosen = torch.zeros(len(self.maps) + 1, dtype=torch.bool)
        for name in names:
            chosen[self.layer(name).outputs] = True
        return chosen[:-1]

    def candidates(self) -> Tensor:
        """bool (maps,): present and prunable."""
        return self.alive[:-1] & self.prunable

    def widths(self, alive: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """int64 (layers,) twice: output channels, and input channels a group, with the maps ``alive`` present."""
        at = self.incidence
        present = torch.bincount(at.sort_of[self.alive if alive is None else alive], minlength=len(at.sort) + 1)[
            at.sort
        ]
        zero = torch.zeros(len(self.layers), dtype=torch.int64)
        return zero.index_add(0, at.layer, at.out * present), zero.index_add(0, at.layer, at.inside * present)

    def removable(self, index: int, alive: Tensor) -> bool:
        """Whether map ``index`` can go without emptying a layer, when the maps ``alive`` are present."""
        return all(int(alive[self.layers[k].outputs].sum()) > n for k, n in self._producers[index])

    def mark_removed(self, indices: Sequence[int]) -> None:
        """Take maps out of ``alive``; their channels stay until :func:`compact` slices them away."""
        alive = self.alive.clone()
        for index in indices:
            self._check_removal(index, alive)
            alive[index] = False
        self.alive = alive

    def _check_removal(self, index: int, alive: Tensor) -> None:
        if not 0 <= index < len(self.maps):
            raise PruningError(f"map {index} does not exist; this network has maps 0 to {len(self.maps) - 1}")
        if not alive[index]:
            raise PruningError(f"map {index} ({self.maps[index]}) is already removed; choose one that is alive")
        if not self.prunable[index]:
            raise PruningError(f"map {index} ({self.maps[index]}) is tied to an input or output; it cannot be removed")
        if not self.removable(index, alive):
            raise PruningError(f"map {index} ({self.maps[index]}) is the last of its layer; a layer keeps one map")

    def shapes(self, size: Sequence[int] | None = None) -> dict[str, list[tuple[int, ...]]]:
        """Spatial output sizes of every layer, one for each call, for an input of ``size`` (height, width).

        Runs on meta tensors: no arithmetic and no memory. Without ``size``, the size of the example input.
        """
        found: dict[str, list[tuple[int, ...]]] = {layer.name: [] for layer in self.layers}
        shape = (1, self.input_shape[1], *(self.input_shape[2:] if size is None else size))

        def record(name: str) -> object:
            return lambda _module, _args, output: found[name].append(tuple(output.shape[2:]))

        hooks = [layer.module.register_forward_hook(record(layer.name)) for layer in self.layers]  # type: ignore[arg-type]
        try:
            with evaluation_mode(self.root.modules()), torch.no_grad():
                functional_call(self.root, _meta_state(self.root), torch.empty(shape, device="meta"))
        except RuntimeError as error:
            reason = str(error).splitlines()[0]
            raise PruningError(f"the network does not accept an input of shape {shape}: {reason}") from error
        finally:
            for hook in hooks:
                hook.remove()
        return found

    def describe(self, cost: Cost | None = None) -> str:
        """A table of layers: widths, prunable maps, readers, cost and what one map costs. FLOPs unless told."""
        from fastgaze.pruning.describe import describe

        return describe(self, cost)


def _incidence(layers: list[Layer], maps: int) -> Incidence:
    places: list[list[tuple[int, int, int]]] = [[] for _ in range(maps + 1)]
    for k, layer in enumerate(layers):
        out = torch.bincount(layer.outputs, minlength=maps + 1).tolist()
        inside = torch.bincount(layer.inputs, minlength=maps + 1).tolist()
        for index in range(maps + 1):
            if out[index] or inside[index]:
                places[index].append((k, out[index], inside[index] // layer.groups))
    sorts = {place: number for number, place in enumerate(dict.fromkeys(map(tuple, places)))}
    sort_of = torch.tensor([sorts[tuple(place)] for place in places], dtype=torch.int64)
    rows = [(number, *entry) for place, number in sorts.items() for entry in place]
    columns = torch.tensor(rows, dtype=torch.int64).reshape(-1, 4).T.contiguous()
    return Incidence(sort_of, columns[0], columns[1], columns[2], columns[3])


def _producers(layers: list[Layer], maps: int) -> list[list[tuple[int, int]]]:
    """For each map: (layer, number of its output channels) of every layer that makes it."""
    found: list[list[tuple[int, int]]] = [[] for _ in range(maps + 1)]
    for k, layer in enumerate(layers):
        if not layer.reads:
            continue
        counts = torch.bincount(layer.outputs, minlength=maps + 1)
        for index in torch.nonzero(counts).flatten().tolist():
            found[index].append((k, int(counts[index])))
    return found


def _meta_state(module: nn.Module) -> dict[str, Tensor]:
    """Parameters and buffers as tensors that have a shape and no values."""
    state = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    return {name: torch.empty(tensor.shape, device="meta") for name, tensor in state.items()}


@contextmanager
def evaluation_mode(modules: Iterable[nn.Module]) -> Iterator[None]:
    """Exactly these modules in evaluation mode inside the block; each one's own mode comes back."""
    before = [(m, m.training) for m in modules]
    try:
        for m, _ in before:
            m.training = False
        yield
    finally:
        for m, training in before:
            m.training = training
