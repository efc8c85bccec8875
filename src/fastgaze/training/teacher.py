"""DeepGaze II: readouts over a frozen VGG-19, first on SALICON, then one for each fold of the eye-tracking sets.

The trunk never changes, so everything here works on its stored features. The ensemble's soft targets are what
students are distilled from.
"""

import copy
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fastgaze.core.errors import ArgumentError, DataError
from fastgaze.core.progress import Progress, silent
from fastgaze.core.spec import VGGSpec
from fastgaze.networks.backbones import load_backbone
from fastgaze.networks.checkpoint import BackboneRecord, TrainingRecord, save_checkpoint
from fastgaze.networks.ensemble import GazeEnsemble, Member
from fastgaze.networks.factory import create_model
from fastgaze.networks.gaze import GazeModel
from fastgaze.training.config import Config, TeacherSettings
from fastgaze.training.datasets import PreparedSet, Workshop
from fastgaze.training.features import Features, extract_workshop, eye_tracking_features, open_features, restore_taps
from fastgaze.training.fit import Fit, FitResult, FitSettings
from fastgaze.training.runs import Facts, claim
from fastgaze.training.soft_targets import ENSEMBLE, write_ensemble_targets
from fastgaze.training.stream import Source, fixation_source, weighted
from fastgaze.training.student import workshop_facts


@dataclass(frozen=True)
class TeacherResult:
    """checkpoint: of the ensemble. starts, folds: where the fit of every readout was best, in order."""

    checkpoint: Path
    starts: tuple[FitResult, ...]
    folds: tuple[FitResult, ...]


def train_teacher(config: Config, progress: Progress = silent) -> TeacherResult:
    """DeepGaze II on the large set, its ensemble on the folds of the eye-tracking sets, and its soft targets."""
    workshop, settings, folder = config.workshop, config.teacher, config.workshop.runs / ENSEMBLE
    claim(folder, _facts(workshop_facts(workshop), settings), _facts(workshop_facts(), TeacherSettings()))
    trunk, backbone = _new_teacher(workshop, settings, seed=0)
    extract_workshop(workshop, trunk, progress)
    features = open_features(workshop.features_file(workshop.pretraining))
    large = fixation_source(workshop.large, features=features)
    starts = _fit_starts(config, large, folder, progress)
    height, width = workshop.size
    record = TrainingRecord(
        "teacher",
        trunk.spec.architecture,
        height * width,
        (workshop.pretraining,),
        backbone=backbone,
        precision=settings.fit.precision,
        seed=settings.fit.seed,
        details=asdict(settings),
    )
    _save_single(starts[0], record, folder)
    folds = fit_folds(
        [model for model, _ in starts],
        eye_tracking_features(workshop),
        [replace(large, weight=settings.large_share)] if settings.large_share else [],
        settings.members,
        settings.folds,
        folder,
        progress,
    )
    path, ensemble = folder / "ensemble.safetensors", GazeEnsemble.of([model for model, _ in folds])
    results = tuple(result for _, result in folds)
    save_checkpoint(ensemble, path, _ensemble_record(record, workshop, ensemble, results))
    write_ensemble_targets(workshop, ensemble, features)
    return TeacherResult(path, tuple(result for _, result in starts), results)


def _facts(workshop: Facts, settings: TeacherSettings) -> Facts:
    """What a teacher is made from; its fits know their own settings."""
    chosen = {key: value for key, value in asdict(settings).items() if key not in ("fit", "folds")}
    return {"workshop": workshop, "teacher": chosen}


def _save_single(start: tuple[GazeModel, FitResult], record: TrainingRecord, folder: Path) -> None:
    """The first readout as it was before the eye-tracking sets."""
    model, result = start
    save_checkpoint(
        model, folder / "single.safetensors", replace(record, steps=result.best_step, loss=result.best_loss)
    )


def _ensemble_record(
    record: TrainingRecord, workshop: Workshop, ensemble: GazeEnsemble, folds: Sequence[FitResult]
) -> TrainingRecord:
    """loss is the mean over the folds, steps those of the longest."""
    return replace(
        record,
        architecture=ensemble.spec.architecture,
        data=(workshop.pretraining, *workshop.eye_tracking),
        steps=max(result.best_step for result in folds),
        loss=float(np.mean([result.best_loss for result in folds])),
        details={**record.details, "fold_results": [asdict(result) for result in folds]},
    )


def _new_teacher(workshop: Workshop, settings: TeacherSettings, seed: int) -> tuple[GazeModel, BackboneRecord]:
    """DeepGaze II with a frozen trunk and a new readout, and where its weights came from."""
    torch.manual_seed(seed)
    model = create_model("deepgaze2")
    backbone = load_backbone(model.trunk, settings.backbone, workshop.sample())
    model.requires_grad_(False)
    model.readout.requires_grad_(True)
    model.tail.requires_grad_(True)
    model.tail.center_bias.copy_(torch.from_numpy(workshop.large.center_bias))
    return model, backbone


def _fit_starts(config: Config, large: Source, folder: Path, progress: Progress) -> list[tuple[GazeModel, FitResult]]:
    """The readouts that are trained on the large set."""
    workshop = config.workshop
    stored = open_features(workshop.features_file(workshop.validation))[: len(workshop.validation_set)]
    validation = fixation_source(workshop.validation_set, features=stored)
    starts, count = [], config.teacher.starts
    for number in range(count):
        inner = _prefixed(progress, f"readout {number + 1} of {count}")
        starts.append(_fit_start(config, number, large, validation, folder, inner))
    return starts


