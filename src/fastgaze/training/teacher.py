"""DeepGaze II: readouts over a frozen VGG-19, first on SALICON, then one a fold of the eye-tracking sets.

The trunk never changes, so everything here works on its stored features. The ensemble's mean maps are what
students are distilled from.
"""

import copy
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fastgaze.errors import DataError
from fastgaze.models.checkpoint import save_checkpoint
from fastgaze.models.ensemble import GazeEnsemble, Head
from fastgaze.models.gaze import GazeModel, Readout
from fastgaze.models.spec import VGGSpec
from fastgaze.training.features import Features, restore_taps
from fastgaze.training.fit import Fit, FitResult, FitSettings, Report
from fastgaze.training.prepare import PreparedSet
from fastgaze.training.stream import Source, fixation_source
from fastgaze.training.workshop import weighted


class FromFeatures(nn.Module):
    """A model with a frozen VGG trunk, fed with what ``extract_features`` stored."""

    def __init__(self, model: GazeModel, image_size: tuple[int, int]) -> None:
        super().__init__()
        trunk = model.trunk.spec
        assert isinstance(trunk, VGGSpec)
        self._trunk, self._image_size = trunk, image_size
        assert isinstance(model.readout, Readout)
        self.head = Head(model.readout, model.tail)

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
    report: Report | None = None,
) -> FitResult:
    """Train readout and blur of ``model`` in place on stored features; flips are not possible there."""
    settings = replace(settings, flips=False)
    return Fit(FromFeatures(model, image_size), sources, validation, settings, folder).run(report)


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
    report: Callable[[int, FitResult], None] | None = None,
) -> list[GazeModel]:
    """One readout a fold, from ``starts`` in turn, each stopped on the images of its fold.

    extra: sources that every fold trains on besides the eye-tracking sets, so that a readout does not forget them.
    """
    models = []
    for fold in range(folds):
        model = copy.deepcopy(starts[fold % len(starts)])
        parts = [_fold_parts(data, features, fold, folds) for data, features in eye_tracking]
        sources = weighted([train for train, _ in parts], 1.0)
        validation = _joined([held for _, held in parts])
        size = eye_tracking[0][0].size
        result = fit_readout(model, [*sources, *extra], validation, size, settings, folder / f"fold{fold}")
        models.append(model)
        if report:
            report(fold, result)
    return models


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


@torch.inference_mode()
def mean_maps(ensemble: GazeEnsemble, features: Features, data: PreparedSet, batch: int = 16) -> NDArray[np.float16]:
    """The ensemble's density for every image on the loss grid, relative to uniform: float16 (n, h, w), mean 1."""
    trunk = ensemble.trunk.spec
    assert isinstance(trunk, VGGSpec)
    cells = data.grid[0] * data.grid[1]
    bias = torch.from_numpy(data.center_bias)
    maps = np.empty((len(data), *data.grid), np.float16)
    for first in range(0, len(data), batch):
        stored = torch.from_numpy(np.array(features[first : first + batch])).float()
        log_density = ensemble.from_features(restore_taps(stored, trunk), data.size, data.grid, bias)
        # Densities of 1e-8 would underflow in float16; relative to uniform they do not.
        maps[first : first + batch] = (log_density.exp() * cells).half().numpy()
    return maps


def save_teacher(models: Sequence[GazeModel], path: Path, record: dict[str, Any]) -> GazeEnsemble:
    """Write the ensemble as one checkpoint."""
    ensemble = GazeEnsemble.of(models)
    save_checkpoint(ensemble, path, record)
    return ensemble
