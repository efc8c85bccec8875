"""Export the chosen checkpoints into the package, each with the scores of the file as it ships.

    python -m experiments.ship

Every model is exported, scored through the runtime on each public set (tuebingen protocol, the set's own centre bias),
timed on one core, and exported again with these figures in its card. Its own centre bias becomes the mean of those of
the sets that it was trained on, since the product's pictures belong to none of them.
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
from fastgaze.data import formats
from fastgaze.data.fixations import held_out
from fastgaze.evaluation.bench import Setup, bench
from fastgaze.evaluation.models import open_model
from fastgaze.networks import GazeModel, load_checkpoint
from fastgaze.onnx.write import Facts, export_int8, export_onnx
from fastgaze.runtime.card import WorkingSize, read_card
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


def timing(path: Path) -> dict[str, Any]:
    """Milliseconds on one core, a 384x512 picture in, a 384x512 log density out."""
    figures = bench(Setup(str(path), (384, 512)), cold=False)
    return {key: figures[key] for key in ("median_ms", "peak_share", "own_size", "machine") if key in figures}


def ship(name: str, entry: dict[str, Any], data: Path, bias: torch.Tensor, calibrate: list[Path]) -> None:
    """Write ``NAME.onnx`` and, if its scores hold, ``NAME.int8.onnx`` into the package."""
    print(name, flush=True)
    model, _ = load_checkpoint(ROOT / entry["checkpoint"])
    assert isinstance(model, GazeModel)
    model.tail.center_bias.copy_(bias)
    facts = Facts(name, {}, DATA, "Apache-2.0", WorkingSize(pixels=entry.get("pixels", WorkingSize.pixels)))
    with tempfile.TemporaryDirectory() as folder:
        draft, small = Path(folder) / f"{name}.onnx", Path(folder) / f"{name}.int8.onnx"
        export_onnx(model, draft, facts)
        facts = replace(facts, scores=score(draft, data, SHIPPED) | {"one_core": timing(draft)})
        export_onnx(model, BUNDLED / f"{name}.onnx", facts)
        export_int8(model, small, facts, calibrate)
        reduced = score(small, data, SHIPPED[:1])
        key = "log_likelihood_bits"
        loss = facts.scores["salicon-val"]["means"][key] - reduced["salicon-val"]["means"][key]
        print(f"  int8 loses {loss:.4f} bits", flush=True)
        if loss <= INT8_LOSS:
            reduced |= score(small, data, SHIPPED[1:])
            facts = replace(facts, scores=reduced | {"one_core": timing(small)})
            export_int8(model, BUNDLED / f"{name}.int8.onnx", facts, calibrate)


def time_again(name: str, entry: dict[str, Any], bias: torch.Tensor, calibrate: list[Path]) -> None:
    """Measure what is bundled once more, on a machine that does nothing else, and keep its scores."""
    model, _ = load_checkpoint(ROOT / entry["checkpoint"])
    assert isinstance(model, GazeModel)
    model.tail.center_bias.copy_(bias)
    for path in (BUNDLED / f"{name}.onnx", BUNDLED / f"{name}.int8.onnx"):
        if path.is_file():
            card = read_card(path)
            scores = dict(card.scores) | {"one_core": timing(path)}
            facts = Facts(name, scores, DATA, "Apache-2.0", card.working_size)
            if card.precision == "int8":
                export_int8(model, path, facts, calibrate)
            else:
                export_onnx(model, path, facts)


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = common.make_parser(__doc__, __file__)
    parser.add_argument("--models", type=Path, default=CONFIGS / "ship.toml", help="the default, and each checkpoint")
    parser.add_argument("--only", nargs="*", help="names to ship; all by default")
    parser.add_argument("--times", action="store_true", help="only measure again, on a quiet machine")
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
            if options.times:
                time_again(name, entry, bias, calibrate)
            else:
                ship(name, entry, options.data, bias, calibrate)
    if (BUNDLED / f"{default}.onnx").is_file():
        write_index(BUNDLED, default)
    print(json.dumps({path.name: path.stat().st_size for path in sorted(BUNDLED.glob("*.onnx"))}, indent=2))


if __name__ == "__main__":
    main()
