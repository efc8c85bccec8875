"""Run a network once and follow every channel through it.

The network really runs, on the example input, so that its Python may do what it likes: branch, loop, unpack shapes.
``watching.py`` sees every call. Each gets the rule of ``operations.py`` or ``modules.py`` that belongs to it; what has
none is a barrier: the maps that enter it stay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves
from torch.utils.weak import WeakTensorKeyDictionary

from fastgaze.core.errors import PruningError
from fastgaze.pruning.layers.kinds import Least, Number, TensorLayer
from fastgaze.pruning.layers.layer import Layer
from fastgaze.pruning.tracing.labels import NONE, Label, Ties, blank, squeezed
from fastgaze.pruning.tracing.places import Kept, line_now
from fastgaze.pruning.tracing.widths import Width, plain

Unknown = Literal["keep", "refuse"]
NOTHING = torch.zeros(0, dtype=torch.int64)
LARGEST = 2**19  # elements of a parameter that is followed outside of a layer


class Found(NamedTuple):
    """Layers with provisional maps, the maps that stay, and for which reasons."""

    layers: list[Layer]
    fixed: Tensor
    reasons: dict[str, list[Tensor]]


class Call:
    """One call of a module, a function or a method: what a rule gets to see and may do.

    target  the module, or the function's name
    args    as the network gave them; sizes may be of the class Width
    result  what the call returned
    """

    def __init__(
        self, tracer: Tracer, target: Any, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], result: Any
    ) -> None:
        self.tracer, self.target, self.name = tracer, target, name
        self.args, self.kwargs, self.result = args, kwargs, result

    @property
    def path(self) -> str:
        """The module's name in the network."""
        return str(self.tracer.names[id(self.target)])

    def argument(self, position: int, name: str, default: object = None) -> Any:
        """An argument by position or name."""
        return self.args[position] if len(self.args) > position else self.kwargs.get(name, default)

    def tensors(self) -> list[Tensor]:
        """All tensors among the arguments."""
        return [leaf for leaf in tree_leaves((self.args, dict(self.kwargs))) if isinstance(leaf, Tensor)]

    def label(self, tensor: Tensor) -> Label:
        """What the elements of ``tensor`` belong to."""
        return self.tracer.label(tensor)

    def set_label(self, tensor: Tensor, ids: Tensor, images: Tensor) -> None:
        """Say what the elements of a result belong to."""
        self.tracer.set_label(tensor, ids, images)

    def channels(self, tensor: Tensor, axis: int = 1) -> Tensor:
        """int64 (size of ``axis``,): the map of each channel; maps that vary along other dimensions stay."""
        label, axis = self.label(tensor), axis % tensor.dim()
        if any(d != axis for d in label.axes()) and not self.tracer.ties.any_made(label.ids):
            label = self._along(label, axis)
        if any(d != axis for d in label.axes()):
            self.keep(label.ids, "reads maps along another dimension than that of its channels")
            return torch.full((tensor.shape[axis],), NONE)
        return label.along(axis, tensor.shape[axis])

    def _along(self, label: Label, axis: int) -> Label:
        """The label of a parameter that a layer reads (learned queries): only ``axis`` may shrink."""
        one = label.ids
        for other in (d for d in label.axes() if d != axis):
            one = one.narrow(other, 0, 1)
        self.tie(label.ids, one)
        return Label(squeezed(self.tracer.ties.roots(label.ids)), label.images)

    def tie(self, one: Tensor, other: Tensor) -> None:
        """These maps go together, element by element."""
        self.keep(self.tracer.ties.tie(one, other), "joins them with what cannot be sliced")

    def keep(self, ids: Tensor, why: str) -> None:
        """These maps stay, because of what this call does; refused where the tracer was asked to refuse."""
        self.tracer.keep(ids, self.name, why)

    def new_maps(self, count: int) -> Tensor:
        """Fresh maps for the outputs of a layer."""
        return self.tracer.ties.new((count,), made=True)

    def layer(self, made: Layer) -> Layer:
        """Record a layer; called again, its inputs and outputs are tied to those of the first call."""
        return self.tracer.record(self, made)

    def put_channels(self, ids: Tensor, axis: int = 1, like: Tensor | None = None) -> None:
        """The result has these maps along ``axis`` and the images of ``like``, the first argument unless told."""
        shape = [1] * self.result.dim()
        shape[axis % self.result.dim()] = len(ids)
        source = self.args[0] if like is None else like
        images = torch.zeros((1,) * len(shape), dtype=torch.int64)
        if source.dim() == self.result.dim():  # beside a state that begins with zeros, channels may differ in this
            images = self.label(source).images.amax(axis % self.result.dim(), keepdim=True)
        self.set_label(self.result, ids.reshape(shape), images)


