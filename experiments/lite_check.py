"""How good and how well calibrated checkpoints are on what was kept out of their training, on the loss grid.

    python -m experiments.lite_check runs/lite0/best.safetensors --config experiments/configs/lite0.toml

For every set: bits per fixation over uniform, information gain over the set's centre bias, and the temperature that
would fit best: the factor on the log density before the centre bias is added. 1 is calibrated, below 1 the model is
overconfident. The scores of ``fastgaze evaluate`` are those to publish; these take seconds.
"""

import argparse
import json
from collections.abc import Sequence
from math import prod, sqrt
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from fastgaze.core.files import replacing
from fastgaze.networks import GazeModel, load_gaze_model
from fastgaze.networks.gaze import resize_grid
from fastgaze.training.config import read_config
from fastgaze.training.fit import cross_entropy, working_size
from fastgaze.training.stream import Source, fixation_source, in_order
from fastgaze.training.student import watched_sources

TEMPERATURES = np.arange(0.4, 1.61, 0.05)


@torch.inference_mode()
def losses(model: GazeModel, sources: Sequence[Source], scale: float) -> tuple[Tensor, Tensor, Tensor]:
    """Nats per fixation of every image: (temperatures, images) of the model, (images,) of centre bias and uniform."""
    columns, flat, uniform = [], [], []
    for batch in (batch for source in sources for batch in in_order(source, 16)):
        size = working_size(model, (batch.inputs.shape[2], batch.inputs.shape[3]), scale)
        inputs = torch.nn.functional.interpolate(batch.inputs, size, mode="bilinear", antialias=True)
        log_density = model(inputs, size=batch.grid, center_bias=torch.zeros(1, 1))
        bias = resize_grid(batch.center_bias, batch.grid)
        columns.append(torch.stack([_loss(t * log_density + bias, batch.targets) for t in TEMPERATURES]))
        flat.append(_loss(bias.expand_as(log_density), batch.targets))
        uniform.append(torch.full((len(bias),), float(np.log(batch.grid[0] * batch.grid[1]))))
    return torch.cat(columns, dim=1), torch.cat(flat), torch.cat(uniform)


def _loss(logits: Tensor, targets: Tensor) -> Tensor:
    return cross_entropy(logits - logits.logsumexp(dim=(1, 2), keepdim=True), targets)


def check(model: GazeModel, sources: Sequence[Source], scale: float) -> dict[str, float]:
    """The figures of one set."""
    ours, flat, uniform = losses(model, sources, scale)
    means, one = ours.double().mean(dim=1), int(np.abs(TEMPERATURES - 1).argmin())
    best = int(means.argmin())
    bits = 1 / np.log(2)
    return {
        "nats": float(means[one]),
        "bits": float(uniform.mean() - means[one]) * bits,
        "gain": float(flat.double().mean() - means[one]) * bits,
        "temperature": float(TEMPERATURES[best]),
        "fitted_gain": float(flat.double().mean() - means[best]) * bits,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoints", type=Path, nargs="+")
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--scale", type=float, help="of the images' sides; that of the training by default")
    parser.add_argument("--json", type=Path, help="file to write the figures to")
    options = parser.parse_args()
    workshop = read_config(options.config).workshop
    sets = {workshop.validation: [fixation_source(workshop.validation_set)], **watched_sources(workshop)}
    found = {}
    for path in options.checkpoints:
        model, record = load_gaze_model(path)
        area = prod(workshop.size)
        scale = options.scale or sqrt((record.working_pixels or area) / area)
        for name, sources in sets.items():
            found[f"{path}: {name}"] = figures = check(model, sources, scale)
            print(f"{path!s:40.40} {name:12} " + "  ".join(f"{k} {v:.3f}" for k, v in figures.items()), flush=True)
    if options.json:
        with replacing(options.json) as part:
            part.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
