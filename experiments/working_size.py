"""What a smaller working size costs in score and saves in time: one model at several sizes, on validation images only.

    python -m experiments.working_size tiny --pixels 76800 56576 49152 42240 --limit 200

Scores are those on salicon/val (tuebingen protocol, own centre bias); milliseconds are CPU time on one core from a
512x384 array to its log density, all sizes in turn.
"""

import argparse
import json
from collections.abc import Sequence
from dataclasses import replace

from experiments import common, scoring
from experiments.starts import model_file
from experiments.timing import Timed, cpu, interleave, median
from fastgaze.evaluation.bench import sample_picture, timed_prediction
from fastgaze.evaluation.models import RuntimeModel
from fastgaze.runtime.predictor import Predictor, load

SIZE = (384, 512)
METRICS = ("auc", "nss", "log_likelihood_bits")


def at_pixels(predictor: Predictor, pixels: int) -> Predictor:
    """The same model with another area to aim at."""
    return predictor.working_at(replace(predictor.card.working_size, pixels=pixels))


def timed(predictor: Predictor) -> Timed:
    """One prediction of a fixed picture."""
    picture = sample_picture(SIZE)
    return lambda: timed_prediction(predictor, picture)


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = common.make_parser(__doc__, __file__, rounds=20)
    parser.add_argument("model", help="a bundled model, one of the paper's line, or an .onnx file")
    parser.add_argument("--pixels", type=int, nargs="+", required=True)
    parser.add_argument("--limit", type=int, default=200, help="images, evenly spread")
    parser.add_argument("--json", action="store_true")
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    """Score and time every size; print a table, or JSON with --json."""
    options = common.parse(make_parser(), arguments)
    predictors = {pixels: at_pixels(load(model_file(options.model), threads=1), pixels) for pixels in options.pixels}
    times = interleave({pixels: timed(each) for pixels, each in predictors.items()}, options.rounds, 1)
    rows = []
    for pixels, predictor in predictors.items():
        height, width = predictor.card.working_size(SIZE)
        means = scoring.score(RuntimeModel(predictor), "salicon-val", options.data, options.limit).means
        row = {"pixels": pixels, "network_size": f"{width}x{height}", "cpu_ms": median(cpu(times[pixels]))}
        rows.append(row | {metric: round(means[metric], scoring.DIGITS) for metric in METRICS})
        if not options.json:
            print("  ".join(f"{key} {value}" for key, value in rows[-1].items()), flush=True)
    if options.json:
        record = common.about(options, model=options.model, images=options.limit, threads=1)
        print(json.dumps(record | {"rows": rows}, indent=2))


if __name__ == "__main__":
    main()
