"""Write the README's table of models and its strip of pictures from what is bundled.

.venv/bin/python recipes/readme.py
"""

import re
from pathlib import Path

from PIL import Image

import fastgaze
from fastgaze.runtime.zoo import BundledModel, models

ROOT = Path(__file__).parents[1]
STRIP = ("astronaut", "coffee", "chelsea")
HEIGHT = 220


def table(listed: list[BundledModel]) -> str:
    """Markdown; scores, times and what they were measured with all come from the cards."""
    rows = [
        "| model | parameters | GFLOP at 640x480 | file | one core | AUC | NSS | bits |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for model in listed:
        means = model.scores["salicon-val"]["means"]
        time = model.scores["one_core"]["own_size"]["cpu_ms"]
        name = f"**`{model.name}`** (default)" if model.default else f"`{model.name}`"
        cells = [name, f"{model.parameters:,}", f"{model.gflop_640x480:.2f}", f"{model.bytes / 1e6:.2f} MB"]
        scores = [f"{means['auc']:.3f}", f"{means['nss']:.2f}", f"{means['log_likelihood_bits']:.2f}"]
        rows.append("| " + " | ".join([*cells, f"{time:.1f} ms", *scores]) + " |")
    images = listed[0].scores["salicon-val"]["images"]
    rows += [
        "",
        f"Scores: SALICON validation, {images} images, `tuebingen` protocol, the set's own centre bias; bits per "
        "fixation over a uniform density. Time: CPU milliseconds from a 384x512 picture to its 384x512 log density at "
        "the model's own working size, onnxruntime, one thread of a shared 2-core AVX-512 machine (`recipes/ship.py`).",
    ]
    return "\n".join(rows)


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


def with_table(text: str) -> str:
    """The README with the present table."""
    return re.sub(
        r"(<!-- models:.*?-->\n).*?(<!-- /models -->)", lambda m: m[1] + table(models()) + "\n" + m[2], text, flags=re.S
    )


def main() -> None:
    readme = ROOT / "README.md"
    readme.write_text(with_table(readme.read_text()))
    (ROOT / "docs" / "images").mkdir(parents=True, exist_ok=True)
    strip().save(ROOT / "docs" / "images" / "strip.png", optimize=True)
    print(table(models()))


if __name__ == "__main__":
    main()