Rule = Callable[[Call], None]


class Tracer:
    """Labels of tensors, ties between maps, and the layers found so far."""

    def __init__(self, root: nn.Module, unknown: Unknown, choices: Mapping[int, int], batch: int) -> None:
        self.root, self.unknown, self.choices, self.batch = root, unknown, choices, batch
        self.ties = Ties()
        self.layers: dict[str, Layer] = {}
        self.names = {id(module): name for name, module in root.named_modules()}
        self.stack: list[nn.Module] = []
        self.inside = 0  # > 0 while a rule has the word: calls below it are its own affair
        self.options: dict[int, tuple[int, Tensor]] = {}  # reshape number -> (options, maps that it decides about)
        self.reached: set[int] = set()
        self.uncounted: dict[str, None] = {}  # convolutions and linear maps that belong to no layer, in order
        self._reshapes = 0
        self._labels: Any = WeakTensorKeyDictionary()
        self._mixed: Any = WeakTensorKeyDictionary()
        self._tensors = dict(_tensors(root))
        self._owned: dict[int, tuple[Tensor, str]] = {}  # maps of parameters, and where they were first met
        self._sizes: list[tuple[Tensor, Width, str]] = []
        self._numbers: dict[tuple[str, str], list[tuple[Tensor, str]]] = {}
        self._least: list[tuple[Tensor, int]] = []  # maps, and how many of them stay
        self._found: Found | None = None
        self._through: dict[str, list[tuple[Tensor, Tensor] | None]] = {}
        self._pinned: set[tuple[str, str]] = set()
        self._notes: dict[str, Kept] = {}

    # labels

    def label(self, tensor: Tensor) -> Label:
        """The label of any tensor; parameters and buffers get fresh numbers when they are first met."""
        found: Label | None = self._labels.get(tensor)
        if (mixed := self._mixed.pop(tensor, None)) is not None:
            self.keep(*mixed)
        if found is None:
            found = blank(tensor.dim())
            followed = id(tensor) in self._tensors and tensor.is_floating_point()
            if followed and 1 < tensor.numel() <= LARGEST:
                ids = self.ties.new(tuple(tensor.shape), made=False)
                self._owned[id(tensor)] = ids, self.place()
                found = Label(ids, found.images)
            self._labels[tensor] = found
        return Label(squeezed(self.ties.roots(found.ids)), found.images)

    def hold_if_used(self, tensor: Tensor, ids: Tensor, name: str, why: str) -> None:
        """These maps stay if the network does anything with ``tensor``, which is computed from all of them."""
        self._mixed[tensor] = ids, name, why

    def set_label(self, tensor: Tensor, ids: Tensor, images: Tensor) -> None:
        """Store a label."""
        self._labels[tensor] = Label(squeezed(self.ties.roots(ids)), squeezed(images))

    def sizes(self, tensor: Tensor) -> tuple[int, ...]:
        """The shape, with a Width wherever maps are counted."""
        label = self.label(tensor)
        axes = label.axes()
        if len(axes) != 1:
            return tuple(tensor.shape)
        axis = axes[0]
        width = Width.make(tensor.shape[axis], self, ids=label.along(axis, tensor.shape[axis]))
        return tuple(width if d == axis else n for d, n in enumerate(tensor.shape))

    # what stays

    def place(self) -> str:
        """Module and line of the network's code that is running."""
        if not self.stack:
            return f"in {type(self.root).__name__}"
        module = self.names.get(id(self.stack[-1]), "")
        return f"{line_now()} in {module}" if module else line_now()

    def note(self, name: str, why: str, where: str | None = None) -> str:
        """A reason with its place in the network's code."""
        where = self.place() if where is None else where
        reason = f"{name} {why}"
        key = f"{reason} ({where})"
        self._notes.setdefault(key, Kept(reason, where))
        return key

    def keep(self, ids: Tensor, name: str, why: str) -> None:
        """These maps stay."""
        if not bool((ids != NONE).any()):
            return
        if self.unknown == "refuse" and self.ties.any_made(ids):
            raise PruningError(
                f"{self.note(name, why)}: pruning cannot follow that; register a rule for it, or trace with "
                "unknown='keep', which leaves these maps alone"
            )
        self.ties.keep(ids, self.note(name, why))

    def counted(self, width: Width, how: str) -> None:
        """The network uses the number itself."""
        if width.owner is not None:
            self._pinned.add(width.owner)
        elif width.ids is not None:
            with ruled(self):
                self.ties.keep(width.ids, self.note(how.strip("_"), "uses how many maps there are"))

    def compared(self, one: Width, other: Width) -> None:
        """``if x.shape == y.shape`` must go the same way after every removal: what was equal shrinks together."""
        follows, given = (one, other) if one.owner is None else (other, one)
        whole = (one.times, one.divide) == (other.times, other.divide) == (1, 1)
        if follows.ids is None or not whole:
            self.counted(one, "eq")
            self.counted(other, "eq")
            return
        with ruled(self):
            if given.ids is None:
                self.fit(follows.ids, given, "eq")
            else:
                alone = self.ties.tie(follows.ids, given.ids)
                self.ties.keep(alone, self.note("eq", "compares their number with one that cannot change"))

    def differed(self, one: Width, other: int) -> None:
        """``if x.shape == y.shape`` must not begin to hold: the wider one stays wider than the other is now."""
        wide, narrow = (one, other) if int.__gt__(one, plain(other)) else (other, one)
        for number in (wide, narrow):
            if isinstance(number, Width) and (number.owner is not None or (number.times, number.divide) != (1, 1)):
                self.counted(number, "eq")
        if isinstance(wide, Width) and wide.owner is None and (wide.times, wide.divide) == (1, 1):
            assert wide.ids is not None
            self._least.append((wide.ids, plain(narrow) + 1))

    def fit(self, ids: Tensor, size: object, name: str) -> None:
        """Along ``ids`` the network says ``size``: both must agree after every removal, or the maps stay."""
        if not isinstance(size, Width):
            self.keep(ids, name, f"has the number {size} written down")
        elif size.owner is None:
            self._sizes.append((ids, size, self.note(name, "has a size that comes from the width of other maps")))
        elif size.divide != 1 or size.times < 1 or len(ids) % size.times:
            self.keep(ids, name, f"has a size computed from {'.'.join(filter(None, size.owner))}")
            self._pinned.add(size.owner)
        else:
            pieces = ids.reshape(size.times, -1)  # x[:, : 2 * self.hidden]: equal pieces stay equal
            self.keep(self.ties.tie(pieces, pieces[:1]), name, "joins them with what cannot be sliced")
            ids = pieces[0]
            uses = self._numbers.setdefault(size.owner, [])
            number = ".".join(filter(None, size.owner))
            if uses and len(uses[0][0]) == len(ids):
                self.keep(self.ties.tie(uses[0][0], ids), name, f"shares the number {number}")
            uses.append((ids, self.note(number, "is a number that is used in other ways too")))

    def choose(self, options: Sequence[int], ids: Tensor) -> int:
        """Which dimension of a reshape may shrink; other options are tried if this one keeps all maps."""
        number, self._reshapes = self._reshapes, self._reshapes + 1
        self.options[number] = (len(options), ids)
        return options[self.choices.get(number, 0) % len(options)]

    # layers

    def record(self, call: Call, made: Layer) -> Layer:
        """The first call of a layer, or a further one whose channels are tied to it."""
        first = self.layers.setdefault(made.name, made)
        if first is not made:
            call.tie(first.inputs, made.inputs)
            call.tie(first.outputs, made.outputs)
            first.calls += 1
        source = call.args[0] if call.args else next(iter(call.kwargs.values()), None)
        first.positions.append(made.measure(source, call.result, self.batch))
        return first

    def passed(self, module: nn.Module, args: tuple[Any, ...], result: Any) -> None:
        """Remember what a module without a rule read and gave: it may be a residual block."""
        plain_tensors = len(args) == 1 and isinstance(args[0], Tensor) and isinstance(result, Tensor)
        with ruled(self):
            if module is not self.root and plain_tensors and args[0].shape == result.shape and args[0] is not result:
                labels = self.label(args[0]).ids, self.label(result).ids
                self._through.setdefault(self.names[id(module)], []).append(labels)
            else:
                self._through.setdefault(self.names[id(module)], []).append(None)

    def blocks(self) -> list[str]:
        """Modules that give back the maps that they read, and have no such module inside: residual blocks."""
        found = []
        for name, calls in self._through.items():
            if len(calls) == 1 and calls[0] is not None and name:
                one, other = (squeezed(self.ties.roots(ids)) for ids in calls[0])
                makes = any(layer.makes and layer.name.startswith(f"{name}.") for layer in self.layers.values())
                if makes and one.numel() > 1 and torch.equal(one, other):
                    found.append(name)
        return [name for name in found if not any(other.startswith(f"{name}.") for other in found)]

    @contextmanager
    def aside(self) -> Iterator[None]:
        """What runs inside the block ties maps and holds them, and counts neither as a call nor as a cost."""
        counts = {name: (layer.calls, len(layer.positions)) for name, layer in self.layers.items()}
        through = {name: list(calls) for name, calls in self._through.items()}
        yield
        for name, layer in self.layers.items():
            layer.calls, kept = counts.get(name, (layer.calls, 0))
            del layer.positions[kept:]
        self._through = through

    def keep_unread(self) -> None:
        """Maps that no layer reads stay: the network may hand them out by a way that is not seen."""
        read = [self.ties.roots(layer.inputs) for layer in self.layers.values() if layer.reads]
        held = [self.ties.roots(ids) for ids, _ in self.ties.kept]
        known = torch.cat([torch.tensor([NONE]), *read, *held])
        for layer in self.layers.values():
            made = self.ties.roots(layer.outputs)
            unread = made[~torch.isin(made, known)]
            if layer.makes and len(unread):
                self.ties.keep(unread, self.note(layer.name, "makes what no layer reads"))

    def finish(self) -> Found:
        """What the trace has found, with provisional maps."""
        if self._found is None:
            self._check_numbers()
            self._slice_tensors()
            for number, (ids, least) in enumerate(self._least):
                self.layers[f"comparison {number}"] = Least(
                    f"comparison {number}", self.root, NOTHING, ids, least=least
                )
            for ids, size, reason in self._sizes:
                assert size.ids is not None
                if not self.ties.same(ids, size.ids, size.times, size.divide):
                    self.ties.keep(torch.cat((ids, size.ids)), reason)
            reasons: dict[str, list[Tensor]] = {}
            for ids, reason in self.ties.kept:
                reasons.setdefault(reason, []).append(self.ties.roots(ids))
            fixed = torch.unique(torch.cat([torch.tensor([NONE]), *(i for found in reasons.values() for i in found)]))
            for layer in self.layers.values():
                layer.inputs, layer.outputs = self.ties.roots(layer.inputs), self.ties.roots(layer.outputs)
            self._found = Found(list(self.layers.values()), fixed, reasons)
        return self._found

    def _check_numbers(self) -> None:
        """Attributes that follow the maps become layers of their own; the others keep their maps."""
        for owner, uses in self._numbers.items():
            first = uses[0][0]
            if owner in self._pinned or not all(self.ties.same(first, other, 1, 1) for other, _ in uses[1:]):
                for ids, note in uses:
                    self.ties.keep(ids, note)
                continue
            name, module = ".".join(filter(None, owner)), self.root.get_submodule(owner[0])
            self.layers[name] = Number(name, module, NOTHING, first, attribute=owner[1])

    def _slice_tensors(self) -> None:
        """Parameters, buffers and plain tensors that were combined with maps are sliced along with them."""
        modules = {id(layer.module): layer for layer in self.layers.values() if not isinstance(layer, Number)}
        for identity, (ids, where) in self._owned.items():
            roots = squeezed(self.ties.roots(ids))
            axes = [d for d, n in enumerate(roots.shape) if n > 1]
            owner, key, _ = self._tensors[identity]
            name = ".".join(filter(None, (owner, key)))
            if layer := modules.get(id(self.root.get_submodule(owner))):
                used = torch.cat((layer.inputs, layer.outputs))
                self.ties.keep(used, self.note(name, "is used outside of its layer too", where))
            elif len(axes) != 1:
                self.ties.keep(roots, self.note(name, "is used in a way in which no dimension holds the maps", where))
            else:
                module = self.root.get_submodule(owner)
                self.layers[name] = TensorLayer(name, module, NOTHING, roots.flatten(), attribute=key, axis=axes[0])

    def notes(self) -> dict[str, Kept]:
        """All reasons, by the key that ``note`` gave."""
        return self._notes


def _tensors(root: nn.Module) -> Iterator[tuple[int, tuple[str, str, Tensor]]]:
    """Every tensor that a module of ``root`` holds, plain attributes included."""
    for name, module in root.named_modules():
        places = {**module.__dict__, **module._buffers, **module._parameters}
        for key, value in places.items():
            if isinstance(value, Tensor):
                yield id(value), (name, key, value)


@contextmanager
def ruled(tracer: Tracer) -> Iterator[None]:
    """Calls inside the block are part of one that has a rule."""
    tracer.inside += 1
    try:
        with torch._C.DisableTorchFunction(), torch._C._DisableTorchDispatch():
            yield
    finally:
        tracer.inside -= 1
