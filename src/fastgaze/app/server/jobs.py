"""From the bytes of a picture and options to the bytes of an answer; everything here runs in a worker process."""

import base64
import contextlib
import io
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np
from PIL import Image

from fastgaze.app.server.forms import parse_form
from fastgaze.app.server.limits import (
    LONGEST_MAP_SIDE,
    SERVED_FORMATS,
    SMALL_ANSWER,
    SUMMARY_PIXELS,
    ApiError,
    Limits,
    amount,
)
from fastgaze.app.server.options import Options, parse_request
from fastgaze.app.server.wire import Task
from fastgaze.core.errors import ImageError, ImageTooLargeError
from fastgaze.core.picture_limits import Cost, check_scans, decoding_cost
from fastgaze.core.pictures import Picture, Size, open_picture
from fastgaze.runtime import colours as colormap
from fastgaze.runtime.crop import Crop, parse_ratio, window_size
from fastgaze.runtime.gazemap import GazeMap
from fastgaze.runtime.predictor import Predictor

# What a task may cost in a light worker, and in memory in any.
_LIGHT_SECONDS = 0.15
_LIGHT_BYTES = 48 << 20
_MOST_BYTES = 300 << 20
# Seconds and bytes of memory per pixel of a map that is sent back, and bytes of the answer at most.
_FORMAT_COSTS = {
    "npy": (1.5e-8, 12, 4.0),
    "png": (6e-8, 16, 1.05),
    "overlay": (1.6e-7, 24, 3.1),
    "heat": (6e-8, 16, 1.4),
}
_FACTS_BYTES = 32 << 10


@dataclass(frozen=True)
class Answer:
    """The body of a success."""

    content: bytes
    media_type: str = "application/json"


@dataclass(frozen=True)
class Needs:
    """What a task takes that was not granted to it."""

    heavy: bool
    """More time or memory than a light worker has."""
    size: int
    """Bytes that the answer takes at most."""


def work(
    task: Task, content: bytes, predictors: Mapping[str, Predictor], limits: Limits, heavy: bool
) -> Answer | Needs:
    """The answer to a request, or what it needs; ApiError when it is refused."""
    start = perf_counter()
    picture: bytes | None = content
    query = [(name, value) for name, value in task.query]
    if task.content_type:
        form = parse_form(content, task.content_type)
        picture, query = form.image, query + form.fields
    options, model = parse_request(task.verb, query, list(predictors), limits)
    if not picture:
        raise ApiError(400, "no_picture", "no picture was sent; send its bytes as the body or as the field image")
    if len(picture) > limits.bytes:
        raise ApiError(413, "too_many_bytes", f"the picture is larger than {amount(limits.bytes)}")
    with _refusing():
        opened = _open(picture, limits)
        needs = _needs(opened, len(picture), options, predictors[model], limits)
        if not task.granted and (needs.size > SMALL_ANSWER or (needs.heavy and not heavy)):
            return needs
        job: Callable[..., Answer] = gaze if task.verb == "gaze" else crop
        return job(predictors[model], picture, options, limits, start)


def _open(content: bytes, limits: Limits) -> Picture:
    """The picture, of which only the header has been read."""
    try:
        picture = open_picture(content)
    except ImageTooLargeError:
        raise
    except ImageError as error:
        raise _not_a_picture() from error
    _check(picture.image, limits)
    if picture.image.format in ("JPEG", "MPO"):
        check_scans(content, "the picture")
    return picture


def _needs(picture: Picture, size: int, options: Options, predictor: Predictor, limits: Limits) -> Needs:
    cost = decoding_cost(picture.image, predictor.card.working_size(picture.size))
    kind = options.format if options.format != "json" else "heat" if options.heat else ""
    answer = _FACTS_BYTES
    if kind:
        height, width = options.size or map_size(picture.size, limits.map_pixels)
        seconds, memory, sent = _FORMAT_COSTS[kind]
        cost = cost + Cost(height * width * memory, height * width * seconds)
        answer += int(height * width * sent)
    if cost.bytes + size > _MOST_BYTES:
        pixels = picture.size[0] * picture.size[1]
        fitting = pixels * _MOST_BYTES / (cost.bytes + size) / 1e6
        message = f"a picture of this kind takes {cost.bytes / pixels:.0f} bytes of memory per pixel; "
        raise ApiError(413, "too_many_pixels", message + f"at most {fitting:.0f} megapixels of it are taken")
    return Needs(cost.seconds > _LIGHT_SECONDS or cost.bytes + size > _LIGHT_BYTES, answer)


def gaze(predictor: Predictor, content: bytes, options: Options, limits: Limits, start: float) -> Answer:
    """The answer of ``POST /v1/gaze``."""
    if options.format != "json":
        return _picture(_predict(predictor, content, options, limits.map_pixels, options.size), options)
    found = _predict(predictor, content, options, SUMMARY_PIXELS)
    facts = _summary(found, options)
    if options.heat:
        shown = found if options.size is None else predictor.predict(content, options.size, options.center_bias)
        facts["heat"] = "data:image/png;base64," + base64.b64encode(_heat_png(shown)).decode("ascii")
    return _json(facts, start)


