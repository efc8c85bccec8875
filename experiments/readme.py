"""Write the README's table of models, its strip of pictures and the model cards from what is bundled.

.venv/bin/python -m experiments.readme
"""

import json
import re
from pathlib import Path

from PIL import Image

import fastgaze
from fastgaze.runtime.zoo import BundledModel, models

ROOT = Path(__file__).parents[1]
STRIP = ("astronaut", "coffee", "chelsea")
HEIGHT = 220
CARD_METRICS = ("auc", "nss", "sim", "kl", "log_likelihood_bits", "information_gain")


def table(listed: list[BundledModel]) -> str:
    """Markdown; sizes and scores come from the cards, times from the interleaved run of `experiments/speed.py`."""
    rows = [
        "| model | parameters | GFLOP at 640x480 | file | one core | DeepGaze II takes | AUC | NSS | bits |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    speeds = measured_speeds()
    for model in listed:
        means = model.scores["salicon-val"]["means"]
        time, ratio = speeds.get(model.name, (None, None))
        name = f"**`{model.name}`** (default)" if model.default else f"`{model.name}`"
        cells = [name, f"{model.parameters:,}", f"{model.gflop_640x480:.2f}", f"{model.bytes / 1e6:.2f} MB"]
        scores = [f"{means['auc']:.3f}", f"{means['nss']:.2f}", f"{means['log_likelihood_bits']:.2f}"]
        cells += [f"{time:.1f} ms" if time else "-", f"{ratio:.0f} times that" if ratio else "-"]
        rows.append("| " + " | ".join([*cells, *scores]) + " |")
    images = listed[0].scores["salicon-val"]["images"]
    rows += [
        "",
        f"Scores: SALICON validation, {images} images, `tuebingen` protocol, the set's own centre bias; bits per "
        "fixation over a uniform density. Time: CPU milliseconds from a 384x512 picture to its 384x512 log density at "
        "the model's own working size, onnxruntime, one thread of a shared 2-core AVX-512 machine; "
        "beside it, how many times as long DeepGaze II takes in eager torch for its network and tail, same picture and "
        f"thread, all in one interleaved run (`experiments/speed.py`, [results](docs/results.md)). {busy()}",
    ]
    return "\n".join(rows)


def busy() -> str:
    """What another run of the recipe gave while the machine had other work: small networks suffer more than large."""
    ratios = measured_speeds("speed-again.json")
    shown = ", ".join(f"`{name}` {ratios[name][1]:.0f}" for name in ("fastgaze-m", "fastgaze-s", "fastgaze-xs"))
    return f"In another run, with other work on both cores: {shown} times."


def measured_speeds(file: str = "speed.json") -> dict[str, tuple[float, float]]:
    """By model, in onnxruntime at its own working size: CPU milliseconds, and DeepGaze II's time over them."""
    measured = json.loads((ROOT / "docs" / "results" / file).read_text())["rows"]
    return {
        row["name"]: (row["cpu_ms"], row["ratio_to_deepgaze2"])
        for row in measured
        if row["engine"] == "onnxruntime" and row["own_size"] and "ratio_to_deepgaze2" in row
    }


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
    """What `experiments/audit_crop.py` found for a model: shares of the first of two people, with 95% intervals."""
    path = ROOT / "docs" / "results" / f"crop_audit-{name}.json"
    if not path.is_file():
        return []
    rows = ["", "| crop, of two people the | pairs | window | attention |", "|---|---|---|---|"]
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
        path = ROOT / "examples" / f"{name}.jpg"
        with Image.open(path) as photo:
            parts += [photo.convert("RGB"), fastgaze.predict(path).overlay()]
    parts = [part.resize((round(part.width * HEIGHT / part.height), HEIGHT)) for part in parts]
    canvas = Image.new("RGB", (sum(part.width for part in parts) + 6 * (len(parts) - 1), HEIGHT), "white")
    left = 0
    for part in parts:
        canvas.paste(part, (left, 0))
        left += part.width + 6
    return canvas


def with_cards(text: str) -> str:
    """docs/models.md with the present cards."""
    cards = "\n\n".join(card(model) for model in models())
    return re.sub(r"(<!-- cards:.*?-->\n).*?(<!-- /cards -->)", lambda m: f"{m[1]}{cards}\n{m[2]}", text, flags=re.S)


def with_table(text: str) -> str:
    """The README with the present table."""
    return re.sub(
        r"(<!-- models:.*?-->\n).*?(<!-- /models -->)", lambda m: m[1] + table(models()) + "\n" + m[2], text, flags=re.S
    )


def main() -> None:
    for page, fill in ((ROOT / "README.md", with_table), (ROOT / "docs" / "models.md", with_cards)):
        page.write_text(fill(page.read_text()))
    (ROOT / "docs" / "images").mkdir(parents=True, exist_ok=True)
    strip().save(ROOT / "docs" / "images" / "strip.png", optimize=True)
    print(table(models()))


if __name__ == "__main__":
    main()
