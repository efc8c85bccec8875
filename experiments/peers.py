"""Do the bundled models beat Twitter's own FastGaze, on images that none of them was trained on?

    python -m experiments.peers [--peer FILE] [--data ../shared/data] [--limit N] [--threads 2]

The peer is scored at its own size (640 wide) on the kept-out tenths of OSIE and EyeCrowd and on CAT2000, tuebingen
protocol, each set's own centre bias: the same as `fastgaze evaluate FILE --data SET [--held-out]`. The bundled models'
scores are those in their cards, which `experiments/ship.py` measured on the same images; with --limit they are measured
anew, since a part is not the whole. Speed comes from results/speed.json. The numbers go to
results/peers.json.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from fastgaze.data import formats
from fastgaze.data.fixations import held_out
from fastgaze.evaluation.evaluate import evaluate
from fastgaze.evaluation.models import open_model
from fastgaze.runtime.zoo import models

# Name in a card, folder, only the images that are kept out of training: as in experiments/ship.py.
SETS = (("osie-held-out", "osie", True), ("eyecrowd-held-out", "eyecrowd", True), ("cat2000", "cat2000", False))
METRICS = ("auc", "nss", "information_gain")


def score(model: str, data: Path, folder: str, only_held_out: bool, options: argparse.Namespace) -> dict[str, Any]:
    """Images and means of one model on one set."""
    fixations = formats.load("npz", data / folder)
    chosen = np.flatnonzero(held_out(fixations.names)) if only_held_out else np.arange(len(fixations))
    if options.limit is not None and options.limit < len(chosen):
        chosen = chosen[np.linspace(0, len(chosen) - 1, options.limit).astype(int)]
    result = evaluate(open_model([model], threads=options.threads), fixations, only=chosen)
    return {
        "images": result.images,
        "means": {metric: round(result.means[metric], 4) for metric in METRICS},
        "intervals": {metric: [round(edge, 4) for edge in result.intervals[metric]] for metric in METRICS},
    }


def from_card(scores: dict[str, Any], name: str) -> dict[str, Any] | None:
    """The same from a card, if it holds that set."""
    if name not in scores:
        return None
    found = scores[name]
    return {
        "images": found["images"],
        "means": {metric: found["means"][metric] for metric in METRICS},
        "intervals": {metric: found["intervals"][metric] for metric in METRICS},
    }


def ratios(path: Path) -> dict[str, float]:
    """How many times faster than the peer, by model: onnxruntime, own working sizes."""
    if not path.is_file():
        return {}
    rows = [row for row in json.loads(path.read_text())["rows"] if row["engine"] == "onnxruntime" and row["own_size"]]
    return {row["name"]: row["ratio_to_peer"] for row in rows if "ratio_to_peer" in row}


def main() -> None:
    """Score, compare, print who wins on what."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", type=Path, default=Path("../shared/peers/twitter-fastgaze.vxm"))
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--sets", nargs="+", choices=[name for name, _, _ in SETS], help="all by default")
    parser.add_argument("--limit", type=int, help="score only so many images a set, evenly spread")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--speed", type=Path, default=Path("results/speed.json"))
    parser.add_argument("--out", type=Path, default=Path("results/peers.json"))
    options = parser.parse_args()
    result: dict[str, Any] = {"peer": options.peer.stem, "protocol": "tuebingen", "sets": {}}
    for name, folder, only_held_out in SETS:
        if options.sets and name not in options.sets:
            continue
        peer = score(str(options.peer), options.data, folder, only_held_out, options)
        rows = {}
        for model in models():
            found = None if options.limit else from_card(dict(model.scores), name)
            rows[model.name] = found or score(model.name, options.data, folder, only_held_out, options)
        result["sets"][name] = {"peer": peer, "models": rows}
        report(name, peer, rows)
    result["times_faster"] = ratios(options.speed)
    wins = [verdict for found in result["sets"].values() for verdict in _verdicts(found)]
    print(f"{sum(wins)} of {len(wins)} comparisons won")
    print("times faster: " + ", ".join(f"{name} {ratio:.1f}" for name, ratio in result["times_faster"].items()))
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(result, indent=2) + "\n")


def _verdicts(found: dict[str, Any]) -> list[bool]:
    peer = found["peer"]["means"]
    return [row["means"][metric] > peer[metric] for row in found["models"].values() for metric in METRICS]


def report(name: str, peer: dict[str, Any], rows: dict[str, Any]) -> None:
    """One set, printed."""
    print(f"{name}, {peer['images']} images: " + " / ".join(METRICS))
    print(f"  {'peer':18} " + " / ".join(f"{peer['means'][metric]:.3f}" for metric in METRICS))
    for model, row in rows.items():
        means = " / ".join(f"{row['means'][metric]:.3f}" for metric in METRICS)
        lost = [metric for metric in METRICS if row["means"][metric] <= peer["means"][metric]]
        print(f"  {model:18} {means}  {'wins all' if not lost else 'loses ' + ', '.join(lost)}", flush=True)


if __name__ == "__main__":
    main()
