"""Fisher pruning while training: collect signals for some steps, remove maps, keep snapshots on the way down.

One run gives many points of the front: whenever the cost falls below the next mark, the network as it is then is
kept, to be fine-tuned by itself.
"""

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import asdict, replace
from itertools import islice
from math import prod
from pathlib import Path
from typing import Literal

import torch

from fastgaze.core.errors import ArgumentError
from fastgaze.core.jsonable import Json
from fastgaze.core.progress import Progress, silent
from fastgaze.core.spec import GazeSpec, LiteSpec, LiteStage, Trunk, VGGSpec
from fastgaze.networks.checkpoint import PruningRecord, TrainingRecord, load_gaze_model, save_checkpoint
from fastgaze.networks.gaze import GazeModel
from fastgaze.onnx.layers import latency_cost
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
from fastgaze.training.config import NO_FROZEN_COST, Config, PruneSettings
from fastgaze.training.datasets import channels_last
from fastgaze.training.fit import FitSettings, device, make_optimizer, per_image_loss, train_mode, working_size
from fastgaze.training.runs import weights_digest
from fastgaze.training.soft_targets import distillation_sources
from fastgaze.training.stream import Source, Stream
from fastgaze.training.student import claim_student, next_record

REFERENCE = (480, 640)  # (height, width) for which costs are counted, as the paper reports them


def prune_student(config: Config, start: Path, out: Path, progress: Progress = silent) -> list[Path]:
    """Prune the checkpoint ``start`` while training it in the folder ``out``, by section ``[prune]``.

    Returns the snapshots, largest first.
    """
    model, earlier = load_gaze_model(start)
    workshop, mixture = config.workshop, config.student.mixture
    claim_student(workshop, weights_digest(model), mixture, out, config.prune)
    size, cost = working_size(model, workshop.size, config.prune.scale), None
    if config.prune.cost == "latency":
        cost = latency_cost(trace(model), size, out / "latency.json", progress)
    record = replace(next_record("prune", workshop, mixture, model, earlier), working_pixels=prod(size))
    sources = distillation_sources(workshop, mixture)
    return prune_while_training(model, sources, config.prune, out, record, cost, progress)


def narrow_student(config: Config, start: Path, widths: Sequence[int], readout: Sequence[int], out: Path) -> GazeSpec:
    """Bring a checkpoint to given widths, those of the trunk in the order of ``trunk_widths``; returns its spec."""
    model, earlier = load_gaze_model(start)
    wanted = with_widths(model.spec, widths, readout)
    workshop, mixture = config.workshop, config.student.mixture
    narrow_to(model, wanted, distillation_sources(workshop, mixture), precision=config.prune.precision)
    record = next_record("narrow", workshop, mixture, model, earlier)
    details: dict[str, Json] = {"widths": list(widths), "readout": list(readout)}
    save_checkpoint(model, out, replace(record, precision=config.prune.precision, details=details))
    return wanted


def trunk_widths(trunk: Trunk) -> list[int]:
    """In order: of VGG every convolution; of a mobile trunk stem, first block, and each stage's maps and expansions."""
    if isinstance(trunk, VGGSpec):
        return [width for block in trunk.blocks for width in block]
    if isinstance(trunk, LiteSpec):
        stages = (width for stage in trunk.stages for width in (stage.maps, *stage.expansions))
        return [trunk.stem, trunk.first, *stages]
    raise ArgumentError("widths layer by layer are for VGG and mobile trunks, not for a DenseNet")


def with_widths(spec: GazeSpec, widths: Sequence[int], readout: Sequence[int]) -> GazeSpec:
    """The same network with other widths: of the trunk as ``trunk_widths`` gives them, of the hidden readout layers."""
    wanted = len(trunk_widths(spec.trunk)), len(spec.readout) - 1
    if (len(widths), len(readout)) != wanted:
        raise ArgumentError(f"give {wanted[0]} widths and {wanted[1]} readout widths for this network")
    numbers = iter(widths)
    return replace(spec, trunk=_filled(spec.trunk, numbers), readout=(*readout, 1))


