"""Pictures that the models get wrong, side by side with their maps, for the model cards.

    python -m experiments.weaknesses [--model small]

All are drawn here. Writes docs/images/weaknesses.png.
"""

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from experiments import common
from experiments.common import DOCS
from fastgaze.runtime.predictor import Predictor, load

PANEL, CAPTION, GAP = (360, 240), 22, 8


def document() -> Image.Image:
    """A page of text whose one warning is small and at the bottom."""
    page = Image.new("RGB", (720, 480), "white")
    draw = ImageDraw.Draw(page)
    rng = np.random.default_rng(0)
    for row in range(17):
        x = 60
        while x < 620:
            width = int(rng.integers(15, 70))
            draw.rectangle((x, 50 + 22 * row, x + width, 58 + 22 * row), fill="#333333")
            x += width + 10
    draw.rectangle((60, 430, 180, 455), fill="#c00000")
    draw.text((72, 436), "PAY BY FRIDAY", fill="white")
    return page


def odd_one_out() -> Image.Image:
    """Bars of which one is tilted the other way: people find it at once."""
    picture = Image.new("RGB", (720, 480), "#808080")
    draw = ImageDraw.Draw(picture)
    for row in range(6):
        for column in range(9):
            x, y, lean = 80 * column + 40, 80 * row + 40, -12 if (row, column) == (1, 7) else 12
            draw.line((x - lean, y - 24, x + lean, y + 24), fill="#202020", width=6)
    return picture


def nothing() -> Image.Image:
    """Noise: nothing to look at, so what remains is the centre bias of the viewers."""
    noise = np.random.default_rng(0).integers(90, 166, (480, 720, 3))
    return Image.fromarray(noise.astype(np.uint8))


CASES: dict[str, Callable[[], Image.Image]] = {
    "a page: it knows no reading order": document,
    "the odd one out, top right, is not found": odd_one_out,
    "noise: the centre bias is what is left": nothing,
}


def sheet(model: Predictor) -> Image.Image:
    """A row of pictures over a row of their maps."""
    width, height = PANEL
    canvas = Image.new("RGB", (len(CASES) * (width + GAP) - GAP, CAPTION + 2 * height + GAP), "white")
    draw, font = ImageDraw.Draw(canvas), ImageFont.load_default(14)
    for column, (caption, make) in enumerate(CASES.items()):
        picture, left = make(), column * (width + GAP)
        draw.text((left, 2), caption, fill="black", font=font)
        canvas.paste(picture.resize(PANEL), (left, CAPTION))
        overlay = model.predict(np.asarray(picture)).overlay()
        canvas.paste(overlay.resize(PANEL), (left, CAPTION + height + GAP))
    return canvas


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = common.make_parser(__doc__, __file__, data=False)
    parser.add_argument("--model", help="a bundled name or an .onnx file; the default model without it")
    parser.add_argument("--out", type=Path, default=DOCS / "images" / "weaknesses.png")
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    """Draw the sheet."""
    options = common.parse(make_parser(), arguments)
    sheet(load(options.model)).quantize(128).save(options.out, optimize=True)
    print(options.out)


if __name__ == "__main__":
    main()
