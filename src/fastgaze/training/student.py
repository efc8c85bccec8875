"""Students: 0.9 cross-entropy with the teacher's soft targets, 0.1 with the fixations of the eye-tracking sets.

The large set brings many images, so that the trunk can be trained too. Its own fixations may be mixed into the soft
targets: they contain what the teacher missed, and the teacher fills in what a few hundred points left to chance.
A student that has become better than its teacher can teach smaller ones, with it or in its place.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from math import prod
from pathlib import Path

import torch
from torch import Tensor, nn

from fastgaze.core.errors import ArgumentError
from fastgaze.core.jsonable import Json
from fastgaze.core.progress import Progress, silent
from fastgaze.core.spec import VGGSpec, spec_on
from fastgaze.networks.backbones import load_backbone
from fastgaze.networks.checkpoint import BackboneRecord, Stage, TrainingRecord, load_gaze_model, save_checkpoint
from fastgaze.networks.factory import create_model
from fastgaze.networks.gaze import GazeModel
from fastgaze.training.config import Config, Mixture, PruneSettings
from fastgaze.training.datasets import Workshop
from fastgaze.training.fit import Fit, FitResult, FitSettings, working_size
from fastgaze.training.runs import Facts, claim, weights_digest, write_json
from fastgaze.training.soft_targets import distillation_sources, trained_sets
from fastgaze.training.stream import Source, fixation_source

_ANY_WORKSHOP = Workshop(Path(), Path())  # for the defaults of its settings


def distill_student(config: Config, out: Path, grow: Path | None = None, progress: Progress = silent) -> FitResult:
    """Train an unpruned student from its backbone in the folder ``out``, by section ``[student]``.

    grow: a pruned checkpoint; the student starts with what it has learned.
    """
    settings, workshop = config.student, config.workshop
    model, backbone = new_student(workshop, settings.architecture, settings.backbone)
    record = replace(next_record("distill", workshop, settings.mixture, model), backbone=backbone)
    start: list[Json] = [settings.architecture, settings.backbone]
    if grow is not None:
        small, earlier = load_gaze_model(grow)
        start.append(weights_digest(small))
        grow_into(small, model)
        record = replace(record, start=earlier)
    return _fit(StudentRun(record, start, settings.mixture, settings.fit), workshop, model, out, progress)


def tune_student(config: Config, start: Path, out: Path, progress: Progress = silent) -> FitResult:
    """Fine-tune the checkpoint ``start``, pruned or not, in the folder ``out``, by section ``[tune]``."""
    model, earlier = load_gaze_model(start)
    record = next_record("tune", config.workshop, config.tune.mixture, model, earlier)
    run = StudentRun(record, weights_digest(model), config.tune.mixture, config.tune.fit)
    return _fit(run, config.workshop, model, out, progress)


def new_student(workshop: Workshop, architecture: str, backbone: str | Path) -> tuple[GazeModel, BackboneRecord]:
    """An unpruned student on a pretrained trunk, and where its weights came from."""
    torch.manual_seed(0)
    model = create_model(architecture, spec_on(architecture, backbone))
    assert isinstance(model, GazeModel)
    weights = load_backbone(model.trunk, backbone, workshop.sample())
    model.tail.center_bias.copy_(torch.from_numpy(workshop.large.center_bias))
    return model, weights


def next_record(
    stage: Stage, workshop: Workshop, mixture: Mixture, model: GazeModel, start: TrainingRecord | None = None
) -> TrainingRecord:
    """The record of a stage that begins with ``model``, whose own record is ``start``; images are seen unscaled."""
    return TrainingRecord(
        stage,
        model.spec.architecture,
        prod(working_size(model, workshop.size, 1.0)),
        trained_sets(workshop, mixture),
        teachers=mixture.teachers if mixture.taught else (),
        start=start,
        backbone=None if start is None else start.backbone,
        pruning=None if start is None else start.pruning,
    )


@dataclass(frozen=True)
class StudentRun:
    """What a student's run is made from.

    record: of the network at the start of the run.
    start: what distinguishes this start from others.
    """

    record: TrainingRecord
    start: Json
    mixture: Mixture
    fit: FitSettings


def _fit(run: StudentRun, workshop: Workshop, model: GazeModel, out: Path, progress: Progress) -> FitResult:
    """Train a student in place; ``out/best.safetensors`` always holds the best checkpoint so far."""
    claim_student(workshop, run.start, run.mixture, out)
    record = replace(
        run.record,
        working_pixels=prod(working_size(model, workshop.size, run.fit.scale)),
        precision=run.fit.precision,
        seed=run.fit.seed,
        details={"mixture": asdict(run.mixture), "fit": asdict(run.fit)},
    )
    sources = distillation_sources(workshop, run.mixture)
    validation = [fixation_source(workshop.validation_set)]
    result = fit_network(model, sources, validation, run.fit, out, record, progress, watched_sources(workshop))
    write_json(out / "result.json", asdict(result))
    return result


def watched_sources(workshop: Workshop) -> dict[str, list[Source]]:
    """What is kept out of the eye-tracking sets, by their names, where it has fixations."""
    found = {name: [fixation_source(part) for part in parts] for name, parts in workshop.kept_out().items()}
    seen = {name: [source for source in sources if len(source)] for name, sources in found.items()}
    return {name: sources for name, sources in seen.items() if sources}


def fit_network(
    model: GazeModel,
    sources: Sequence[Source],
    validation: Sequence[Source],
    settings: FitSettings,
    folder: Path,
    record: TrainingRecord,
    progress: Progress = silent,
    watched: Mapping[str, Sequence[Source]] | None = None,
) -> FitResult:
    """Train a network in place; ``folder/best.safetensors`` always holds the best checkpoint so far."""

    def save_best(result: FitResult) -> None:
        best = replace(record, steps=result.best_step, loss=result.best_loss)
        save_checkpoint(model, folder / "best.safetensors", best)

    return Fit(model, sources, validation, settings, folder, save_best, watched).run(progress)


def claim_student(
    workshop: Workshop, start: Json, mixture: Mixture, out: Path, prune: PruneSettings | None = None
) -> None:
    """Refuse ``out`` if it holds a run from another start, on other data or with other settings."""
    facts: dict[str, Json] = {
        "run": {"start": start},
        "workshop": workshop_facts(workshop),
        "mixture": asdict(mixture),
    }
    defaults: Facts = {
        "workshop": workshop_facts(_ANY_WORKSHOP),
        "mixture": asdict(Mixture()),
        "prune": asdict(PruneSettings()),
    }
    claim(out, facts | ({"prune": asdict(prune)} if prune else {}), defaults)


def workshop_facts(workshop: Workshop = _ANY_WORKSHOP) -> dict[str, Json]:
    """The data of a run, by default those of a workshop that says nothing; where it lies may change."""
    return {key: value for key, value in asdict(workshop).items() if key not in ("data", "runs", "format")}


@torch.no_grad()
def grow_into(small: GazeModel, wide: GazeModel) -> None:
    """Put ``small`` into the first maps of every layer of ``wide``, in place; the other maps do not reach them yet.

    Dense-sparse-dense training (Han et al. 2017): what a small network learned cheaply is kept, the maps that pruning
    removed come back with their pretrained weights, and training continues at full width from the same predictions.
    """
    for model in (small, wide):
        if not isinstance(model.spec.trunk, VGGSpec) or len(model.spec.trunk.taps) != 1:
            raise ArgumentError(f"cannot grow a {model.spec.architecture}: its trunk is not a VGG with one tap")
    kinds = (nn.Conv2d, nn.PReLU)
    before = [module for module in small.network.modules() if isinstance(module, kinds)]
    after = [module for module in wide.network.modules() if isinstance(module, kinds)]
    if [type(module) for module in before] != [type(module) for module in after]:
        raise ArgumentError(f"a {small.spec.architecture} of other depth cannot grow into a {wide.spec.architecture}")
    for narrow, broad in zip(before, after, strict=True):
        if any(a > b for a, b in zip(narrow.weight.shape, broad.weight.shape, strict=True)):
            raise ArgumentError(f"a layer of {len(narrow.weight)} maps does not fit into one of {len(broad.weight)}")
        _place(narrow, broad)
    wide.tail.load_state_dict(small.tail.state_dict())


def _place(narrow: nn.Conv2d | nn.PReLU, broad: nn.Conv2d | nn.PReLU) -> None:
    maps = len(narrow.weight)
    if isinstance(narrow, nn.Conv2d):
        broad.weight[:maps] = 0  # what the other maps would add
        broad.weight[:maps, : narrow.in_channels] = narrow.weight
        assert isinstance(narrow.bias, Tensor)
        assert isinstance(broad.bias, Tensor)
        broad.bias[:maps] = narrow.bias
    else:
        broad.weight[:maps] = narrow.weight
