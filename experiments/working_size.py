"""What a smaller working size costs in score and saves in time: one model at several sizes, on validation images only.

    python -m experiments.working_size fastgaze-xs --pixels 76800 56576 49152 42240 --data ../shared/data --limit 200

Scores are those of the first images of salicon/val (tuebingen, own centre bias); milliseconds are CPU time on one core
from a 384x512 array to its log density, all sizes in turn.
"""

import os

os.environ.update({f"{library}_NUM_THREADS": "1" for library in ("OMP", "OPENBLAS", "MKL")})

import argparse
import json
from dataclasses import replace
from pathlib import Path

import numpy as np

from fastgaze.data import formats
from fastgaze.evaluation.bench import sample_picture, timed_prediction
from fastgaze.evaluation.evaluate import evaluate
from fastgaze.evaluation.models import RuntimeModel
from fastgaze.runtime.predictor import Predictor, load

SIZE = (384, 512)


def at_pixels(predictor: Predictor, pixels: int) -> Predictor:
    """The same model with another area to aim at."""
    return predictor.working_at(replace(predictor.card.working_size, pixels=pixels))


def milliseconds(predictors: list[Predictor], rounds: int) -> list[float]:
    """Median CPU time of one prediction of each."""
    picture = sample_picture(SIZE)
    rows = [[timed_prediction(each, picture) for each in predictors] for _ in range(rounds + 3)][3:]
    times = [[1e3 * sum(step.cpu for step in clock.steps.values()) for clock in row] for row in rows]
    return [float(value) for value in np.median(times, axis=0)]


def main() -> None:
    """Score and time every size; print a table, and JSON with --json."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="a bundled model or an .onnx file")
    parser.add_argument("--pixels", type=int, nargs="+", required=True)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--limit", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    predictors = [at_pixels(load(options.model, threads=1), pixels) for pixels in options.pixels]
    times = milliseconds(predictors, options.rounds)
    fixations = formats.load("npz", options.data / "salicon/val")
    rows = []
    for predictor, time in zip(predictors, times, strict=True):
        means = evaluate(
            RuntimeModel(predictor), fixations, resamples=1, only=np.arange(min(options.limit, len(fixations)))
        ).means
        size = predictor.card.working_size(SIZE)
        row = {"pixels": predictor.card.working_size.pixels, "network_size": list(size), "cpu_ms": round(time, 3)}
        row |= {metric: round(means[metric], 4) for metric in ("auc", "nss", "log_likelihood_bits")}
        rows.append(row)
        if not options.json:
            print("  ".join(f"{key} {value}" for key, value in row.items()), flush=True)
    if options.json:
        print(json.dumps({"model": options.model, "images": options.limit, "rows": rows}, indent=2))


if __name__ == "__main__":
    main()
