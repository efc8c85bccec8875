"""Export the chosen checkpoints into the package, each with the scores of the file as it ships.

    python -m experiments.ship              everything in experiments/configs/ship.toml
    python -m experiments.ship --limit 8    a trial: 8 images of each set

Every model is exported and scored through the runtime on each public set (tuebingen protocol, the set's own centre
bias). The scores go into its card, with those of the SALICON images that did not also stop training, those of every
category of UEyes, and the temperature that would fit each set best. Its own centre bias becomes the mean of those of
the sets that it was trained on, faded at the border, where hardly anybody looks; beside it stand those of photographs
and of screens and what tells the two apart (`experiments.kinds`). Files that are no longer listed are removed, and the
pages that show the models are written again (`experiments.readme`). Times are measured by `experiments.speed` and lie
beside the files: a model that is timed or scored again stays the same model.
"""

import argparse
import json
import tempfile
import tomllib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from experiments import common, readme, scoring
from experiments.common import CONFIGS, ROOT
from experiments.kinds import center_biases, fit_kinds, learned
from experiments.scoring import SHIPPED, STOPPED_TRAINING
from experiments.timing import cpu, interleave, median
from fastgaze.core.files import replacing
from fastgaze.data.fixations import FixationSet
from fastgaze.evaluation.bench import sample_picture, timed_prediction
from fastgaze.evaluation.calibrate import fitted_temperature
from fastgaze.evaluation.models import RuntimeModel
from fastgaze.networks.checkpoint import load_gaze_model
from fastgaze.onnx.write import Facts, export_int8, export_onnx
from fastgaze.runtime.card import ModelCard, parse_card, with_card
from fastgaze.runtime.predictor import load
from fastgaze.runtime.zoo import BUNDLED, write_index

DATA = "SALICON (train); OSIE, EyeCrowd, UEyes without the tenth kept out; ImageNet weights of the trunk"
INT8_LOSS = 0.01  # bits of log-likelihood on SALICON val that an int8 file may lose and still ship
MOST_BYTES = 12_000_000  # of all bundled files together
BITS = "log_likelihood_bits"
IN_CATEGORIES = ("auc", "nss", BITS, "information_gain")


Array = NDArray[np.float32]


@dataclass(frozen=True)
class Model:
    """An entry of the settings: a checkpoint below the repository and how it ships."""

    checkpoint: Path
    int8: bool = False
    pixels: int | None = None
    seen: int = 0


@dataclass(frozen=True, eq=False)
class Inputs:
    """What all models need. sets: what they learned from. bias: the centre bias that they ship with, for a picture of
    any kind. calibration: image files for int8."""

    data: Path
    limit: int | None
    sets: dict[str, FixationSet]
    bias: Array
    calibration: list[Path]


def score(path: Path, name: str, inputs: Inputs) -> dict[str, Any]:
    """Means and intervals of every metric on one set, its parts, its baselines, and the temperature that fits best."""
    predictor, fixations = load(path, threads=1), scoring.load_set(name, inputs.data)
    found = scoring.score(RuntimeModel(predictor), name, inputs.data, inputs.limit, fixations)
    print(f"  {name}: {scoring.shown(found.means)}", flush=True)
    facts = scoring.facts(found)
    facts["baselines"] = {kind: scoring.rounded({"auc": means["auc"]}) for kind, means in found.baselines.items()}
    facts["temperature"] = round(fitted_temperature(predictor, fixations, _scored(name, fixations, inputs)), 2)
    if name == "salicon-val":
        facts["did_not_stop_training"] = scoring.part(found, fixations.names[STOPPED_TRAINING:])
    names = {str(row["name"]) for row in found.rows}
    facts["categories"] = {
        kind: _category(scoring.part(found, own))
        for kind, own in scoring.categories(name, inputs.data).items()
        if names.intersection(own)
    }
    return facts


def _scored(name: str, fixations: FixationSet, inputs: Inputs) -> list[int]:
    return [int(i) for i in scoring.chosen(name, fixations, inputs.limit)]


def _category(facts: dict[str, Any]) -> dict[str, Any]:
    return {"images": facts["images"], "means": {metric: facts["means"][metric] for metric in IN_CATEGORIES}}


def publish(file: Path, card: ModelCard, scores: dict[str, Any], inputs: Inputs) -> None:
    """Copy an exported file into the package, with ``scores`` and how it tells kinds of pictures apart in its card."""
    card = replace(card, scores=scores, kinds=fit_kinds(file, inputs.sets))
    with replacing(BUNDLED / file.name) as part:
        part.write_bytes(with_card(file.read_bytes(), card))


