"""What a prediction is: a log density over the pixels of one picture, and everything derived from it.

Peaks, windows, masses and information are found once, on a grid over the picture whose longer side has at most ``GRID``
cells, and are given in pixels of the picture, whatever size of map was asked for. The network's own output has a tenth
as many cells and is blurred, so a finer grid would add nothing. The log density at the size asked for is
made when it is first used.
"""

import io
import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt
from PIL import Image

from fastgaze.core.center_bias import resample_log_density
from fastgaze.core.encoding import encode
from fastgaze.core.errors import ArgumentError
from fastgaze.core.files import write_whole
from fastgaze.core.jsonable import Json
from fastgaze.core.operators import sharing_matrix
from fastgaze.core.pictures import MAX_PIXELS, Picture, Source, open_picture
from fastgaze.core.progress import Clock
from fastgaze.core.sizes import Size, finite_numbers, format_size, shrunk, size_to_json
from fastgaze.runtime import notebook, render
from fastgaze.runtime.crop import SCALES, Crop, Integral, crop_around, find_crops
from fastgaze.runtime.cutting import Cut, Cutter
from fastgaze.runtime.headroom import map_heads
from fastgaze.runtime.peaks import Peak, find_peaks
from fastgaze.runtime.regions import FIXATIONS, RegionAttention, attention

Array = npt.NDArray[np.float32]

GRID = 256
"""Cells along the longer side of the grid that everything is derived from."""
DISPLAY = 1600
"""Pixels along the longer side of an overlay, unless another size is asked for."""
_LEVELS = 1 << 16


class LogDensity(Protocol):
    """A log density that can be had at any size."""

    def log_density(self, size: Size) -> Array:
        """Float32 of ``size`` (height, width), natural log, logsumexp 0."""
        ...


