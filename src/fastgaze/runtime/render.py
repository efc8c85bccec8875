"""How a gaze map is drawn over its picture: the one look of command line, server, page, video, report and notebook.

Everything is measured in *lift*: how many times more attention a place draws than it would if people looked everywhere
alike. Places with a lift of at most 1 stay exactly as they are in the picture. Above it, with ``top`` the lift of the
highest colour,

    level = (sqrt(lift) - 1) / (sqrt(top) - 1), between 0 and 1, kept in 8 bits
    opacity(level) = opacity * level * (2 - level)

``top`` is the highest lift of the map, but never below ``LEAST_TOP``: on an empty picture, where people look at the
middle by habit alone, nothing glows as if it were an eye-catcher.

Levels are computed on the map's grid, which is finer than its blur, and enlarged once.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFont

from fastgaze.core.errors import ArgumentError
from fastgaze.core.pictures import Picture
from fastgaze.core.sizes import Size
from fastgaze.runtime.contours import SHARES, draw_lines
from fastgaze.runtime.regions import RegionAttention

Array = npt.NDArray[np.float32]
Bytes = npt.NDArray[np.uint8]
Font = ImageFont.FreeTypeFont | ImageFont.ImageFont

STYLES = ("heat", "focus", "contours", "gray")
"""heat: colours over the picture. focus: fog over what is not looked at. contours: lines around the smallest areas that
hold given shares of the attention. gray: the levels of ``heat`` alone, without the picture."""
OPACITY = {"heat": 0.7, "focus": 0.85, "contours": 1.0, "gray": 1.0}
"""Of what is drawn, where it is strongest, unless another one is asked for."""
LEAST_TOP = 16.0
"""The least lift that the highest colour stands for."""

# From blue over cyan and yellow to dark red: as legible as turbo on dark, white and red pictures, but people who do not
# tell red from green see its levels apart as well. (level, RGB)
_STOPS = (
    (0.00, (27, 48, 200)),
    (0.25, (20, 160, 255)),
    (0.42, (125, 240, 224)),
    (0.58, (255, 243, 92)),
    (0.78, (255, 106, 0)),
    (1.00, (130, 0, 34)),
)
# Fog is clear up to the first of these shares of the attention and full from the second on.
_CLEAR, _FOGGED = 0.5, 0.9
# Between dark and light, so that it shows on white pages and on night scenes.
_FOG = (104, 110, 120)
_INK, _PAPER = (32, 33, 36), (255, 255, 255)
_TICKS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
# The least distance of two ticks on the bar, whose length is 1.
_APART = 0.1


class Drawable(Protocol):
    """What is drawn: a ``GazeMap``."""

    @property
    def grid(self) -> Array:
        """The log density on the grid, (h, w)."""
        ...

    @property
    def picture_size(self) -> Size:
        """(height, width) of the picture."""
        ...

    def near(self, size: Size) -> Array:
        """The log density to draw at ``size``."""
        ...


@dataclass(frozen=True)
class Scale:
    """Which lift is which level; pictures that are compared share one."""

    top: float = LEAST_TOP
    """Lift of the highest level."""

    @classmethod
    def of(cls, *gazes: Drawable) -> "Scale":
        """The scale on which none of ``gazes`` exceeds the highest level."""
        return cls.for_lifts(*(lift_of(gaze.grid) for gaze in gazes))

    @classmethod
    def for_lifts(cls, *lifts: Array) -> "Scale":
        """The scale on which none of ``lifts`` exceeds the highest level."""
        return cls(max(LEAST_TOP, *(float(lift.max()) for lift in lifts)))

    def levels(self, lift: Array) -> Bytes:
        """Lift (h, w) -> 0..255; 0 is drawn as nothing."""
        found = (np.sqrt(lift) - 1) * (255 / (np.sqrt(self.top) - 1))
        levels: Bytes = (found.clip(0, 255) + 0.5).astype(np.uint8)
        return levels

    def ticks(self) -> list[tuple[float, str]]:
        """(place on the scale from 0 to 1, its lift in words) for a legend; none is written over another."""
        ticks: list[tuple[float, str]] = []
        for tick in _TICKS:
            place = float((tick**0.5 - 1) / (self.top**0.5 - 1))
            if place <= 1 and (not ticks or place - ticks[-1][0] >= _APART):
                ticks.append((place, f"{tick}x"))
        return ticks


def lift_of(log_density: Array) -> Array:
    """Probabilities of cells -> how many times the average each is, (h, w)."""
    lift: Array = np.exp(log_density + np.float32(np.log(log_density.size)))
    return lift


@lru_cache(maxsize=8)
def palette(opacity: float = 1.0) -> Bytes:
    """Red, green, blue and opacity of the 256 levels, (256, 4); nothing is drawn at level 0."""
    level = np.linspace(0, 1, 256)
    places, colors = [place for place, _ in _STOPS], np.array([color for _, color in _STOPS])
    rgb = [np.interp(level, places, colors[:, channel]) for channel in range(3)]
    rgba: Bytes = np.round(np.stack([*rgb, 255 * checked_opacity(opacity) * level * (2 - level)], axis=1)).astype(
        np.uint8
    )
    return rgba


@lru_cache(maxsize=1)
def on_black() -> Bytes:
    """Red, green and blue of the 256 levels of a map that stands alone, (256, 3)."""
    color, opacity = np.split(palette().astype(np.float64), [3], axis=1)
    rgb: Bytes = np.round(color * opacity / 255).astype(np.uint8)
    return rgb


def draw(
    gaze: Drawable,
    picture: Picture | None,
    style: str = "heat",
    *,
    size: Size,
    opacity: float | None = None,
    scale: Scale | None = None,
    legend: bool = False,
    regions: Sequence[RegionAttention] = (),
) -> Image.Image:
    """``gaze`` over ``picture``, RGB of ``size`` (height, width); without a picture, over black.

    opacity: of what is drawn where it is strongest, 0..1, by default ``OPACITY`` of the style. scale: by default the
    map's own. legend: a strip below the picture that says what is drawn. regions: boxes to outline.
    """
    if style not in STYLES:
        raise ArgumentError(f"no style {style!r}; choose from {', '.join(STYLES)}")
    strength = OPACITY[style] if opacity is None else checked_opacity(opacity)
    used = scale or Scale.of(gaze)
    shown = _gray(gaze, size, used) if style == "gray" else _canvas(picture, size)
    if style != "gray":
        _LAYERS[style](shown, gaze, used, strength)
    outline(shown, regions, gaze.picture_size)
    return _with_legend(shown, style, used) if legend else shown


def levels(gaze: Drawable, size: Size, scale: Scale | None = None) -> Image.Image:
    """The levels of a map, 8-bit grey of ``size`` (height, width), by default on the map's own scale."""
    lift = lift_of(gaze.near(size))
    return _enlarged((scale or Scale.for_lifts(lift)).levels(lift), size)


