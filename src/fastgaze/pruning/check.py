"""A trial: maps leave a copy of the network, and the copy must still be the masked network.

Rules decide which maps may go. This is the net below them, for modules that do more than their class promises and
for code that counts channels where no rule can see it.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map_only

from fastgaze.core.errors import PruningError
from fastgaze.pruning.tracing.outputs import tensors_of
from fastgaze.pruning.tracing.places import Kept
from fastgaze.pruning.tracing.trace import Example, Map, evaluation_mode, split_inputs
from fastgaze.pruning.tracing.tracer import Unknown

if TYPE_CHECKING:
    from fastgaze.pruning.graph import ChannelGraph

TOLERANCE = 1e-6  # of the largest output, in double precision
TRIALS = 64  # copies that are made in search of the maps at fault


def keep_what_differs(graph: ChannelGraph, example: Example, unknown: Unknown) -> None:
    """Maps whose removal does not equal their mask become not prunable."""
    if any(tensor.is_meta for tensor in [*graph.root.parameters(), *graph.root.buffers()]):
        return  # there are no values to compare
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):  # the trials set a seed
        wrong = _found_wrong(graph, _one_of_each(graph), _few_images(graph, example))
    if wrong:
        _keep(graph, wrong, unknown)


def _found_wrong(graph: ChannelGraph, chosen: list[int], inputs: Any) -> list[int]:
    """Those of the chosen maps whose removal differs, found by halves; all that are left when TRIALS are spent."""
    wrong, trials = list[int](), [chosen] if chosen else []
    spent = 0
    while trials:
        part = trials.pop()
        spent += 1
        if spent <= TRIALS and _agrees(graph, part, inputs):
            continue
        if len(part) == 1 or spent > TRIALS:
            wrong += part
        else:
            trials += [part[: len(part) // 2], part[len(part) // 2 :]]
    return wrong


def _one_of_each(graph: ChannelGraph) -> list[int]:
    """One removable map of every sort, at a place of its own: equal places would hide that two maps are not tied.

    Never the first if there are others: what is wrong about positions shows with later ones.
    """
    alive, chosen, seen = graph.alive.clone(), list[int](), set[int]()
    free = torch.nonzero(graph.candidates()).flatten()
    sorts = graph.incidence.sort_of[free].tolist()
    firsts = dict(zip(sorts[::-1], free.tolist()[::-1], strict=True))
    mixed = torch.randperm(len(free), generator=torch.Generator().manual_seed(0)).tolist()
    for at in sorted(mixed, key=lambda at: firsts[sorts[at]] == int(free[at])):
        index, sort = int(free[at]), sorts[at]
        if sort not in seen and graph.removable(index, alive):
            seen.add(sort)
            alive[index] = False
            chosen.append(index)
    return sorted(chosen)


def _few_images(graph: ChannelGraph, example: Example) -> Any:
    """Two images with values that differ, or the example as it is if the network does not run on these."""
    args, kwargs = split_inputs(example)
    most = max((len(t) for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor)), default=0)
    whole = [list(args), kwargs]
    few = tree_map_only(Tensor, lambda t: t[:2] if len(t) == most else t, whole)
    for inputs in (tree_map_only(Tensor, _varied, few), few):
        try:
            if all(bool(torch.isfinite(tensor).all()) for tensor in _outputs(graph, inputs)):
                return inputs
        except Exception:
            continue
    return whole


def _varied(tensor: Tensor) -> Tensor:
    """Random values in the place of zeros, for which heads and gates are all alike."""
    if not tensor.is_floating_point() or not tensor.numel() or bool((tensor != tensor.flatten()[0]).any()):
        return tensor
    generator = torch.Generator().manual_seed(0)
    return torch.randn(tensor.shape, generator=generator).to(tensor)


def _agrees(graph: ChannelGraph, maps: list[int], inputs: Any) -> bool:
    from fastgaze.pruning.compact import compact
    from fastgaze.pruning.probe import masked

    shared = (graph.maps, graph.incidence, graph.kept)  # nothing changes in them, and they are most of the objects
    twin = copy.deepcopy(graph, {**{id(part): part for part in shared}, **_computed(graph.root)})
    double = _in_double(twin, inputs)
    twin.mark_removed(maps)
    with masked(twin), _called(twin) as called:
        expected = _outputs(twin, double)
    # A closure may still call the original's layers. Those without positions run in training mode only.
    whole = all(layer.module in called for layer in twin.makers if layer.positions)
    if not whole or not expected or not all(bool(torch.isfinite(t).all()) for t in expected):
        return True  # nothing can be compared
    try:
        compact(twin)
        found = _outputs(twin, double)
    except Exception:
        return False
    return len(found) == len(expected) and all(_close(a, b) for a, b in zip(found, expected, strict=True))


def _computed(root: nn.Module) -> dict[int, Any]:
    """Tensors that modules hold as results of a computation (the old weight_norm), which deepcopy would refuse."""
    held = [value for module in root.modules() for value in module.__dict__.values() if isinstance(value, Tensor)]
    return {id(tensor): tensor.detach().clone() for tensor in held if not tensor.is_leaf}


@contextmanager
def _called(graph: ChannelGraph) -> Iterator[set[nn.Module]]:
    """The modules of layers that run inside the block."""
    called: set[nn.Module] = set()
    modules = {layer.module for layer in graph.makers}
    hooks = [module.register_forward_pre_hook(lambda m, _args: called.add(m)) for module in modules]
    try:
        yield called
    finally:
        for hook in hooks:
            hook.remove()


def _in_double(twin: ChannelGraph, inputs: Any) -> Any:
    """The copy in double precision with parameters that all matter, if it runs so; else as it is."""
    generator = torch.Generator().manual_seed(0)
    for parameter in twin.root.parameters():
        if parameter.is_floating_point() and parameter.numel() and float(parameter.detach().abs().max()) < 1e-3:
            noise = torch.randn(parameter.shape, generator=generator) * 0.1
            parameter.data.add_(noise.to(parameter))  # a block that starts as zero would hide what is wrong
    twin.root.double()
    double = tree_map_only(Tensor, lambda t: t.double() if t.is_floating_point() else t, inputs)
    try:
        _outputs(twin, double)
    except Exception:
        twin.root.float()
        return inputs
    return double


def _outputs(graph: ChannelGraph, inputs: Any) -> list[Tensor]:
    with evaluation_mode(graph.root.modules()), torch.no_grad():
        torch.manual_seed(0)
        result = graph.root(*inputs[0], **inputs[1])
    return [tensor for tensor in tensors_of(result) if tensor.is_floating_point()]


def _close(found: Tensor, expected: Tensor) -> bool:
    if found.shape != expected.shape:
        return False
    if not expected.numel():
        return True
    tolerance = TOLERANCE if expected.dtype == torch.float64 else 1e-3
    return float((found - expected).abs().max()) <= tolerance * max(1e-6, float(expected.abs().max()))


def _short(found: Map) -> str:
    """The first channel of a map that may tie hundreds."""
    name, channel = found.producers[0]
    others = len(found.producers) - 1
    return f"{name}[{channel}]" + (f" with {others} tied to it" if others else "")


def _keep(graph: ChannelGraph, wrong: list[int], unknown: Unknown) -> None:
    sorts = graph.incidence.sort_of[torch.tensor(wrong)]
    stays = torch.isin(graph.incidence.sort_of[:-1], sorts) & graph.prunable
    names = sorted({_short(graph.maps[k]) for k in wrong})
    reason = f"removing {', '.join(names[:3])}{' and others' if len(names) > 3 else ''} changes more than masking does"
    if unknown == "refuse":
        raise PruningError(f"{reason}: a module does more than its class promises; trace with unknown='keep'")
    graph.prunable &= ~stays
    graph.kept.append(Kept(reason, "found by trial", int(stays.sum())))
