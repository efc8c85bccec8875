"""Write the generated parts of README.md and docs/models.md: figures, table of models, cards and the strip of pictures.

python -m experiments.readme                from what is bundled and from the files in results/
python -m experiments.readme --agreement    measures results/agreement.json again first
"""

import argparse
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from PIL import Image

import fastgaze
from experiments import common, scoring
from experiments.common import DOCS, EXAMPLES, RESULTS, ROOT
from experiments.reporting.speeds import Range, speeds
from fastgaze.evaluation.models import open_model
from fastgaze.runtime.zoo import BundledModel, models

AGREEMENT = RESULTS / "agreement.json"
STRIP = ("astronaut", "coffee", "chelsea")
HEIGHT = 220
CARD_METRICS = ("auc", "nss", "sim", "kl", "log_likelihood_bits", "information_gain")


def recorded_times() -> dict[str, Range]:
    """By model, over all runs of `experiments.speed`: onnxruntime, one thread, at the model's own working size."""
    record = json.loads((RESULTS / "speed.json").read_text())
    own = [row for row in speeds(record).values() if row.key.engine == "onnxruntime" and row.key.own_size]
    return {row.key.name: row.cpu_ms for row in own}


def measure_agreement(data: Path, model: str) -> None:
    """Score ``model``, the other viewers and the centre bias on photographs that were kept out of training."""
    record: dict[str, Any] = {"model": model, "sets": {}}
    for name in ("osie", "eyecrowd"):
        found = scoring.score(open_model([model], threads=1), f"{name}-held-out", data)
        auc = {"model": found.means["auc"]} | {kind: means["auc"] for kind, means in found.baselines.items()}
        record["sets"][name] = {"images": found.images, "auc": scoring.rounded(auc)}
    common.write_record(AGREEMENT, record)


def figures(agreement: Mapping[str, Any], times: Mapping[str, Range]) -> str:
    """How good and how fast the default model is, in words for somebody who has not heard of AUC."""
    model, osie = agreement["model"], agreement["sets"]["osie"]
    shares = {kind: round(100 * value) for kind, value in osie["auc"].items()}
    medians = [times[model.name].median for model in models() if model.name in times]
    good = (
        "It tells a spot that somebody looked at from a random spot in the same photograph "
        f"{shares['model']} times out of 100; the gaze of the other people who saw the photograph does so "
        f"{shares['other_observers']} times, and betting on the centre {shares['center_bias']} times "
        f"(OSIE, {osie['images']} photographs kept out of training)."
    )
    own = times[model]
    fast = (
        f"A prediction takes {own.shown(unit=' ms')} on one core of a shared cloud machine (`{model}`, from a decoded "
        f"512x384 picture to its map, median and range of {own.runs} recorded runs); "
        f"[the other models](docs/models.md) take {min(medians):.1f} to {max(medians):.1f} ms."
    )
    return f"{good} {fast}"


def table(listed: list[BundledModel], times: Mapping[str, Range]) -> str:
    """Markdown; sizes and scores come from the cards, times from the recorded runs of `experiments.speed`."""
    rows = [
        "| model | parameters | GFLOP at 640x480 | file | one core | AUC | NSS | bits |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for model in listed:
        means = model.scores["salicon-val"]["means"]
        name = f"**`{model.name}`** (default)" if model.default else f"`{model.name}`"
        cells = [name, f"{model.parameters:,}", f"{model.gflop_640x480:.2f}", f"{model.bytes / 1e6:.2f} MB"]
        cells += [times[model.name].shown(unit=" ms") if model.name in times else "-"]
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


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = common.make_parser(__doc__, __file__)
    parser.add_argument("--agreement", action="store_true", help="measure the agreement with other viewers again")
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    """Fill both pages and draw the strip."""
    options = common.parse(make_parser(), arguments)
    if options.agreement:
        measure_agreement(options.data, models()[0].name)
    for page, fill in ((ROOT / "README.md", with_figures), (DOCS / "models.md", with_models)):
        page.write_text(fill(page.read_text()))
    strip().save(DOCS / "images" / "strip.png", optimize=True)


if __name__ == "__main__":
    main()
