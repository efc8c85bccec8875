"""From the bytes of a picture and options to the bytes of an answer; everything here runs in a worker process."""

import base64
import contextlib
import io
import json
import signal
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from time import perf_counter

import numpy as np

from fastgaze.app.server.forms import parse_form
from fastgaze.app.server.limits import (
    LONGEST_MAP_SIDE,
    SERVED_FORMATS,
    SMALL_ANSWER,
    SUMMARY_PIXELS,
    ApiError,
    Limits,
    amount,
    bad_option,
)
from fastgaze.app.server.options import Options, parse_request
from fastgaze.app.server.wire import Task
from fastgaze.core.encoding import encode_png
from fastgaze.core.errors import ArgumentError, ImageError, ImageTooLargeError, ModelError
from fastgaze.core.jsonable import Document
from fastgaze.core.picture_limits import DecodingCost
from fastgaze.core.pictures import Picture, open_picture
from fastgaze.core.sizes import Size, format_size, shrunk
from fastgaze.runtime import colours
from fastgaze.runtime.cutting import Cutter, is_animated
from fastgaze.runtime.gazemap import DISPLAY, GazeMap
from fastgaze.runtime.predictor import Predictor

# What a task may cost in a light worker, and in memory in any.
_LIGHT_SECONDS = 0.3
_LIGHT_BYTES = 64 << 20
_MOST_BYTES = 272 << 20
# Seconds and bytes of memory per pixel of a map that is sent back, and bytes of the answer at most.
_FORMAT_COSTS = {
    "npy": (1.5e-8, 11, 4.0),
    "png": (1.2e-8, 4, 1.05),
    "overlay": (1.3e-7, 17, 3.1),
    "heat": (1.2e-8, 4, 1.4),
}
_FACTS_BYTES = 32 << 10
_HEADER_SHARE = 0.03
"""Of the time for a picture, for its header: some formats allow millions of empty parts, each of which is read."""
NO_MEMORY = "too_much_memory"
"""What a light worker answers so goes to a heavy one."""
_MEDIA_TYPES = {"png": "image/png", "overlay": "image/png", "npy": "application/octet-stream"}


@dataclass(frozen=True)
class JobResult:
    """The body of a successful answer."""

    content: bytes
    media_type: str = "application/json"


@dataclass(frozen=True)
class Needs:
    """What a task needs beyond what it was granted."""

    heavy: bool
    """More time or memory than a light worker has."""
    size: int
    """Bytes that the answer takes at most."""


@dataclass(frozen=True)
class Several:
    """A form with several pictures: each becomes a task of its own."""

    pictures: list[tuple[int, int]]
    """Where they begin and end in the form's bytes."""
    options: Options


def work(
    task: Task, content: bytes, predictors: Mapping[str, Predictor], limits: Limits, heavy: bool
) -> JobResult | Needs | Several:
    """The answer to a request, what it needs, or the pictures in it; ApiError when it is refused."""
    start = perf_counter()
    picture = content
    if task.options is not None:
        options = Options.from_json(task.options)
    else:
        form = parse_form(content, task.content_type)
        query = [(name, value) for name, value in task.query]
        options = parse_request(task.verb, query + form.fields, list(predictors), limits)
        if len(form.pictures) > 1:
            return _several(task.verb, form.pictures, options, limits)
        picture = content[slice(*form.pictures[0])] if form.pictures else b""
    model = options.model or next(iter(predictors))
    if not picture:
        raise ApiError(400, "no_picture", "no picture was sent; send its bytes as the body or as the field image")
    if len(picture) > limits.bytes:
        raise ApiError(413, "too_many_bytes", f"the picture is larger than {amount(limits.bytes)}")
    with _refusing():
        with _hurried(_HEADER_SHARE * limits.seconds):
            opened = _open(picture, limits)
        needs = _needs(task.verb, opened, len(picture), options, predictors[model], limits)
        if not task.granted and (needs.size > SMALL_ANSWER or (needs.heavy and not heavy)):
            return needs
        job = gaze if task.verb == "gaze" else crop
        found = job(predictors[model], opened, options, limits)
    return found if isinstance(found, JobResult) else _json(found, start)


def _several(verb: str, pictures: list[tuple[int, int]], options: Options, limits: Limits) -> Several:
    if verb != "gaze" or options.format != "json":
        raise bad_option("several pictures in one request are for /v1/gaze with format=json; with ratio it gives crops")
    if len(pictures) > limits.pictures:
        message = f"{len(pictures)} pictures in one request are more than {limits.pictures}; send several requests"
        raise ApiError(413, "too_many_pictures", message)
    return Several(pictures, options)


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
        message = f"the picture has {format_size(picture.size)} pixels; at most {most} are accepted"
        raise ApiError(413, "too_many_pixels", message)
    return picture


def _needs(verb: str, picture: Picture, size: int, options: Options, predictor: Predictor, limits: Limits) -> Needs:
    cost, answer = picture.cost(predictor.card.working_size(picture.size)), _FACTS_BYTES
    kind = options.format if options.format != "json" else "heat" if options.heat else ""
    if verb == "crop" and kind:  # all pixels, and those of the window once more
        height, width = options.size or picture.size
        cost = picture.cost(picture.size) + DecodingCost(8 * height * width, 1.5e-7 * height * width)
        answer = _cut_bytes(picture, options)
    elif kind:
        height, width = _answer_size(picture, options, limits)
        seconds, memory, sent = _FORMAT_COSTS[kind]
        cost = cost + DecodingCost(height * width * memory, height * width * seconds)
        answer += int(height * width * sent)
    if cost.bytes + size > _MOST_BYTES:
        pixels = picture.size[0] * picture.size[1]
        fitting = pixels * _MOST_BYTES / (cost.bytes + size) / 1e6
        message = f"a picture of this kind takes {cost.bytes / pixels:.0f} bytes of memory per pixel; "
        raise ApiError(413, "too_many_pixels", message + f"at most {fitting:.0f} megapixels are accepted")
    every_frame = verb == "crop" and bool(kind) and is_animated(picture.stored())
    return Needs(every_frame or cost.seconds > _LIGHT_SECONDS or cost.bytes + size > _LIGHT_BYTES, answer)


