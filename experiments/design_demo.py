"""The demo of docs/design.md: one landing page in two designs, and what the call to action draws in each.

    python -m experiments.design_demo          # writes docs/images/design-*.png and the table in docs/design.md

The pictures are drawn here, with Pillow's own font; no photograph and no trade mark is in them.
"""

from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

from experiments.pages import fill, table
from fastgaze.core.encoding import encode_png
from fastgaze.core.files import write_whole
from fastgaze.runtime.compare import Comparison, compare

Color = str | tuple[int, int, int]

SIZE = (1200, 750)
"""(width, height) of a page."""
IMAGES = Path(__file__).parents[1] / "docs" / "images"
BOXES = {
    "a": {"headline": (80, 170, 640, 330), "cta": (80, 460, 400, 550), "picture": (700, 120, 1140, 640)},
    "b": {"headline": (80, 170, 640, 330), "cta": (940, 26, 1140, 70), "picture": (80, 380, 1140, 700)},
}
"""(left, top, right, bottom) of the same three things in both designs."""
_INK, _SOFT, _LINE = (28, 32, 40), (104, 112, 124), (226, 229, 234)


def draw_page(design: str) -> Image.Image:
    """The page in design "a" (a large button below the headline) or "b" (a small one in the corner)."""
    page = Image.new("RGB", SIZE, "white")
    pen = ImageDraw.Draw(page)
    pen.rectangle((0, 0, SIZE[0], 96), fill=(250, 250, 252))
    pen.line((0, 96, SIZE[0], 96), fill=_LINE, width=2)
    _text(pen, (80, 48), "Meadow", 34, _INK)
    for index, word in enumerate(("Tours", "Prices", "About")):
        _text(pen, (360 + 130 * index, 48), word, 22, _SOFT)
    _text(pen, (80, 210), "Two days in the hills,", 54, _INK)
    _text(pen, (80, 280), "nothing to carry", 54, _INK)
    if design == "a":
        _text(pen, (80, 384), "We bring your bag to the next hut.", 26, _SOFT)
        _text(pen, (80, 420), "You bring your boots.", 26, _SOFT)
        _button(pen, BOXES["a"]["cta"], "Book a walk", 38, fill=(214, 64, 32), text="white")
    else:
        _button(pen, BOXES["b"]["cta"], "Book a walk", 22, fill="white", text=_SOFT)
    _hills(page, BOXES[design]["picture"])
    return page


def _text(pen: ImageDraw.ImageDraw, place: tuple[int, int], text: str, size: int, fill: Color) -> None:
    pen.text(place, text, fill=fill, font=ImageFont.load_default(size=size), anchor="lm")


def _button(
    pen: ImageDraw.ImageDraw, box: tuple[int, int, int, int], label: str, size: int, fill: Color, text: Color
) -> None:
    left, top, right, bottom = box
    pen.rounded_rectangle(box, radius=(bottom - top) // 4, fill=fill, outline=_LINE, width=2)
    middle = ((left + right) / 2, (top + bottom) / 2)
    pen.text(middle, label, fill=text, font=ImageFont.load_default(size=size), anchor="mm")


def _hills(page: Image.Image, box: tuple[int, int, int, int]) -> None:
    """Sky, sun, three hills, and a walker with a red coat."""
    left, top, right, bottom = box
    width, height = right - left, bottom - top
    scene = Image.new("RGB", (width, height), (196, 224, 240))
    pen = ImageDraw.Draw(scene)
    unit = height / 10
    pen.ellipse((width * 0.72, unit, width * 0.72 + 1.6 * unit, 2.6 * unit), fill=(255, 232, 150))
    for level, color, shift in ((4.5, (150, 184, 176), -0.3), (6, (112, 160, 120), 0.35), (7.4, (74, 124, 76), -0.1)):
        pen.ellipse(
            (width * (shift - 0.2), level * unit, width * (shift + 1.1), level * unit + 1.6 * height), fill=color
        )
    x, y = width * 0.34, 6.1 * unit
    pen.ellipse((x - 0.3 * unit, y - 1.5 * unit, x + 0.3 * unit, y - 0.9 * unit), fill=(236, 196, 164))
    pen.rounded_rectangle(
        (x - 0.4 * unit, y - 0.9 * unit, x + 0.4 * unit, y + 0.6 * unit), unit / 5, fill=(200, 48, 48)
    )
    for step in (-0.3, 0.1):
        pen.rectangle((x + step * unit, y + 0.6 * unit, x + (step + 0.2) * unit, y + 1.6 * unit), fill=_INK)
    page.paste(scene, (left, top))


def make(out: Path, model: str | None = None) -> Comparison:
    """Write the two pages and their comparison into ``out``."""
    pages = {design: draw_page(design) for design in BOXES}
    for design, page in pages.items():
        write_whole(out / f"design-{design}.png", encode_png(page))
    paths = [out / f"design-{design}.png" for design in BOXES]
    comparison = compare(*paths, regions=list(BOXES.values()), model=model)
    write_whole(out / "design-compared.png", encode_png(comparison.image(column=600)))
    return comparison


def shown(comparison: Comparison) -> str:
    """What the regions draw in both designs, for the documentation."""
    rows = []
    for change in comparison.changes():
        first, second = (found.share for found in change.found if found is not None)
        rows.append([change.name, f"{first:.1%}", f"{second:.1%}", f"{100 * (second - first):+.1f} points"])
    made = f"Made by `python -m experiments.design_demo` with the model `{comparison.gazes[0].model}`"
    about = f"{made} and its own centre bias; the script draws both pages."
    return f"{table(['region', 'design A', 'design B', 'change'], rows)}\n\n{about}"


def main() -> None:
    """Write the pictures and the table of the documentation."""
    fill(IMAGES.parent / "design.md", "table", shown(make(IMAGES)))


if __name__ == "__main__":
    main()
