"""Sizes of pictures and maps, and the conventions that every room keeps.

- A size is (height, width) in code, WIDTHxHEIGHT wherever a person reads or types one, and
  ``{"width": ..., "height": ...}`` in JSON.
- A point is (x, y) in pixels, x to the right and y down. Coordinates are continuous: the pixel in row r and column c
  covers [c, c + 1) x [r, r + 1), and its centre is (c + 0.5, r + 0.5).
- A box is (left, top, right, bottom); right and bottom are the first column and row outside.
- In JSON, a point is ``{"x": ..., "y": ...}`` and a box ``{"left": ..., "top": ..., "width": ..., "height": ...}``:
  what is named cannot be taken for something else.
"""

import math
import re
from collections.abc import Iterable, Sequence

from fastgaze.core.errors import ArgumentError

Size = tuple[int, int]
"""(height, width) in pixels, as numpy orders the axes of an image."""


def parse_size(text: str) -> Size:
    """``"640x480"`` -> (height, width) = (480, 640)."""
    match = re.fullmatch(r"([0-9]{1,9})[xX]([0-9]{1,9})", text.strip())
    if match is None or 0 in (size := (int(match[2]), int(match[1]))):
        raise ArgumentError(f"size {text[:80]!r} is not WIDTHxHEIGHT in pixels, such as 640x480")
    return size


def format_size(size: Size) -> str:
    """(height, width) = (480, 640) -> ``"640x480"``."""
    height, width = size
    return f"{width}x{height}"


def size_to_json(size: Size) -> dict[str, int]:
    """(height, width) = (480, 640) -> ``{"width": 640, "height": 480}``."""
    height, width = size
    return {"width": width, "height": height}


def box_to_json(box: Sequence[int]) -> dict[str, int]:
    """(left, top, right, bottom) = (10, 20, 110, 70) -> ``{"left": 10, "top": 20, "width": 100, "height": 50}``."""
    left, top, right, bottom = box
    return {"left": left, "top": top, "width": right - left, "height": bottom - top}


def point_to_json(point: Sequence[float]) -> dict[str, float]:
    """(x, y) in pixels -> ``{"x": x, "y": y}``, to a hundredth of a pixel."""
    x, y = point
    return {"x": round(x, 2), "y": round(y, 2)}


def finite_numbers(values: object, count: int) -> tuple[float, ...] | None:
    """``values`` as so many finite numbers, such as the edges of a box; None for anything else, text included."""
    if not isinstance(values, Iterable) or isinstance(values, (str, bytes)):
        return None
    try:
        found = tuple(math.nan if isinstance(value, str) else float(value) for value in values)
    except (TypeError, ValueError, OverflowError):
        return None
    return found if len(found) == count and all(map(math.isfinite, found)) else None


def shrunk(size: Size, longest: int) -> Size:
    """``size`` itself, or the size of the same shape whose longer side is ``longest``; no side is below 1."""
    scale = min(longest / max(size), 1.0)
    return max(round(size[0] * scale), 1), max(round(size[1] * scale), 1)