class GazeMap:
    """Where people look in one picture.

    model: name of what predicted it. center_bias: "model", "photograph", "screen", "none" or "given". screen: how
    likely the picture is a screen, a page or a poster rather than a photograph, 0..1; None if the model does not tell.
    size: (height, width) of ``log_density``. picture_size: (height, width) of the picture, in whose pixels all
    positions are.
    """

    def __init__(
        self,
        field: LogDensity,
        picture_size: Size,
        size: Size | None = None,
        model: str = "",
        center_bias: str = "model",
        picture: Picture | None = None,
        clock: Clock | None = None,
        screen: float | None = None,
    ) -> None:
        """size: of the map, that of the picture by default. clock: of the steps that led here."""
        self.model, self.center_bias, self.screen = model, center_bias, screen
        self.picture_size = picture_size
        self._asked, self._field, self._picture = checked_size(size), field, picture
        self._clock = clock or Clock()

    @classmethod
    def from_log_density(cls, log_density: npt.ArrayLike, picture: Source | None = None, model: str = "") -> "GazeMap":
        """The map of any log density (h, w), such as one of recorded fixations; it is normalised here.

        picture: what it is a map of; without it the map's cells count as pixels.
        """
        field = _Given(np.asarray(log_density, dtype=np.float32))
        opened = None if picture is None else open_picture(picture)
        size = field.values.shape[0], field.values.shape[1]
        return cls(field, size if opened is None else opened.size, size, model, "given", opened)

    def __repr__(self) -> str:
        return f"<GazeMap of {format_size(self.picture_size)} pixels, model {self.model or 'unknown'}>"

    def _repr_png_(self) -> bytes:
        """What a notebook shows where it cannot show HTML."""
        return encode(notebook.picture(self), ".png")

    def _repr_html_(self) -> str:
        """What a notebook shows: the overlay, and where people look."""
        return notebook.html(self)

    @property
    def size(self) -> Size:
        """(height, width) of ``log_density``."""
        return self._asked or self.picture_size

    @property
    def milliseconds(self) -> Mapping[str, float]:
        """Wall time of the steps so far: decode, prepare, network, tail, describe."""
        return self._clock.milliseconds()

    @cached_property
    def log_density(self) -> Array:
        """Log probability of each pixel, float32 (H, W) of ``size``, natural log, logsumexp 0."""
        return self.grid if self.size == self._grid_size else self._at(self.size)

    @cached_property
    def density(self) -> Array:
        """Probability of each pixel, float32 (H, W) of ``size``, sums to 1."""
        density: Array = np.exp(self.log_density)
        return density

    @cached_property
    def grid(self) -> Array:
        """The log density on the grid that everything else is derived from, float32 (h, w), logsumexp 0."""
        return self._at(self._grid_size)

    @property
    def _grid_size(self) -> Size:
        return shrunk(self.picture_size, GRID)

    def _at(self, size: Size) -> Array:
        with self._clock("tail"):
            return self._field.log_density(size)

    @cached_property
    def _grid_density(self) -> Array:
        density: Array = np.exp(self.grid)
        return density

    @cached_property
    def _integral(self) -> Integral:
        """Sums of the density from which the mass of any window of the picture follows."""
        return Integral(self._grid_density, self.picture_size)

    @cached_property
    def bits(self) -> float:
        """How far the map is from saying nothing: log2 of the number of cells minus its entropy, in bits, >= 0."""
        entropy = -float(np.einsum("ij,ij->", self._grid_density, self.grid, dtype=np.float64)) / np.log(2)
        return float(max(np.log2(self.grid.size) - entropy, 0.0))

    def mass(self, box: Sequence[float]) -> float:
        """Share of all fixations in ``box`` (left, top, right, bottom), pixels of the picture, rounded and clipped."""
        return self._mass(self._clip(box))

    def _mass(self, box: tuple[int, int, int, int]) -> float:
        left, top, right, bottom = box
        return float(self._integral.mass([top], [bottom], [left], [right])[0, 0])

    def regions(self, boxes: Mapping[str, Sequence[float]], fixations: int = FIXATIONS) -> tuple[RegionAttention, ...]:
        """How much attention each of the named ``boxes`` draws, in their order; see ``runtime.regions``.

        boxes: (left, top, right, bottom) in pixels of the picture by name, rounded and clipped; they may overlap.
        fixations: the number within which a region counts as seen.
        """
        if not isinstance(boxes, Mapping):
            raise ArgumentError(
                f"regions are boxes by name, not a {type(boxes).__name__}; give a mapping, such as "
                "{'logo': (left, top, right, bottom)} in pixels"
            )
        clipped = {}
        for name, box in boxes.items():
            try:
                clipped[name] = self._clip(box)
            except ArgumentError as error:
                raise ArgumentError(f"region {name!r}: {error}") from None
        return attention(clipped, self._mass, self.picture_size, fixations)

    def _clip(self, box: Sequence[float]) -> tuple[int, int, int, int]:
        edges = finite_numbers(box, 4)
        if edges is None:
            raise ArgumentError(f"box {box!r} is not (left, top, right, bottom) in pixels, such as (40, 300, 240, 360)")
        height, width = self.picture_size
        left, right = (min(max(round(edge), 0), width) for edge in edges[::2])
        top, bottom = (min(max(round(edge), 0), height) for edge in edges[1::2])
        if left >= right or top >= bottom:
            raise ArgumentError(f"box {tuple(box)} holds no pixel of the picture, which has {width}x{height}")
        return left, top, right, bottom

    def peaks(self, n: int = 3) -> list[Peak]:
        """At most ``n`` distinct places that draw the eye, by the mass around them, most first; see ``runtime.peaks``.

        A map may have fewer than ``n``.
        """
        if n < 1:
            raise ArgumentError(f"n={n} is not at least 1")
        return self._peaks[:n]

    @cached_property
    def _peaks(self) -> list[Peak]:
        density = self._grid_density
        with self._clock("describe"):
            return find_peaks(density, self.picture_size)

    def crop(
        self, ratio: str | float | tuple[float, float], n: int = 1, scales: Sequence[float] = SCALES
    ) -> list[Crop]:
        """The best windows of ``ratio`` (such as "16:9"), at most ``n``, best first; see ``runtime.crop``.

        Boxes are in pixels of the picture and have exactly the size that ratio and scale give there.
        """
        integral, heads = self._integral, self._heads
        with self._clock("describe"):
            return find_crops(integral, ratio, n, scales, heads)

    def crop_around(self, ratio: str | float | tuple[float, float], focus: tuple[float, float]) -> Crop:
        """The largest window of ``ratio`` with the point ``focus`` (x, y) as near to its middle as possible."""
        return crop_around(self._integral, ratio, focus)

    def cut(
        self,
        ratio: str | float | tuple[float, float] | Crop | None = None,
        size: Size | None = None,
        focus: tuple[float, float] | None = None,
        format: str = "keep",
        quality: int | None = None,
    ) -> Cut:
        """The best window as a file of its own, with profile, credits, transparency and animation of the picture kept.

        ratio: of the window, by default that of ``size``; or a window that ``crop`` gave. size: (height, width) of the
        result in pixels, by default those of the window. focus: a point (x, y) of the picture to cut around. format,
        quality: see ``Cutter.cut``.
        """
        if ratio is None and size is None:
            raise ArgumentError(
                "give the ratio of the window, such as '16:9', or the size (height, width) of the result"
            )
        if isinstance(ratio, Crop):
            return self._cutter.cut(ratio.box, size, format, quality)
        shape = (size[1], size[0]) if ratio is None and size is not None else ratio
        assert shape is not None
        window = self.crop(shape)[0] if focus is None else self.crop_around(shape, focus)
        return self._cutter.cut(window.box, size, format, quality)

    @cached_property
    def _cutter(self) -> Cutter:
        if self._picture is None:
            raise ArgumentError("there is no picture to cut from: this map was made of a density alone")
        return Cutter(self._picture)

    @cached_property
    def _heads(self) -> Array | None:
        """How likely each part of the picture belongs to a head; None if there is no picture."""
        with self._clock("describe"):
            return None if self._picture is None else map_heads(self._picture)

    def percentile(self) -> Array:
        """Share of the picture's area that is looked at less than each pixel: float32 (H, W) of ``size``, 0..1.

        Log densities are distinguished in 65,536 steps between the lowest and the highest.
        """
        low, high = float(self.log_density.min()), float(self.log_density.max())
        if high == low:
            return np.zeros(self.size, np.float32)
        steps = ((self.log_density - low) * ((_LEVELS - 1) / (high - low))).astype(np.int32)
        counts = np.bincount(steps.ravel(), minlength=_LEVELS)
        below = (np.cumsum(counts) - counts) / steps.size
        return below.astype(np.float32)[steps]

    def near(self, size: Size) -> Array:
        """The log density to draw at ``size`` (height, width): at that size where it is small, else on the grid."""
        return self.grid if max(size) > GRID else self._at(size)

    def heat(self, size: Size | None = None) -> Image.Image:
        """Levels for display, 8-bit grey: 0 where people look no more than on average, 255 at the highest point.

        size: (height, width), that of ``overlay`` by default. ``runtime.render`` says how levels are made.
        """
        return render.levels(self, checked_size(size) or self.display_size)

    @property
    def display_size(self) -> Size:
        """(height, width) for the screen: the size asked for, else the picture's with a side of at most ``DISPLAY``."""
        return self._asked or shrunk(self.picture_size, DISPLAY)

    def overlay(
        self,
        opacity: float | None = None,
        size: Size | None = None,
        style: str = "heat",
        legend: bool = False,
        scale: render.Scale | None = None,
        regions: Sequence[RegionAttention] = (),
    ) -> Image.Image:
        """The map over the picture, RGB; what is looked at no more than on average shows unchanged under heat.

        opacity: of what is drawn where it is strongest, 0..1. size: (height, width), ``display_size`` by default; give
        ``picture_size`` for all pixels of the picture. style: "heat", "focus", "contours" or "gray". legend: add a
        strip that explains it. scale: of another map, to compare the two. regions: boxes to outline, with their names
        and shares. See ``runtime.render``.
        """
        shown = checked_size(size) or self.display_size
        return render.draw(
            self, self._picture, style, size=shown, opacity=opacity, scale=scale, legend=legend, regions=regions
        )

    def to_json(
        self,
        peaks: int = 5,
        ratios: Sequence[str] = (),
        n: int = 1,
        regions: Mapping[str, Sequence[float]] | None = None,
        fixations: int = FIXATIONS,
        focus: tuple[float, float] | None = None,
    ) -> dict[str, Json]:
        """What was found, as plain values.

        At most ``peaks`` peaks, at most ``n`` windows for each of ``ratios``, or the one around the point ``focus``
        (x, y), and what each of ``regions`` draws.

        This is the shape that the command line, the server and batch jobs all carry.
        """
        return {
            "model": self.model,
            "center_bias": self.center_bias,
            "screen": None if self.screen is None else round(self.screen, 4),
            "picture_size": size_to_json(self.picture_size),
            "bits": round(self.bits, 4),
            "peaks": [peak.to_json() for peak in self.peaks(peaks)],
            "crops": [
                {"ratio": ratio, "windows": [window.to_json() for window in self._windows(ratio, n, focus)]}
                for ratio in ratios
            ],
            "regions": [region.to_json() for region in self.regions(regions or {}, fixations)],
            "milliseconds": {step: round(time, 3) for step, time in self.milliseconds.items()},
        }

    def _windows(self, ratio: str, n: int, focus: tuple[float, float] | None) -> list[Crop]:
        return self.crop(ratio, n) if focus is None else [self.crop_around(ratio, focus)]

    def save(self, path: str | Path) -> None:
        """By suffix: ``.npy`` the log density, ``.json`` the summary, ``.png``, ``.jpg`` or ``.webp`` the overlay."""
        path = Path(path)
        suffix = path.suffix.lower()
        if suffix not in (".npy", ".json", ".png", ".jpg", ".jpeg", ".webp"):
            raise ArgumentError(f"cannot save a gaze map as {path.name!r}; use .npy, .json, .png, .jpg or .webp")
        write_whole(path, self._encoded(suffix))

    def _encoded(self, suffix: str) -> bytes:
        if suffix == ".json":
            return json.dumps(self.to_json(), indent=2).encode() + b"\n"
        if suffix != ".npy":
            return encode(self.overlay(), suffix)
        buffer = io.BytesIO()
        np.save(buffer, self.log_density, allow_pickle=False)
        return buffer.getvalue()


