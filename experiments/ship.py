"""Export the chosen checkpoints into the package, each with the scores of the file as it ships.

    .venv/bin/python -m experiments.ship experiments/configs/ship.toml --data ../shared/data

Every model is exported and scored through the runtime on each public set (tuebingen protocol, the set's own centre
bias), and the scores are written into its card. Its own centre bias becomes the mean of those of the sets that it was
trained on, since the product's pictures belong to none of them. Times are measured by `experiments.speed` and lie
beside the files: a model that is timed or scored again stays the same model.
"""

import argparse
import json
import tempfile
import tomllib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fastgaze.core.center_bias import resample_log_density
from fastgaze.core.files import replacing
from fastgaze.data import formats
from fastgaze.data.fixations import FixationSet, held_out
from fastgaze.evaluation.evaluate import evaluate
from fastgaze.evaluation.models import open_model
from fastgaze.networks import GazeModel, load_checkpoint
from fastgaze.onnx.write import Facts, export_int8, export_onnx
from fastgaze.runtime.card import ModelCard, WorkingSize, with_card
from fastgaze.runtime.zoo import BUNDLED, write_index
from fastgaze.training.datasets import dataset_center_bias

TRAINED_ON = ("salicon/train", "osie", "eyecrowd")
DATA = "SALICON (train), OSIE and EyeCrowd without the tenth that is kept out; ImageNet weights of VGG or DenseNet"
# Name in the card, folder, only the images that are kept out of training.
SETS = (
    ("salicon-val", "salicon/val", False),
    ("osie-held-out", "osie", True),
    ("eyecrowd-held-out", "eyecrowd", True),
    ("cat2000", "cat2000", False),
)
INT8_LOSS = 0.01  # bits of log-likelihood on SALICON val that an int8 file may lose and still ship


def mean_center_bias(data: Path) -> torch.Tensor:
    """Log of the mean density of the training sets' centre biases, on the fixed grid; no held-out image counts."""
    sets = {name: formats.load("npz", data / name) for name in TRAINED_ON}
    for _, folder, only_held_out in SETS:
        if only_held_out:
            sets[folder] = sets[folder].subset(~held_out(sets[folder].names))
    biases = [dataset_center_bias(fixations) for fixations in sets.values()]
    mean = np.log(np.mean([np.exp(bias) for bias in biases], axis=0))
    return torch.from_numpy(resample_log_density(mean, mean.shape).astype(np.float32))


def score(path: Path, data: Path, sets: Sequence[tuple[str, str, bool]]) -> dict[str, Any]:
    """Means and intervals of every metric, by set."""
    scores: dict[str, Any] = {}
    for name, folder, only_held_out in sets:
        fixations: FixationSet = formats.load("npz", data / folder)
        only = np.flatnonzero(held_out(fixations.names)) if only_held_out else None
        result = evaluate(open_model([str(path)], threads=2), fixations, only=only)
        scores[name] = {
            "images": result.images,
            "means": {metric: round(value, 4) for metric, value in result.means.items()},
            "intervals": {metric: [round(v, 4) for v in pair] for metric, pair in result.intervals.items()},
        }
        print(f"  {name}: " + ", ".join(f"{m} {v:.4f}" for m, v in result.means.items()), flush=True)
    return scores


def publish(file: Path, card: ModelCard, scores: dict[str, Any]) -> None:
    """Copy an exported file into the package with ``scores`` in its card and every other byte as it is."""
    with replacing(BUNDLED / file.name) as part:
        part.write_bytes(with_card(file.read_bytes(), replace(card, scores=scores)))


def ship(name: str, entry: dict[str, Any], data: Path, bias: torch.Tensor, calibrate: list[Path]) -> None:
    """Write ``NAME.onnx`` and, if its scores hold, ``NAME.int8.onnx`` into the package."""
    print(name, flush=True)
    model, _ = load_checkpoint(entry["checkpoint"])
    assert isinstance(model, GazeModel)
    model.tail.center_bias.copy_(bias)
    facts = Facts(name, {}, DATA, "Apache-2.0", WorkingSize(pixels=entry.get("pixels", WorkingSize.pixels)))
    with tempfile.TemporaryDirectory() as folder:
        draft, small = Path(folder) / f"{name}.onnx", Path(folder) / f"{name}.int8.onnx"
        card = export_onnx(model, draft, facts)
        scores = score(draft, data, SETS)
        publish(draft, card, scores)
        card = export_int8(model, small, facts, calibrate)
        reduced = score(small, data, SETS[:1])
        key = "log_likelihood_bits"
        loss = scores["salicon-val"]["means"][key] - reduced["salicon-val"]["means"][key]
        print(f"  int8 loses {loss:.4f} bits", flush=True)
        if loss <= INT8_LOSS:
            publish(small, card, reduced | score(small, data, SETS[1:]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", type=Path, help="TOML: default, and a table a model with checkpoint and pixels")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--only", nargs="*", help="names to ship; all by default")
    options = parser.parse_args()
    wanted = tomllib.loads(options.models.read_text())
    default = wanted.pop("default")
    BUNDLED.mkdir(exist_ok=True)
    bias = mean_center_bias(options.data)
    calibrate = sorted((options.data / "salicon/train/images").glob("*.webp"))[::80]
    for name, entry in wanted.items():
        if not options.only or name in options.only:
            ship(name, entry, options.data, bias, calibrate)
    if (BUNDLED / f"{default}.onnx").is_file():
        write_index(BUNDLED, default)
    print(json.dumps({path.name: path.stat().st_size for path in sorted(BUNDLED.glob("*.onnx"))}, indent=2))


if __name__ == "__main__":
    main()
