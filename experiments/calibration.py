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
from experiments.common import DOCS, RESULTS, Record
from experiments.pages import fill, table
from experiments.starts import model_file
from fastgaze.data import formats
from fastgaze.data.fixations import FixationSet, held_out
from fastgaze.evaluation.calibrate import calibrate
from fastgaze.evaluation.evaluate import evaluate
from fastgaze.evaluation.models import open_model
from fastgaze.runtime.zoo import default_name

METRICS = ("auc", "nss", "log_likelihood_bits", "information_gain")
PARTS = {
    "temperature": "temperature",
    "blur": "blur, pixels",
    "center_bias": "centre bias",
    "center_bias_weight": "its weight",
}


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


def shown(record: Record) -> str:
    """The part of the page: scores before and after, what was adopted, and what the folds had promised."""
    first = {part["name"]: part["before"] for part in record["rows"][0]["parts"]}
    head = ["calibrated on", "AUC", "NSS", "bits over uniform", "bits over the set's centre bias", *PARTS.values()]
    rows = [["nothing", *_scores(record["before"]), *(_part(first[name]) for name in PARTS)]]
    for row in record["rows"]:
        used = {part["name"]: part["after" if part["adopted"] else "before"] for part in row["parts"]}
        rows.append([f"{row['images']} images", *_scores(row["held_out"]), *(_part(used[name]) for name in PARTS)])
    gains = [
        f"{row['held_out']['log_likelihood_bits'] - record['before']['log_likelihood_bits']:+.2f} after "
        f"{row['images']} images, where the folds had promised {row['after'] - row['before']:+.2f} "
        f"± {row['error']:.2f}"
        for row in record["rows"]
    ]
    settings, machine = record["settings"], record["machine"]
    how = (
        f"Scored on {settings['held_out']} other images of {settings['set']} (`{record['command']}`; "
        f"{machine['processor']}, {machine['cores']} cores, onnxruntime, {settings['threads']} thread, the model's own "
        "working size; `tuebingen` protocol, each model with its own centre bias)."
    )
    return f"{table(head, rows)}\n\n{how} Bits per fixation gained on them: {'; '.join(gains)}."


def _scores(means: dict[str, float]) -> list[str]:
    return [f"{means[metric]:.{3 if metric == 'auc' else 2}f}" for metric in METRICS]


def _part(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.2f}"


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
    record |= {"before": before, "rows": rows}
    common.write_record(options.out, record)
    if options.out == RESULTS / "calibration.json":
        fill(DOCS / "calibrate.md", "screens", shown(record))


if __name__ == "__main__":
    main()
