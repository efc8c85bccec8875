"""What was removed, in which order, and what it cost: saved as JSON, replayed on a fresh network."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from os import PathLike
from pathlib import Path

from torch.optim import Optimizer

from fastgaze.core.errors import PruningError
from fastgaze.core.files import replacing
from fastgaze.core.jsonable import Document, Json
from fastgaze.pruning.blocks import remove_block
from fastgaze.pruning.compact import compact
from fastgaze.pruning.graph import ChannelGraph


@dataclass(frozen=True)
class Removal:
    """One round.

    indices, names  the maps that went, best first
    delta_loss      the expected rise of the loss, added up over these maps; 0 for maps removed by hand
    cost, left      total cost and number of maps afterwards
    images          images that the signals were estimated from; 0 for maps removed by hand
    beta            the weight that condemned the maps, where one was computed
    step, loss      training step and loss at the time, where a loop knows them
    block           the residual block that went, with all maps inside it
    """

    indices: tuple[int, ...]
    names: tuple[str, ...]
    delta_loss: float
    cost: float
    left: int
    images: int
    beta: float | None = None
    step: int | None = None
    loss: float | None = None
    block: str | None = None


@dataclass
class History:
    """All rounds of one run.

    map_count, cost  of the network before the first round
    widths           output channels of every layer then: what tells one architecture from another
    earlier          maps that were gone before this history began
    """

    map_count: int
    cost: float
    removals: list[Removal] = field(default_factory=list)
    widths: dict[str, int] = field(default_factory=dict)
    earlier: list[int] = field(default_factory=list)

    @staticmethod
    def begin(graph: ChannelGraph, cost: float) -> History:
        """The history of a run that starts here."""
        return History(len(graph.maps), cost, [], traced_widths(graph), list(graph.removed))

    @property
    def removed(self) -> list[int]:
        """Indices of all removed maps in the order of removal."""
        return [*self.earlier, *(index for removal in self.removals for index in removal.indices)]

    def to_json(self) -> dict[str, Json]:
        """Plain values for json.dumps."""
        return asdict(self)

    @staticmethod
    def from_json(value: Document) -> History:
        """The inverse of :meth:`to_json`."""
        try:
            removals = [_removal(entry) for entry in value["removals"]]
            widths, earlier = dict(value["widths"]), list(value["earlier"])
            return History(value["map_count"], value["cost"], removals, widths, earlier)
        except (KeyError, TypeError) as error:
            raise PruningError(f"not a pruning history: {error}; give a file that History.save wrote") from error

    def save(self, path: str | PathLike[str]) -> None:
        """Write JSON; a reader never sees half a file."""
        with replacing(Path(path)) as part:
            part.write_text(json.dumps(self.to_json(), indent=1))

    @staticmethod
    def load(path: str | PathLike[str]) -> History:
        """Read what :meth:`save` wrote."""
        try:
            return History.from_json(json.loads(Path(path).read_text()))
        except (ValueError, KeyError, TypeError) as error:
            raise PruningError(f"{path} is not a history that pruning saved, or it is damaged: {error!r}") from error

    def check(self, graph: ChannelGraph) -> None:
        """Refuse a graph of another architecture, or one that was pruned already."""
        if len(graph.maps) != self.map_count or not bool(graph.alive.all()):
            have = f"{len(graph.maps)} maps, {int(graph.alive[:-1].sum())} alive"
            raise PruningError(
                f"this history belongs to a network of {self.map_count} maps, all alive; the graph has {have}"
            )
        widths = traced_widths(graph)
        for name, width in self.widths.items():
            if widths.get(name) != width:
                found = f"{widths[name]} wide" if name in widths else "not there"
                raise PruningError(
                    f"this history belongs to another network: its layer {name} is {width} wide, here it is {found}; "
                    "build the network as it was when the history began"
                )

    def replay(self, graph: ChannelGraph, optimizers: Sequence[Optimizer] = ()) -> None:
        """Remove the same maps from a fresh trace of the same architecture."""
        self.check(graph)
        self.remove_from(graph, optimizers)
        compact(graph, optimizers)

    def remove_from(self, graph: ChannelGraph, optimizers: Sequence[Optimizer] = ()) -> None:
        """Mark the same maps and take the same blocks out, in the same order."""
        graph.mark_removed(self.earlier)
        for removal in self.removals:
            if removal.block is None:
                graph.mark_removed(removal.indices)
            else:
                remove_block(graph, removal.block, optimizers)


def _removal(entry: Document) -> Removal:
    return Removal(**{**entry, "indices": tuple(entry["indices"]), "names": tuple(entry["names"])})


def traced_widths(graph: ChannelGraph) -> dict[str, int]:
    """Output channels of every layer that makes maps, before anything was removed."""
    out, _ = graph.widths(graph.alive | True)
    return {layer.name: int(n) for layer, n in zip(graph.layers, out, strict=True) if layer.makes}
