"""The feature maps of a network: who makes each, who reads it, and which must go together.

A *map* is the unit of pruning. Usually it is one output channel of one convolution or linear layer. Residual
additions, grouped convolutions and layers that are called twice tie several channels to one map, because they
can only be removed together. Every layer knows the map of each of its channels, so that removing maps, masking
them and counting what they cost are arithmetic on these lists.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_leaves, tree_map_only

from fastgaze.core.errors import PruningError
from fastgaze.pruning.layers.kinds import Least
from fastgaze.pruning.layers.layer import Layer, Position
from fastgaze.pruning.tracing.places import Kept
from fastgaze.pruning.tracing.trace import Example, Map, evaluation_mode, split_inputs, trace_network
from fastgaze.pruning.tracing.tracer import Unknown

if TYPE_CHECKING:
    from fastgaze.pruning.cost import Cost

NORMS = (nn.modules.batchnorm._BatchNorm, nn.modules.instancenorm._InstanceNorm)
Choice = str | type[nn.Module] | Callable[[Layer], bool]  # a layer's name, prefix or pattern, a class, or a predicate


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

    kept       what holds maps back besides the network's outputs: operation, place and number of maps
    unreached  layers that the example input did not run; nothing is known about them
    blocks     residual blocks: modules that add something to the maps they read, and may go as a whole
    uncounted  where the network calls F.conv2d, F.linear, or a product with a parameter, outside of a layer: no cost
               counts these
    removed    indices of all removed maps, in the order of removal
    """

    root: nn.Module
    layers: list[Layer]
    maps: list[Map]
    inputs: Example
    kept: list[Kept] = field(default_factory=list)
    unreached: list[str] = field(default_factory=list)
    blocks: list[str] = field(default_factory=list)
    uncounted: list[str] = field(default_factory=list)
    removed: list[int] = field(default_factory=list)
    wrapped: bool = False  # traced through DistributedDataParallel
    alive: Tensor = field(init=False)
    prunable: Tensor = field(init=False)
    incidence: Incidence = field(init=False)

    def __post_init__(self) -> None:
        self.alive = torch.ones(len(self.maps) + 1, dtype=torch.bool)
        self.prunable = torch.tensor([m.prunable for m in self.maps], dtype=torch.bool)
        self.incidence = _incidence(self.layers, len(self.maps))
        self._stay = _stay(self.layers, len(self.maps))
        self.floors = {layer.name: layer.least for layer in self.layers if isinstance(layer, Least)}
        self.version = 0  # changes with the list of layers

    @staticmethod
    def trace(
        module: nn.Module,
        example_input: Example,
        *,
        unknown: Unknown = "keep",
        training: bool = False,
        check: bool = True,
    ) -> ChannelGraph:
        """Run ``module`` once on ``example_input`` and follow every channel.

        example_input  a batch (N, C, ...); a tuple of positional or a dict of named arguments where there are more
        unknown   "keep": maps that enter an operation without a rule stay, and ``kept`` says which. A network with one
                  odd operation can be pruned everywhere else, and what is pruned is right. "refuse" raises instead.
        training  follow the branches that the network takes in training mode (auxiliary heads)
        check     remove one map of each sort from a copy and compare it with the masked network; maps for which both
                  differ stay, and ``kept`` says so

        The module runs in evaluation mode and without gradients; it is not changed.
        """
        from fastgaze.pruning.check import keep_what_differs

        root, wrapped = _unwrapped(module)
        found = trace_network(root, example_input, unknown, training)
        described = tree_map_only(Tensor, lambda t: torch.empty(t.shape, dtype=t.dtype, device="meta"), example_input)
        graph = ChannelGraph(
            root,
            found.layers,
            found.maps,
            described,
            found.kept,
            found.unreached,
            found.blocks,
            found.uncounted,
            wrapped=wrapped,
        )
        if check:
            keep_what_differs(graph, example_input, unknown)
        return graph

    @property
    def readers(self) -> list[Layer]:
        """The layers at whose inputs masks and probes sit, in the order of execution."""
        return [layer for layer in self.layers if layer.reads]

    @property
    def makers(self) -> list[Layer]:
        """The layers that make maps, in the order of execution."""
        return [layer for layer in self.layers if layer.makes]

    def reads_prunable(self, layer: Layer) -> bool:
        """Whether ``layer`` reads any map that could be removed."""
        ids = layer.outputs if layer.couples else layer.inputs
        free = torch.cat((self.prunable, torch.zeros(1, dtype=torch.bool)))
        return (layer.reads or layer.couples) and bool(free[ids].any())

    def layer(self, name: str) -> Layer:
        """The layer of this name."""
        for layer in self.layers:
            if layer.name == name:
                return layer
        known = ", ".join(layer.name for layer in self.layers)
        raise PruningError(f"no layer {name!r}; the layers of this network are {known}")

    def select(self, choices: Choice | Collection[Choice]) -> list[Layer]:
        """Layers by name, by the prefix of a block, by pattern ("blocks.*.conv2"), by class of module, or predicate."""
        listed: list[Choice] = [choices] if isinstance(choices, str | type) or callable(choices) else list(choices)
        found: dict[str, Layer] = {}
        for choice in listed:
            chosen = [layer for layer in self.layers if _chosen(layer, choice)]
            if not chosen and isinstance(choice, str):
                self.layer(choice)  # refuses the name
            found.update({layer.name: layer for layer in chosen})
        return list(found.values())

    def maps_of(self, choices: Choice | Collection[Choice]) -> Tensor:
        """bool (maps,): the maps that the chosen layers make or carry."""
        chosen = torch.zeros(len(self.maps) + 1, dtype=torch.bool)
        for layer in self.select(choices):
            chosen[layer.outputs] = True
        return chosen[:-1]

    def candidates(self) -> Tensor:
        """bool (maps,): present and prunable."""
        return self.alive[:-1] & self.prunable

    def widths(self, alive: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """int64 (layers,) twice: output channels, and input channels per group, with the maps ``alive`` present."""
        at = self.incidence
        present = torch.bincount(at.sort_of[self.alive if alive is None else alive], minlength=len(at.sort) + 1)[
            at.sort
        ]
        zero = torch.zeros(len(self.layers), dtype=torch.int64)
        return zero.index_add(0, at.layer, at.out * present), zero.index_add(0, at.layer, at.inside * present)

    def removable(self, index: int, alive: Tensor) -> bool:
        """Whether map ``index`` can go without emptying a layer, when the maps ``alive`` are present."""
        return all(
            int(alive[self.layers[k].outputs].sum()) - n >= max(1, self.floors.get(self.layers[k].name, 1))
            for k, n in self._stay[index]
        )

    def mark_removed(self, indices: Sequence[int]) -> None:
        """Take maps out of ``alive``; their channels stay until :func:`compact` slices them away."""
        alive = self.alive.clone()
        for index in indices:
            self._check_removal(index, alive)
            alive[index] = False
        self.alive = alive
        self.removed.extend(indices)

    def block_layers(self, block: str) -> list[Layer]:
        """The layers inside a residual block."""
        if block not in self.blocks:
            known = ", ".join(self.blocks) or "none"
            raise PruningError(f"{block!r} is not a residual block of this network; its blocks are {known}")
        return [layer for layer in self.layers if layer.name.startswith(f"{block}.")]

    def inner_maps(self, block: str) -> list[int]:
        """The present maps that only layers of this block make: they go with it."""
        inside = {layer.name for layer in self.block_layers(block)}
        return [m.index for m in self.maps if self.alive[m.index] and all(name in inside for name, _ in m.producers)]

    def without_block(self, block: str) -> Tensor:
        """``alive`` without the maps that would go with a block."""
        alive = self.alive.clone()
        alive[self.inner_maps(block)] = False
        return alive

    def remove_block(self, block: str) -> list[int]:
        """Put an identity in the place of a residual block; returns the maps that went with it."""
        inner = self.inner_maps(block)
        gone = {layer.name for layer in self.block_layers(block)}
        parent, _, name = block.rpartition(".")
        setattr(self.root.get_submodule(parent), name, nn.Identity())
        self.layers = [layer for layer in self.layers if layer.name not in gone]
        self.blocks = [other for other in self.blocks if other != block]
        self.alive = self.alive.clone()
        self.alive[inner] = False
        self.removed.extend(inner)
        self.incidence = _incidence(self.layers, len(self.maps))
        self._stay = _stay(self.layers, len(self.maps))
        self.version += 1
        return inner

    def _check_removal(self, index: int, alive: Tensor) -> None:
        if not 0 <= index < len(self.maps):
            raise PruningError(f"map {index} does not exist; this network has maps 0 to {len(self.maps) - 1}")
        if not alive[index]:
            raise PruningError(f"map {index} ({self.maps[index]}) is already removed; choose one that is alive")
        if not self.prunable[index]:
            raise PruningError(
                f"map {index} ({self.maps[index]}) cannot be removed: it is tied to an input or output, or an "
                "operation holds it (see graph.kept); choose one of graph.candidates()"
            )
        if not self.removable(index, alive):
            raise PruningError(f"map {index} ({self.maps[index]}) is the last of its layer; a layer keeps one map")

    def positions(self, size: Sequence[int] | None = None) -> dict[str, list[Position]]:
        """For every layer and call, the positions of one image for inputs of ``size`` (height, width).

        Runs on tensors without values: no arithmetic and no memory. Without ``size``, those of the trace.
        """
        if size is None:
            return {layer.name: list(layer.positions) for layer in self.layers}
        found: dict[str, list[Position]] = {layer.name: [] for layer in self.layers}
        by_module: dict[nn.Module, list[Layer]] = {}
        for layer in self.layers:
            if layer.positions:
                by_module.setdefault(layer.module, []).append(layer)

        def record(module: nn.Module, args: tuple[object, ...], kwargs: dict[str, object], result: object) -> None:
            x = args[0] if args else next(iter(kwargs.values()), None)
            for layer in by_module[module]:
                found[layer.name].append(layer.measure(x, result, 1))

        hooks = [module.register_forward_hook(record, with_kwargs=True) for module in by_module]
        try:
            self._run_without_values(tuple(size))
        finally:
            for hook in hooks:
                hook.remove()
        return found

    def _run_without_values(self, size: tuple[int, ...]) -> None:
        args, kwargs = split_inputs(self.inputs)
        first = next(leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor))
        place = next((p.device for p in self.root.parameters()), torch.device("cpu"))

        def resized(t: Tensor) -> Tensor:
            spatial = size if t.shape[2:] == first.shape[2:] else tuple(t.shape[2:])
            return torch.empty((1, *t.shape[1:2], *spatial), dtype=t.dtype, device=place)

        shape = (1, *first.shape[1:2], *size)
        try:
            with evaluation_mode(self.root.modules()), torch.no_grad(), FakeTensorMode(allow_non_fake_inputs=True):
                values = tree_map_only(Tensor, resized, [list(args), kwargs])
                self.root(*values[0], **values[1])
        except Exception as error:
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise PruningError(f"the network does not accept an input of shape {shape}: {reason}") from error

    def shapes(self, size: Sequence[int] | None = None) -> dict[str, list[tuple[int, ...]]]:
        """Spatial output sizes of every layer, one for each call, for an input of ``size`` (height, width)."""
        return {name: [p.spatial for p in found] for name, found in self.positions(size).items()}

    def describe(self, cost: Cost | None = None) -> str:
        """A table of layers: widths, prunable maps, readers, cost and what one map costs. FLOPs unless told."""
        from fastgaze.pruning.describe import describe

        return describe(self, cost)