def heat_image(gaze: Drawable, size: Size) -> Image.Image:
    """The heat map to lay over the picture, of ``size`` (height, width): one byte per pixel, with a palette.

    A program that opens it finds the opacity of each colour in ``info["transparency"]``.
    """
    image = levels(gaze, size)
    rgba = palette()
    image.putpalette(rgba[:, :3].tobytes())
    image.info["transparency"] = rgba[:, 3].tobytes()
    return image


def checked_opacity(opacity: float) -> float:
    """``opacity`` itself, if it is one."""
    if not 0 <= opacity <= 1:
        raise ArgumentError(f"opacity {opacity} is not between 0 and 1")
    return opacity


def _canvas(picture: Picture | None, size: Size) -> Image.Image:
    """The picture to draw on: a copy, since it keeps what it has decoded."""
    height, width = size
    if picture is None:
        return Image.new("RGB", (width, height))
    photo = picture.rgb(at_least=size)
    return photo.copy() if photo.size == (width, height) else photo.resize((width, height), Image.Resampling.BILINEAR)


def _enlarged(values: Bytes, size: Size) -> Image.Image:
    # The grid is finer than the blur: between its cells the density is almost linear.
    image = Image.fromarray(values)
    return image if values.shape == size else image.resize((size[1], size[0]), Image.Resampling.BILINEAR)