def _fit_start(
    config: Config, number: int, large: Source, validation: Source, folder: Path, progress: Progress
) -> tuple[GazeModel, FitResult]:
    """A readout trained on the large set. One that dies, as both maps of its narrow layer may, is started again."""
    settings = config.teacher
    for seed in range(number, _ATTEMPTS * settings.starts, settings.starts):
        model, _ = _new_teacher(config.workshop, settings, seed)
        place = folder / (f"large{seed}" if seed else "large")
        fit = replace(settings.fit, seed=settings.fit.seed + seed)
        result = fit_readout(model, [large], validation, config.workshop.size, fit, place, progress)
        if not is_dead(model, validation.inputs):
            return model, result
    raise ArgumentError(
        f"{_ATTEMPTS} readouts in a row died: they predict the same for every image; "
        f"lower teacher.fit.learning_rate = {settings.fit.learning_rate}"
    )


_ATTEMPTS = 4  # about one readout in six dies


def _prefixed(progress: Progress, what: str) -> Progress:
    return lambda done, total, note: progress(done, total, f"{what}: {note}")


class FromFeatures(nn.Module):
    """A model with a frozen VGG trunk, fed with what ``extract_features`` stored."""

    def __init__(self, model: GazeModel, image_size: tuple[int, int]) -> None:
        super().__init__()
        trunk = model.trunk.spec
        assert isinstance(trunk, VGGSpec)
        self._trunk, self._image_size = trunk, image_size
        self.head = Member(model.readout, model.tail)

    def forward(self, stored: Tensor, size: tuple[int, int], center_bias: Tensor | None = None) -> Tensor:
        """stored (N, maps, h, w) -> log density (N, *size)."""
        log_density: Tensor = self.head(restore_taps(stored, self._trunk), self._image_size, size, center_bias)
        return log_density


def fit_readout(
    model: GazeModel,
    sources: Sequence[Source],
    validation: Source,
    image_size: tuple[int, int],
    settings: FitSettings,
    folder: Path,
    progress: Progress = silent,
) -> FitResult:
    """Train readout and blur of ``model`` in place on stored features; flips are not possible there."""
    settings = replace(settings, flips=False)
    return Fit(FromFeatures(model, image_size), sources, validation, settings, folder).run(progress)


@torch.inference_mode()
def is_dead(model: GazeModel, features: NDArray[np.generic]) -> bool:
    """Whether the readout is constant on the first of the stored ``features``, so that only the centre bias is left."""
    trunk = model.trunk.spec
    assert isinstance(trunk, VGGSpec)
    place = next(model.readout.parameters()).device  # a fit has moved the readout, but not the trunk
    stored = torch.from_numpy(np.array(features[:4])).float().to(place)
    saliency: Tensor = model.readout(restore_taps(stored, trunk))
    return bool(saliency.std() < _DEAD)


_DEAD = 1e-4  # nats; a live one varies by several


def fit_folds(
    starts: Sequence[GazeModel],
    eye_tracking: Sequence[tuple[PreparedSet, Features]],
    extra: Sequence[Source],
    folds: int,
    settings: FitSettings,
    folder: Path,
    progress: Progress = silent,
) -> list[tuple[GazeModel, FitResult]]:
    """One readout for each fold, from ``starts`` in turn, each stopped on the images of its fold.

    extra: sources that every fold trains on besides the eye-tracking sets, so that a readout does not forget them.
    """
    fitted = []
    for fold in range(folds):
        model = copy.deepcopy(starts[fold % len(starts)])
        parts = [_fold_parts(data, features, fold, folds) for data, features in eye_tracking]
        sources = weighted([train for train, _ in parts], 1.0)
        validation = _joined([held for _, held in parts])
        size = eye_tracking[0][0].size
        inner = _prefixed(progress, f"fold {fold + 1} of {folds}")
        result = fit_readout(model, [*sources, *extra], validation, size, settings, folder / f"fold{fold}", inner)
        fitted.append((model, result))
    return fitted


def fold_of(count: int, folds: int, seed: int = 0) -> NDArray[np.int64]:
    """Fold of every image: each in exactly one, sizes equal to within one."""
    fold = np.empty(count, np.int64)
    fold[np.random.default_rng(seed).permutation(count)] = np.arange(count) % folds
    return fold


def _fold_parts(data: PreparedSet, features: Features, fold: int, folds: int) -> tuple[Source, Source]:
    """(training, held-out) source of a fold."""
    held = fold_of(len(data), folds) == fold
    train, rest = np.flatnonzero(~held), np.flatnonzero(held)
    return (
        fixation_source(data.subset(train), features=features[train]),
        fixation_source(data.subset(rest), features=features[rest]),
    )


def _joined(sources: Sequence[Source]) -> Source:
    """One source of several that share a size; each keeps its own centre bias."""
    if len({source.inputs.shape[1:] for source in sources}) != 1:
        raise DataError("eye-tracking sets of a fold must have one working size")
    biases = [np.broadcast_to(s.center_bias, (len(s), *s.center_bias.shape[-2:])) for s in sources]
    return Source(
        "+".join(source.name for source in sources),
        np.concatenate([source.inputs for source in sources]),
        np.concatenate([source.targets for source in sources]),
        np.concatenate(biases),
    )
