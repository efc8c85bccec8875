"""The stages of the paper, each a function that goes on where it was: teacher, student, pruning, tuning."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fastgaze.errors import ArgumentError
from fastgaze.models.checkpoint import load_checkpoint, save_checkpoint
from fastgaze.models.ensemble import GazeEnsemble
from fastgaze.models.factory import create_model
from fastgaze.models.gaze import GazeModel
from fastgaze.models.spec import GazeSpec, VGGSpec
from fastgaze.models.weights import load_backbone
from fastgaze.pruning import Cost, Removal
from fastgaze.training.config import Config
from fastgaze.training.distill import Mixture, distillation_sources, fit_student, new_student
from fastgaze.training.fit import FitResult, FitSettings, Report
from fastgaze.training.latency import latency_cost
from fastgaze.training.prepare import write_json
from fastgaze.training.prune import narrow_to, prune_while_training, trace
from fastgaze.training.stream import fixation_source
from fastgaze.training.teacher import fit_folds, fit_readout, mean_maps, save_teacher
from fastgaze.training.workshop import Workshop

Say = Callable[[str], None]


def teacher_file(workshop: Workshop) -> Path:
    """The ensemble's checkpoint."""
    return workshop.runs / "teacher" / "ensemble.safetensors"


def maps_file(workshop: Workshop) -> Path:
    """The ensemble's maps of the large set."""
    return workshop.runs / "teacher" / f"maps-{len(workshop.large)}.npy"


def train_teacher(config: Config, say: Say, report: Report | None = None) -> GazeEnsemble:
    """DeepGaze II on the large set, its ensemble on the folds of the eye-tracking sets, and the ensemble's maps."""
    workshop, settings, folder = config.workshop, config.teacher, config.workshop.runs / "teacher"
    torch.manual_seed(0)
    model = create_model("deepgaze2")
    record = load_backbone(model.trunk, settings.backbone, workshop.sample())
    model.requires_grad_(False)
    model.readout.requires_grad_(True)
    model.tail.requires_grad_(True)
    _extract_all(workshop, model, say)
    say("readout on the large set")
    model.tail.center_bias.copy_(torch.from_numpy(workshop.large.center_bias))
    features = workshop.features(None, workshop.pretraining)
    large = fixation_source(workshop.large, features=features)
    validation = workshop.validation_source(model)
    first = fit_readout(model, [large], validation, workshop.size, settings.fit, folder / "large", report)
    record |= {"data": [workshop.pretraining], "fit": asdict(first), "settings": asdict(settings)}
    save_checkpoint(model, folder / "single.safetensors", record)
    say(f"validation loss {first.best_loss:.4f} at step {first.best_step}")
    extra = [replace(large, weight=settings.large_share)] if settings.large_share else []
    results: dict[int, FitResult] = {}

    def fold_done(fold: int, result: FitResult) -> None:
        results[fold] = result
        say(f"fold {fold}: validation loss {result.best_loss:.4f} at step {result.best_step}")

    pairs = workshop.small_features(model)
    models = fit_folds(model, pairs, extra, settings.members, settings.folds, folder, fold_done)
    record |= {"data": [workshop.pretraining, *workshop.eye_tracking]}
    record |= {"folds": {str(fold): asdict(result) for fold, result in results.items()}}
    ensemble = save_teacher(models, teacher_file(workshop), record)
    say("maps of the large set")
    np.save(maps_file(workshop), mean_maps(ensemble, features, workshop.large))
    return ensemble


def _extract_all(workshop: Workshop, model: GazeModel, say: Say) -> None:
    for name in (*workshop.eye_tracking, workshop.validation, workshop.pretraining):
        total = len(workshop.prepared(name))
        for done in workshop.extract(model, name):
            if done % 400 == 0 or done == total:
                say(f"features of {name}: {done} of {total}")


def teacher_maps(workshop: Workshop) -> NDArray[np.float16]:
    """The ensemble's maps, float16 (n, h, w) relative to uniform."""
    path = maps_file(workshop)
    if not path.is_file():
        raise ArgumentError(f"no teacher maps at {path}; train the teacher first: fastgaze teacher --config ...")
    maps: NDArray[np.float16] = np.load(path)
    return maps


def distill_student(config: Config, out: Path, say: Say, report: Report | None = None) -> FitResult:
    """An unpruned student from its backbone."""
    settings = config.student
    model, record = new_student(config.workshop, settings.architecture, settings.backbone)
    return _fit(config, model, settings.mixture, settings.fit, out, record, say, report)


def tune_student(config: Config, start: Path, out: Path, say: Say, report: Report | None = None) -> FitResult:
    """Fine-tune a checkpoint, pruned or not, by distillation."""
    model, record = _load(start)
    return _fit(config, model, config.tune.mixture, config.tune.fit, out, {"start": record}, say, report)


def prune_student(
    config: Config, start: Path, out: Path, report: Callable[[Removal], None] | None = None
) -> list[Path]:
    """Prune a checkpoint while training it; returns the snapshots."""
    model, record = _load(start)
    cost: Cost | None = None
    if config.prune.cost == "latency":
        cost = latency_cost(trace(model), config.workshop.size, out / "latency.json")
    sources = distillation_sources(config.workshop, teacher_maps(config.workshop), config.student.mixture)
    return prune_while_training(model, sources, config.prune, out, {"start": record}, cost, report)


def narrow_student(config: Config, start: Path, widths: Sequence[int], readout: Sequence[int], out: Path) -> GazeSpec:
    """Bring a FastGaze checkpoint to given widths, trunk and hidden readout layers in order; returns its spec."""
    model, record = _load(start)
    spec = model.spec
    if not isinstance(spec.trunk, VGGSpec):
        raise ArgumentError(f"{start} is a {spec.architecture}; widths layer by layer are for VGG trunks")
    depths = [len(block) for block in spec.trunk.blocks]
    if len(widths) != sum(depths) or len(readout) != len(spec.readout) - 1:
        raise ArgumentError(f"give {sum(depths)} widths and {len(spec.readout) - 1} readout widths for this network")
    ends = np.cumsum([0, *depths])
    blocks = tuple(tuple(widths[a:b]) for a, b in pairwise(ends))
    wanted = replace(spec, trunk=replace(spec.trunk, blocks=blocks), readout=(*readout, 1))
    sources = distillation_sources(config.workshop, teacher_maps(config.workshop), config.student.mixture)
    narrow_to(model, wanted, sources)
    save_checkpoint(model, out, {"start": record, "narrowed": {"widths": list(widths), "readout": list(readout)}})
    return wanted


def _load(path: Path) -> tuple[GazeModel, dict[str, Any]]:
    model, record = load_checkpoint(path)
    if not isinstance(model, GazeModel):
        raise ArgumentError(f"{path} is no student but a {model.spec.architecture}")
    return model, record


def _fit(
    config: Config,
    model: GazeModel,
    mixture: Mixture,
    settings: FitSettings,
    out: Path,
    record: dict[str, Any],
    say: Say,
    report: Report | None,
) -> FitResult:
    workshop = config.workshop
    sources = distillation_sources(workshop, teacher_maps(workshop), mixture)
    record = record | {"data": [workshop.pretraining, *workshop.eye_tracking], "mixture": asdict(mixture)}
    result = fit_student(model, workshop, sources, settings, out, record, report)
    write_json(out / "result.json", asdict(result))
    say(f"{out.name}: validation loss {result.best_loss:.4f} at step {result.best_step} of {result.step}")
    return result