def _filled(trunk: Trunk, numbers: Iterator[int]) -> Trunk:
    if isinstance(trunk, VGGSpec):
        return replace(trunk, blocks=tuple(tuple(islice(numbers, len(block))) for block in trunk.blocks))
    assert isinstance(trunk, LiteSpec)
    stem, first = islice(numbers, 2)
    stages = (
        LiteStage(stage.kernel, stage.stride, next(numbers), tuple(islice(numbers, len(stage.expansions))))
        for stage in trunk.stages
    )
    return LiteSpec(stem, first, tuple(stages), trunk.padding)


def layer_widths(spec: GazeSpec) -> dict[str, int]:
    """Width of every layer that makes maps of its own, by its name in the traced network, but for the output map."""
    trunk, names = spec.trunk, dict[str, int]()
    if isinstance(trunk, VGGSpec):
        names |= {f"trunk.conv{b}_{c}": w for b, ws in enumerate(trunk.blocks, 1) for c, w in enumerate(ws, 1)}
    if isinstance(trunk, LiteSpec):
        names |= {"trunk.stem.conv": trunk.stem, "trunk.first.project.conv": trunk.first}
        for s, stage in enumerate(trunk.stages):
            names[f"trunk.stages.{s}.0.project.conv"] = stage.maps
            names |= {f"trunk.stages.{s}.{b}.expand.conv": width for b, width in enumerate(stage.expansions)}
    two_scales = isinstance(trunk, LiteSpec) and len(trunk.taps) == 2
    readout = "readout.layers" if two_scales else "readout"
    return names | {f"{readout}.conv{i}": width for i, width in enumerate(spec.readout[:-1], 1)}


def make_objective(settings: PruneSettings, unit: float = GIGA) -> Objective:
    """The ranking that the settings ask for; ``unit`` of the marks, in the cost's own."""
    made: dict[str, Objective] = {"beta*": BetaStar(), "beta": Beta(settings.beta, unit), "none": NoCost()}
    if settings.objective not in made:
        raise ArgumentError(f"objective {settings.objective!r} is not one of {', '.join(made)}")
    return made[settings.objective]


def trace(model: GazeModel) -> ChannelGraph:
    """The feature maps of a gaze network, on any device, and the layers that read them."""
    place = next(model.parameters()).device
    return ChannelGraph.trace(model.network, torch.zeros(1, 3, 64, 96, device=place))


def prune_while_training(
    model: GazeModel,
    sources: Sequence[Source],
    settings: PruneSettings,
    folder: Path,
    record: TrainingRecord,
    cost: Cost | None = None,
    progress: Progress = silent,
) -> list[Path]:
    """Prune ``model`` in place down to the lowest mark; returns the snapshots, largest first.

    ``folder/last.safetensors`` is the network at the end. Killed at any point and started again with the same fresh
    model, the run continues after its last round.
    record: of the network at the start of the run, for this stage.
    cost: what removing a map saves, and the unit of marks; unless given, FLOPs at 640x480, and marks are GFLOP.
    progress: counts the removed maps, of an unknown number in all.
    """
    if cost is not None and settings.frozen_cost:
        raise ArgumentError(NO_FROZEN_COST)
    snapshots = _Snapshots(model, settings, folder, record, in_milliseconds=cost is not None)
    channels_last(model.to(device()))
    optimizer = make_optimizer(model, FitSettings(optimizer=settings.optimizer, learning_rate=settings.learning_rate))
    pruner = Pruner(
        trace(model),
        signal=Fisher(settings.first_order),
        cost=cost or Flops(REFERENCE, update=not settings.frozen_cost),
        objective=make_objective(settings, snapshots.unit),
        optimizer=optimizer,
        round_to=settings.round_to,
    )
    stream = Stream(sources, settings.batch, settings.seed, flips=True)
    maps = pruner.maps_left

    def step(k: int) -> float:
        # The statistics of BatchNorm stay as they are in every step, as in all training here: these networks are
        # trained around them. Recalibrating the finished network, as others need it, would make it worse.
        train_mode(model)
        optimizer.zero_grad(set_to_none=True)
        last = settings.steps - (settings.observed or settings.steps)
        with pruner.observe() if k % settings.steps >= last else nullcontext():
            loss = per_image_loss(model, stream.batch(k), settings.precision, settings.scale).mean()
            loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        return float(loss.detach())

    def after_round(removal: Removal) -> None:
        snapshots.keep(removal)
        progress(maps - removal.left, None, snapshots.words(removal))

    history = run_pruning(
        pruner,
        step,
        snapshots.until(maps),
        steps=settings.steps,
        per_round=settings.maps,
        share=settings.share or None,
        model=model,
        checkpoint=folder / "state.safetensors",
        every=5,
        on_round=after_round,
    )
    history.save(folder / "history.json")
    snapshots.save("last", pruner.total_cost, history.removals[-1].step if history.removals else 0)
    return snapshots.kept