def _size_of(image: Image.Image) -> Size:
    return image.height, image.width


def _heat(shown: Image.Image, gaze: Drawable, scale: Scale, opacity: float) -> None:
    found = levels(gaze, _size_of(shown), scale)
    box = found.getbbox()
    if box is None:
        return
    rgba = palette(opacity)
    found = found.crop(box)
    colors = found.copy()
    colors.putpalette(rgba[:, :3].tobytes())
    shown.paste(colors.convert("RGB"), box, found.point(rgba[:, 3].tolist()))


def _gray(gaze: Drawable, size: Size, scale: Scale) -> Image.Image:
    return levels(gaze, size, scale).convert("RGB")


def _focus(shown: Image.Image, gaze: Drawable, scale: Scale, opacity: float) -> None:  # noqa: ARG001
    covered = ((held_above(gaze.grid) - _CLEAR) / (_FOGGED - _CLEAR)).clip(0, 1)
    fog = _enlarged((255 * opacity * covered + 0.5).astype(np.uint8), _size_of(shown))
    shown.paste(_FOG, (0, 0), fog)


def _contours(shown: Image.Image, gaze: Drawable, scale: Scale, opacity: float) -> None:  # noqa: ARG001
    draw_lines(shown, gaze.grid, contour_colors(), _INK, opacity)


def outline(shown: Image.Image, regions: Sequence[RegionAttention], picture_size: Size) -> None:
    """Draw boxes, given in pixels of a picture of ``picture_size`` (height, width), with their names and shares."""
    across, down = shown.width / picture_size[1], shown.height / picture_size[0]
    line = max(round(max(shown.size) / 500), 1)
    font = ImageFont.load_default(size=max(max(shown.size) / 60, 9))
    pen = ImageDraw.Draw(shown)
    for region in regions:
        left, top, right, bottom = region.box
        box = (left * across, top * down, max(right * across - 1, left * across), max(bottom * down - 1, top * down))
        pen.rectangle(box, outline=_INK, width=3 * line)
        pen.rectangle((box[0] + line, box[1] + line, *_not_before(box, line)), outline=_PAPER, width=line)
    for region in regions:  # above all lines
        _label(shown, pen, font, region, (region.box[0] * across, region.box[1] * down))


def _not_before(box: tuple[float, float, float, float], line: int) -> tuple[float, float]:
    """The lower right corner of a box that is narrower by ``line`` on all sides, if that is one."""
    left, top, right, bottom = box
    return max(right - line, left + line), max(bottom - line, top + line)


def _label(
    shown: Image.Image, pen: ImageDraw.ImageDraw, font: Font, region: RegionAttention, corner: tuple[float, float]
) -> None:
    """Name and share above the upper left corner of a box, or inside where the picture ends."""
    text = f"{region.name} {region.share:.1%}"
    left, top, right, bottom = pen.textbbox((0, 0), text, font=font)
    margin = max(round((bottom - top) / 4), 1)
    width, height = right - left + 2 * margin, bottom - top + 2 * margin
    x = max(min(corner[0], shown.width - width), 0)
    y = corner[1] - height if corner[1] >= height else corner[1]
    pen.rectangle((x, y, x + width, y + height), fill=_INK)
    pen.text((x + margin - left, y + margin - top), text, fill=_PAPER, font=font)


_LAYERS: dict[str, Callable[[Image.Image, Drawable, Scale, float], None]] = {
    "heat": _heat,
    "focus": _focus,
    "contours": _contours,
}


def held_above(log_density: Array) -> Array:
    """For each cell (h, w), the share of the attention on cells that are looked at more than it, 0..1."""
    flat = log_density.ravel()
    order = np.argsort(-flat, kind="stable")
    sorted_density = np.exp(flat[order], dtype=np.float64)
    before = np.cumsum(sorted_density) - sorted_density
    # Equal cells get an equal share: that of the first of them.
    first = np.searchsorted(-flat[order], -flat, side="left")
    held: Array = before[first].astype(np.float32).reshape(log_density.shape)
    return held


