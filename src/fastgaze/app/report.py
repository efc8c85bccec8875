"""The report: one HTML file about one or more pictures, with everything inside, that prints well.

For each picture it shows the map in three styles, the places in the order in which they draw attention, the regions
that were asked for, and crops. Nothing is loaded from elsewhere: pictures are data URLs, and there is no script.
"""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from html import escape
from string import Template

from PIL import Image, ImageDraw, ImageFont

from fastgaze import __version__
from fastgaze.core.encoding import encode
from fastgaze.core.sizes import format_size, shrunk
from fastgaze.runtime import render
from fastgaze.runtime.crop import Crop
from fastgaze.runtime.gazemap import GazeMap
from fastgaze.runtime.peaks import Peak
from fastgaze.runtime.regions import FIXATIONS, RegionAttention

RATIOS = ("16:9", "1:1", "4:5", "9:16")
PEAKS = 6
LEAST_SHARE = 0.01
"""Places with less attention are not listed."""
_LONGEST, _CROP_HEIGHT = 1000, 220
# Height by width from which the maps stand in one row.
_TALL = 1.6
_INK, _PAPER = (32, 33, 36), (255, 255, 255)

_STYLE = """
:root { color-scheme: light; font: 15px/1.5 system-ui, sans-serif; color: #202124; background: #fff }
body { max-width: 70rem; margin: 2rem auto; padding: 0 1.5rem }
h1 { margin: 0; font-size: 1.7rem } h2 { margin: 3rem 0 .5rem; font-size: 1.35rem; overflow-wrap: anywhere }
h3 { margin: 1.5rem 0 .4rem; font-size: 1.05rem }
.facts { color: #5f6368; margin: .2rem 0 1rem }
.maps { display: grid; grid-template-columns: 1fr 1fr; gap: 1rem }
.tables { display: flex; flex-wrap: wrap; gap: 0 3rem }
.crops { display: grid; grid-template-columns: repeat(4, auto); gap: 1rem; align-items: end; justify-content: start }
figure { margin: 0; break-inside: avoid } figure img { display: block; max-width: 100%; border: 1px solid #dadce0 }
figcaption { font-size: .9rem; color: #5f6368 }
table { border-collapse: collapse; break-inside: avoid; font-variant-numeric: tabular-nums }
th, td { padding: .25rem .8rem; border-bottom: 1px solid #dadce0; text-align: right }
th:first-child, td:first-child { text-align: left; overflow-wrap: break-word }
th { font-weight: 600 } footer { margin-top: 3rem; break-inside: avoid;
  border-top: 1px solid #dadce0; color: #5f6368; font-size: .9rem }
nav ol { columns: 3; padding-left: 1.5rem } a { color: #1a56db }
.maps.tall { grid-template-columns: repeat(4, minmax(0, 1fr)) }
.maps figure img, .crops img { width: auto; max-height: 85vh } .tables > div { min-width: 0; overflow-x: auto }
@media (max-width: 45rem) {
  .maps { grid-template-columns: 1fr } .maps.tall, .crops { grid-template-columns: 1fr 1fr }
  nav ol { columns: 1 }
  th, td { padding: .25rem .4rem }
}
@media print {
  @page { size: A4; margin: 14mm }
  :root { font-size: 10.5px }
  body { max-width: none; margin: 0; padding: 0 }
  section + section { break-before: page } h2 { margin-top: 0 } h2, h3 { break-after: avoid } nav { display: none }
  .maps { grid-template-columns: 1fr 1fr; gap: .5rem } .maps figure img { max-height: 62mm }
  .maps.tall { grid-template-columns: repeat(4, minmax(0, 1fr)) } .maps.tall figure img { max-height: 125mm }
  .crops { grid-template-columns: repeat(4, auto) } .crops img { max-height: 26mm }
  footer { margin-top: 1rem } footer p { margin: .3rem 0 } h3 { margin-top: .8rem }
  .tables { flex-wrap: nowrap; gap: 0 1.5rem } th, td { padding: .15rem .5rem }
  * { print-color-adjust: exact; -webkit-print-color-adjust: exact }
}
"""
_PAGE = Template("""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>$title</title><style>$style</style></head>
<body>
<header><h1>$title</h1>
<p class="facts">Predicted by the model $model with fastgaze $version on $date. No person was measured.</p></header>
$contents
<main>
$sections
</main>
<footer><h3>How to read this</h3>
<p>The model predicts where people look in the first seconds. <b>Share</b> is the part of all fixations that it expects
in an area. <b>Times the average</b> compares that with an area of the same size if people looked everywhere alike.
<b>Seen</b> is the chance that at least one of the first $fixations fixations lands in a region, as if each were drawn
from the map by itself; people make about three fixations per second. The order of places is that of their shares: the
model says how much a place draws, not when.</p></footer>
</body></html>
""")
_SECTION = Template("""<h2>$name</h2>
<p class="facts">$size pixels. $information</p>
<div class="maps$shape">$maps</div>
<div class="tables"><div><h3>What draws the eye</h3>
$peaks</div>$regions</div>
<h3>Crops</h3>
<div class="crops">$crops</div>
""")


@dataclass(frozen=True)
class Section:
    """One picture of a report, as it is written; the picture itself can be forgotten."""

    name: str
    model: str
    html: str


