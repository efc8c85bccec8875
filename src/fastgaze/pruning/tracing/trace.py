"""From a network and an example input to layers and maps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map_only

from fastgaze.core.errors import PruningError
from fastgaze.pruning.layers.layer import Layer
from fastgaze.pruning.tracing import products as _products  # noqa: F401 (registers its rules)
from fastgaze.pruning.tracing import recurrent as _recurrent  # noqa: F401 (registers its rules)
from fastgaze.pruning.tracing import shapes as _shapes  # noqa: F401 (registers its rules)
from fastgaze.pruning.tracing.modes import branches_of_training, evaluation_mode, trains_otherwise
from fastgaze.pruning.tracing.modules import module_rule
from fastgaze.pruning.tracing.operations import follow_function
from fastgaze.pruning.tracing.outputs import outputs_of
from fastgaze.pruning.tracing.places import Kept, line_of
from fastgaze.pruning.tracing.tracer import Tracer, Unknown
from fastgaze.pruning.tracing.watching import watching
from fastgaze.pruning.tracing.widths import Width

ROUNDS = 4  # traces in search of reshapes that let maps go
Example = Tensor | Sequence[object] | Mapping[str, object]  # what a network is called with


@dataclass(frozen=True)
class Map:
    """One prunable unit.

    producers  (layer name, channel in the traced network) of every channel that this map ties together
    prunable   False for the network's outputs, for what is tied to its inputs or outputs, and for what a barrier holds
    """

    index: int
    producers: tuple[tuple[str, int], ...]
    prunable: bool

    def __str__(self) -> str:
        return "+".join(f"{name}[{channel}]" for name, channel in self.producers)


@dataclass(frozen=True)
class Traced:
    """What a trace finds.

    unreached  modules with parameters that the example did not run
    blocks     residual blocks: modules that add to the maps they read
    uncounted  calls of convolutions and linear functions that belong to no layer
    """

    layers: list[Layer]
    maps: list[Map]
    kept: list[Kept]
    unreached: list[str]
    blocks: list[str]
    uncounted: list[str]


def trace_network(root: nn.Module, inputs: Example, unknown: Unknown, training: bool) -> Traced:
    """Run ``root`` on ``inputs`` and follow its channels; again, where another reading of a reshape frees maps."""
    if unknown not in ("keep", "refuse"):
        raise PruningError(f"unknown={unknown!r} is not known; give 'keep' or 'refuse'")
    args, kwargs, batch = _batched(root, inputs)
    choices: dict[int, int] = {}
    best: Traced | None = None
    both = not training and trains_otherwise(root, args, kwargs)
    for _ in range(ROUNDS):
        tracer = Tracer(root, unknown, choices, batch)
        _run(tracer, args, kwargs, training)
        if both:
            with tracer.aside():
                _run(tracer, args, kwargs, training=True)
        _keep_shared(tracer)
        tracer.keep_unread()
        found = _finish(tracer)
        if best is None or sum(m.prunable for m in found.maps) > sum(m.prunable for m in best.maps):
            best = found
        if not (others := _other_choices(tracer, choices)):
            break
        choices = others
    assert best is not None
    return best


def split_inputs(inputs: Example) -> tuple[tuple[object, ...], dict[str, object]]:
    """An example input as positional and named arguments."""
    if isinstance(inputs, Mapping):
        return (), dict(inputs)
    return (tuple(inputs), {}) if isinstance(inputs, tuple | list) else ((inputs,), {})


def _batched(root: nn.Module, inputs: Example) -> tuple[tuple[object, ...], dict[str, object], int]:
    """The example, with two images where it has one, so that the batch's dimension can be told apart."""
    args, kwargs = split_inputs(inputs)
    tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
    if not tensors or not all(t.dim() for t in tensors):
        raise PruningError("the example input holds no batch; give a tensor (N, C, ...), a tuple or a dict of tensors")
    if any(len(t) != 1 for t in tensors):
        return args, kwargs, len(tensors[0])
    twice = tree_map_only(Tensor, lambda t: torch.cat((t, t)), [list(args), kwargs])
    try:
        with evaluation_mode(root.modules()), torch.no_grad():
            root(*twice[0], **twice[1])
    except Exception:  # a network for single images; what is wrong with the example itself shows in the trace
        return args, kwargs, 1
    return tuple(twice[0]), twice[1], 2


def _run(tracer: Tracer, args: tuple[object, ...], kwargs: dict[str, object], training: bool) -> None:
    root = tracer.root
    for tensor in (leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)):
        images = torch.arange(len(tensor)).reshape((-1,) + (1,) * (tensor.dim() - 1))
        tracer.set_label(tensor, torch.zeros((1,) * tensor.dim(), dtype=torch.int64), images)
    try:
        mode = branches_of_training(root) if training else evaluation_mode(root.modules())
        watched = watching(tracer, follow_function, module_rule)
        with mode, torch.no_grad(), _remembered(tracer), _no_fused_attention(), watched:
            result = root(*args, **kwargs)
    except PruningError:
        raise
    except Exception as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise PruningError(
            f"{type(root).__name__} does not run on the example input: {reason} ({line_of(error)}); give an input "
            "that it accepts, as a tensor, a tuple or a dict"
        ) from error
    for tensor in outputs_of(type(root).__name__, result):
        tracer.ties.keep(tracer.label(tensor).ids, OUTPUT)


