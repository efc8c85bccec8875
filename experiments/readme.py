"""Write the generated parts of README.md and docs/models.md: figures, table of models, cards and the strip of pictures.

python -m experiments.readme                           from what is bundled and from the files in results/
python -m experiments.readme --data ../shared/data     measures results/agreement.json again first
"""

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from PIL import Image

import fastgaze
from fastgaze.app.demo import EXAMPLES
from fastgaze.core.files import replacing
from fastgaze.runtime.zoo import BundledModel, models

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results"
AGREEMENT = RESULTS / "agreement.json"
STRIP = ("astronaut", "coffee", "chelsea")
HEIGHT = 220
CARD_METRICS = ("auc", "nss", "sim", "kl", "log_likelihood_bits", "information_gain")


@dataclass(frozen=True)
class Times:
    """CPU milliseconds of one model in every recorded run of `experiments/speed.py`, one value per run."""

    runs: tuple[float, ...]

    def __str__(self) -> str:
        """Median and range, such as ``8.5 ms (8.4 to 8.6)``; never the best run alone."""
        return f"{median(self.runs):.1f} ms ({min(self.runs):.1f} to {max(self.runs):.1f})"


def recorded_times() -> dict[str, Times]:
    """By model: onnxruntime, one thread, at the model's own working size."""
    found: dict[str, list[float]] = {}
    for path in sorted(RESULTS.glob("speed*.json")):
        for row in json.loads(path.read_text())["rows"]:
            if row["engine"] == "onnxruntime" and row["own_size"]:
                found.setdefault(row["name"], []).append(row["cpu_ms"])
    return {name: Times(tuple(runs)) for name, runs in found.items()}


def measure_agreement(data: Path, model: str) -> None:
    """Score ``model``, the other viewers and the centre bias on photographs that were kept out of training."""
    record: dict[str, Any] = {"model": model, "sets": {}}
    for name in ("osie", "eyecrowd"):
        command = ["evaluate", model, "--data", str(data / name), "--held-out", "--threads", "1", "--json"]
        done = subprocess.run([sys.executable, "-m", "fastgaze", *command], check=True, capture_output=True, text=True)
        result = json.loads(done.stdout)
        auc = {"model": result["means"]["auc"]} | {kind: s["auc"] for kind, s in result["baselines"].items()}
        record["sets"][name] = {
            "images": result["images"],
            "auc": {kind: round(value, 4) for kind, value in auc.items()},
        }
    with replacing(AGREEMENT) as part:
        part.write_text(json.dumps(record, indent=2) + "\n")


def figures(agreement: Mapping[str, Any], times: Mapping[str, Times]) -> str:
    """How good and how fast the default model is, in words for somebody who has not heard of AUC."""
    model, osie = agreement["model"], agreement["sets"]["osie"]
    shares = {kind: round(100 * value) for kind, value in osie["auc"].items()}
    medians = [median(found.runs) for found in times.values()]
    good = (
        "It tells a spot that somebody looked at from a random spot in the same photograph "
        f"{shares['model']} times out of 100; the gaze of the other people who saw the photograph does so "
        f"{shares['other_observers']} times, and betting on the centre {shares['center_bias']} times "
        f"(OSIE, {osie['images']} photographs kept out of training)."
    )
    fast = (
        f"A prediction takes {times[model]} on one core of a shared cloud machine (`{model}`, from a decoded 512x384 "
        f"picture to its map, median and range of {len(times[model].runs)} recorded runs); "
        f"[the other models](docs/models.md) take {min(medians):.1f} to {max(medians):.1f} ms."
    )
    return f"{good} {fast}"