def crop(predictor: Predictor, content: bytes, options: Options, _: Limits, start: float) -> Answer:
    """The answer of ``POST /v1/crop``."""
    found = _predict(predictor, content, options, SUMMARY_PIXELS)
    facts = {
        "model": found.model,
        "picture_size": list(_picture_size(found)),
        "crops": _windows(found, options),
        "milliseconds": dict(found.milliseconds),
    }
    return _json(facts, start)


def _predict(predictor: Predictor, content: bytes, options: Options, most: int, size: Size | None = None) -> GazeMap:
    """The map at ``size``, or at the picture's shape with at most ``most`` pixels, the only one windows fit on."""
    wanted = size or map_size(open_picture(content).size, most)
    return predictor.predict(content, wanted, options.center_bias)


@contextlib.contextmanager
def _refusing() -> Iterator[None]:
    try:
        yield
    except ImageError as error:
        raise _refusal(error) from error


def _check(image: Image.Image, limits: Limits) -> None:
    """The header alone decides; no pixel has been read yet."""
    if image.format not in SERVED_FORMATS:
        raise _not_a_picture()
    # Decoders written in Python (BMP with run lengths, PPM with odd maxima) take minutes for a large file.
    if any(tile[0] in Image.DECODERS for tile in getattr(image, "tile", ())):
        raise ApiError(415, "not_a_picture", "this rare variant of the format is not served; save it as PNG or JPEG")
    if image.width * image.height > limits.pixels:
        most = f"{limits.pixels / 1e6:g} megapixels"
        message = f"the picture has {image.width}x{image.height} pixels; at most {most} are taken"
        raise ApiError(413, "too_many_pixels", message)


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


def _summary(found: GazeMap, options: Options) -> dict[str, Any]:
    height, width = _picture_size(found)
    y_scale, x_scale = height / found.size[0], width / found.size[1]
    facts: dict[str, Any] = {
        "model": found.model,
        "picture_size": [height, width],
        "size": list(found.size),
        "center_bias": options.center_bias or "none",
        "bits": round(found.bits, 4),
        "peaks": [
            {"x": round(peak.x * x_scale, 2), "y": round(peak.y * y_scale, 2), "mass": round(peak.mass, 6)}
            for peak in found.peaks(options.peaks)
        ],
        "milliseconds": dict(found.milliseconds),
    }
    if options.ratios:
        facts["crops"] = _windows(found, options)
    return facts


def _windows(found: GazeMap, options: Options) -> list[dict[str, Any]]:
    return [
        {"ratio": ratio, "windows": [_window(found, ratio, window) for window in found.crop(ratio, options.n)]}
        for ratio in options.ratios
    ]


def _window(found: GazeMap, ratio: str, crop: Crop) -> dict[str, Any]:
    """A window in pixels of the picture, with exactly the size that the ratio and the scale give there."""
    size = _picture_size(found)
    y_scale, x_scale = size[0] / found.size[0], size[1] / found.size[1]
    height, width = window_size(size, parse_ratio(ratio), crop.scale)
    left = min(round(crop.box[0] * x_scale), size[1] - width)
    top = min(round(crop.box[1] * y_scale), size[0] - height)
    return {
        "box": [left, top, left + width, top + height],
        "mass": round(crop.mass, 6),
        "confidence": round(crop.confidence, 6),
        "focal_point": [round(crop.focal_point[0] * x_scale, 2), round(crop.focal_point[1] * y_scale, 2)],
        "scale": crop.scale,
    }


def _picture_size(found: GazeMap) -> Size:
    return found.picture_size or found.size


def _json(facts: dict[str, Any], start: float) -> Answer:
    total = {"total": 1e3 * (perf_counter() - start)}
    facts["milliseconds"] = {step: round(time, 3) for step, time in (facts["milliseconds"] | total).items()}
    return Answer(json.dumps(facts, allow_nan=False).encode())


def _picture(found: GazeMap, options: Options) -> Answer:
    if options.format == "png":
        return Answer(_heat_png(found), "image/png")
    if options.format == "overlay":
        return Answer(_saved(found.overlay(options.opacity)), "image/png")
    buffer = io.BytesIO()
    np.save(buffer, found.log_density, allow_pickle=False)
    return Answer(buffer.getvalue(), "application/octet-stream")


def _heat_png(found: GazeMap) -> bytes:
    """The heat map to lay over the picture: colours by level, and the level as opacity. One byte a pixel."""
    image = Image.fromarray(found.heat())
    image.putpalette(colormap.table().tobytes())
    image.info["transparency"] = bytes(range(256))
    return _saved(image)


def _saved(image: Image.Image) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, "PNG", compress_level=1)
    return buffer.getvalue()
