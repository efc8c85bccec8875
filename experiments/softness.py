"""What it is worth to make large pictures as soft as the images that the models learned from.

    python -m experiments.softness

Training scaled every image to 320x240 first and from there to the working size of the network, so a network that gets a
picture of 512x384 pixels in one step sees it sharper than anything it learned from. The cards of the bundled models
therefore say how many pixels training saw (`seen_pixels`), and the runtime widens its filter (`runtime.resize`). Each
model is scored with that and without it, and also with it where its card does not ask for it, on the images that were
kept out of training. Writes results/softness.json and a part of docs/models.md.
"""

import argparse
from collections.abc import Sequence
from dataclasses import replace

from experiments import common, scoring
from experiments.common import DOCS, RESULTS, Record
from experiments.pages import fill, table
from fastgaze.evaluation.models import RuntimeModel
from fastgaze.runtime import zoo
from fastgaze.runtime.engines import make_engine
from fastgaze.runtime.predictor import Predictor

MODELS = ("large", "default", "small", "tiny")
KEPT_OUT = ("osie-held-out", "eyecrowd-held-out", "ueyes-held-out")
SEEN = 320 * 240
BITS = "log_likelihood_bits"


def with_seen(name: str, pixels: int) -> Predictor:
    """A bundled model as if training had seen images of so many pixels."""
    path, content, card = zoo.read_model(name)
    return Predictor(replace(card, seen_pixels=pixels), make_engine(path, content, threads=1))


def shown(record: Record) -> str:
    """The part of the page: bits per fixation as sharp as they are and softened, for each model and set."""
    rows = [
        [f"`{row['model']}`", "yes" if row["seen_pixels"] else "no", *(_cell(row[name]) for name in KEPT_OUT)]
        for row in record["rows"]
    ]
    about = (
        "Bits per fixation of pictures that are scaled to the working size as they are, and of pictures that are made "
        "as soft as training saw them; the second column says which of the two the model ships with "
        "(`python -m experiments.softness`, images kept out of training)."
    )
    return f"{table(['model', 'ships soft', 'OSIE', 'EyeCrowd', 'UEyes (screens)'], rows)}\n\n{about}"


def _cell(bits: Record) -> str:
    return f"{bits['sharp']:.3f}, {bits['soft']:.3f}"


def measure(name: str, options: argparse.Namespace) -> Record:
    """One model on every set, both ways."""
    row: Record = {"model": name, "seen_pixels": zoo.read_model(name)[2].seen_pixels}
    for data in KEPT_OUT:
        row[data] = {}
        for way, pixels in (("sharp", 0), ("soft", SEEN)):
            found = scoring.score(RuntimeModel(with_seen(name, pixels)), data, options.data, options.limit)
            row[data][way] = round(found.means[BITS], scoring.DIGITS)
        print(name, data, row[data], flush=True)
    return row


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = common.make_parser(__doc__, __file__, out=RESULTS / "softness.json")
    parser.add_argument("--limit", type=int, help="score only this many images of each set, evenly spread")
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    """Score every model, write the figures and the page."""
    options = common.parse(make_parser(), arguments)
    record = common.about(options, threads=1) | {"rows": [measure(name, options) for name in MODELS]}
    common.write_record(options.out, record)
    fill(DOCS / "models.md", "softness", shown(record))


if __name__ == "__main__":
    main()
