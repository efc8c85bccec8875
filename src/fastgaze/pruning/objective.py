"""Which map goes first: the expected rise of the loss against the cost it saves.

``delta_loss`` is float64 (maps,) and zero or positive, but for signals with a first-order term; ``delta_cost`` is
(maps,) and zero or negative.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import torch
from torch import Tensor

from fastgaze.core.errors import PruningError
from fastgaze.pruning.cost import Cost
from fastgaze.pruning.graph import ChannelGraph

GIGA = 1e9


class Objective(Protocol):
    """Orders maps; the lowest score is removed first."""

    def __call__(self, delta_loss: Tensor, delta_cost: Tensor) -> Tensor:
        """float64 (maps,)."""
        ...


@dataclass(frozen=True)
class NoCost:
    """delta_loss alone: beta = 0."""

    def __call__(self, delta_loss: Tensor, delta_cost: Tensor) -> Tensor:  # noqa: ARG002 (one protocol for all)
        """float64 (maps,)."""
        return delta_loss


@dataclass(frozen=True)
class Beta:
    """delta_loss + beta * delta_cost for a fixed weight (the Lagrangian of the paper).

    unit  the amount of cost that beta is per: 1e9 makes it loss per GFLOP, which the paper leaves open
    """

    beta: float
    unit: float = GIGA

    def __call__(self, delta_loss: Tensor, delta_cost: Tensor) -> Tensor:
        """float64 (maps,)."""
        return delta_loss + self.beta * (delta_cost.double() / self.unit)


@dataclass(frozen=True)
class BetaStar:
    """beta_i = -delta_loss_i / delta_cost_i: the weight at which removing map i begins to pay; no hyperparameter."""

    def __call__(self, delta_loss: Tensor, delta_cost: Tensor) -> Tensor:
        """float64 (maps,), loss per unit of cost; infinite where nothing is saved."""
        saving = -delta_cost.double()
        return torch.where(saving > 0, delta_loss / saving.clamp(min=torch.finfo(torch.float64).tiny), torch.inf)


@dataclass(frozen=True)
class Target:
    """The smallest beta at which removing every map with delta_loss + beta * delta_cost <= 0 reaches a target.

    cost    total cost to reach, in the cost's own unit; or
    share   the same as a share of the cost at the start: 0.5 for half the FLOPs; or
    remove  number of maps to remove
    """

    cost: float | None = None
    remove: int | None = None
    share: float | None = None

    def __post_init__(self) -> None:
        if sum(value is not None for value in (self.cost, self.remove, self.share)) != 1:
            given = f"Target(cost={self.cost}, remove={self.remove}, share={self.share})"
            raise PruningError(f"{given} needs exactly one of cost, remove and share")


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
