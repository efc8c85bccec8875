"""Widths that engines like: which maps must go so that layers end on given widths.

A map may have several channels in a layer (groups, heads) and channels in several layers (residual additions), so
that a width is reached by a sum of bunches, and reaching it moves other widths.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from fastgaze.core.errors import PruningError
from fastgaze.pruning.graph import ChannelGraph
from fastgaze.pruning.layers import Layer
from fastgaze.pruning.objective import removable_together

PASSES = 8  # over all layers: tied layers move each other


def rounded_down(graph: ChannelGraph, scores: Tensor, allowed: Tensor, step: int) -> list[int]:
    """The lowest-scored maps whose removal brings every layer wider than ``step`` to a multiple of it."""
    alive, chosen = graph.alive.clone(), list[int]()
    simple = sorted(graph.makers, key=lambda layer: len(torch.unique(graph.incidence.sort_of[layer.outputs])))
    for _ in range(PASSES):
        before = len(chosen)
        for layer in simple:
            width = int(alive[layer.outputs].sum())
            goals = range(width - width % step, 0, -step) if width > step and width % step else ()
            for goal in goals:
                if found := _cheapest(graph, layer, scores, allowed, alive, width - goal):
                    alive[found] = False
                    chosen += found
                    break
        if len(chosen) == before:
            break
    return chosen


def narrowed_to(graph: ChannelGraph, scores: Tensor, allowed: Tensor, widths: Mapping[str, int]) -> list[int]:
    """The lowest-scored maps whose removal brings each named layer to its width."""
    alive, chosen = graph.alive.clone(), list[int]()
    for name, goal in widths.items():
        layer = graph.layer(name)
        have = int(graph.alive[layer.outputs].sum())
        if not 1 <= goal <= have:
            raise PruningError(f"{name} has {have} maps and cannot be narrowed to {goal}; give 1 to {have}")
        now = int(alive[layer.outputs].sum())
        if now > goal:
            found = _cheapest(graph, layer, scores, allowed, alive, now - goal)
            alive[found] = False
            chosen += found
    for name, goal in widths.items():
        left = int(alive[graph.layer(name).outputs].sum())
        if left != goal:
            raise PruningError(
                f"{name} cannot be narrowed to {goal}, only to {left}: the other maps are outputs, protected, or "
                "leave together with maps of other layers"
            )
    return chosen


def _cheapest(
    graph: ChannelGraph, layer: Layer, scores: Tensor, allowed: Tensor, alive: Tensor, channels: int
) -> list[int]:
    """Maps with exactly ``channels`` channels in ``layer`` and the least sum of scores; empty if there are none."""
    counts = torch.bincount(layer.outputs, minlength=len(graph.maps) + 1)
    own = [
        int(k)
        for k in scores.argsort(stable=True)
        if counts[k] and allowed[k] and alive[k] and graph.removable(int(k), alive)
    ]
    best: dict[int, tuple[float, list[int]]] = {0: (0.0, [])}
    for index in own:
        weight, score = int(counts[index]), float(scores[index])
        for total in sorted(best, reverse=True):
            rival = best[total][0] + score
            if total + weight <= channels and rival < best.get(total + weight, (float("inf"), []))[0]:
                best[total + weight] = (rival, [*best[total][1], index])
        if all(int(counts[k]) == 1 for k in own) and channels in best:
            break  # single channels in the order of their scores: nothing cheaper follows
    found = best.get(channels, (0.0, []))[1]
    return found if removable_together(graph, found, alive) else []