OUTPUT = "output"


def _keep_shared(tracer: Tracer) -> None:
    """Two layers with one parameter: slicing one would leave the other behind."""
    owners: dict[int, tuple[nn.Module, str]] = {}
    for layer in tracer.layers.values():
        for key, parameter in layer.module.named_parameters(recurse=False):
            module, name = owners.setdefault(id(parameter), (layer.module, f"{layer.name}.{key}"))
            if module is not layer.module:
                used = [
                    torch.cat((k.inputs, k.outputs))
                    for k in tracer.layers.values()
                    if k.module in (module, layer.module)
                ]
                tracer.keep(torch.cat(used), f"{layer.name}.{key}", f"is the same parameter as {name}")


@contextmanager
def _remembered(tracer: Tracer) -> Iterator[None]:
    """Whole numbers that modules hold know their owner inside the block."""
    changed: list[tuple[nn.Module, str, object]] = []
    try:
        for name, module in tracer.root.named_modules():
            if module_rule(module) is None:
                for key, value in list(module.__dict__.items()):
                    if not key.startswith("_") and (known := _with_owner(value, tracer, name, key)) is not None:
                        changed.append((module, key, value))
                        module.__dict__[key] = known
        yield
    finally:
        for module, key, value in changed:
            module.__dict__[key] = value


def _with_owner(value: object, tracer: Tracer, name: str, key: str) -> object | None:
    """An attribute's whole number, or several in a list (the sizes of a split), as numbers that know where they are."""
    if type(value) is int and value > 1:
        return Width.make(value, tracer, owner=(name, key))
    if (
        isinstance(value, list | tuple)
        and type(value) in (list, tuple)  # not torch.Size and the like
        and len(value) > 1
        and all(type(number) is int and number > 1 for number in value)
    ):
        return type(value)(Width.make(n, tracer, owner=(name, f"{key}[{k}]")) for k, n in enumerate(value))
    return None


@contextmanager
def _no_fused_attention() -> Iterator[None]:
    """nn.TransformerEncoder calls its layers inside the block instead of one fused function."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


def _other_choices(tracer: Tracer, choices: dict[int, int]) -> dict[int, int]:
    """The next option of every reshape whose maps all stay; empty if there is none."""
    _, fixed, _ = tracer.finish()
    more = dict(choices)
    for number, (options, ids) in tracer.options.items():
        stays = bool(torch.isin(tracer.ties.roots(ids), fixed).all())
        if stays and choices.get(number, 0) + 1 < options:
            more[number] = choices.get(number, 0) + 1
    return more if more != choices else {}


def _finish(tracer: Tracer) -> Traced:
    layers, fixed, reasons = tracer.finish()
    members: dict[int, list[tuple[str, int]]] = {}
    for layer in layers:
        for position, channel in enumerate(layer.outputs.tolist() if layer.makes else ()):
            members.setdefault(channel, []).append((layer.name, position))
    numbers = {root: index for index, root in enumerate(members)}
    stays = set(fixed.tolist())
    maps = [Map(k, tuple(members[root]), root not in stays) for root, k in numbers.items()]
    table = torch.full((int(tracer.ties.new((1,), made=False)) + 1,), len(numbers))
    if numbers:
        table[torch.tensor(list(numbers))] = torch.arange(len(numbers))
    kept = _kept(tracer, reasons, table, len(numbers))
    found = [
        replace(layer, inputs=table[layer.inputs], outputs=table[layer.outputs])
        for layer in layers
        if layer.makes or layer.kind == "norm" or bool((table[layer.outputs] < len(numbers)).any())
    ]
    return Traced(found, maps, kept, _unreached(tracer), tracer.blocks(), list(tracer.uncounted))


def _kept(tracer: Tracer, reasons: dict[str, list[Tensor]], table: Tensor, none: int) -> list[Kept]:
    """What holds maps back, with their numbers; the network's outputs need no mention."""
    notes, found = tracer.notes(), []
    for reason, ids in reasons.items():
        count = int((torch.unique(table[torch.cat(ids)]) < none).sum())
        if reason != OUTPUT and count:
            found.append(replace(notes[reason], maps=count))
    return found


def _unreached(tracer: Tracer) -> list[str]:
    known = [m for m in tracer.root.modules() if id(m) in tracer.reached and module_rule(m) is not None]
    inside = {id(part) for module in known for part in module.modules()} | tracer.reached
    return [
        name
        for name, module in tracer.root.named_modules()
        if id(module) not in inside and any(True for _ in module.parameters(recurse=False)) and module_rule(module)
    ]


__all__ = ["Map", "Traced", "evaluation_mode", "split_inputs", "trace_network"]
