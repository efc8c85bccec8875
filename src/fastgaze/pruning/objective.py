"""How maps are ranked: the expected rise of the loss against the cost it saves.

``delta_loss`` is float64 (maps,) and zero or positive, but for signals with a first-order term; ``delta_cost`` is
(maps,) and zero or negative.
"""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from fastgaze.core.errors import PruningError

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
