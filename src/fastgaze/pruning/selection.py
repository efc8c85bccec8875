"""Which maps go: the best of a round, all that a target condemns, or so many that layers end on given widths.

A map may have several channels in a layer (groups, heads) and channels in several layers (residual additions), so
that a width is reached by a sum of bunches, and reaching it moves other widths.
"""

from collections.abc import Callable, Mapping
from functools import partial

import torch
from torch import Tensor

from fastgaze.core.errors import PruningError
from fastgaze.pruning.cost import Cost
from fastgaze.pruning.graph import ChannelGraph
from fastgaze.pruning.layers.layer import Layer
from fastgaze.pruning.objective import BetaStar, Objective, Target

PASSES = 8  # over all layers: tied layers move each other


def select(
    graph: ChannelGraph,
    delta_loss: Tensor,
    cost: Cost,
    objective: Objective,
    count: int,
    allowed: Tensor,
    done: Callable[[Tensor], bool] = lambda _alive: False,
    step: int = 1,
) -> list[int]:
    """Up to ``count`` of the maps ``allowed`` (bool (maps,)), best first; costs are live within the round.

    Maps whose removal would empty a layer are passed over. ``done(alive)`` ends the round early.
    Ties go to the lower index. With a ``step``, maps leave in bunches that end on multiples of it, the bunch with the
    lowest mean score first.
    """
    alive, chosen = graph.alive.clone(), list[int]()
    while len(chosen) < count and not done(alive):
        scores = objective(delta_loss, cost.delta_cost(graph, alive))
        choose = _first_removable if step == 1 else partial(_best_bunch, step=step)
        bunch = choose(graph, scores, allowed & alive[:-1], alive)
        if not bunch:
            break
        alive[bunch] = False
        chosen += bunch
    return chosen


def _check_numbers(scores: Tensor) -> None:
    if bool(torch.isnan(scores).any()):
        raise PruningError("a pruning signal is not a number; the loss or an activation has overflowed")


def _first_removable(graph: ChannelGraph, scores: Tensor, allowed: Tensor, alive: Tensor) -> list[int]:
    _check_numbers(scores[allowed])
    left = torch.where(allowed, scores, torch.nan)
    for _ in range(int(allowed.sum())):
        best = int(torch.where(torch.isnan(left), torch.inf, left).argmin())
        if torch.isnan(left[best]):  # all that is left scores infinity
            best = int(torch.nonzero(~torch.isnan(left))[0])
        if graph.removable(best, alive):
            return [best]
        left[best] = torch.nan
    return []


def _best_bunch(graph: ChannelGraph, scores: Tensor, allowed: Tensor, alive: Tensor, step: int) -> list[int]:
    """The lowest maps of one sort that can go together: one cheap map must not take fifteen dear ones with it."""
    _check_numbers(scores[allowed])
    sorts, found = graph.incidence.sort_of[:-1], list[tuple[float, list[int]]]()
    for sort in torch.unique(sorts[allowed]).tolist():
        same = torch.nonzero(allowed & (sorts == sort)).flatten()
        bunch = _bunch(graph, same[scores[same].argsort(stable=True)].tolist(), sort, alive, step)
        if bunch and removable_together(graph, bunch, alive):
            found.append((float(scores[bunch].mean()), bunch))
    return min(found, default=(0.0, []))[1]


def removable_together(graph: ChannelGraph, maps: list[int], alive: Tensor) -> bool:
    """Whether all of these can go, one after the other."""
    if len(maps) == 1:
        return graph.removable(maps[0], alive)
    alive = alive.clone()
    for index in maps:
        if not graph.removable(index, alive):
            return False
        alive[index] = False
    return True


def _bunch(graph: ChannelGraph, order: list[int], sort: int, alive: Tensor, step: int) -> list[int]:
    """The first maps of ``order``, all of one sort, as few as bring every width to a multiple of ``step``."""
    at = graph.incidence
    rows = torch.nonzero(at.sort == sort).flatten().tolist()
    widths, _ = graph.widths(alive)
    places = [
        (int(widths[at.layer[r]]), int(at.out[r])) for r in rows if graph.layers[int(at.layer[r])].makes and at.out[r]
    ]
    for count in range(1, len(order) + 1):
        if all((width - count * out) % step == 0 and width > count * out for width, out in places):
            return order[:count]
    return []


def select_target(
    graph: ChannelGraph, delta_loss: Tensor, cost: Cost, target: Target, allowed: Tensor
) -> tuple[list[int], float]:
    """All maps at or below the smallest sufficient beta, removed at once, and that beta (loss per unit of cost).

    The saving of a set is counted exactly, not added up from single maps.
    """
    beta_i = BetaStar()(delta_loss, cost.delta_cost(graph, graph.alive))
    order = [int(k) for k in torch.argsort(beta_i, stable=True) if allowed[k] and graph.alive[k]]
    alive, chosen, beta = graph.alive.clone(), list[int](), 0.0
    for index in order:
        if _reached(graph, cost, target, alive, len(chosen)) and float(beta_i[index]) > beta:
            break
        if graph.removable(index, alive):
            alive[index] = False
            chosen.append(index)
            beta = float(beta_i[index])
    if not _reached(graph, cost, target, alive, len(chosen)):
        raise PruningError(_out_of_reach(graph, cost, target, alive, len(chosen)))
    return chosen, beta


def _out_of_reach(graph: ChannelGraph, cost: Cost, target: Target, alive: Tensor, removed: int) -> str:
    if target.remove is not None:
        return f"cannot remove {target.remove} maps: at most {removed} may go; graph.describe() says what stays and why"
    return (
        f"a cost of {target.cost:,.0f} is out of reach: this network costs {cost.total(graph, graph.alive):,.0f}, and "
        f"at least {cost.total(graph, alive):,.0f} when every map that may go is gone; graph.describe() says what "
        "stays and why"
    )


def _reached(graph: ChannelGraph, cost: Cost, target: Target, alive: Tensor, removed: int) -> bool:
    if target.remove is not None:
        return removed >= target.remove
    return target.cost is not None and cost.total(graph, alive) <= target.cost


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