def _unwrapped(module: nn.Module) -> tuple[nn.Module, bool]:
    """The network inside torch.compile, DataParallel and DistributedDataParallel, and whether the last was there."""
    wrapped = False
    while True:
        inner = getattr(module, "_orig_mod", None)
        if isinstance(module, nn.DataParallel | nn.parallel.DistributedDataParallel):
            wrapped = wrapped or isinstance(module, nn.parallel.DistributedDataParallel)
            inner = module.module
        if not isinstance(inner, nn.Module):
            break
        module = inner
    if not isinstance(module, nn.Module):
        raise PruningError(f"cannot trace {module!r}; give a network, that is an instance of torch.nn.Module")
    if isinstance(module, torch.jit.ScriptModule):
        raise PruningError("a ScriptModule cannot be made smaller; trace the module that it was made from")
    return module, wrapped


def _chosen(layer: Layer, choice: Choice) -> bool:
    if isinstance(choice, str):
        return layer.name == choice or layer.name.startswith(f"{choice}.") or fnmatchcase(layer.name, choice)
    if isinstance(choice, type):
        return isinstance(layer.module, choice)
    return choice(layer)


def _incidence(layers: list[Layer], maps: int) -> Incidence:
    places: list[list[tuple[int, int, int]]] = [[] for _ in range(maps + 1)]
    for k, layer in enumerate(layers):
        out = torch.bincount(layer.outputs, minlength=maps + 1)
        inside = torch.bincount(layer.inputs, minlength=maps + 1)
        present = torch.nonzero(out + inside).flatten()
        counts = zip(present.tolist(), out[present].tolist(), (inside[present] // layer.groups).tolist(), strict=True)
        for index, written, read in counts:
            places[index].append((k, written, read))
    sorts = {place: number for number, place in enumerate(dict.fromkeys(map(tuple, places)))}
    sort_of = torch.tensor([sorts[tuple(place)] for place in places], dtype=torch.int64)
    entries = [(number, *entry) for place, number in sorts.items() for entry in place]
    columns = torch.tensor(entries, dtype=torch.int64).reshape(-1, 4).T.contiguous()
    return Incidence(sort_of, columns[0], columns[1], columns[2], columns[3])


def _stay(layers: list[Layer], maps: int) -> list[list[tuple[int, int]]]:
    """For each map: (layer, number of its output channels) of every layer that must keep one."""
    found: list[list[tuple[int, int]]] = [[] for _ in range(maps + 1)]
    for k, layer in enumerate(layers):
        if not layer.must_stay:
            continue
        present, counts = torch.unique(layer.outputs, return_counts=True)
        for index, count in zip(present.tolist(), counts.tolist(), strict=True):
            found[index].append((k, count))
    return found


__all__ = ["NORMS", "ChannelGraph", "Choice", "Incidence", "Layer", "Map", "evaluation_mode"]
