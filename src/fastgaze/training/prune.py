"""Fisher pruning while training: signals for some steps, maps away, snapshots on the way down.

One run gives many points of the front: whenever the cost falls below the next mark, the network as it is then is
kept, to be fine-tuned by itself.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from fastgaze.errors import ArgumentError
from fastgaze.models.checkpoint import save_checkpoint
from fastgaze.models.gaze import GazeModel
from fastgaze.models.spec import GazeSpec, VGGSpec
from fastgaze.pruning import (
    Beta,
    BetaStar,
    ChannelGraph,
    Cost,
    Fisher,
    Flops,
    NoCost,
    Objective,
    Pruner,
    Removal,
    Until,
)
from fastgaze.pruning import run as run_pruning
from fastgaze.pruning.objective import GIGA
from fastgaze.training.fit import FitSettings, device, make_optimizer, per_image_loss, train_mode
from fastgaze.training.prepare import channels_last
from fastgaze.training.stream import Source, Stream

REFERENCE = (480, 640)  # (height, width) for which costs are counted, as the paper reports them


@dataclass(frozen=True)
class PruneSettings:
    """The paper removes 1 map every 10 steps of 8 images with SGD 0.0025, momentum 0.9.

    share: of the removable maps to remove a round instead of ``maps``; 0 for none.
    objective: ``beta*``, ``beta`` (with the value of ``beta``, nats per unit of the marks), or ``none``.
    cost: ``flops`` (marks in GFLOP at 640x480) or ``latency`` of the shipping engine (marks in milliseconds).
    frozen_cost: costs of the unpruned network throughout, as Molchanov et al.; for FLOPs only.
    marks: costs at which a snapshot is kept, the first network at or below each; the run ends at the lowest.
    remove: maps to remove in all, the paper's other way to end a run; 0 for no such limit.
    """

    marks: tuple[float, ...] = ()
    remove: int = 0
    steps: int = 10
    maps: int = 1
    share: float = 0.0
    objective: Literal["beta*", "beta", "none"] = "beta*"
    beta: float = 0.0
    cost: Literal["flops", "latency"] = "flops"
    frozen_cost: bool = False
    optimizer: Literal["adam", "sgd"] = "sgd"
    learning_rate: float = 0.0025
    batch: int = 8
    seed: int = 0

    def __post_init__(self) -> None:
        if self.frozen_cost and self.cost == "latency":
            raise ArgumentError(_NO_FROZEN_COST)

    def make_objective(self, unit: float = GIGA) -> Objective:
        """The ranking that the settings ask for; ``unit`` of the marks, in the cost's own."""
        made: dict[str, Objective] = {"beta*": BetaStar(), "beta": Beta(self.beta, unit), "none": NoCost()}
        if self.objective not in made:
            raise ArgumentError(f"objective {self.objective!r} is none of {', '.join(made)}")
        return made[self.objective]


_NO_FROZEN_COST = "frozen_cost is for cost = 'flops'; a measured latency follows the network: leave one of them out"


def trace(model: GazeModel) -> ChannelGraph:
    """The maps of a gaze network, wherever it is, and who reads them."""
    place = next(model.parameters()).device
    return ChannelGraph.trace(model.network, torch.zeros(1, 3, 64, 96, device=place))


def prune_while_training(
    model: GazeModel,
    sources: Sequence[Source],
    settings: PruneSettings,
    folder: Path,
    record: dict[str, Any],
    cost: Cost | None = None,
    report: Callable[[Removal], None] | None = None,
) -> list[Path]:
    """Prune ``model`` in place down to the lowest mark; returns the snapshots, largest first.

    ``folder/last.safetensors`` is the network at the end. Killed at any point and started again with the same fresh
    model, the run goes on after its last round.
    cost: what removing a map saves, and the unit of marks; unless told, FLOPs at 640x480, and marks are GFLOP.
    """
    if cost is not None and settings.frozen_cost:
        raise ArgumentError(_NO_FROZEN_COST)
    unit = GIGA if cost is None else 1.0
    channels_last(model.to(device()))
    optimizer = make_optimizer(model, FitSettings(optimizer=settings.optimizer, learning_rate=settings.learning_rate))
    pruner = Pruner(
        trace(model),
        signal=Fisher(),
        cost=cost or Flops(REFERENCE, update=not settings.frozen_cost),
        objective=settings.make_objective(unit),
        optimizer=optimizer,
    )
    stream = Stream(sources, settings.batch, settings.seed, flips=True)

    def step(k: int) -> float:
        train_mode(model)
        optimizer.zero_grad(set_to_none=True)
        with pruner.observe():
            loss = per_image_loss(model, stream.batch(k)).mean()
            loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        return float(loss.detach())

    def after_round(removal: Removal) -> None:
        for path, mark in zip(paths, marks, strict=True):
            if removal.cost <= mark * unit and not path.exists():
                facts = {"mark": mark, "cost": removal.cost / unit, "step": removal.step, "settings": asdict(settings)}
                save_checkpoint(model, path, record | {"prune": facts})
        if report:
            report(removal)

    marks = sorted(settings.marks, reverse=True)
    paths = [folder / f"{mark:g}.safetensors" for mark in marks]
    history = run_pruning(
        pruner,
        step,
        Until(
            cost=marks[-1] * unit if marks else None,
            maps_left=pruner.maps_left - settings.remove if settings.remove else None,
        ),
        steps=settings.steps,
        per_round=settings.maps,
        share=settings.share or None,
        model=model,
        checkpoint=folder / "state.safetensors",
        every=5,
        on_round=after_round,
    )
    history.save(folder / "history.json")
    save_checkpoint(model, folder / "last.safetensors", record | {"prune": {"settings": asdict(settings)}})
    return [path for path in paths if path.exists()]


def narrow_to(model: GazeModel, spec: GazeSpec, sources: Sequence[Source], steps: int = 32, batch: int = 8) -> None:
    """Bring every layer to the width it has in ``spec``, the maps that cost least loss going first; nothing is trained.

    For widths that fit an engine's blocks: pruning finds about how wide a layer must be, this makes it exact.
    """
    channels_last(model.to(device()))
    pruner = Pruner(trace(model), signal=Fisher(), objective=NoCost())
    stream = Stream(sources, batch, seed=0, flips=True)
    for step in range(steps):
        train_mode(model)
        with pruner.observe():
            per_image_loss(model, stream.batch(step)).mean().backward()  # type: ignore[no-untyped-call]
    model.zero_grad(set_to_none=True)
    assert isinstance(spec.trunk, VGGSpec)
    convs = {f"trunk.conv{b}_{c}": w for b, ws in enumerate(spec.trunk.blocks, 1) for c, w in enumerate(ws, 1)}
    readout = {f"readout.conv{i}": w for i, w in enumerate(spec.readout[:-1], 1)}
    pruner.narrow(convs | readout)
