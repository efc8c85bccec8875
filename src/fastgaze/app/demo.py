"""The demo page: photographs, their heat maps and crops, in one folder that opens in a browser."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from string import Template
from typing import Any
from urllib.parse import quote

from PIL import Image, ImageDraw

from fastgaze.core.errors import ArgumentError
from fastgaze.core.pictures import cut, open_picture
from fastgaze.runtime.crop import Crop
from fastgaze.runtime.gazemap import GazeMap
from fastgaze.runtime.predictor import Predictor

EXAMPLES = Path(__file__).parent / "server" / "examples"
RATIO = "16:9"
_RESULTS = (".gaze.jpg", ".crop.jpg")

_PAGE = Template("""<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>fastgaze demo</title>
<style>
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif }
body { max-width: 70rem; margin: 2rem auto; padding: 0 1rem }
figure { display: grid; grid-template-columns: repeat(3, 1fr); gap: .5rem; margin: 2rem 0 }
figure img { width: 100%; border-radius: .3rem }
figcaption { grid-column: 1 / -1 }
@media (max-width: 40rem) { figure { grid-template-columns: 1fr } }
</style>
<h1>Where people look</h1>
<p>Model $model, $gflop GFLOP a picture. Photo, heat map, and the $ratio window that keeps most attention.</p>
$figures
</html>
""")
_FIGURE = Template("""<figure>
<img src="$photo" alt="$name"><img src="$overlay" alt="heat map of $name"><img src="$crop" alt="crop of $name">
<figcaption><b>$name</b>: $milliseconds ms. The $ratio window keeps $mass of the attention,
$gain compared with the middle.</figcaption>
</figure>""")


@dataclass(frozen=True)
class DemoRow:
    """One photograph of the demo."""

    name: str
    gaze: GazeMap
    crop: Crop

    def to_json(self) -> dict[str, Any]:
        """What ``fastgaze demo --json`` prints of it."""
        return {"photo": self.name} | self.gaze.to_json() | {"crop": self.crop.to_json()}


def photographs(folder: Path) -> list[Path]:
    """The JPEG files of a folder, by name, without the results of an earlier demo."""
    found = sorted(path for path in folder.glob("*.jpg") if not path.name.endswith(_RESULTS))
    if not found:
        raise ArgumentError(f"no .jpg photographs in {folder}; give a folder with --images")
    return found


def make_demo(predictor: Predictor, photos: Sequence[Path], out: Path) -> list[DemoRow]:
    """Predict ``photos`` and write pictures and ``index.html`` into ``out``, which must not be the photographs' own."""
    out.mkdir(parents=True, exist_ok=True)
    for photo in photos:
        copy = out / f"{photo.stem}.jpg"
        if copy.exists() and copy.samefile(photo):
            raise ArgumentError(f"a demo in {out} would replace the photograph {photo}; give another folder with --out")
    predictor.predict(photos[0])  # the first call allocates; the times shown are those of a warm model
    rows = [_row(predictor, photo, out) for photo in photos]
    figures = "\n".join(_figure(row) for row in rows)
    gflop = predictor.card.gflop_working
    page = _PAGE.substitute(model=escape(predictor.name), gflop=f"{gflop:.2f}", ratio=RATIO, figures=figures)
    (out / "index.html").write_text(page, encoding="utf-8")
    return rows


def _row(predictor: Predictor, photo: Path, out: Path) -> DemoRow:
    opened = open_picture(photo)
    gaze = predictor.look(opened, opened.size).at()
    crop = gaze.crop(RATIO)[0]
    picture = opened.rgb()
    picture.save(out / f"{photo.stem}.jpg", quality=90)
    gaze.overlay().save(out / f"{photo.stem}.gaze.jpg", quality=90)
    _with_window(picture, crop).save(out / f"{photo.stem}.crop.jpg", quality=90)
    return DemoRow(photo.stem, gaze, crop)


def _with_window(picture: Image.Image, crop: Crop) -> Image.Image:
    """The picture, dark outside the window, with a mark at the focal point."""
    shown = Image.eval(picture, lambda value: value // 3)
    shown.paste(cut(picture, crop.box), crop.box[:2])
    (x, y), radius = crop.focal_point, max(picture.size) / 80
    draw = ImageDraw.Draw(shown)
    draw.ellipse((x - radius, y - radius, x + radius, y + radius), outline="white", width=max(round(radius / 3), 1))
    return shown


def _figure(row: DemoRow) -> str:
    name, file = escape(row.name, quote=True), quote(row.name)
    return _FIGURE.substitute(
        name=name,
        photo=f"{file}.jpg",
        overlay=f"{file}.gaze.jpg",
        crop=f"{file}.crop.jpg",
        milliseconds=f"{sum(row.gaze.milliseconds.values()):.1f}",
        ratio=RATIO,
        mass=f"{row.crop.mass:.0%}",
        gain=f"{100 * row.crop.gain:+.0f} points",
    )