class _Snapshots:
    """The networks that a pruning run keeps on its way down, each with its record."""

    def __init__(
        self, model: GazeModel, settings: PruneSettings, folder: Path, record: TrainingRecord, in_milliseconds: bool
    ) -> None:
        self._model, self._folder, self._settings = model, folder, settings
        self._record = replace(
            record, seed=settings.seed, precision=settings.precision, details={"prune": asdict(settings)}
        )
        self._marks = {f"{mark:g}": mark for mark in sorted(settings.marks, reverse=True)}
        self._name: Literal["GFLOP", "ms"] = "ms" if in_milliseconds else "GFLOP"
        self.unit = 1.0 if in_milliseconds else GIGA  # of the marks, in that of the cost

    def until(self, maps: int) -> Until:
        """When a run ends that began with ``maps`` maps: at the lowest mark, unless the settings end it before."""
        settings = self._settings
        return Until(
            cost=min(self._marks.values()) * self.unit if self._marks else None,
            maps_left=maps - settings.remove if settings.remove else None,
            patience=settings.patience or None,
            beta=settings.beta,
            unit=self.unit,
        )

    @property
    def kept(self) -> list[Path]:
        """Files, largest network first."""
        return [path for name in self._marks if (path := self._path(name)).exists()]

    def keep(self, removal: Removal) -> None:
        """Save the network for every mark that it has reached by now."""
        for name, mark in self._marks.items():
            if removal.cost <= mark * self.unit and not self._path(name).exists():
                self.save(name, removal.cost, removal.step, mark)

    def save(self, name: str, cost: float, step: int | None, mark: float | None = None) -> None:
        """Write the network as it is now."""
        pruning = PruningRecord(self._settings.objective, self._name, cost / self.unit, mark)
        save_checkpoint(self._model, self._path(name), replace(self._record, pruning=pruning, steps=step or 0))

    def words(self, removal: Removal) -> str:
        """What is left after a round."""
        loss = "" if removal.loss is None else f", loss {removal.loss:.4f}"
        return f"{removal.left} maps left, {removal.cost / self.unit:.2f} {self._name}{loss}"

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}.safetensors"


def narrow_to(
    model: GazeModel,
    spec: GazeSpec,
    sources: Sequence[Source],
    steps: int = 32,
    batch: int = 8,
    precision: str = "bf16",
) -> None:
    """Bring every layer to the width it has in ``spec``, the maps that cost least loss going first; nothing is trained.

    For widths that fit an engine's blocks: pruning finds about how wide a layer must be, this makes it exact.
    """
    channels_last(model.to(device()))
    pruner = Pruner(trace(model), signal=Fisher(), objective=NoCost())
    stream = Stream(sources, batch, seed=0, flips=True)
    for step in range(steps):
        train_mode(model)
        with pruner.observe():
            loss = per_image_loss(model, stream.batch(step), precision).mean()
            loss.backward()  # type: ignore[no-untyped-call]
    model.zero_grad(set_to_none=True)
    pruner.narrow(layer_widths(spec))