class _Given:
    """A log density on a grid of its own."""

    def __init__(self, values: Array) -> None:
        if values.ndim != 2 or values.size == 0 or np.isnan(values).any() or not np.isfinite(values.max()):
            raise ArgumentError(f"a log density is an array (h, w) without NaN, not one of shape {values.shape}")
        self.values = values

    def log_density(self, size: Size) -> Array:
        """Smaller sizes collect the mass of their cells, larger ones are interpolated."""
        if size[0] > self.values.shape[0] or size[1] > self.values.shape[1]:
            return resample_log_density(self.values, size).astype(np.float32)
        density = np.exp(self.values - self.values.max(), dtype=np.float64)
        if size != density.shape:
            rows, columns = (sharing_matrix(n_in, n) for n_in, n in zip(density.shape, size, strict=True))
            density = rows @ density @ columns.T
        with np.errstate(divide="ignore"):  # a cell that nobody looks at
            log_density: Array = np.log(density / density.sum()).astype(np.float32)
        return log_density


def checked_size(size: Size | None) -> Size | None:
    """``size`` as whole numbers (height, width), if a map can have it; None stays None."""
    if size is None:
        return None
    try:
        height, width = (int(side) for side in size)
    except (TypeError, ValueError, OverflowError):
        height = width = 0
    if height < 1 or width < 1 or height * width > MAX_PIXELS:
        raise ArgumentError(f"size {size} is not (height, width) with 1 to {MAX_PIXELS // 10**6} million pixels")
    return height, width
