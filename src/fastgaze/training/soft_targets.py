"""Soft targets: densities that a teacher predicts for the large set, for students to learn from.

They are kept on the loss grid relative to uniform, float16 (n, h, w) with mean 1, one file for each run that taught:
densities of 1e-8 would underflow in float16, relative to uniform they do not. The file is called after the number of
its images; that of variants also after their kinds.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import prod
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from fastgaze.core.errors import ArgumentError
from fastgaze.core.files import replacing
from fastgaze.core.progress import Progress, silent
from fastgaze.core.spec import VGGSpec
from fastgaze.networks.checkpoint import TrainingRecord, load_gaze_model
from fastgaze.networks.ensemble import GazeEnsemble
from fastgaze.networks.gaze import GazeModel
from fastgaze.runtime.card import WorkingSize
from fastgaze.training import variants
from fastgaze.training.config import Config, Mixture
from fastgaze.training.datasets import PreparedSet, Workshop, channels_last, normalise, reduced_precision
from fastgaze.training.features import Features, restore_taps
from fastgaze.training.fit import device
from fastgaze.training.runs import barrier, rank, world_size
from fastgaze.training.stream import Source, fixation_source, weighted

SoftTargets = NDArray[np.float16]

ENSEMBLE = "teacher"  # the run of the DeepGaze II ensemble


def soft_targets_file(workshop: Workshop, run: str = ENSEMBLE, of_variants: bool = False) -> Path:
    """The soft targets that a run gave for the large set, or for the variants of its images."""
    return workshop.runs / run / f"{variants.KEY if of_variants else 'maps'}-{len(workshop.large)}.npy"


def write_soft_targets(config: Config, run: Path, of_variants: bool = False, progress: Progress = silent) -> Path:
    """Let the best student of the folder ``run`` predict the large set, so that others can learn from it.

    of_variants: predict drawings, noise and other changed versions of the images instead.
    The student sees the images as in its training, in precision and size. Under ``torchrun`` processes share the work.
    Returns the file of the soft targets.
    """
    data = config.workshop.large
    if of_variants:
        data = replace(data, images=variants.variant_images(data, config.workshop.cache))
    path = run / soft_targets_file(config.workshop, of_variants=of_variants).name
    model, record = load_gaze_model(run / "best.safetensors")
    mine = data.subset(np.array_split(np.arange(len(data)), world_size())[rank()])
    parts: list[SoftTargets] = []
    for part in student_densities(model, mine, record):
        parts.append(part)
        progress(sum(map(len, parts)), len(mine), run.name)
    _save(_part_of(path, rank()), np.concatenate(parts))
    barrier()
    if rank() == 0:
        files = [_part_of(path, number) for number in range(world_size())]
        _save(path, np.concatenate([np.load(file) for file in files]))
        for file in files:
            file.unlink()
    return path


def _part_of(path: Path, number: int) -> Path:
    """What one of several processes leaves for the first, which joins the parts."""
    return path.with_suffix(f".part{number}.npy")


def write_ensemble_targets(workshop: Workshop, ensemble: GazeEnsemble, features: Features) -> None:
    """Let the ensemble predict the large set from its stored features."""
    _save(soft_targets_file(workshop), ensemble_densities(ensemble, features, workshop.large))


def _save(path: Path, targets: SoftTargets) -> None:
    with replacing(path) as part:
        np.save(part, targets)


@torch.inference_mode()
def student_densities(
    model: GazeModel, data: PreparedSet, record: TrainingRecord, batch: int = 8
) -> Iterator[SoftTargets]:
    """A student's density for every image, in parts.

    record: of the student, which says how large the images were that it learned from, and in which precision.
    Each density is the mean over the image and its mirror image, which no student predicts quite alike.
    """
    model = channels_last(model.to(device()).eval())
    cells = data.grid[0] * data.grid[1]
    bias = torch.from_numpy(data.center_bias).to(device())
    size = WorkingSize(pixels=record.working_pixels or prod(data.size), stride=model.stride)(data.size)
    for first in range(0, len(data), batch):
        images = normalise(data.images[first : first + batch]).to(device())
        if size != data.size:
            images = functional.interpolate(images, size, mode="bilinear", antialias=True)
        with reduced_precision(device(), record.precision):
            plain = model(images, size=data.grid, center_bias=bias)
            mirrored = model(images.flip(3), size=data.grid, center_bias=bias.flip(1)).flip(2)
        yield ((plain.exp() + mirrored.exp()) * (cells / 2)).half().cpu().numpy()


@torch.inference_mode()
def ensemble_densities(ensemble: GazeEnsemble, features: Features, data: PreparedSet, batch: int = 16) -> SoftTargets:
    """The ensemble's density for every image."""
    trunk = ensemble.trunk.spec
    assert isinstance(trunk, VGGSpec)
    cells = data.grid[0] * data.grid[1]
    bias = torch.from_numpy(data.center_bias)
    targets = np.empty((len(data), *data.grid), np.float16)
    for first in range(0, len(data), batch):
        stored = torch.from_numpy(np.array(features[first : first + batch])).float()
        log_density = ensemble.from_features(restore_taps(stored, trunk), data.size, data.grid, bias)
        targets[first : first + batch] = (log_density.exp() * cells).half().numpy()
    return targets


