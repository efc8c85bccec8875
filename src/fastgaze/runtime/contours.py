"""Lines around the smallest areas of a gaze map that hold given shares of the attention.

A map is smooth, but the centre bias in it has few cells and fades within one of them at the border: between its cells
it is a straight ramp, at whose ends every line would have a corner. Heat does not show that, a line does. So lines
follow the log density blurred by half a cell of the centre bias, and still hold the shares of the map itself.
"""

import numpy as np
import numpy.typing as npt
from PIL import Image

from fastgaze.core import center_bias
from fastgaze.core.operators import gaussian_matrix

Array = npt.NDArray[np.float32]
Color = tuple[int, int, int]

SHARES = (0.9, 0.75, 0.5, 0.25)
"""Of the attention, inside the lines, from the outermost one."""
_BLUR = 0.5
"""Standard deviation, in cells of the centre bias."""
_STRIP = 64
"""Rows that are drawn at once: so few stay in the processor's cache."""


def draw_lines(shown: Image.Image, log_density: Array, colors: list[Color], ink: Color, opacity: float) -> None:
    """Draw the lines over ``shown``: every line is one in ``ink`` under a narrower one in its colour.

    log_density: (h, w) on any grid over the picture. colors: of the lines, in the order of ``SHARES``.
    """
    width, height = shown.size
    smooth = rounded(log_density)
    field = np.asarray(Image.fromarray(smooth).resize((width, height), Image.Resampling.BICUBIC))
    bounds, half = bounds_of(smooth, log_density), max(max(height, width) / 700, 0.8)
    for top in range(0, height, _STRIP):
        rows = field[top : top + _STRIP]
        steepness = _steepness(field[max(top - 1, 0) : top + _STRIP + 1])[min(top, 1) :][: len(rows)]
        for color, bound in zip(colors, bounds, strict=True):
            distance = np.abs(rows - bound) / steepness  # in pixels, to first order
            for paint, reach in ((ink, 1.8 * half), (color, half)):
                cover = (255 * opacity * (reach + 0.5 - distance).clip(0, 1)).astype(np.uint8)
                shown.paste(paint, (0, top), Image.fromarray(cover))


def rounded(log_density: Array) -> Array:
    """The log density (h, w) without corners. Slopes go on beyond the border, so that lines cross it as they come."""
    for axis, cells in enumerate(center_bias.GRID):
        sigma = _BLUR * log_density.shape[axis] / cells
        margin = min(int(np.ceil(3 * sigma)), log_density.shape[axis] - 1)
        around = [(margin, margin) if each == axis else (0, 0) for each in (0, 1)]
        wide = np.pad(log_density, around, mode="reflect", reflect_type="odd")
        blur = gaussian_matrix(wide.shape[axis], sigma)[margin : wide.shape[axis] - margin].astype(np.float32)
        log_density = blur @ wide if axis == 0 else wide @ blur.T
    return log_density


def bounds_of(field: Array, log_density: Array) -> list[float]:
    """The values of ``field`` (h, w) above which lie ``SHARES`` of the attention of ``log_density`` (h, w)."""
    order = np.argsort(field, axis=None)[::-1]
    held = np.cumsum(np.exp(log_density.ravel()[order], dtype=np.float64))
    last = [order[min(int(np.searchsorted(held, share)), order.size - 1)] for share in SHARES]
    return [float(field.ravel()[index]) for index in last]


def _steepness(field: Array) -> Array:
    """How much a field (h, w) changes from pixel to pixel, above 0."""
    changes = [np.gradient(field, axis=axis) for axis in (0, 1) if field.shape[axis] > 1]
    steepness: Array = np.sqrt(sum((change**2 for change in changes), np.zeros_like(field))) + np.float32(1e-6)
    return steepness
