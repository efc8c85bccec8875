"""The demo: photographs, their heat maps and crops, and one page that shows them in a browser."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from string import Template
from urllib.parse import quote

from PIL import Image, ImageDraw

from fastgaze.core.encoding import encode
from fastgaze.core.errors import ArgumentError
from fastgaze.core.files import write_whole
from fastgaze.core.jsonable import Json
from fastgaze.core.pictures import open_picture
from fastgaze.runtime.crop import Crop
from fastgaze.runtime.gazemap import GazeMap
from fastgaze.runtime.predictor import Predictor

EXAMPLES = Path(__file__).parent / "server" / "examples"
"""Photographs that come with the package; the web page offers them too."""
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
<p>Each row shows a photo, where people look in it, and the $ratio window that keeps the most attention,
by the model <code>$model</code>.</p>
$figures
</html>
""")
_FIGURE = Template("""<figure>
<img src="$photo" alt="$name"><img src="$overlay" alt="heat map of $name"><img src="$crop" alt="crop of $name">
<figcaption><b>$name</b>: predicted in $milliseconds ms. The $ratio window keeps $mass of the attention.</figcaption>
</figure>""")


@dataclass(frozen=True)
class DemoPhoto:
    """One photograph of the demo."""

    name: str
    gaze: GazeMap
    crop: Crop

    def to_json(self) -> dict[str, Json]:
        """What ``fastgaze demo --json`` prints about it."""
        return {"photo": self.name} | self.gaze.to_json() | {"crop": self.crop.to_json()}


def photographs(folder: Path) -> list[Path]:
    """The JPEG files of a folder, sorted by name, without the results of an earlier demo."""
    found = sorted(path for path in folder.glob("*.jpg") if not path.name.endswith(_RESULTS))
    if not found:
        raise ArgumentError(f"{folder} holds no .jpg photographs; give a folder that does")
    return found


def make_demo(predictor: Predictor, photos: Sequence[Path], out: Path) -> list[DemoPhoto]:
    """Predict ``photos`` and write pictures and ``index.html`` into ``out``, which must not be their own folder."""
    out.mkdir(parents=True, exist_ok=True)
    for photo in photos:
        copy = out / f"{photo.stem}.jpg"
        if copy.exists() and copy.samefile(photo):
            raise ArgumentError(f"a demo in {out} would replace the photograph {photo}; give another folder")
    predictor.predict(photos[0])  # the first call allocates memory; the times shown are those of a warm model
    rows = [_row(predictor, photo, out) for photo in photos]
    figures = "\n".join(_figure(row) for row in rows)
    page = _PAGE.substitute(model=escape(predictor.name), ratio=RATIO, figures=figures)
    write_whole(out / "index.html", page.encode())
    return rows


def _row(predictor: Predictor, photo: Path, out: Path) -> DemoPhoto:
    opened = open_picture(photo)
    gaze = predictor.look(opened, opened.size).at()
    crop = gaze.crop(RATIO)[0]
    picture = opened.rgb()
    for suffix, shown in ((".jpg", picture), (".gaze.jpg", gaze.overlay()), (".crop.jpg", _with_window(picture, crop))):
        write_whole(out / f"{photo.stem}{suffix}", encode(shown, ".jpg"))
    return DemoPhoto(photo.stem, gaze, crop)


def _with_window(picture: Image.Image, crop: Crop) -> Image.Image:
    """The picture, dark outside the window, with a mark at the focal point."""
    shown = Image.eval(picture, lambda value: value // 3)
    shown.paste(picture.crop(crop.box), crop.box[:2])
    (x, y), radius = crop.focal_point, max(picture.size) / 80
    draw = ImageDraw.Draw(shown)
    draw.ellipse((x - radius, y - radius, x + radius, y + radius), outline="white", width=max(round(radius / 3), 1))
    return shown


def _figure(row: DemoPhoto) -> str:
    name, file = escape(row.name, quote=True), quote(row.name)
    return _FIGURE.substitute(
        name=name,
        photo=f"{file}.jpg",
        overlay=f"{file}.gaze.jpg",
        crop=f"{file}.crop.jpg",
        milliseconds=f"{sum(row.gaze.milliseconds.values()):.1f}",
        ratio=RATIO,
        mass=f"{row.crop.mass:.0%}",
    )