def read_soft_targets(workshop: Workshop, runs: Sequence[str] = (ENSEMBLE,), of_variants: bool = False) -> SoftTargets:
    """The mean of the soft targets of one run or several."""
    if not runs:
        raise ArgumentError("mixture: teachers is empty; name at least one run, such as 'teacher'")
    if of_variants and ENSEMBLE in runs:
        raise ArgumentError(
            "mixture: the ensemble has soft targets of photographs only; set variants = 0 or name students in "
            "teachers, such as teachers = ['densegaze-m']"
        )
    files = [np.load(_existing(workshop, run, of_variants), mmap_mode="r") for run in runs]
    if len(files) == 1:
        return np.array(files[0], np.float16)
    means = [np.mean([file[i] for file in files], axis=0, dtype=np.float32) for i in range(len(files[0]))]
    return np.stack(means).astype(np.float16)


def _existing(workshop: Workshop, run: str, of_variants: bool) -> Path:
    path = soft_targets_file(workshop, run, of_variants)
    if not path.is_file():
        verb = "teacher" if run == ENSEMBLE else f"soft-targets {path.parent}{' --variants' if of_variants else ''}"
        raise ArgumentError(f"no soft targets at {path}; make them with `fastgaze workshop {verb} --config ...`")
    return path


def mixed_targets(data: PreparedSet, soft: SoftTargets, teacher_share: float) -> SoftTargets:
    """``teacher_share`` of the soft targets, the rest the image's own fixations: float16 (n, h, w), mean 1.

    An image without fixations has the soft targets alone.
    """
    cells = data.grid[0] * data.grid[1]
    totals = data.counts.sum(axis=(1, 2))
    targets = np.array(soft, np.float16)
    for i in np.flatnonzero(totals):
        own = data.counts[i] / totals[i]
        targets[i] = teacher_share * soft[i].astype(np.float32) + (1 - teacher_share) * own * cells
    return targets


def distillation_sources(workshop: Workshop, mixture: Mixture) -> list[Source]:
    """The large set and its variants with soft targets, the eye-tracking sets with their fixations, weighted."""
    large, share = workshop.large, 1 - mixture.eye_tracking - mixture.mixed_shapes
    cells = large.grid[0] * large.grid[1]
    taught = fixation_source(large, share)
    if mixture.teacher:
        targets = mixed_targets(large, read_soft_targets(workshop, mixture.teachers), mixture.teacher)
        taught = Source(large.name, large.images, targets, large.center_bias, share, scale=1 / cells)
    sources = [taught]
    if mixture.variants:
        changed = replace(
            taught,
            name=f"{large.name}, variants",
            inputs=variants.variant_images(large, workshop.cache),
            targets=read_soft_targets(workshop, mixture.teachers, of_variants=True),
            weight=share * mixture.variants,
            scale=1 / cells,
        )
        sources = [replace(taught, weight=share - changed.weight), changed]
    sources += weighted([fixation_source(data) for data in workshop.small], mixture.eye_tracking)
    if mixture.mixed_shapes:
        sources += weighted([fixation_source(part) for part in workshop.shaped], mixture.mixed_shapes)
    return sources


def trained_sets(workshop: Workshop, mixture: Mixture) -> tuple[str, ...]:
    """Names of the sets that a student learns from, for its record."""
    return workshop.pretraining, *workshop.eye_tracking, *(workshop.mixed_shapes if mixture.mixed_shapes else ())
