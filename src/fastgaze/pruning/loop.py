"""The loop: gather signals for some steps, remove maps, repeat; a killed run continues where it stopped."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from fastgaze.core.errors import PruningError, require
from fastgaze.core.files import replacing
from fastgaze.core.jsonable import Document
from fastgaze.pruning.history import History, Removal
from fastgaze.pruning.objective import GIGA
from fastgaze.pruning.pruner import Pruner

FORMAT = "fastgaze-pruning-1"


@dataclass(frozen=True)
class Until:
    """When to stop; the first limit that is reached ends the run.

    maps_left  maps left, the network's outputs included
    cost       total cost, in the cost's own unit
    share      the same as a share of the cost at the start: 0.5 for half the FLOPs
    loss       budget: stop when the mean loss over the steps of a round is above it
    patience   early stopping: stop when the combined cost L + beta C has not fallen below its lowest value in this many
               rounds, with the mean loss L over the steps of a round and the cost C of the network in these steps
    beta, unit of the combined cost, as in :class:`~fastgaze.pruning.Beta`; how maps are ranked does not matter
    """

    maps_left: int | None = None
    cost: float | None = None
    loss: float | None = None
    share: float | None = None
    patience: int | None = None
    beta: float = 0.0
    unit: float = GIGA

    def __post_init__(self) -> None:
        if all(limit is None for limit in (self.maps_left, self.cost, self.loss, self.share, self.patience)):
            raise PruningError("Until() has no limit; give maps_left, cost, share, loss or patience")
        if self.patience is not None and (self.patience < 1 or self.beta <= 0):
            given = f"Until(patience={self.patience}, beta={self.beta})"
            raise PruningError(f"{given} cannot stop on L + beta C; give a patience of 1 or more and a beta above 0")

    def goal(self, pruner: Pruner) -> float | None:
        """The cost to reach, if there is one."""
        limits = [
            limit for limit in (self.cost, None if self.share is None else pruner.part(self.share)) if limit is not None
        ]
        return max(limits, default=None)

    def reached(self, pruner: Pruner) -> bool:
        """Whether the network is small enough, or early stopping ends the run."""
        few = self.maps_left is not None and pruner.maps_left <= self.maps_left
        goal = self.goal(pruner)
        return few or (goal is not None and pruner.total_cost <= goal) or self._patience_lost(pruner.history)

    def _patience_lost(self, history: History) -> bool:
        """Whether the combined cost had its lowest value ``patience`` rounds ago."""
        if self.patience is None:
            return False
        costs = [history.cost, *(removal.cost for removal in history.removals)]
        combined = [
            removal.loss + self.beta * cost / self.unit
            for removal, cost in zip(history.removals, costs, strict=False)  # each with the cost before it
            if removal.loss is not None
        ]
        return bool(combined) and len(combined) - 1 - combined.index(min(combined)) >= self.patience

    def spent(self, loss: float) -> bool:
        """Whether the loss budget is used up."""
        return self.loss is not None and loss > self.loss


def run(
    pruner: Pruner,
    step: Callable[[int], float],
    until: Until,
    *,
    steps: int = 10,
    per_round: int = 1,
    share: float | None = None,
    model: nn.Module | None = None,
    checkpoint: str | PathLike[str] | None = None,
    every: int = 1,
    on_round: Callable[[Removal], None] | None = None,
) -> History:
    """Prune until a limit is reached; 10 steps and one map per round are the paper's numbers.

    step        does training step k = 0, 1, 2, ... and returns the loss; whether it updates parameters is its own
                affair. At least one step of a round runs inside ``pruner.observe()``. For the same k and random
                state it must do the same.
    per_round   maps to remove in a round; or ``share`` of the removable ones
    model       what the checkpoint holds; the pruned network alone unless told
    checkpoint  file to resume from and to write after each ``every`` rounds. To resume, give a fresh network, as at
                the start of the first run: the result is the one of a run without interruption.
    """
    model = pruner.graph.root if model is None else model
    path = None if checkpoint is None else Path(checkpoint)
    if path is not None and path.exists():
        load_run(path, pruner, model)
    while not until.reached(pruner):
        first = (pruner.history.removals[-1].step or 0) if pruner.history.removals else 0
        loss = sum(step(k) for k in range(first, first + steps)) / steps
        if until.spent(loss):
            # Not saved: the checkpoint stays between two rounds, and started again the run ends here again.
            return pruner.history
        removal = pruner.prune(_count(pruner, per_round, share, until), to_cost=until.goal(pruner))
        pruner.history.removals[-1] = removal = replace(removal, step=first + steps, loss=loss)
        if on_round is not None:
            on_round(removal)
        if path is not None and len(pruner.history.removals) % every == 0:
            save_run(path, pruner, model)
    if path is not None:
        save_run(path, pruner, model)
    return pruner.history


def _count(pruner: Pruner, per_round: int, share: float | None, until: Until) -> int:
    """Maps of this round, not more than ``until`` wants gone."""
    if share is not None:
        per_round = max(1, round(share * int(pruner.allowed.sum())))
    return per_round if until.maps_left is None else min(per_round, pruner.maps_left - until.maps_left)


def save_run(path: str | PathLike[str], pruner: Pruner, model: nn.Module) -> None:
    """Weights, optimizer states, random state and history in one safetensors file, between two rounds."""
    tensors = {f"model/{name}": value.detach().clone() for name, value in model.state_dict().items()}
    tensors["random"] = torch.get_rng_state()
    plain = []
    for number, optimizer in enumerate(pruner.optimizers):
        more, values = _split_state(optimizer, f"optimizer{number}")
        tensors.update(more)
        plain.append(values)
    metadata = {"format": FORMAT, "history": json.dumps(pruner.history.to_json()), "optimizers": json.dumps(plain)}
    content = {name: value.contiguous() for name, value in tensors.items()}
    with replacing(Path(path)) as part:
        require("safetensors.torch", "prune").save_file(content, part, metadata)


def load_run(path: str | PathLike[str], pruner: Pruner, model: nn.Module) -> None:
    """Bring a fresh network, its optimizers and ``pruner`` to where :func:`save_run` left them."""
    safetensors = require("safetensors", "prune")
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors: dict[str, Tensor] = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no dict)
    except (safetensors.SafetensorError, OSError) as error:
        raise PruningError(f"{path}: not a readable pruning checkpoint ({error}); delete it to start again") from error
    if metadata.get("format") != FORMAT:
        raise PruningError(f"{path}: not a pruning checkpoint ({FORMAT}); give the file of an earlier run")
    history = History.from_json(json.loads(metadata["history"]))
    pruner.resume(history)
    pruner.statistics.clear()
    model.load_state_dict({name.removeprefix("model/"): t for name, t in tensors.items() if name.startswith("model/")})
    for number, (optimizer, plain) in enumerate(
        zip(pruner.optimizers, json.loads(metadata["optimizers"]), strict=True)
    ):
        optimizer.load_state_dict(_join_state(plain, tensors, f"optimizer{number}"))
    torch.set_rng_state(tensors["random"])


def _split_state(optimizer: Optimizer, prefix: str) -> tuple[dict[str, Tensor], Document]:
    """Tensors by name, and everything else as plain values; a learning rate may be either."""
    whole = optimizer.state_dict()
    found: dict[str, Tensor] = {}

    def split(entries: Document, place: str) -> Document:
        for key, value in entries.items():
            if isinstance(value, Tensor):
                found[f"{place}/{key}"] = value.detach().clone()
        return {key: value for key, value in entries.items() if not isinstance(value, Tensor)}

    state = {str(index): split(entries, f"{prefix}/{index}") for index, entries in whole["state"].items()}
    groups = [split(group, f"{prefix}/group{number}") for number, group in enumerate(whole["param_groups"])]
    return found, {"state": state, "param_groups": groups}


def _join_state(plain: Document, tensors: dict[str, Tensor], prefix: str) -> Document:
    state: dict[int, Document] = {int(index): dict(entries) for index, entries in plain["state"].items()}
    groups = [dict(group) for group in plain["param_groups"]]
    for name, value in tensors.items():
        if name.startswith(f"{prefix}/"):
            _, index, key = name.split("/")
            place = groups[int(index.removeprefix("group"))] if index.startswith("group") else state[int(index)]
            place[key] = value
    return {"state": state, "param_groups": groups}