def ship(name: str, entry: Model, inputs: Inputs) -> list[str]:
    """Write ``NAME.onnx`` and, if it holds and helps, ``NAME.int8.onnx`` into the package; returns their names."""
    print(name, flush=True)
    model, record = load_gaze_model(ROOT / entry.checkpoint)
    model.tail.center_bias.copy_(torch.from_numpy(inputs.bias))
    facts = replace(Facts.of(name, record, entry.pixels), data=DATA, seen_pixels=entry.seen)
    with tempfile.TemporaryDirectory() as folder:
        draft, small = Path(folder) / f"{name}.onnx", Path(folder) / f"{name}.int8.onnx"
        card = export_onnx(model, draft, facts)
        scores = {each: score(draft, each, inputs) for each in SHIPPED}
        publish(draft, card, scores, inputs)
        if not entry.int8:
            return [draft.name]
        card = export_int8(model, small, facts, inputs.calibration)
        reduced = {SHIPPED[0]: score(small, SHIPPED[0], inputs)}
        loss = scores[SHIPPED[0]]["means"][BITS] - reduced[SHIPPED[0]]["means"][BITS]
        share = time_share(small, draft)
        print(f"  int8 loses {loss:.4f} bits and takes {share:.2f} of the time", flush=True)
        if loss > INT8_LOSS or share >= 1:
            return [draft.name]
        publish(small, card, reduced | {each: score(small, each, inputs) for each in SHIPPED[1:]}, inputs)
        return [draft.name, small.name]


def write_biases(inputs: Inputs) -> None:
    """Give the bundled files the centre biases of today; their scores have those of the sets, and stay."""
    for path in BUNDLED.glob("*.onnx"):
        content = path.read_bytes()
        card = replace(parse_card(content, path.name), center_bias=inputs.bias, kinds=fit_kinds(path, inputs.sets))
        with replacing(path) as part:
            part.write_bytes(with_card(content, card))


def time_share(file: Path, other: Path, rounds: int = 15) -> float:
    """CPU time of one model file relative to another, on one core, in turn."""
    picture = sample_picture((384, 512))
    runs = {path: partial(timed_prediction, load(path, threads=1), picture) for path in (file, other)}
    times = interleave(runs, rounds, 3)
    return median(cpu(times[file]) / cpu(times[other]))


def bundled_bytes() -> int:
    """Of all files of the package's folder of models."""
    return sum(path.stat().st_size for path in BUNDLED.rglob("*") if path.is_file())


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = common.make_parser(__doc__, __file__)
    parser.add_argument("--models", type=Path, default=CONFIGS / "ship.toml", help="the default, and each checkpoint")
    parser.add_argument("--only", nargs="*", help="names to ship; all by default")
    parser.add_argument("--biases", action="store_true", help="write the centre biases alone into the bundled files")
    parser.add_argument("--limit", type=int, help="score only this many images of each set, evenly spread")
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    """Export, score and index; then write the pages again."""
    options = common.parse(make_parser(), arguments)
    wanted = tomllib.loads(options.models.read_text())
    entries = {name: Model(**entry) for name, entry in wanted["models"].items()}
    calibration = sorted((options.data / "salicon/train/images").glob("*.webp"))[::80]
    sets = learned(options.data)
    inputs = Inputs(options.data, options.limit, sets, center_biases(sets)[0], calibration)
    if options.biases:
        write_biases(inputs)
    else:
        ship_all(entries, inputs, options.only)
    write_index(BUNDLED, wanted["default"])
    print(json.dumps({path.name: path.stat().st_size for path in sorted(BUNDLED.glob("*.onnx"))}, indent=2))
    readme.main([])
    if (total := bundled_bytes()) > MOST_BYTES:
        raise SystemExit(f"the bundled models have {total:,} bytes together, more than {MOST_BYTES:,}")


def ship_all(entries: Mapping[str, Model], inputs: Inputs, only: Collection[str] | None) -> None:
    """Ship every entry, or ``only`` some, and remove the files of models that are no longer listed."""
    BUNDLED.mkdir(exist_ok=True)
    shipped = [
        file for name, entry in entries.items() if not only or name in only for file in ship(name, entry, inputs)
    ]
    for path in BUNDLED.glob("*.onnx"):
        name = path.name.split(".")[0]
        left = name not in entries or (path.name not in shipped and (not only or name in only))
        if left:
            path.unlink()


if __name__ == "__main__":
    main()