def contour_colors() -> list[tuple[int, int, int]]:
    """Of the lines, in the order of ``SHARES``."""
    chosen = palette()[np.linspace(40, 200, len(SHARES)).astype(int), :3].tolist()
    return [(red, green, blue) for red, green, blue in chosen]


def _with_legend(shown: Image.Image, style: str, scale: Scale) -> Image.Image:
    """``shown`` above a strip in which the legend is as wide as the picture, if that is not very wide."""
    strip = _LEGENDS[style](scale, _unit(shown.width))
    framed = Image.new("RGB", (shown.width, shown.height + strip.height), _PAPER)
    framed.paste(shown)
    framed.paste(strip, (0, shown.height))
    return framed


def legend_height(width: int) -> int:
    """Pixels that a legend adds to a picture of ``width`` pixels."""
    return round(3.6 * _unit(width))


def _unit(width: int) -> float:
    """Of the legend's layout, in pixels."""
    return min(max(width / 36, 4), 20)


def _strip(unit: float) -> tuple[Image.Image, ImageDraw.ImageDraw, Font]:
    """White paper of 36 by 3.6 units, and pen and font for it."""
    strip = Image.new("RGB", (round(36 * unit), round(3.6 * unit)), _PAPER)
    return strip, ImageDraw.Draw(strip), ImageFont.load_default(size=1.2 * unit)


def _bar_legend(colors: Bytes, scale: Scale, unit: float) -> Image.Image:
    """The levels as a bar with the lifts below it. colors: of the levels, (256, 3)."""
    strip, pen, font = _strip(unit)
    left, width = unit, 18 * unit
    bar = Image.fromarray(colors[None]).resize((round(width), round(unit)))
    strip.paste(bar, (round(left), round(0.6 * unit)))
    for place, text in scale.ticks():
        x = left + place * width
        pen.line((x, 1.6 * unit, x, 1.9 * unit), fill=_INK)
        pen.text((x, 1.9 * unit), text, fill=_INK, font=font, anchor="ma")
    pen.text((20.5 * unit, 1.1 * unit), "times the average attention", fill=_INK, font=font, anchor="lm")
    return strip


def _heat_legend(scale: Scale, unit: float) -> Image.Image:
    return _bar_legend(palette()[:, :3], scale, unit)


def _gray_legend(scale: Scale, unit: float) -> Image.Image:
    return _bar_legend(np.arange(256, dtype=np.uint8)[:, None].repeat(3, axis=1), scale, unit)


def _contour_legend(scale: Scale, unit: float) -> Image.Image:  # noqa: ARG001
    strip, pen, font = _strip(unit)
    for index, (share, color) in enumerate(zip(SHARES[::-1], contour_colors()[::-1], strict=True)):
        x, y = (1 + 5.4 * index) * unit, 1.8 * unit
        pen.line((x, y, x + 1.4 * unit, y), fill=_INK, width=max(round(0.6 * unit), 3))
        pen.line((x, y, x + 1.4 * unit, y), fill=color, width=max(round(0.3 * unit), 1))
        pen.text((x + 1.8 * unit, y), f"{share:.0%}", fill=_INK, font=font, anchor="lm")
    pen.text((22.3 * unit, 1.8 * unit), "of the attention inside", fill=_INK, font=font, anchor="lm")
    return strip


def _focus_legend(scale: Scale, unit: float) -> Image.Image:  # noqa: ARG001
    strip, pen, font = _strip(unit)
    text = f"clear: the places with {_CLEAR:.0%} of the attention, full fog: the last {1 - _FOGGED:.0%}"
    pen.text((unit, 1.8 * unit), text, fill=_INK, font=font, anchor="lm")
    return strip


_LEGENDS: dict[str, Callable[[Scale, float], Image.Image]] = {
    "heat": _heat_legend,
    "focus": _focus_legend,
    "contours": _contour_legend,
    "gray": _gray_legend,
}
