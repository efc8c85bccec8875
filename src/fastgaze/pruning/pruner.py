"""Observe, prune, go on training: the object that a training loop holds."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace

import torch
from torch import Tensor
from torch.optim import Optimizer

from fastgaze.core.errors import PruningError
from fastgaze.pruning.blocks import BlockSignals, remove_block
from fastgaze.pruning.compact import check_states, compact
from fastgaze.pruning.cost import Cost, Counted, Flops
from fastgaze.pruning.graph import ChannelGraph, Choice
from fastgaze.pruning.history import History, Removal
from fastgaze.pruning.objective import BetaStar, Objective, Target
from fastgaze.pruning.probe import Masks, Reduction, Scaler, Statistics, nothing_prunable, probed
from fastgaze.pruning.selection import narrowed_to, rounded_down, select, select_target
from fastgaze.pruning.signals import Fisher, Signal


class Pruner:
    """Removes maps from a network while its parameters are trained, or while they are fixed.

    graph      of the network to prune; the loss may be computed by any larger model that contains it
    signal     the expected rise of the loss; Fisher unless told
    cost       FLOPs at the traced size unless told
    objective  how loss and cost are weighed; beta* unless told
    optimizer  one optimizer or several, whose parameters and states are sliced along
    keep       layers whose maps stay: names, prefixes ("stem"), patterns ("*.conv2"), classes of modules, predicates
    limits     the least width of layers, chosen like ``keep``: channels if whole, a share of the traced width if not
    round_to   widths of layers end on multiples of this after every removal
    compacting False leaves removed maps in place behind masks until :meth:`compact` is called
    blocks     True lets whole residual blocks go too, one per round, where one pays better than any map

    With torch.distributed, signals are added up over all processes, so that each removes the same maps:
    ``prune`` must then be called by all of them.
    """

    def __init__(
        self,
        graph: ChannelGraph,
        *,
        signal: Signal | None = None,
        cost: Cost | None = None,
        objective: Objective | None = None,
        optimizer: Optimizer | Sequence[Optimizer] | None = None,
        keep: Choice | Collection[Choice] = (),
        limits: Mapping[Choice, int | float] | None = None,
        round_to: int = 1,
        compacting: bool = True,
        blocks: bool = False,
    ) -> None:
        self.graph = graph
        self.signal: Signal = Fisher() if signal is None else signal
        self.cost: Cost = Flops() if cost is None else cost
        self.objective: Objective = BetaStar() if objective is None else objective
        self.optimizers = [optimizer] if isinstance(optimizer, Optimizer) else list(optimizer or ())
        self.protected = graph.maps_of(keep)
        self.round_to = round_to
        self.statistics = Statistics(len(graph.maps))
        self.history = History.begin(graph, self.total_cost)
        self.compacting = compacting
        self.block_signals = BlockSignals() if blocks else None
        self._masks: Masks | None = None
        self._check(limits or {})

    def _check(self, limits: Mapping[Choice, int | float]) -> None:
        if self.graph.wrapped and self.compacting:
            raise PruningError(
                "DistributedDataParallel holds the parameters that pruning would replace; give compacting=False and "
                "compact at the end, or prune the network inside and wrap it again after each removal"
            )
        if self.round_to < 1:
            raise PruningError(f"cannot round widths to multiples of {self.round_to}; give 1 or more, such as 8")
        trained = {id(p) for p in self.graph.root.parameters() if p.requires_grad}
        held = {id(p) for optimizer in self.optimizers for group in optimizer.param_groups for p in group["params"]}
        if self.optimizers and trained and not trained & held:
            raise PruningError("the optimizer holds no parameter of this network; give the one that trains it")
        for choice, limit in limits.items():
            if limit <= 0 or (isinstance(limit, float) and limit > 1):
                raise PruningError(f"limit {limit} for {choice} is not valid; give channels (8) or a share (0.25)")
            for layer in self.graph.select(choice):
                width = len(layer.outputs)
                least = limit if isinstance(limit, int) else -int(-limit * width // 1)
                self.graph.floors[layer.name] = min(width, max(least, self.graph.floors.get(layer.name, 1)))

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

    def part(self, share: float) -> float:
        """This share of the cost at the start: ``part(0.5)`` is half the FLOPs."""
        if not 0 < share <= 1:
            raise PruningError(f"{share} is not a share of the cost; give a number between 0 and 1, such as 0.5")
        return share * self.history.cost

    @contextmanager
    def observe(
        self, reduction: Reduction = "mean", *, freeze_norm: bool = True, loss_scale: float | Scaler = 1.0
    ) -> Iterator[None]:
        """Probes are active inside the block, which holds one forward and one backward pass of one batch.

        reduction    "mean" if the loss is the mean over the batch's images (undone here), "sum" if it is their sum
        freeze_norm  normalisation layers use running statistics in the block (batch statistics couple the images)
        loss_scale   what the loss is multiplied by, or the GradScaler that does it (undone here)
        """
        gradient, activity = "gradient" in self.signal.needs, "activity" in self.signal.needs
        scale = float(loss_scale) if isinstance(loss_scale, int | float) else float(loss_scale.get_scale())
        signals = self.block_signals
        with (
            nullcontext() if signals is None else signals.observed(self.graph, reduction, scale),
            probed(
                self.graph,
                self.statistics,
                reduction=reduction,
                gradient=gradient,
                activity=activity,
                freeze_norm=freeze_norm,
                loss_scale=scale,
            ),
        ):
            yield

    def delta_loss(self) -> Tensor:
        """float64 (maps,): the signal of every map; entries of removed maps mean nothing."""
        return self.signal(self.graph, self.statistics.over_ranks())

    def scores(self) -> Tensor:
        """float64 (maps,): what the objective ranks by, lowest first."""
        return self.objective(self.delta_loss(), self.cost.delta_cost(self.graph, self.graph.alive))

    def prune(
        self,
        count: int = 1,
        *,
        share: float | None = None,
        to_cost: float | None = None,
        to_share: float | None = None,
    ) -> Removal:
        """Remove the ``count`` best maps, or this ``share`` of the removable ones (at least one); forget the signals.

        to_cost   stop the round as soon as the total cost is at or below this
        to_share  the same as a share of the cost at the start
        """
        if share is not None:
            count = max(1, round(share * int(self.allowed.sum())))
        if count < 1:
            raise PruningError(f"cannot remove {count} maps; give a count of 1 or more")
        if to_share is not None:
            to_cost = self.part(to_share)
        delta_loss = self.delta_loss()
        goal = float("-inf") if to_cost is None else to_cost
        if self.total_cost > goal and (block := self._worst_block(delta_loss)) is not None:
            return self.remove_block(block)
        chosen = select(
            self.graph,
            delta_loss,
            self.cost,
            self.objective,
            count,
            self.allowed,
            done=lambda alive: to_cost is not None and self.cost.total(self.graph, alive) <= goal,
            step=self.round_to,
        )
        if not chosen and self.total_cost > goal:
            if not bool(self.graph.prunable.any()):
                raise PruningError(nothing_prunable(self.graph))
            raise PruningError("no map can be removed: every layer that is left is protected or at its least width")
        return self._remove(chosen, delta_loss)

    def prune_to(self, target: Target) -> Removal:
        """Remove at once all maps that the smallest sufficient beta condemns (see :class:`Target`)."""
        delta_loss = self.delta_loss()
        if target.share is not None:
            target = Target(cost=self.part(target.share))
        chosen, beta = select_target(self.graph, delta_loss, self.cost, target, self.allowed)
        return self._remove(chosen, delta_loss, beta)

    def align(self, step: int = 16) -> Removal:
        """Remove each layer's lowest-scored maps down to the next multiple of ``step``; narrower layers stay.

        Engines compute channels in blocks, so that widths between two multiples cost as much as the upper one.
        A layer stays as it is if its maps, which may leave in bunches, cannot end on a multiple.
        """
        if step < 1:
            raise PruningError(f"cannot align widths to multiples of {step}; give 1 or more, such as 16")
        return self._remove(rounded_down(self.graph, self.scores(), self.allowed, step), self.delta_loss())

    def narrow(self, widths: Mapping[str, int]) -> Removal:
        """Remove the lowest-scored maps of each named layer down to its given width."""
        return self._remove(narrowed_to(self.graph, self.scores(), self.allowed, widths), self.delta_loss())

    def remove(self, indices: Sequence[int]) -> Removal:
        """Remove these maps, which nothing ranked; signals are forgotten, and the history records it."""
        return self._remove(list(indices), torch.zeros(len(self.graph.maps), dtype=torch.float64), images=0)

    def block_scores(self) -> dict[str, float]:
        """What the objective ranks observed residual blocks by, on the scale of :meth:`scores`."""
        found: dict[str, float] = {}
        if self.block_signals is None:
            return found
        for block in self.graph.blocks:
            loss = self.block_signals.delta_loss(block)
            if loss is not None:
                saved = self._cost_without(block) - self.total_cost
                found[block] = float(self.objective(torch.tensor([loss]).double(), torch.tensor([saved]).double()))
        return found

    def _cost_without(self, block: str) -> float:
        """The cost with an identity in the place of a block."""
        if not isinstance(self.cost, Counted):
            return self.cost.total(self.graph, self.graph.without_block(block))
        inside = {layer.name for layer in self.graph.block_layers(block)}
        prices = self.cost.by_layer(self.graph).tolist()
        return sum(
            int(price) for layer, price in zip(self.graph.layers, prices, strict=True) if layer.name not in inside
        )

    def _worst_block(self, delta_loss: Tensor) -> str | None:
        """The block that pays better than every map, if there is one."""
        scores = self.block_scores()
        if not scores:
            return None
        block = min(scores, key=lambda name: scores[name])
        maps = self.objective(delta_loss, self.cost.delta_cost(self.graph, self.graph.alive))[self.allowed]
        return block if not len(maps) or scores[block] < float(maps.min()) else None

    def remove_block(self, block: str) -> Removal:
        """Put an identity in the place of a residual block; signals are forgotten, and the history records it."""
        loss = None if self.block_signals is None else self.block_signals.delta_loss(block)
        images = self.statistics.images
        self._record_others()
        indices = remove_block(self.graph, block, self.optimizers)
        self._forget()
        removal = replace(self._removal(indices, loss or 0.0, images), block=block)
        self.history.removals.append(removal)
        return removal

    def _forget(self) -> None:
        self.statistics.clear()
        if self.block_signals is not None:
            self.block_signals.clear()

    def compact(self) -> None:
        """Slice masked maps away and take the masks out."""
        compact(self.graph, self.optimizers)
        if self._masks is not None:
            self._masks.remove()
            self._masks = None

    def resume(self, history: History) -> None:
        """Bring a fresh network to where ``history`` ends, and go on from there."""
        history.check(self.graph)
        history.remove_from(self.graph, self.optimizers)
        self._take_away(())
        self.history = history

    def _take_away(self, indices: Sequence[int]) -> None:
        if self.compacting:
            check_states(self.graph, self.optimizers)  # a refusal must leave the network whole
        self.graph.mark_removed(indices)
        if self.compacting:
            self.compact()
        elif self._masks is None:
            self._masks = Masks(self.graph)
        self._forget()

    def _remove(
        self, chosen: list[int], delta_loss: Tensor, beta: float | None = None, images: int | None = None
    ) -> Removal:
        images = self.statistics.over_ranks().images if images is None else images
        self._record_others()
        chosen = _agreed(chosen)
        self._take_away(chosen)
        removal = self._removal(chosen, float(delta_loss[chosen].sum()), images, beta)
        self.history.removals.append(removal)
        return removal

    def _removal(self, chosen: Sequence[int], delta_loss: float, images: int, beta: float | None = None) -> Removal:
        return Removal(
            indices=tuple(chosen),
            names=tuple(str(self.graph.maps[k]) for k in chosen),
            delta_loss=delta_loss,
            cost=self.total_cost,
            left=self.maps_left,
            images=images,
            beta=beta,
        )

    def _record_others(self) -> None:
        """Maps that left by other hands (a second pruner on the same graph) belong to the history too."""
        known = set(self.history.removed)
        if others := [index for index in self.graph.removed if index not in known]:
            self.history.removals.append(self._removal(others, 0.0, 0))


def _agreed(chosen: list[int]) -> list[int]:
    """What the first process of torch.distributed chose."""
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return chosen
    shared = [chosen]
    torch.distributed.broadcast_object_list(shared, src=0)
    return shared[0]
