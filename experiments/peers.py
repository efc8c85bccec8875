"""Do the bundled models beat Twitter's own FastGaze, on images that none of them was trained on?

    python -m experiments.peers
    python -m experiments.peers --readings    how much depends on what the peer's file leaves open

The peer is scored at its own size (640 wide) on the kept-out tenths of OSIE and EyeCrowd and on CAT2000, tuebingen
protocol, each set's own centre bias: the same as `fastgaze evaluate FILE --data SET [--held-out]`. The bundled models'
scores are those in their cards, which `experiments.ship` measured on the same images; with --limit they are measured
again, since a part is not the whole. The numbers go to results/peers.json.

The peer's file does not say what lies beyond the border of its last layer, a blur; so --readings scores every reading
of the border, and the network without the blur.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments import common, scoring
from experiments.common import PEER, RESULTS, Record
from fastgaze.evaluation.evaluate import LogDensityModel
from fastgaze.evaluation.models import open_model
from fastgaze.evaluation.peers import BORDERS, TwitterFastGaze
from fastgaze.runtime.zoo import models

SETS = ("osie-held-out", "eyecrowd-held-out", "cat2000")
METRICS = ("auc", "nss", "information_gain")
READINGS: dict[str, dict[str, Any]] = {
    **{f"border: {border}": {"border": border} for border in BORDERS},
    "without the blur": {"blurred": False},
}


def score(model: LogDensityModel, name: str, options: argparse.Namespace) -> Record:
    """Images, means and intervals of one model on one set."""
    return _shown(scoring.facts(scoring.score(model, name, options.data, options.limit)))


def _shown(facts: Record) -> Record:
    parts = {key: {metric: facts[key][metric] for metric in METRICS} for key in ("means", "intervals")}
    return {"images": facts["images"], **parts}


def compare(name: str, options: argparse.Namespace) -> Record:
    """The peer and every bundled model on one set."""
    rows = {}
    for model in models():
        known = None if options.limit else model.scores.get(name)
        if known is not None:
            rows[model.name] = _shown(known)
        else:
            rows[model.name] = score(open_model([model.name], threads=options.threads), name, options)
    return {"peer": score(TwitterFastGaze(options.peer, threads=options.threads), name, options), "models": rows}


def read_otherwise(name: str, options: argparse.Namespace) -> Record:
    """Scores of every reading of the peer's file."""
    return {
        reading: score(TwitterFastGaze(options.peer, threads=options.threads, **how), name, options)
        for reading, how in READINGS.items()
    }


def lines(name: str, rows: dict[str, Record]) -> str:
    """One set, printed."""
    images = next(iter(rows.values()))["images"]
    table = [f"{name}, {images} images: {' / '.join(METRICS)}"]
    for model, row in rows.items():
        table.append(f"  {model:22} " + " / ".join(f"{row['means'][metric]:.3f}" for metric in METRICS))
    return "\n".join(table)


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = common.make_parser(__doc__, __file__, out=RESULTS / "peers.json", tiny="4 images", threads=True)
    parser.add_argument("--peer", type=Path, default=PEER)
    parser.add_argument("--readings", action="store_true", help="score other readings of the peer's file instead")
    parser.add_argument("--sets", nargs="+", choices=SETS, default=SETS)
    parser.add_argument("--limit", type=int, help="score only this many images of each set, evenly spread")
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    """Score what is asked for and put it into the record, beside what was there."""
    options = common.parse(make_parser(), arguments)
    options.limit = 4 if options.tiny else options.limit
    record = common.read_record(options.out) or {}
    part = "readings" if options.readings else "sets"
    settings = {"protocol": "tuebingen", "engine": "onnxruntime, fp32", "width": 640, "limit": options.limit}
    found = common.about(options, **settings) | {"scores": {}}
    for name in options.sets:
        own = read_otherwise(name, options) if options.readings else compare(name, options)
        found["scores"][name] = own
        rows = own if options.readings else {"peer": own["peer"], **own["models"]}
        print(lines(name, rows), flush=True)
        common.write_record(options.out, record | {part: found})


if __name__ == "__main__":
    main()