def gaze(predictor: Predictor, picture: Picture, options: Options, limits: Limits) -> JobResult | Document:
    """The answer of ``POST /v1/gaze``."""
    size = _answer_size(picture, options, limits)
    view = predictor.look(picture, at_least=size if options.format == "overlay" else None)
    found = view.at(size, options.center_bias)
    if options.format != "json":
        return JobResult(_file(found, options), _MEDIA_TYPES[options.format])
    facts = found.to_json(options.peaks, options.ratios, options.n)
    if options.heat:
        facts["heat"] = "data:image/png;base64," + base64.b64encode(_heat_png(found, size)).decode("ascii")
    return facts


def crop(predictor: Predictor, picture: Picture, options: Options, limits: Limits) -> JobResult | Document:
    """The answer of ``POST /v1/crop``: windows, or the best one as a picture."""
    found = predictor.look(picture).at(None, options.center_bias)
    if options.format == "json":
        return found.to_json(options.peaks, options.ratios, options.n)
    try:
        made = Cutter(picture).cut(found.crop(options.ratios[0])[0].box, options.size, options.format)
    except ArgumentError as error:  # options were checked, so that only the number of frames can be too large
        message = "all frames together have too many pixels; ask for a smaller size"
        raise ApiError(413, "too_many_pixels", message) from error
    if len(made.content) > _cut_bytes(picture, options):  # an animation may come to any size
        raise ApiError(413, NO_MEMORY, f"the picture that was cut has more than {amount(limits.bytes)}; ask for a size")
    return JobResult(made.content, f"image/{made.format}")


def _cut_bytes(picture: Picture, options: Options) -> int:
    """That a picture cut from this one may have as a file."""
    height, width = options.size or picture.size
    return _FACTS_BYTES + int(4.5 * height * width)


def _answer_size(picture: Picture, options: Options, limits: Limits) -> Size:
    """(height, width) of the map that is sent back."""
    if options.size is not None:
        return options.size
    if options.format == "overlay":
        return map_size(shrunk(picture.size, DISPLAY), limits.map_pixels)
    return map_size(picture.size, SUMMARY_PIXELS if options.format == "json" else limits.map_pixels)


class _Overdue(BaseException):
    """Passes through the decoders, which catch every Exception."""


@contextlib.contextmanager
def _hurried(seconds: float) -> Iterator[None]:
    """413 when what is inside takes more CPU time, as long as that is spent in Python."""

    def end(*_: object) -> None:
        raise _Overdue

    before = signal.signal(signal.SIGVTALRM, end)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    except _Overdue:
        raise ApiError(413, "too_many_parts", "the picture's file has far too many parts; save it again") from None
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


@contextlib.contextmanager
def _refusing() -> Iterator[None]:
    try:
        yield
    except (MemoryError, ImageError, ModelError) as error:
        raise _refusal(error) from error


def _refusal(error: MemoryError | ImageError | ModelError) -> ApiError:
    # onnxruntime says it in words only.
    if isinstance(error, MemoryError) or isinstance(error.__cause__, MemoryError) or "alloc" in str(error):
        return ApiError(413, NO_MEMORY, "picture and map take more memory than is set aside; send a smaller picture")
    if isinstance(error, ModelError):
        raise error
    if isinstance(error, ImageTooLargeError):
        message = "the picture has far more pixels or scans than are accepted"
        return ApiError(413, "too_many_pixels", message)
    return ApiError(400, "bad_picture", "the picture is damaged or incomplete and cannot be decoded")


def _not_a_picture() -> ApiError:
    return ApiError(415, "not_a_picture", f"this is not a picture in a known format: {', '.join(SERVED_FORMATS)}")


def map_size(size: Size, most: int) -> Size:
    """``size`` itself, or the largest of the same shape with at most ``most`` pixels and no side too long."""
    height, width = size
    factor = min(1.0, (most / (height * width)) ** 0.5, LONGEST_MAP_SIDE / max(size))
    return max(int(height * factor), 1), max(int(width * factor), 1)


def _json(facts: Document, start: float) -> JobResult:
    total = {"total": 1e3 * (perf_counter() - start)}
    facts["milliseconds"] = {step: round(time, 3) for step, time in (facts["milliseconds"] | total).items()}
    return JobResult(json.dumps(facts, allow_nan=False).encode())


def _file(found: GazeMap, options: Options) -> bytes:
    if options.format == "png":
        return _heat_png(found, found.size)
    if options.format == "overlay":
        return encode_png(found.overlay(options.opacity))
    buffer = io.BytesIO()
    np.save(buffer, found.log_density, allow_pickle=False)
    return buffer.getvalue()


def _heat_png(found: GazeMap, size: Size) -> bytes:
    """The heat map to lay over the picture: colours by level, and the level as opacity. One byte per pixel."""
    image = found.heat(size)
    image.putpalette(colours.table().tobytes())
    image.info["transparency"] = bytes(range(256))
    buffer = io.BytesIO()
    image.save(buffer, "PNG", compress_level=1)
    return buffer.getvalue()
