"""Two or more pictures beside each other: one scale, what moved, and what each region gained or lost.

Every picture is compared with the first. Their maps are laid over each other by relative position, so that pictures of
other sizes can be compared; those of another shape are stretched.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFont, ImageOps

from fastgaze.core.center_bias import CenterBias
from fastgaze.core.encoding import encode_png
from fastgaze.core.errors import ArgumentError
from fastgaze.core.jsonable import Json
from fastgaze.core.pictures import Source
from fastgaze.core.sizes import Size
from fastgaze.runtime import render
from fastgaze.runtime.gazemap import GazeMap
from fastgaze.runtime.predictor import predict
from fastgaze.runtime.regions import FIXATIONS, RegionAttention

Array = npt.NDArray[np.float32]
Boxes = Mapping[str, Sequence[float]]

MOST_PICTURES = 8
COLUMN = 800
"""Pixels that a picture is wide at most where several stand side by side."""
_GAINED, _LOST = (224, 96, 0), (56, 64, 208)
_PAPER, _INK = (255, 255, 255), (32, 33, 36)
# Levels that differ by less are drawn as equal.
_EQUAL = 0.04


@dataclass(frozen=True)
class RegionChange:
    """One region in all pictures."""

    name: str
    found: tuple[RegionAttention | None, ...]
    """In each picture; None where it has no such region."""

    @property
    def changes(self) -> tuple[float | None, ...]:
        """Share of the attention in each picture minus that in the first; None where either has no such region."""
        first = self.found[0]
        return tuple(None if first is None or other is None else other.share - first.share for other in self.found)

    def to_json(self) -> dict[str, Json]:
        """Plain values."""
        return {
            "name": self.name,
            "shares": [None if region is None else round(region.share, 6) for region in self.found],
            "changes": [None if change is None else round(change, 6) for change in self.changes],
        }


class Comparison:
    """Gaze maps of several pictures on one scale. ``compare`` makes one."""

    def __init__(
        self, gazes: Sequence[GazeMap], names: Sequence[str], boxes: Sequence[Boxes], fixations: int = FIXATIONS
    ) -> None:
        """names: of the pictures. boxes: for each of them, (left, top, right, bottom) in its pixels by name."""
        if not 2 <= len(gazes) <= MOST_PICTURES:
            raise ArgumentError(f"give 2 to {MOST_PICTURES} pictures to compare, not {len(gazes)}")
        self.gazes, self.names = tuple(gazes), tuple(names)
        self._boxes, self._fixations = tuple(boxes), fixations
        self.regions = tuple(gaze.regions(own, fixations) for gaze, own in zip(gazes, boxes, strict=True))

    def __repr__(self) -> str:
        return f"<Comparison of {', '.join(self.names)}>"

    def _repr_png_(self) -> bytes:
        """What a notebook shows."""
        return encode_png(self.image())

    @cached_property
    def scale(self) -> render.Scale:
        """On which all of the maps are drawn."""
        return render.Scale.of(*self.gazes)

    @cached_property
    def _lifts(self) -> tuple[Array, ...]:
        """Of all maps, on the grid of the first."""
        size = self.gazes[0].grid.shape
        return tuple(render.lift_of(gaze.near((size[0], size[1]))) for gaze in self.gazes)

    def overlap(self, index: int) -> float:
        """How much of the attention lies at the same places in the picture ``index`` as in the first, 0..1."""
        first, other = self._lifts[0], self._lifts[index]
        return float(np.minimum(first, other).mean(dtype=np.float64))

    def changes(self) -> tuple[RegionChange, ...]:
        """Every region in all pictures, in the order in which they were given."""
        names = dict.fromkeys(region.name for found in self.regions for region in found)
        by_name = [{region.name: region for region in found} for found in self.regions]
        return tuple(RegionChange(name, tuple(found.get(name) for found in by_name)) for name in names)

    def difference(self, index: int, size: Size | None = None) -> Image.Image:
        """Where the picture ``index`` draws more attention than the first (orange) or less (blue), over it in gray.

        size: (height, width), that of an overlay by default.
        """
        gaze = self.gazes[index]
        shown = _faded(gaze.overlay(opacity=0, size=size))
        before, after = (np.sqrt(self._lifts[which]) for which in (0, index))
        level = (np.maximum(after, 1) - np.maximum(before, 1)) / (np.sqrt(self.scale.top) - 1)
        for color, part in ((_GAINED, level), (_LOST, -level)):
            strength = ((part - _EQUAL) / (1 - _EQUAL)).clip(0, 1)
            cover = Image.fromarray((255 * 0.85 * strength * (2 - strength) + 0.5).astype(np.uint8))
            shown.paste(color, (0, 0), cover.resize(shown.size, Image.Resampling.BILINEAR))
        render.outline(shown, self.regions[index], gaze.picture_size)
        return shown

    def image(self, style: str = "heat", column: int = COLUMN) -> Image.Image:
        """All pictures side by side under their maps on one scale, and below them what differs from the first.

        column: pixels that each is wide at most.
        """
        widest = min(column, max(gaze.display_size[1] for gaze in self.gazes))
        columns = [self._column(index, widest, style) for index in range(len(self.gazes))]
        gap = max(widest // 50, 4)
        height = max(part.height for part in columns) + gap
        sheet = Image.new("RGB", (len(columns) * (widest + gap) + gap, height), _PAPER)
        for index, part in enumerate(columns):
            sheet.paste(part, (index * (widest + gap) + gap, 0))
        return sheet

    def _column(self, index: int, width: int, style: str) -> Image.Image:
        """Name, map and, but for the first picture, difference."""
        gaze = self.gazes[index]
        height, across = gaze.picture_size
        factor = min(width / across, 2 * width / height)  # a very tall picture is narrower than its column
        size = max(round(height * factor), 1), max(round(across * factor), 1)
        regions = self.regions[index]
        drawn = gaze.overlay(size=size, style=style, scale=self.scale, regions=regions, legend=index == 0)
        parts = [_caption(self.names[index], width), drawn]
        if index:
            share = f"{self.overlap(index):.0%} of the attention at the same places"
            parts += [_caption(f"orange: more than {self.names[0]}, blue: less; {share}", width)]
            parts += [self.difference(index, size)]
        return _stacked(parts, width)

    def to_json(self, peaks: int = 5, ratios: Sequence[str] = (), n: int = 1) -> dict[str, Json]:
        """What was found, as plain values: every picture as ``GazeMap.to_json`` describes it, and what changed."""
        described = zip(self.names, self.gazes, self._boxes, strict=True)
        return {
            "scale_top": round(self.scale.top, 4),
            "pictures": [
                {"name": name, **gaze.to_json(peaks, ratios, n, boxes, self._fixations)}
                for name, gaze, boxes in described
            ],
            "overlaps": [round(self.overlap(index), 6) for index in range(len(self.gazes))],
            "regions": [change.to_json() for change in self.changes()],
        }


def compare(
    *images: Source,
    regions: Boxes | Sequence[Boxes] = (),
    model: str | None = None,
    center_bias: CenterBias = "model",
    fixations: int = FIXATIONS,
) -> Comparison:
    """Predict several pictures and compare the others with the first.

    images: as ``predict`` takes them. regions: boxes (left, top, right, bottom) by name in pixels, the same for all
    pictures, or one such mapping for each picture.
    """
    boxes = [regions] * len(images) if isinstance(regions, Mapping) else list(regions) or [{}] * len(images)
    if len(boxes) != len(images):
        raise ArgumentError(
            f"regions has {len(boxes)} mappings for {len(images)} pictures; give one for each, or one alone for all"
        )
    gazes = [predict(image, model, center_bias=center_bias) for image in images]
    return Comparison(gazes, names_of(images), boxes, fixations)


def names_of(images: Sequence[object]) -> list[str]:
    """What to call pictures: files by their name, others by their number, and each by a name of its own."""
    names = [
        Path(image).name if isinstance(image, (str, os.PathLike)) else f"picture {number}"
        for number, image in enumerate(images, 1)
    ]
    return [name if names.count(name) == 1 else f"{name} ({number})" for number, name in enumerate(names, 1)]


def _faded(photo: Image.Image) -> Image.Image:
    """Gray and light, so that two colours can be told apart on it."""
    return Image.blend(ImageOps.grayscale(photo).convert("RGB"), Image.new("RGB", photo.size, _PAPER), 0.45)


def _caption(text: str, width: int) -> Image.Image:
    """One line of text as wide as a picture; smaller where it would not fit."""
    height = max(width // 24, 14)
    strip = Image.new("RGB", (width, 2 * height), _PAPER)
    pen = ImageDraw.Draw(strip)
    font = ImageFont.load_default(size=0.9 * height)
    for share in np.arange(0.85, 0.15, -0.05):  # the width of letters does not follow their size exactly
        if pen.textlength(text, font=font) <= 0.98 * width:
            break
        font = ImageFont.load_default(size=max(share * height, 5))
    pen.text((0, height), text, fill=_INK, font=font, anchor="lm")
    return strip


def _stacked(parts: Sequence[Image.Image], width: int) -> Image.Image:
    column = Image.new("RGB", (width, sum(part.height for part in parts)), _PAPER)
    top = 0
    for part in parts:
        column.paste(part, (0, top))
        top += part.height
    return column