def describe(
    name: str,
    gaze: GazeMap,
    boxes: Mapping[str, Sequence[float]] | None = None,
    ratios: Sequence[str] = RATIOS,
    fixations: int = FIXATIONS,
) -> Section:
    """All about one picture. boxes: (left, top, right, bottom) of its regions by name, in pixels."""
    regions = gaze.regions(boxes or {}, fixations)
    html = _SECTION.substitute(
        name=escape(name),
        size=format_size(gaze.picture_size),
        information=f"{_in_words(gaze.bits)} ({gaze.bits:.1f} bits more than an even spread).",
        shape=" tall" if gaze.picture_size[0] > _TALL * gaze.picture_size[1] else "",
        maps=_maps(name, gaze, regions),
        peaks=_peak_table(_listed(gaze)),
        regions=_region_table(regions),
        crops="".join(_crop_figure(gaze, ratio) for ratio in ratios),
    )
    return Section(name, gaze.model, html)


def make_report(sections: Sequence[Section], title: str, date: datetime, fixations: int = FIXATIONS) -> str:
    """The whole file. date: of the report, as it is shown."""
    links = "".join(f'<li><a href="#p{i}">{escape(section.name)}</a></li>' for i, section in enumerate(sections, 1))
    return _PAGE.substitute(
        title=escape(title),
        style=_STYLE,
        model=escape(sections[0].model),
        version=escape(__version__),
        date=f"{date.day} {date:%B %Y}",
        contents=f"<nav><ol>{links}</ol></nav>" if len(sections) > 1 else "",
        sections="".join(f'<section id="p{i}">{section.html}</section>\n' for i, section in enumerate(sections, 1)),
        fixations=fixations,
    )


def _in_words(bits: float) -> str:
    if bits < 1:
        return "Attention is spread widely, and little stands out"
    return "Attention is gathered at a few places" if bits > 2 else "Some places stand out clearly"


def _listed(gaze: GazeMap) -> list[Peak]:
    """The places that a reader is told about, most attention first; there is always one."""
    first, *others = gaze.peaks(PEAKS)
    return [first, *(peak for peak in others if peak.mass >= LEAST_SHARE)]


def _maps(name: str, gaze: GazeMap, regions: Sequence[RegionAttention]) -> str:
    size = shrunk(gaze.picture_size, _LONGEST)
    plain = gaze.overlay(opacity=0, size=size)
    _number(plain, _listed(gaze), size[1] / gaze.picture_size[1])
    render.outline(plain, regions, gaze.picture_size)
    shown = [
        (plain, "The picture. Numbers mark the places below" + (", boxes the regions." if regions else "."), "picture"),
        (
            gaze.overlay(size=size, legend=True),
            "Attention, as colours. Elsewhere the picture is unchanged.",
            "heat map",
        ),
        (gaze.overlay(size=size, style="focus", legend=True), "What is seen at a glance.", "focus map"),
        (gaze.overlay(size=size, style="contours", legend=True), "Areas that hold given shares.", "contours"),
    ]
    return "".join(_figure(image, caption, f"{kind} of {name}") for image, caption, kind in shown)


def _number(shown: Image.Image, peaks: Sequence[Peak], factor: float) -> None:
    """Small numbered discs above the peaks, so that what is looked at stays visible."""
    radius = max(min(max(shown.size) / 60, min(shown.size) / 15), 8)
    pen, font = ImageDraw.Draw(shown), ImageFont.load_default(size=1.3 * radius)
    for number, peak in enumerate(peaks, 1):
        x = min(max(peak.x * factor, radius), shown.width - radius)
        y = min(max(peak.y * factor - 2 * radius, radius), shown.height - radius)
        pen.line((x, y, peak.x * factor, peak.y * factor), fill=_INK, width=2)
        pen.ellipse((x - radius, y - radius, x + radius, y + radius), fill=_INK, outline=_PAPER, width=2)
        pen.text((x, y), str(number), fill=_PAPER, font=font, anchor="mm")


def _peak_table(peaks: Sequence[Peak]) -> str:
    rows = [(str(i), f"({peak.x:.0f}, {peak.y:.0f})", f"{peak.mass:.1%}") for i, peak in enumerate(peaks, 1)]
    return _table(("place", "x, y", "share"), rows)


def _region_table(regions: Sequence[RegionAttention]) -> str:
    if not regions:
        return ""
    rows = [
        (region.name, f"{region.share:.1%}", f"{region.lift:.1f}", str(region.rank), f"{region.seen:.0%}")
        for region in sorted(regions, key=lambda region: region.rank)
    ]
    head = ("region", "share", "times the average", "rank", "seen")
    return f"<div><h3>Regions</h3>{_table(head, rows)}</div>"


def _crop_figure(gaze: GazeMap, ratio: str) -> str:
    window: Crop = gaze.crop(ratio)[0]
    left, top, right, bottom = window.box
    factor = min(_CROP_HEIGHT / (bottom - top), 1.6 * _CROP_HEIGHT / (right - left), 1.0)
    size = max(round((bottom - top) * factor), 1), max(round((right - left) * factor), 1)
    height, width = gaze.picture_size
    whole = gaze.overlay(opacity=0, size=(max(round(height * factor), 1), max(round(width * factor), 1)))
    corner = round(left * factor), round(top * factor)
    cut = whole.crop((*corner, corner[0] + size[1], corner[1] + size[0]))
    position = f"{right - left}x{bottom - top} at ({left}, {top})"
    return _figure(cut, f"{ratio}: keeps {window.mass:.0%}, {position}", f"crop to {ratio}")


def _figure(image: Image.Image, caption: str, label: str) -> str:
    data = base64.b64encode(encode(image, ".jpg", quality=85)).decode("ascii")
    return (
        f'<figure><img src="data:image/jpeg;base64,{data}" width="{image.width}" height="{image.height}" '
        f'style="height:auto" alt="{escape(label, quote=True)}"><figcaption>{escape(caption)}</figcaption></figure>'
    )


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    cells = "".join(f'<th scope="col">{escape(name)}</th>' for name in head)
    lines = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{cells}</tr></thead><tbody>{lines}</tbody></table>"
