"""Export the chosen checkpoints into the package, each with the scores of the file as it ships.

    python -m experiments.ship

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

from experiments import common, scoring
from experiments.common import CONFIGS, ROOT
from experiments.scoring import SETS, SHIPPED
from fastgaze.core.center_bias import resample_log_density
from fastgaze.core.files import replacing
from fastgaze.data import formats
from fastgaze.data.fixations import held_out
from fastgaze.evaluation.models import open_model
from fastgaze.networks import GazeModel, load_checkpoint
from fastgaze.onnx.write import Facts, export_int8, export_onnx
from fastgaze.runtime.card import ModelCard, WorkingSize, with_card
from fastgaze.runtime.zoo import BUNDLED, write_index
from fastgaze.training.datasets import dataset_center_bias

TRAINED_ON = ("salicon/train", "osie", "eyecrowd")
DATA = "SALICON (train), OSIE and EyeCrowd without the tenth that is kept out; ImageNet weights of VGG or DenseNet"
INT8_LOSS = 0.01  # bits of log-likelihood on SALICON val that an int8 file may lose and still ship


def mean_center_bias(data: Path) -> torch.Tensor:
    """Log of the mean density of the training sets' centre biases, on the fixed grid; no held-out image counts."""
    sets = {name: formats.load("npz", data / name) for name in TRAINED_ON}
    for scored in SETS.values():
        if scored.kept_out:
            sets[scored.folder] = sets[scored.folder].subset(~held_out(sets[scored.folder].names))
    biases = [dataset_center_bias(fixations) for fixations in sets.values()]
    mean = np.log(np.mean([np.exp(bias) for bias in biases], axis=0))
    return torch.from_numpy(resample_log_density(mean, mean.shape).astype(np.float32))


def score(path: Path, data: Path, sets: Sequence[str]) -> dict[str, Any]:
    """Means and intervals of every metric, by set."""
    scores: dict[str, Any] = {}
    for name in sets:
        found = scoring.score(open_model([str(path)], threads=2), name, data)
        scores[name] = scoring.facts(found)
        print(f"  {name}: {scoring.shown(found.means)}", flush=True)
    return scores


def publish(file: Path, card: ModelCard, scores: dict[str, Any]) -> None:
    """Copy an exported file into the package with ``scores`` in its card and every other byte as it is."""
    with replacing(BUNDLED / file.name) as part:
        part.write_bytes(with_card(file.read_bytes(), replace(card, scores=scores)))


def ship(name: str, entry: dict[str, Any], data: Path, bias: torch.Tensor, calibrate: list[Path]) -> None:
    """Write ``NAME.onnx`` and, if its scores hold, ``NAME.int8.onnx`` into the package."""
    print(name, flush=True)
    model, _ = load_checkpoint(ROOT / entry["checkpoint"])
    assert isinstance(model, GazeModel)
    model.tail.center_bias.copy_(bias)
    facts = Facts(name, {}, DATA, "Apache-2.0", WorkingSize(pixels=entry.get("pixels", WorkingSize.pixels)))
    with tempfile.TemporaryDirectory() as folder:
        draft, small = Path(folder) / f"{name}.onnx", Path(folder) / f"{name}.int8.onnx"
        card = export_onnx(model, draft, facts)
        scores = score(draft, data, SHIPPED)
        publish(draft, card, scores)
        card = export_int8(model, small, facts, calibrate)
        reduced = score(small, data, SHIPPED[:1])
        key = "log_likelihood_bits"
        loss = scores["salicon-val"]["means"][key] - reduced["salicon-val"]["means"][key]
        print(f"  int8 loses {loss:.4f} bits", flush=True)
        if loss <= INT8_LOSS:
            publish(small, card, reduced | score(small, data, SHIPPED[1:]))


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = common.make_parser(__doc__, __file__)
    parser.add_argument("--models", type=Path, default=CONFIGS / "ship.toml", help="the default, and each checkpoint")
    parser.add_argument("--only", nargs="*", help="names to ship; all by default")
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    """Export, score and index."""
    options = common.parse(make_parser(), arguments)
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
