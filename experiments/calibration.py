"""What calibrating a model on a few images gains on other images of the same set.

    python -m experiments.calibration --model fastgaze-m --set ueyes --images 12 24 48 96

`fastgaze calibrate` is run on that many images, evenly spread over those that are not held out, and both models are
scored on held-out images (tuebingen protocol, each with its own centre bias).
"""

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from experiments import common, scoring
from experiments.common import RESULTS, Record
from experiments.starts import model_file
from fastgaze.data import formats
from fastgaze.data.fixations import FixationSet, held_out
from fastgaze.evaluation.calibrate import calibrate
from fastgaze.evaluation.evaluate import evaluate
from fastgaze.evaluation.models import open_model
from fastgaze.runtime.zoo import default_name

METRICS = ("auc", "nss", "log_likelihood_bits", "information_gain")


def spread(count: int, most: int) -> list[int]:
    """At most ``most`` of the numbers below ``count``, evenly spread."""
    return [int(i) for i in np.linspace(0, count - 1, min(count, most)).round()]


def score(model: str | Path, data: FixationSet) -> dict[str, float]:
    """Means over all images, with the model's own centre bias."""
    found = evaluate(open_model([str(model)], threads=1), data, center_bias="model", resamples=10)
    return {metric: round(found.means[metric], scoring.DIGITS) for metric in METRICS}


def measure(model: str, data: FixationSet, name: str, images: int, others: FixationSet) -> Record:
    """Calibrate on ``images`` images of ``data`` that are not held out, and score on ``others``."""
    allowed = np.flatnonzero(~held_out(data.names))
    found = calibrate(model, data.subset(allowed[spread(len(allowed), images)]), name, threads=1)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "calibrated.onnx"
        found.write(path)
        return found.to_json() | {"held_out": score(path, others)}


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = common.make_parser(__doc__, __file__, out=RESULTS / "calibration.json")
    parser.add_argument(
        "--model", default=default_name(), help="a bundled model, one of the paper's line, or an .onnx file"
    )
    parser.add_argument("--set", default="ueyes", help="folder of the data set below --data")
    parser.add_argument("--images", type=int, nargs="+", default=[12, 24, 48, 96], help="to calibrate on")
    parser.add_argument("--limit", type=int, default=150, help="held-out images to score, evenly spread")
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    """Print one line for each number of images, and write all of it to a file."""
    options = common.parse(make_parser(), arguments)
    model, data = str(model_file(options.model)), formats.load("auto", options.data / options.set)
    out = np.flatnonzero(held_out(data.names))
    others = data.subset(out[spread(len(out), options.limit)])
    before = score(model, others)
    print(
        f"{options.model}, {len(others)} held-out images of {options.set}: {scoring.shown(before)}",
        flush=True,
    )
    rows = []
    for images in options.images:
        rows.append(measure(model, data, options.set, images, others))
        parts = [f"{part['name']} {part['after']}" for part in rows[-1]["parts"] if part["adopted"]]
        print(f"{images} images: {scoring.shown(rows[-1]['held_out'])}; {', '.join(parts)}", flush=True)
    record = common.about(options, model=options.model, set=options.set, held_out=len(others), threads=1)
    common.write_record(options.out, record | {"before": before, "rows": rows})


if __name__ == "__main__":
    main()
