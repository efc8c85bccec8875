"""Observe, prune, go on training: the object that a training loop holds."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager

from torch import Tensor
from torch.optim import Optimizer

from fastgaze.core.errors import PruningError
from fastgaze.pruning.compact import check_states, compact
from fastgaze.pruning.cost import Cost, Flops
from fastgaze.pruning.graph import ChannelGraph
from fastgaze.pruning.history import History, Removal
from fastgaze.pruning.objective import BetaStar, Objective, Target, select, select_target
from fastgaze.pruning.probe import Masks, Reduction, Statistics, probed
from fastgaze.pruning.signals import Fisher, Signal


class Pruner:
    """Removes maps from a network while its parameters are trained, or while they are fixed.

    graph      of the network to prune; the loss may be computed by any larger model that contains it
    signal     the expected rise of the loss; Fisher unless told
    cost       FLOPs at the traced size unless told
    objective  how loss and cost are weighed; beta* unless told
    optimizer  one optimizer or several, whose parameters and states are sliced along
    keep       names of layers whose maps stay
    compacting False leaves removed maps in place behind masks until :meth:`compact` is called
    """

    def __init__(
        self,
        graph: ChannelGraph,
        *,
        signal: Signal | None = None,
        cost: Cost | None = None,
        objective: Objective | None = None,
        optimizer: Optimizer | Sequence[Optimizer] | None = None,
        keep: Collection[str] = (),
        compacting: bool = True,
    ) -> None:
        self.graph = graph
        self.signal: Signal = Fisher() if signal is None else signal
        self.cost: Cost = Flops() if cost is None else cost
        self.objective: Objective = BetaStar() if objective is None else objective
        self.optimizers = [optimizer] if isinstance(optimizer, Optimizer) else list(optimizer or ())
        self.protected = graph.maps_of(keep)
        self.statistics = Statistics(len(graph.maps))
        self.history = History(maps=len(graph.maps), cost=self.total_cost)
        self.compacting = compacting
        self._masks: Masks | None = None

    @property
    def total_cost(self) -> float:
        """Cost of the network as it is now."""
        return self.cost.total(self.graph, self.graph.alive)

    @property
    def maps_left(self) -> int:
        """Maps present, the network's outputs included."""
        return int(self.graph.alive[:-1].sum())

    @property
    def allowed(self) -> Tensor:
        """bool (maps,): present, prunable and not protected."""
        return self.graph.candidates() & ~self.protected

    @contextmanager
    def observe(self, reduction: Reduction = "mean", *, freeze_norm: bool = True) -> Iterator[None]:
        """Probes are active inside the block, which holds one forward and one backward pass of one batch.

        reduction    "mean" if the loss is the mean over the batch's images (undone here), "sum" if it is their sum
        freeze_norm  normalisation layers use running statistics in the block (batch statistics couple the images)
        """
        gradient, activity = "gradient" in self.signal.needs, "activity" in self.signal.needs
        with probed(
            self.graph,
            self.statistics,
            reduction=reduction,
            gradient=gradient,
            activity=activity,
            freeze_norm=freeze_norm,
        ):
            yield

    def delta_loss(self) -> Tensor:
        """float64 (maps,): the signal of every map; entries of removed maps mean nothing."""
        return self.signal(self.graph, self.statistics)

    def scores(self) -> Tensor:
        """float64 (maps,): what the objective ranks by, lowest first."""
        return self.objective(self.delta_loss(), self.cost.delta_cost(self.graph, self.graph.alive))

    def prune(self, count: int = 1, *, share: float | None = None, to_cost: float | None = None) -> Removal:
        """Remove the ``count`` best maps, or this ``share`` of the removable ones (at least one); forget the signals.

        to_cost  stop the round as soon as the total cost is at or below this
        """
        if share is not None:
            count = max(1, round(share * int(self.allowed.sum())))
        if count < 1:
            raise PruningError(f"cannot remove {count} maps; give a count of 1 or more")
        delta_loss = self.delta_loss()
        goal = float("-inf") if to_cost is None else to_cost
        chosen = select(
            self.graph,
            delta_loss,
            self.cost,
            self.objective,
            count,
            self.allowed,
            done=lambda alive: to_cost is not None and self.cost.total(self.graph, alive) <= goal,
        )
        if not chosen and self.total_cost > goal:
            raise PruningError("no map can be removed: every layer that is left is protected or has one map")
        return self._remove(chosen, delta_loss)

    def prune_to(self, target: Target) -> Removal:
        """Remove at once all maps that the smallest sufficient beta condemns (see :class:`Target`)."""
        delta_loss = self.delta_loss()
        chosen, beta = select_target(self.graph, delta_loss, self.cost, target, self.allowed)
        return self._remove(chosen, delta_loss, beta)

    def align(self, step: int = 16) -> Removal:
        """Remove each layer's lowest-scored maps down to the next multiple of ``step``; narrower layers stay.

        Engines compute channels in blocks, so that widths between two multiples cost as much as the upper one.
        """
        if step < 1:
            raise PruningError(f"cannot align widths to multiples of {step}; give 1 or more, such as 16")
        widths = {layer.name: int(self.graph.alive[layer.outputs].sum()) for layer in self.graph.readers}
        return self._narrow({name: width - width % step for name, width in widths.items() if width > step})

    def narrow(self, widths: Mapping[str, int]) -> Removal:
        """Remove the lowest-scored maps of each named layer down to its given width."""
        return self._narrow(widths, exactly=True)

    def _narrow(self, widths: Mapping[str, int], exactly: bool = False) -> Removal:
        delta_loss = self.delta_loss()
        order = [int(k) for k in self.scores().argsort(stable=True)]
        alive, chosen = self.graph.alive.clone(), list[int]()
        for name, goal in widths.items():
            outputs = self.graph.layer(name).outputs
            have = int(self.graph.alive[outputs].sum())
            if not 1 <= goal <= have:
                raise PruningError(f"{name} has {have} maps and cannot be narrowed to {goal}; give 1 to {have}")
            own = set(outputs.tolist())
            for index in [k for k in order if k in own and self.allowed[k] and alive[k]]:
                if int(alive[outputs].sum()) > goal:
                    alive[index] = False
                    chosen.append(index)
        for name, goal in widths.items() if exactly else ():
            left = int(alive[self.graph.layer(name).outputs].sum())
            if left != goal:
                raise PruningError(
                    f"{name} cannot be narrowed to {goal}, only to {left}: the other maps are outputs, protected, or "
                    "leave together with maps of other layers"
                )
        return self._remove(chosen, delta_loss)

    def remove(self, indices: Sequence[int]) -> None:
        """Remove these maps; signals are forgotten, nothing is ranked and nothing is recorded."""
        if self.compacting:
            check_states(self.graph, self.optimizers)  # a refusal must leave the network whole
        self.graph.mark_removed(indices)
        if self.compacting:
            self.compact()
        elif self._masks is None:
            self._masks = Masks(self.graph)
        self.statistics.clear()

    def compact(self) -> None:
        """Slice masked maps away and take the masks out."""
        compact(self.graph, self.optimizers)
        if self._masks is not None:
            self._masks.remove()
            self._masks = None

    def _remove(self, chosen: list[int], delta_loss: Tensor, beta: float | None = None) -> Removal:
        images = self.statistics.images
        self.remove(chosen)
        removal = Removal(
            maps=tuple(chosen),
            names=tuple(str(self.graph.maps[k]) for k in chosen),
            delta_loss=float(delta_loss[chosen].sum()),
            cost=self.total_cost,
            left=self.maps_left,
            images=images,
            beta=beta,
        )
        self.history.removals.append(removal)
        return removal
