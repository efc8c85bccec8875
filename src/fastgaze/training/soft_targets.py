"""Soft targets: densities that a teacher predicts for training images, for students to learn from.

They are kept on the loss grid relative to uniform, float16 (n, h, w) with mean 1, one file for each run that taught and
each set: densities of 1e-8 would underflow in float16, relative to uniform they do not. The file of the large set is
called after the number of its images; that of variants also after their kinds; those of the eye-tracking sets, which
the folder ``eye-tracking`` holds, after name, size and number of the images.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from fastgaze.core.errors import ArgumentError
from fastgaze.core.files import remove_leftovers, replacing
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
EYE_TRACKING = "eye-tracking"  # the folder in a run with its soft targets of the eye-tracking sets

Labelled = Literal["large", "variants", "eye-tracking"]
"""What a teacher labels: the large set, variants of its images, or the eye-tracking sets, those of mixed shapes too."""


def soft_targets_file(workshop: Workshop, run: str = ENSEMBLE, of_variants: bool = False) -> Path:
    """The soft targets that a run gave for the large set, or for the variants of its images."""
    return workshop.runs / run / f"{variants.KEY if of_variants else 'maps'}-{len(workshop.large)}.npy"


def eye_targets_file(run: Path, data: PreparedSet) -> Path:
    """The soft targets in the folder ``run`` for one of ``eye_tracking_sets``."""
    height, width = data.size
    return run / EYE_TRACKING / f"{data.name.replace('/', '-')}-{height}x{width}-{len(data)}.npy"


def eye_tracking_sets(workshop: Workshop) -> list[PreparedSet]:
    """The training images of all eye-tracking sets; a set of mixed shapes is one part for each size."""
    return [*workshop.small, *workshop.shaped]


def write_soft_targets(config: Config, run: Path, labelled: Labelled = "large", progress: Progress = silent) -> Path:
    """Let the best student of the folder ``run`` predict training images, so that others can learn from it.

    The student sees the images as in its training, in precision and size. Under ``torchrun`` processes share the work.
    Returns the file of the soft targets; for eye-tracking sets, the folder of their files.
    """
    sets = _labelled_sets(config.workshop, run, labelled)
    model, record = load_gaze_model(run / "best.safetensors")
    shares = {path: np.array_split(np.arange(len(data)), world_size())[rank()] for path, data in sets.items()}
    total, done = sum(map(len, shares.values())), 0
    for path, mine in shares.items():
        targets = np.empty((len(mine), *sets[path].grid), np.float16)
        first = 0
        for part in student_densities(model, sets[path].subset(mine), record):
            targets[first : first + len(part)] = part
            first += len(part)
            progress(done + first, total, run.name)
        _save(_part_of(path, rank()), targets)
        done += first
    barrier()
    if rank() == 0:
        for path in sets:
            _join([_part_of(path, number) for number in range(world_size())], path)
    return run / EYE_TRACKING if labelled == "eye-tracking" else next(iter(sets))


def _labelled_sets(workshop: Workshop, run: Path, labelled: Labelled) -> dict[Path, PreparedSet]:
    """The sets of images to predict, each under the file that its soft targets have in the folder ``run``."""
    if labelled == "eye-tracking":
        if not (sets := eye_tracking_sets(workshop)):
            raise ArgumentError("workshop: eye_tracking and mixed_shapes name no data set; name at least one")
        return {eye_targets_file(run, data): data for data in sets}
    data = workshop.large
    if labelled == "variants":
        data = replace(data, images=variants.variant_images(data, workshop.cache))
    return {run / soft_targets_file(workshop, of_variants=labelled == "variants").name: data}


def _part_of(path: Path, number: int) -> Path:
    """What one of several processes leaves for the first, which joins the parts."""
    return path.with_suffix(f".part{number}.npy")


def _join(parts: Sequence[Path], path: Path) -> None:
    _save(path, np.concatenate([np.load(part) for part in parts]))
    for part in parts:
        part.unlink()


def write_ensemble_targets(workshop: Workshop, ensemble: GazeEnsemble, features: Features) -> None:
    """Let the ensemble predict the large set from its stored features."""
    _save(soft_targets_file(workshop), ensemble_densities(ensemble, features, workshop.large))


def _save(path: Path, targets: SoftTargets) -> None:
    remove_leftovers(path.parent)
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
    """The mean of what one run or several gave for the large set, or for the variants of its images."""
    if of_variants:
        _refuse_ensemble(runs, "variants")
    return _mean([soft_targets_file(workshop, run, of_variants) for run in runs], "--variants" if of_variants else "")


def read_eye_targets(workshop: Workshop, runs: Sequence[str], data: PreparedSet) -> SoftTargets:
    """The mean of what one run or several gave for one of ``eye_tracking_sets``."""
    _refuse_ensemble(runs, "eye_teacher")
    return _mean([eye_targets_file(workshop.runs / run, data) for run in runs], "--eye-tracking")


def _refuse_ensemble(runs: Sequence[str], setting: str) -> None:
    if ENSEMBLE in runs:
        raise ArgumentError(
            f"mixture: the ensemble has soft targets of the large set only; set {setting} = 0 or name students in "
            "teachers, such as teachers = ['lite1']"
        )


def _mean(paths: Sequence[Path], option: str) -> SoftTargets:
    """The mean of the soft targets in one file or several; ``option`` of the verb that makes them."""
    if not paths:
        raise ArgumentError("mixture: teachers is empty; name at least one run, such as 'teacher'")
    for path in paths:
        if not path.is_file():
            raise ArgumentError(f"no soft targets at {path}; make them with `{_command(path, option)}`")
    files = [np.load(path, mmap_mode="r") for path in paths]
    if len(files) == 1:
        return np.array(files[0], np.float16)
    means = [np.mean([file[i] for file in files], axis=0, dtype=np.float32) for i in range(len(files[0]))]
    return np.stack(means).astype(np.float16)


def _command(path: Path, option: str) -> str:
    """What to type to make the file ``path``."""
    run = path.parent.parent if path.parent.name == EYE_TRACKING else path.parent
    verb = "teacher" if run.name == ENSEMBLE else " ".join(["soft-targets", str(run), option]).strip()
    return f"fastgaze workshop {verb} --config ..."


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


def taught_source(data: PreparedSet, soft: SoftTargets, teacher_share: float, weight: float = 1.0) -> Source:
    """A set whose targets are mixed from soft targets and fixations."""
    targets = mixed_targets(data, soft, teacher_share)
    return Source(data.name, data.images, targets, data.center_bias, weight, scale=1 / prod(data.grid))


def distillation_sources(workshop: Workshop, mixture: Mixture) -> list[Source]:
    """The large set, its variants and the eye-tracking sets, weighted, each with what its teachers gave it."""
    share = 1 - mixture.eye_tracking - mixture.mixed_shapes
    sources = _large_sources(workshop, mixture, share)
    sources += weighted(_eye_sources(workshop, mixture, workshop.small), mixture.eye_tracking)
    if mixture.mixed_shapes:
        sources += weighted(_eye_sources(workshop, mixture, workshop.shaped), mixture.mixed_shapes)
    return sources


def _large_sources(workshop: Workshop, mixture: Mixture, share: float) -> list[Source]:
    large = workshop.large
    taught = fixation_source(large, share)
    if mixture.teacher:
        taught = taught_source(large, read_soft_targets(workshop, mixture.teachers), mixture.teacher, share)
    if not mixture.variants:
        return [taught]
    changed = replace(
        taught,
        name=f"{large.name}, variants",
        inputs=variants.variant_images(large, workshop.cache),
        targets=read_soft_targets(workshop, mixture.teachers, of_variants=True),
        weight=share * mixture.variants,
        scale=1 / prod(large.grid),
    )
    return [replace(taught, weight=share - changed.weight), changed]


def _eye_sources(workshop: Workshop, mixture: Mixture, sets: Sequence[PreparedSet]) -> list[Source]:
    if not mixture.eye_teacher:
        return [fixation_source(data) for data in sets]
    return [
        taught_source(data, read_eye_targets(workshop, mixture.teachers, data), mixture.eye_teacher) for data in sets
    ]


def trained_sets(workshop: Workshop, mixture: Mixture) -> tuple[str, ...]:
    """Names of the sets that a student learns from, for its record."""
    return workshop.pretraining, *workshop.eye_tracking, *(workshop.mixed_shapes if mixture.mixed_shapes else ())
