"""How good and how well calibrated checkpoints are on images that were kept out of their training.

    python -m experiments.lite_check runs/lite0/best.safetensors --config experiments/configs/lite0.toml

For every set: bits per fixation over a uniform density, the gain over the set's centre bias, and the temperature that
would fit best, which is a factor on the log density before the centre bias is added. At 1 a model is calibrated; if it
is below 1, the model is overconfident. All figures are computed on the loss grid, which takes seconds; publish the
scores of `fastgaze evaluate` instead.
"""

import argparse
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from experiments import common
from fastgaze.core.sizes import Size
from fastgaze.core.spec import scaled_size
from fastgaze.networks import GazeModel
from fastgaze.networks.checkpoint import TrainingRecord, load_gaze_model
from fastgaze.networks.gaze import resize_grid
from fastgaze.training.config import read_config
from fastgaze.training.datasets import Workshop
from fastgaze.training.fit import cross_entropy
from fastgaze.training.stream import Source, fixation_source, in_order
from fastgaze.training.student import watched_sources

TEMPERATURES = np.arange(0.4, 1.61, 0.05)
NATS = float(np.log(2))  # per bit


@dataclass(frozen=True)
class Calibration:
    """Scores of one set; bits and gain are per fixation, at temperature 1 and at the temperature that fits best."""

    nats: float
    bits: float
    gain: float
    temperature: float
    fitted_gain: float


@torch.inference_mode()
def losses(model: GazeModel, sources: Sequence[Source], scale: float) -> tuple[Tensor, Tensor, Tensor]:
    """Nats per fixation of every image: (temperatures, images) of the model, (images,) of centre bias and uniform."""
    columns, flat, uniform = [], [], []
    for batch in (batch for source in sources for batch in in_order(source, 16)):
        size = scaled_size((batch.inputs.shape[-2], batch.inputs.shape[-1]), scale, model.stride)
        inputs = torch.nn.functional.interpolate(batch.inputs, size, mode="bilinear", antialias=True)
        log_density = model(inputs, size=batch.grid, center_bias=torch.zeros(1, 1))
        bias = resize_grid(batch.center_bias, batch.grid)
        columns.append(torch.stack([_loss(t * log_density + bias, batch.targets) for t in TEMPERATURES]))
        flat.append(_loss(bias.expand_as(log_density), batch.targets))
        uniform.append(torch.full((len(log_density),), float(np.log(batch.grid[0] * batch.grid[1]))))
    return torch.cat(columns, dim=1), torch.cat(flat), torch.cat(uniform)


def _loss(logits: Tensor, targets: Tensor) -> Tensor:
    return cross_entropy(logits - logits.logsumexp(dim=(1, 2), keepdim=True), targets)


def check(model: GazeModel, sources: Sequence[Source], scale: float = 1.0) -> Calibration:
    """The figures of one set; ``scale`` is that of the images' sides in training."""
    ours, flat, uniform = (found.double().mean(dim=-1) for found in losses(model, sources, scale))
    best, as_it_is = int(ours.argmin()), float(ours[np.abs(TEMPERATURES - 1).argmin()])
    return Calibration(
        nats=as_it_is,
        bits=(float(uniform) - as_it_is) / NATS,
        gain=(float(flat) - as_it_is) / NATS,
        temperature=float(TEMPERATURES[best]),
        fitted_gain=float(flat - ours[best]) / NATS,
    )


def trained_scale(record: TrainingRecord, size: Size) -> float:
    """The factor on the sides of images of ``size`` (height, width) that gives the size a network was trained at."""
    pixels = record.working_pixels or size[0] * size[1]
    return float(np.sqrt(pixels / (size[0] * size[1])))


def check_all(path: Path, workshop: Workshop) -> dict[str, Calibration]:
    """The figures of a checkpoint on the validation images and on what was kept out of every set."""
    model, record = load_gaze_model(path)
    sets = {workshop.validation: [fixation_source(workshop.validation_set)], **watched_sources(workshop)}
    scale = trained_scale(record, workshop.size)
    return {name: check(model, sources, scale) for name, sources in sets.items()}


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = common.make_parser(__doc__, __file__, data=False)
    parser.add_argument("checkpoints", type=Path, nargs="+")
    parser.add_argument("--config", type=Path, required=True, help="settings that trained them")
    parser.add_argument("--out", type=Path, help="file to write the figures to")
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the figures of every checkpoint and set."""
    options = common.parse(make_parser(), arguments)
    workshop, record = read_config(options.config).workshop, common.about(options)
    for path in options.checkpoints:
        found = {name: asdict(figures) for name, figures in check_all(path, workshop).items()}
        record |= {str(path): found}
        for name, figures in found.items():
            print(f"{path} {name}: " + ", ".join(f"{key} {value:.3f}" for key, value in figures.items()), flush=True)
    if options.out:
        common.write_record(options.out, record)


if __name__ == "__main__":
    main()
