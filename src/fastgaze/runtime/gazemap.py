"""What a prediction is: a log density over the pixels of one picture, and everything derived from it."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from fastgaze.core.errors import ArgumentError
from fastgaze.core.pictures import Size, Source, open_picture
from fastgaze.runtime import colours as colormap
from fastgaze.runtime.crop import SCALES, Crop, Integral, find_crops

# Two peaks closer than this share of the diagonal are one; the same radius collects a peak's mass.
_PEAK_RADIUS = 0.1
_PEAK_GRID = 128
_LEVELS = 1 << 16


@dataclass(frozen=True)
class Peak:
    """A place that draws the eye by itself: a local maximum of the density."""

    x: float
    y: float
    """Pixels; the centre of the first pixel is at 0.5."""
    mass: float
    """Share of all fixations expected within a tenth of the diagonal around it, 0..1."""
    density: float
    """Probability of that one pixel."""

    def to_json(self) -> dict[str, float]:
        """Plain values."""
        return {"x": self.x, "y": self.y, "mass": self.mass, "density": self.density}


@dataclass(frozen=True, eq=False)
class GazeMap:
    """Where people look in one picture.

    ``log_density`` is float32 (H, W), natural log, and sums to 1 after exp: the probability that a fixation falls on
    each pixel.
    """

    log_density: npt.NDArray[np.float32]
    model: str = ""
    milliseconds: Mapping[str, float] = field(default_factory=dict)
    """Time of this prediction: decode, prepare, network, tail."""
    source: Source | None = field(default=None, repr=False)
    """The picture as it was given; read again when an overlay is made."""
    picture_size: Size | None = None
    """(height, width) of the picture; differs from ``size`` when another size of map was asked for."""

    @property
    def size(self) -> Size:
        """(height, width) of the map."""
        height, width = self.log_density.shape
        return height, width

    @cached_property
    def density(self) -> npt.NDArray[np.float32]:
        """Probability of each pixel, float32 (H, W), sums to 1."""
        density: npt.NDArray[np.float32] = np.exp(self.log_density)
        return density

    @cached_property
    def integral(self) -> Integral:
        """Sums of the density from which the mass of any window follows."""
        return Integral(self.density)

    @property
    def bits(self) -> float:
        """How far the map is from saying nothing: log2 of the number of pixels minus its entropy, in bits, >= 0."""
        entropy = -float(np.einsum("ij,ij->", self.density, self.log_density, dtype=np.float64)) / np.log(2)
        return float(max(np.log2(self.density.size) - entropy, 0.0))

    def percentile(self) -> npt.NDArray[np.float32]:
        """Share of the picture's area that is looked at less than each pixel: float32 (H, W), 0..1.

        Log densities are told apart in 65,536 steps between the lowest and the highest.
        """
        low, high = float(self.log_density.min()), float(self.log_density.max())
        if high == low:
            return np.zeros(self.size, np.float32)
        steps = ((self.log_density - low) * ((_LEVELS - 1) / (high - low))).astype(np.int32)
        counts = np.bincount(steps.ravel(), minlength=_LEVELS)
        below = (np.cumsum(counts) - counts) / steps.size
        return below.astype(np.float32)[steps]

    def mass(self, box: Sequence[float]) -> float:
        """Share of all fixations inside ``box`` (left, top, right, bottom), pixels of the map, rounded and clipped."""
        left, top, right, bottom = self._clip(box)
        return float(self.density[top:bottom, left:right].sum(dtype=np.float64))

    def _clip(self, box: Sequence[float]) -> tuple[int, int, int, int]:
        if len(box) != 4 or not np.isfinite(box).all():
            raise ArgumentError(f"box {box!r} is not (left, top, right, bottom) in pixels")
        height, width = self.size
        left, right = (min(max(round(edge), 0), width) for edge in (box[0], box[2]))
        top, bottom = (min(max(round(edge), 0), height) for edge in (box[1], box[3]))
        if left >= right or top >= bottom:
            raise ArgumentError(f"box {tuple(box)} holds no pixel of the {width}x{height} map")
        return left, top, right, bottom

    def peaks(self, n: int = 3) -> list[Peak]:
        """At most ``n`` distinct places that draw the eye, by the mass around them, most first.

        A peak is a local maximum with no stronger one within a tenth of the diagonal. A map may have fewer than ``n``.
        """
        if n < 1:
            raise ArgumentError(f"n={n} is not at least 1")
        integral = self.integral if max(self.size) <= _PEAK_GRID else Integral(self.density, most=_PEAK_GRID)
        radius = max(_PEAK_RADIUS * float(np.hypot(*self.size)), 1.0)
        kept = _distinct_maxima(self.log_density, integral, radius)
        found = [self._peak(x, y, radius) for x, y in kept]
        return sorted(found, key=lambda peak: -peak.mass)[:n]

    def _peak(self, x: float, y: float, radius: float) -> Peak:
        top, left = max(int(y - radius), 0), max(int(x - radius), 0)
        around = self.density[top : int(y + radius) + 1, left : int(x + radius) + 1]
        rows, columns = (np.arange(length) + 0.5 for length in around.shape)
        disc = (rows[:, None] + top - y) ** 2 + (columns[None, :] + left - x) ** 2 <= radius**2
        mass = float(np.einsum("ij,ij->", around, disc, dtype=np.float64))
        return Peak(x, y, min(mass, 1.0), float(self.density[int(y), int(x)]))

    def crop(
        self, ratio: str | float | tuple[float, float], n: int = 1, scales: Sequence[float] = SCALES
    ) -> list[Crop]:
        """The best windows of ``ratio`` (such as "16:9"), at most ``n``, best first; see ``runtime.crop``.

        Boxes are in pixels of the map: those of the picture unless another size was asked for.
        """
        return find_crops(self.density, ratio, n, scales, self.integral)

    def heat(self) -> npt.NDArray[np.uint8]:
        """Levels for display, uint8 (H, W): 255 * sqrt(density / highest density)."""
        peak = self.log_density.max()
        levels: npt.NDArray[np.uint8] = (255 * np.exp(0.5 * (self.log_density - peak)) + 0.5).astype(np.uint8)
        return levels

    def overlay(self, opacity: float = 0.7, image: Source | None = None) -> Image.Image:
        """The picture under a heat map, RGB, at the size of the map; where nobody looks the picture shows unchanged.

        opacity: of the heat map at its highest point, 0..1. image: in place of the picture that was predicted.
        """
        if not 0 <= opacity <= 1:
            raise ArgumentError(f"opacity {opacity} is not between 0 and 1")
        levels = self.heat()
        colors = Image.fromarray(colormap.colorize(levels))
        source = self.source if image is None else image
        if source is None:
            return colors
        height, width = self.size
        photo = open_picture(source).rgb(at_least=self.size)
        if photo.size != (width, height):
            photo = photo.resize((width, height), Image.Resampling.BILINEAR)
        # The square root lets weaker places show through as well.
        alpha = (opacity * 255 * np.sqrt(np.arange(256) / 255)).astype(np.uint8)
        return Image.composite(colors, photo, Image.fromarray(alpha[levels]))

    def to_json(self, peaks: int = 5) -> dict[str, Any]:
        """Size, peaks and information as plain values; the map itself is saved with ``save("name.npy")``."""
        return {
            "model": self.model,
            "size": list(self.size),
            "picture_size": list(self.picture_size or self.size),
            "bits": round(self.bits, 4),
            "peaks": [peak.to_json() for peak in self.peaks(peaks)],
            "milliseconds": {step: round(time, 3) for step, time in self.milliseconds.items()},
        }

    def save(self, path: str | Path) -> None:
        """By suffix: ``.npy`` the log density, ``.json`` the summary, ``.png``, ``.jpg`` or ``.webp`` the overlay."""
        path = Path(path)
        match path.suffix.lower():
            case ".npy":
                np.save(path, self.log_density, allow_pickle=False)
            case ".json":
                path.write_text(json.dumps(self.to_json(), indent=2) + "\n")
            case ".png" | ".jpg" | ".jpeg" | ".webp":
                self.overlay().save(path)
            case _:
                raise ArgumentError(f"cannot save a gaze map as {path.name!r}; use .npy, .json, .png, .jpg or .webp")


def _distinct_maxima(
    log_density: npt.NDArray[np.float32], integral: Integral, radius: float
) -> list[tuple[float, float]]:
    """(x, y) of the highest pixel of blocks that no neighbour exceeds, highest first, each ``radius`` from all others.

    Every place that is kept takes those around it out at once, so that an even map costs no more than another.
    """
    blocks = _highest_blocks(integral.means())
    edges = integral.edges(blocks)
    centers = np.stack([edges[:, 2] + edges[:, 3], edges[:, 0] + edges[:, 1]], axis=1) / 2
    kept: list[tuple[float, float]] = []
    left = np.arange(len(blocks))
    while len(left):
        x, y = place = _highest_pixel(log_density, edges[left[0]])
        left = left[1:]
        if all((x - other_x) ** 2 + (y - other_y) ** 2 > radius**2 for other_x, other_y in kept):
            kept.append(place)
            left = left[((centers[left] - place) ** 2).sum(axis=1) > radius**2]
    return kept


def _highest_blocks(means: npt.NDArray[np.float64]) -> npt.NDArray[np.intp]:
    """(row, column) of every block whose mean is no less than its eight neighbours', highest first."""
    padded = np.pad(means, 1, constant_values=-np.inf)
    height, width = means.shape
    highest = means
    for dy, dx in ((dy, dx) for dy in range(3) for dx in range(3)):
        highest = np.maximum(highest, padded[dy : dy + height, dx : dx + width])
    rows, columns = np.nonzero(means >= highest)
    order = np.argsort(-means[rows, columns], kind="stable")
    return np.stack([rows[order], columns[order]], axis=1)


def _highest_pixel(log_density: npt.NDArray[np.float32], edges: npt.NDArray[np.intp]) -> tuple[float, float]:
    top, bottom, left, right = (int(edge) for edge in edges)
    y, x = np.unravel_index(int(log_density[top:bottom, left:right].argmax()), (bottom - top, right - left))
    return left + float(x) + 0.5, top + float(y) + 0.5
