"""From the bytes of a picture and options to the bytes of an answer; everything here runs in a worker thread."""

import base64
import contextlib
import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np

from fastgaze.app.server.limits import LONGEST_MAP_SIDE, SERVED_FORMATS, SUMMARY_PIXELS, ApiError, Limits
from fastgaze.app.server.options import Options
from fastgaze.core.errors import ImageError, ImageTooLargeError
from fastgaze.core.pictures import Picture, encode_png, open_picture
from fastgaze.core.sizes import Size, format_size, shrunk
from fastgaze.runtime import colours
from fastgaze.runtime.gazemap import DISPLAY, GazeMap
from fastgaze.runtime.predictor import Predictor


@dataclass(frozen=True)
class Answer:
    """The body of a success."""

    content: bytes
    media_type: str = "application/json"


def gaze(predictor: Predictor, content: bytes, options: Options, limits: Limits) -> Answer:
    """The answer of ``POST /v1/gaze``."""
    start = perf_counter()
    with _refusing():
        picture = _open(content, limits)
        if options.format == "overlay":
            size = options.size or map_size(shrunk(picture.size, DISPLAY), limits.map_pixels)
            view = predictor.look(picture, at_least=size)
        else:
            size = options.size or map_size(picture.size, limits.map_pixels)
            view = predictor.look(picture)
        found = view.at(size, options.center_bias)
        if options.format != "json":
            return _picture(found, options)
        facts = found.to_json(options.peaks, options.ratios, options.n)
        if options.heat:
            shown = _heat_png(found, options.size or map_size(picture.size, SUMMARY_PIXELS))
            facts["heat"] = "data:image/png;base64," + base64.b64encode(shown).decode("ascii")
        return _json(facts, start)


def crop(predictor: Predictor, content: bytes, options: Options, limits: Limits) -> Answer:
    """The answer of ``POST /v1/crop``."""
    start = perf_counter()
    with _refusing():
        found = predictor.look(_open(content, limits)).at(None, options.center_bias)
        return _json(found.to_json(options.peaks, options.ratios, options.n), start)


def _open(content: bytes, limits: Limits) -> Picture:
    """The picture, if it may be decoded: the header alone decides, no pixel is read yet."""
    try:
        picture = open_picture(content)
    except ImageTooLargeError:
        raise
    except ImageError as error:
        raise _not_a_picture() from error
    if picture.format not in SERVED_FORMATS:
        raise _not_a_picture()
    # Decoders written in Python (BMP with run lengths, PPM with odd maxima) take minutes for a large file.
    if picture.slow:
        raise ApiError(415, "not_a_picture", "this rare variant of the format is not served; save it as PNG or JPEG")
    if picture.size[0] * picture.size[1] > limits.pixels:
        most = f"{limits.pixels / 1e6:g} megapixels"
        message = f"the picture has {format_size(picture.size)} pixels; at most {most} are taken"
        raise ApiError(413, "too_many_pixels", message)
    return picture


@contextlib.contextmanager
def _refusing() -> Iterator[None]:
    try:
        yield
    except ImageError as error:
        raise _refusal(error) from error


def _refusal(error: ImageError) -> ApiError:
    if isinstance(error, ImageTooLargeError):
        return ApiError(413, "too_many_pixels", "the picture has far more pixels, in all or a side, than are taken")
    return ApiError(400, "bad_picture", "the picture is damaged or incomplete and cannot be decoded")


def _not_a_picture() -> ApiError:
    return ApiError(415, "not_a_picture", f"this is not a picture in a known format: {', '.join(SERVED_FORMATS)}")


def map_size(size: Size, most: int) -> Size:
    """``size`` itself, or the largest of the same shape with at most ``most`` pixels and no side too long."""
    height, width = size
    factor = min(1.0, (most / (height * width)) ** 0.5, LONGEST_MAP_SIDE / max(size))
    return max(int(height * factor), 1), max(int(width * factor), 1)


def _json(facts: dict[str, Any], start: float) -> Answer:
    total = {"total": 1e3 * (perf_counter() - start)}
    facts["milliseconds"] = {step: round(time, 3) for step, time in (facts["milliseconds"] | total).items()}
    return Answer(json.dumps(facts, allow_nan=False).encode())


def _picture(found: GazeMap, options: Options) -> Answer:
    if options.format == "png":
        return Answer(_heat_png(found, found.size), "image/png")
    if options.format == "overlay":
        return Answer(encode_png(found.overlay(options.opacity)), "image/png")
    buffer = io.BytesIO()
    np.save(buffer, found.log_density, allow_pickle=False)
    return Answer(buffer.getvalue(), "application/octet-stream")


def _heat_png(found: GazeMap, size: Size) -> bytes:
    """The heat map to lay over the picture: colours by level, and the level as opacity. One byte per pixel."""
    image = found.heat(size)
    image.putpalette(colours.table().tobytes())
    image.info["transparency"] = bytes(range(256))
    return encode_png(image)
