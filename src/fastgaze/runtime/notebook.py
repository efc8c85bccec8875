"""How a gaze map shows itself in a notebook."""

from base64 import b64encode
from html import escape
from typing import TYPE_CHECKING

from PIL import Image

from fastgaze.core.encoding import encode
from fastgaze.core.sizes import format_size, shrunk

if TYPE_CHECKING:
    from fastgaze.runtime.gazemap import GazeMap

SIDE = 640
"""Pixels along the longer side of the picture: a notebook keeps it in its file."""
PEAKS = 3


def picture(gaze: "GazeMap") -> Image.Image:
    """The overlay, RGB."""
    return gaze.overlay(size=shrunk(gaze.picture_size, SIDE))


def html(gaze: "GazeMap") -> str:
    """One figure that needs no other file: the overlay, and under it the model and the places that draw the eye."""
    shown = picture(gaze)
    source = "data:image/jpeg;base64," + b64encode(encode(shown, ".jpg")).decode()
    places = ", ".join(f"({peak.x:.0f}, {peak.y:.0f}) {peak.mass:.0%}" for peak in gaze.peaks(PEAKS))
    model = f" by {escape(gaze.model)}" if gaze.model else ""
    return (
        f'<figure style="margin:0"><img src="{source}" width="{shown.width}" height="{shown.height}" '
        'alt="where people look" style="max-width:100%;height:auto">'
        f"<figcaption>Where people look{model}: {places}. Pixels of {format_size(gaze.picture_size)}.</figcaption>"
        "</figure>"
    )
