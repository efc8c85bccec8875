"""Students: 0.9 cross-entropy with the teacher's maps, 0.1 with the fixations of the eye-tracking sets.

The large set brings many images, so that the trunk can be trained too. Its own fixations may be mixed into the
teacher's maps: they know what the teacher missed, the teacher knows what a few hundred points left to chance.
A student that passed its teacher can stand beside it, or in its place, for smaller ones.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from fastgaze.models.checkpoint import save_checkpoint
from fastgaze.models.factory import create_model
from fastgaze.models.gaze import GazeModel
from fastgaze.models.spec import spec_on
from fastgaze.models.weights import load_backbone
from fastgaze.training.fit import Fit, FitResult, FitSettings, Report, device, working_size
from fastgaze.training.prepare import PreparedSet, channels_last, normalise
from fastgaze.training.stream import Source, fixation_source
from fastgaze.training.variants import variants
from fastgaze.training.workshop import Workshop, mixed_targets, weighted


@dataclass(frozen=True)
class Mixture:
    """What a student learns from.

    eye_tracking: share of eye-tracking images, the paper's 0.1.
    teacher: in the large set, share of the teacher's map in the target; the rest are its own fixations. 0 needs no
        teacher.
    teachers: the runs that taught, ``teacher`` for the ensemble, others for students; their maps are averaged.
    variants: share of the large set's places in a batch that go to variants of its images (drawings, noise and such),
        with the maps that ``teachers`` gave these; those have no fixations.
    mixed_shapes: share of images from the sets of mixed shapes, with their fixations.
    """

    eye_tracking: float = 0.1
    teacher: float = 0.5
    teachers: tuple[str, ...] = ("teacher",)
    variants: float = 0.0
    mixed_shapes: float = 0.0


def distillation_sources(
    workshop: Workshop,
    maps: NDArray[np.float16] | None,
    mixture: Mixture,
    variant_maps: NDArray[np.float16] | None = None,
) -> list[Source]:
    """The large set and its variants with teacher targets, the eye-tracking sets with their fixations, weighted.

    maps: of the teachers; without them the large set has its fixations alone.
    """
    large = workshop.large
    share = 1 - mixture.eye_tracking - mixture.mixed_shapes
    if maps is None:
        taught = fixation_source(large, share)
    else:
        targets = mixed_targets(large, maps, mixture.teacher)
        cells = large.grid[0] * large.grid[1]
        taught = Source(large.name, large.images, targets, large.center_bias, share, scale=1 / cells)
    sources = [taught]
    if variant_maps is not None:
        changed = replace(
            taught,
            name=f"{large.name}, variants",
            inputs=variants(large, workshop.cache),
            targets=variant_maps,
            weight=share * mixture.variants,
            scale=1 / (large.grid[0] * large.grid[1]),
        )
        sources = [replace(taught, weight=share - changed.weight), changed]
    sources += weighted([fixation_source(data) for data in workshop.small], mixture.eye_tracking)
    if mixture.mixed_shapes:
        sources += weighted([fixation_source(part) for part in workshop.shaped], mixture.mixed_shapes)
    return sources


@torch.inference_mode()
def student_maps(
    model: GazeModel, data: PreparedSet, batch: int = 8, precision: str = "bf16", scale: float = 1.0
) -> Iterator[NDArray[np.float16]]:
    """A student's density for every image on the loss grid, relative to uniform: parts of float16 (n, h, w), mean 1.

    Each is the mean over the image and its mirror image, which no student predicts quite alike.
    """
    model = channels_last(model.to(device()).eval())
    cells = data.grid[0] * data.grid[1]
    bias = torch.from_numpy(data.center_bias).to(device())
    for first in range(0, len(data), batch):
        images = normalise(data.images[first : first + batch]).to(device())
        if (size := working_size(model, images.shape, scale)) != data.size:
            images = nn.functional.interpolate(images, size, mode="bilinear", antialias=True)
        with torch.autocast(device().type, torch.bfloat16, enabled=precision == "bf16"):
            plain = model(images, size=data.grid, center_bias=bias)
            mirrored = model(images.flip(3), size=data.grid, center_bias=bias.flip(1)).flip(2)
        # Densities of 1e-8 would underflow in float16; relative to uniform they do not.
        yield ((plain.exp() + mirrored.exp()) * (cells / 2)).half().cpu().numpy()


def new_student(workshop: Workshop, architecture: str, backbone: str | Path) -> tuple[GazeModel, dict[str, Any]]:
    """An unpruned student on a pretrained trunk, and the record of where its weights came from."""
    torch.manual_seed(0)
    model = create_model(architecture, spec_on(architecture, backbone))
    assert isinstance(model, GazeModel)
    record = load_backbone(model.trunk, backbone, workshop.sample())
    model.tail.center_bias.copy_(torch.from_numpy(workshop.large.center_bias))
    return model, record


def fit_student(
    model: GazeModel,
    workshop: Workshop,
    sources: list[Source],
    settings: FitSettings,
    folder: Path,
    record: dict[str, Any],
    report: Report | None = None,
) -> FitResult:
    """Train a student in place; ``folder/best.safetensors`` always holds the best checkpoint so far."""

    def save_best(_: nn.Module, facts: dict[str, Any]) -> None:
        save_checkpoint(model, folder / "best.safetensors", record | {"fit": facts})

    fit = Fit(model, sources, workshop.validation_source(), settings, folder, save_best, workshop.kept_out())
    return fit.run(report)
