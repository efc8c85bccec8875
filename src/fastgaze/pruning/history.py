"""What was removed, in which order, and what it cost: saved as JSON, replayed on a fresh network."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from torch.optim import Optimizer

from fastgaze.core.errors import PruningError
from fastgaze.core.files import replacing
from fastgaze.pruning.compact import compact
from fastgaze.pruning.graph import ChannelGraph


@dataclass(frozen=True)
class Removal:
    """One round.

    maps, names  what went, best first
    delta_loss   the expected rise of the loss, added up over these maps
    cost, left   total cost and number of maps afterwards
    images       images that the signals were estimated from
    beta         the weight that condemned the maps, where one was computed
    step, loss   training step and loss at the time, where a loop knows them
    """

    maps: tuple[int, ...]
    names: tuple[str, ...]
    delta_loss: float
    cost: float
    left: int
    images: int
    beta: float | None = None
    step: int | None = None
    loss: float | None = None


@dataclass
class History:
    """All rounds of one run; ``maps`` and ``cost`` are those of the network before the first."""

    maps: int
    cost: float
    removals: list[Removal] = field(default_factory=list)

    @property
    def removed(self) -> list[int]:
        """Indices of all removed maps in the order of removal."""
        return [index for removal in self.removals for index in removal.maps]

    def to_json(self) -> dict[str, Any]:
        """Plain values for json.dumps."""
        return {"maps": self.maps, "cost": self.cost, "removals": [asdict(removal) for removal in self.removals]}

    @staticmethod
    def from_json(value: dict[str, Any]) -> History:
        """The inverse of :meth:`to_json`."""
        try:
            removals = [
                Removal(**{**r, "maps": tuple(r["maps"]), "names": tuple(r["names"])}) for r in value["removals"]
            ]
            return History(value["maps"], value["cost"], removals)
        except (KeyError, TypeError) as error:
            raise PruningError(f"not a pruning history: {error}; give a file that History.save wrote") from error

    def save(self, path: Path) -> None:
        """Write JSON; a reader never sees half a file."""
        with replacing(path) as part:
            part.write_text(json.dumps(self.to_json(), indent=1))

    @staticmethod
    def load(path: Path) -> History:
        """Read what :meth:`save` wrote."""
        try:
            return History.from_json(json.loads(path.read_text()))
        except (ValueError, KeyError, TypeError) as error:
            raise PruningError(f"{path} is no history that pruning saved, or damaged: {error!r}") from error

    def replay(self, graph: ChannelGraph, optimizers: Sequence[Optimizer] = ()) -> None:
        """Remove the same maps from a fresh trace of the same architecture."""
        if len(graph.maps) != self.maps or not bool(graph.alive.all()):
            have = f"{len(graph.maps)} maps, {int(graph.alive[:-1].sum())} alive"
            raise PruningError(
                f"this history belongs to a network of {self.maps} maps, all alive; the graph has {have}"
            )
        graph.mark_removed(self.removed)
        compact(graph, optimizers)
