"""Sizes of pictures and maps: (height, width) in code, WIDTHxHEIGHT wherever a person reads or types one."""

import re

from fastgaze.core.errors import ArgumentError

Size = tuple[int, int]
"""(height, width) in pixels, as numpy orders the axes of an image."""


def parse_size(text: str) -> Size:
    """``"640x480"`` -> (height, width) = (480, 640)."""
    match = re.fullmatch(r"(\d+)[xX](\d+)", text.strip())
    if match is None or 0 in (size := (int(match[2]), int(match[1]))):
        raise ArgumentError(f"size {text!r} is not WIDTHxHEIGHT in pixels, such as 640x480")
    return size


def format_size(size: Size) -> str:
    """(height, width) = (480, 640) -> ``"640x480"``."""
    height, width = size
    return f"{width}x{height}"