def table(listed: list[BundledModel], times: Mapping[str, Times]) -> str:
    """Markdown; sizes and scores come from the cards, times from the recorded runs of `experiments/speed.py`."""
    rows = [
        "| model | parameters | GFLOP at 640x480 | file | one core | AUC | NSS | bits |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for model in listed:
        means = model.scores["salicon-val"]["means"]
        name = f"**`{model.name}`** (default)" if model.default else f"`{model.name}`"
        cells = [name, f"{model.parameters:,}", f"{model.gflop_640x480:.2f}", f"{model.bytes / 1e6:.2f} MB"]
        cells += [str(times.get(model.name, "-"))]
        cells += [f"{means['auc']:.3f}", f"{means['nss']:.2f}", f"{means['log_likelihood_bits']:.2f}"]
        rows.append("| " + " | ".join(cells) + " |")
    images = listed[0].scores["salicon-val"]["images"]
    rows += [
        "",
        f"Scores are means over {images} images of SALICON's validation set, by the `tuebingen` protocol with the "
        "set's own centre bias ([metrics.md](metrics.md)); bits are bits per fixation over a uniform density. "
        "Times are CPU milliseconds from a decoded 512x384 picture to its log density at that size, with the network "
        "at the model's own working size, in onnxruntime on one thread: the median of the recorded runs and their "
        "range. `python -m experiments.speed` records a run, [results.md](results.md) has the other engines and the "
        "comparison with DeepGaze II, and `fastgaze bench NAME` measures on your machine.",
    ]
    return "\n".join(rows)


def card(model: BundledModel) -> str:
    """Scores of one model on every public set, with 95% intervals over images."""
    sets = {name: facts for name, facts in model.scores.items() if "means" in facts}
    metrics = [metric for metric in CARD_METRICS if metric in next(iter(sets.values()))["means"]]
    rows = [f"### {model.name}", f"{model.parameters:,} parameters, {model.gflop_640x480:.2f} GFLOP at 640x480.", ""]
    rows += ["| set | images | " + " | ".join(metrics) + " |", "|---" * (len(metrics) + 2) + "|"]
    for name, facts in sets.items():
        cells = [
            f"{facts['means'][m]:.3f} [{facts['intervals'][m][0]:.3f}, {facts['intervals'][m][1]:.3f}]" for m in metrics
        ]
        rows.append(f"| {name} | {facts['images']} | " + " | ".join(cells) + " |")
    return "\n".join(rows + crop_check(model.name))


def crop_check(name: str) -> list[str]:
    """What the crop audit found for a model: shares of the first of two people, with 95% intervals."""
    path = RESULTS / f"crop_audit-{name}.json"
    if not path.is_file():
        return []
    rows = ["", "| two people in one picture | pairs | window | attention |", "|---|---|---|---|"]
    for finding in json.loads(path.read_text())["findings"]:
        shares = [
            f"{finding[key]:.2f} [{finding[f'{key}_interval'][0]:.2f}, {finding[f'{key}_interval'][1]:.2f}]"
            for key in ("window", "mass")
        ]
        rows.append(f"| {finding['contrast']} | {finding['pairs']} | " + " | ".join(shares) + " |")
    return rows


def strip() -> Image.Image:
    """Photographs, each with its heat map beside it."""
    parts: list[Image.Image] = []
    for name in STRIP:
        path = EXAMPLES / f"{name}.jpg"
        with Image.open(path) as photo:
            parts += [photo.convert("RGB"), fastgaze.predict(path).overlay()]
    parts = [part.resize((round(part.width * HEIGHT / part.height), HEIGHT)) for part in parts]
    canvas = Image.new("RGB", (sum(part.width for part in parts) + 6 * (len(parts) - 1), HEIGHT), "white")
    left = 0
    for part in parts:
        canvas.paste(part, (left, 0))
        left += part.width + 6
    return canvas


def filled(text: str, mark: str, content: str) -> str:
    """``text`` with ``content`` between ``<!-- mark: ... -->`` and ``<!-- /mark -->``."""
    pattern = rf"(<!-- {mark}: [^>]*-->\n).*?(<!-- /{mark} -->)"
    new, found = re.subn(pattern, lambda match: f"{match[1]}{content}\n{match[2]}", text, flags=re.S)
    if found != 1:
        raise SystemExit(f"the page has {found} places for {mark!r}, not one")
    return new


def with_figures(text: str) -> str:
    """README.md with the present figures."""
    return filled(text, "figures", figures(json.loads(AGREEMENT.read_text()), recorded_times()))


def with_models(text: str) -> str:
    """docs/models.md with the present table and cards."""
    listed = models()
    text = filled(text, "models", table(listed, recorded_times()))
    return filled(text, "cards", "\n\n".join(card(model) for model in listed))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder of the data sets, to measure the agreement again")
    arguments = parser.parse_args()
    if arguments.data is not None:
        measure_agreement(arguments.data, models()[0].name)
    for page, fill in ((ROOT / "README.md", with_figures), (ROOT / "docs" / "models.md", with_models)):
        page.write_text(fill(page.read_text()))
    strip().save(ROOT / "docs" / "images" / "strip.png", optimize=True)


if __name__ == "__main__":
    main()
