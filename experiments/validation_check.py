"""Validation loss of checkpoints by working size, on photographs and on what is made of them.

    python -m experiments.validation_check runs/varied/fastgaze-m/best.safetensors --scales 0.95 1.0

Nats per fixation on the loss grid: photographs of the validation set, those of them whose variant leaves things in
place, in that variant, and the images of the eye-tracking sets that were trained on.
"""

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np

from fastgaze.core.spec import scaled_size
from fastgaze.networks import load_checkpoint
from fastgaze.training.config import read_config
from fastgaze.training.datasets import Workshop
from fastgaze.training.fit import validate
from fastgaze.training.stream import Source, fixation_source
from fastgaze.training.variants import CHANGES, IN_PLACE, variant


def sources(workshop: Workshop, first: int, last: int) -> dict[str, Source]:
    """What the columns are computed on, by name."""
    photographs = workshop.prepared(workshop.validation).subset(np.arange(first, last))
    changed = replace(photographs, images=np.stack([variant(p, i) for i, p in enumerate(photographs.images)]))
    in_place = [i for i in range(len(changed)) if CHANGES[i % len(CHANGES)] in IN_PLACE]
    columns = {"photographs": photographs, "variants": changed.subset(np.array(in_place))}
    columns |= {data.name: data for data in workshop.small}
    return {name: fixation_source(data) for name, data in columns.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoints", type=Path, nargs="+")
    parser.add_argument("--config", type=Path, default=Path("experiments/configs/full.toml"))
    parser.add_argument("--scales", type=float, nargs="+", default=[1.0], help="of the sides of the workshop's images")
    parser.add_argument("--images", type=int, nargs=2, default=(200, 340), metavar=("FIRST", "LAST"))
    options = parser.parse_args()
    workshop = read_config(options.config).workshop
    columns = sources(workshop, *options.images)
    print(f"{'':40} {'size':>8}  " + "  ".join(f"{name:>11}" for name in columns))
    for path in options.checkpoints:
        model, _ = load_checkpoint(path)
        for scale in options.scales:
            height, width = scaled_size(workshop.size, scale, model.stride)
            losses = [validate(model, source, scale=scale) for source in columns.values()]
            print(
                f"{path!s:40.40} {f'{height}x{width}':>8}  " + "  ".join(f"{loss:11.4f}" for loss in losses), flush=True
            )


if __name__ == "__main__":
    main()
