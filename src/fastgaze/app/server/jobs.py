"""From the bytes of a picture and options to the bytes of an answer; everything here runs in a worker process."""

import base64
import contextlib
import io
import json
import signal
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter

import numpy as np

from fastgaze.app.server.forms import Form, parse_form
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
from fastgaze.app.server.options import Options, check_focus, parse_request
from fastgaze.app.server.turns import QUICK_SECONDS
from fastgaze.app.server.wire import Task
from fastgaze.core.encoding import encode_png
from fastgaze.core.errors import ArgumentError, ImageError, ImageTooLargeError, ModelError
from fastgaze.core.jsonable import Document
from fastgaze.core.picture_limits import DecodingCost
from fastgaze.core.pictures import Picture, open_picture
from fastgaze.core.sizes import Size, format_size, shrunk
from fastgaze.runtime import render
from fastgaze.runtime.compare import COLUMN, MOST_PICTURES, Comparison, names_of
from fastgaze.runtime.cutting import is_animated, pixels_needed
from fastgaze.runtime.gazemap import DISPLAY, GazeMap
from fastgaze.runtime.predictor import Predictor
from fastgaze.runtime.regions import boxes_in, check_pictures, parse_region

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
_LOOK_SECONDS = 0.03
"""CPU time of the network for one picture, roughly."""
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
    seconds: float
    """CPU time, roughly, beyond one run of the network."""


@dataclass(frozen=True)
class Several:
    """A form with several pictures: each becomes a task of its own."""

    pictures: list[tuple[int, int]]
    """Where they begin and end in the form's bytes."""
    names: list[str]
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
        if task.signed and form.fields:
            raise ApiError(403, "wrong_signature", "with a signed address all options are part of the address")
        query = [(name, value) for name, value in task.query]
        options = parse_request(task.verb, query + form.fields, [one.card for one in predictors.values()], limits)
        if task.verb == "compare":
            return _compared(task, content, form, options, predictors, limits, heavy)
        if len(form.pictures) > 1:
            return _several(task.verb, form, options, limits)
        picture = content[slice(*form.pictures[0])] if form.pictures else b""
    if task.verb == "compare":
        raise _not_enough(1)
    if not picture:
        raise ApiError(400, "no_picture", "no picture was sent; send its bytes as the body or as the field image")
    predictor = predictors[options.model or next(iter(predictors))]
    with _refusing():
        with _hurried(_HEADER_SHARE * limits.seconds):
            opened = _open(picture, limits)
        needs = _needs(task.verb, [opened], len(picture), options, predictor, limits)
        if not _may_start(needs, task, heavy):
            return needs
        job = gaze if task.verb == "gaze" else crop
        found = job(predictor, opened, options, limits)
    named = {"name": task.name} if task.name else {}
    return found if isinstance(found, JobResult) else _json(named | found, start)


def _may_start(needs: Needs, task: Task, heavy: bool) -> bool:
    quick = not needs.heavy and needs.seconds <= QUICK_SECONDS
    return task.granted or (needs.size <= SMALL_ANSWER and (heavy or quick))


def _compared(
    task: Task,
    content: bytes,
    form: Form,
    options: Options,
    predictors: Mapping[str, Predictor],
    limits: Limits,
    heavy: bool,
) -> JobResult | Needs:
    start, spans = perf_counter(), form.pictures
    most = min(MOST_PICTURES, limits.pictures)
    if not 2 <= len(spans) <= most:
        raise _not_enough(len(spans), most)
    predictor = predictors[options.model or next(iter(predictors))]
    with _refusing():
        with _hurried(_HEADER_SHARE * limits.seconds * len(spans)):
            opened = [_open(content[slice(*span)], limits) for span in spans]
        needs = _needs("compare", opened, len(content), options, predictor, limits)
        if not _may_start(needs, task, heavy):
            return needs
        found = compare(predictor, opened, names_of(form.names), options)
    return found if isinstance(found, JobResult) else _json(found, start)


def _not_enough(n: int, most: int = MOST_PICTURES) -> ApiError:
    message = f"send 2 to {most} pictures to compare as files of one multipart form, not {n}"
    return ApiError(400, "no_picture", message)


def _several(verb: str, form: Form, options: Options, limits: Limits) -> Several:
    if verb != "gaze" or options.format != "json":
        raise bad_option("several pictures in one request are for /v1/gaze with format=json; with ratio it gives crops")
    if len(form.pictures) > limits.pictures:
        message = f"{len(form.pictures)} pictures in one request are more than {limits.pictures}; send several requests"
        raise ApiError(413, "too_many_pictures", message)
    return Several(form.pictures, names_of(form.names), options)


def _open(content: bytes, limits: Limits) -> Picture:
    """The picture, if it may be decoded: the header alone decides, no pixel is read yet."""
    if len(content) > limits.bytes:
        raise ApiError(413, "too_many_bytes", f"the picture is larger than {amount(limits.bytes)}")
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


def _needs(
    verb: str, pictures: Sequence[Picture], size: int, options: Options, predictor: Predictor, limits: Limits
) -> Needs:
    """size: bytes of the pictures as they were sent."""
    costs = [_cost(verb, picture, options, predictor, limits) for picture in pictures]
    if verb == "compare" and options.format == "overlay":
        costs.append(_sheet_cost(pictures))
    memory, seconds = sum(cost.bytes for cost, _ in costs) + size, sum(cost.seconds for cost, _ in costs)
    seconds += _LOOK_SECONDS * (len(pictures) - 1)
    if memory > _MOST_BYTES:
        pixels = sum(picture.size[0] * picture.size[1] for picture in pictures)
        message = f"a picture of this kind takes {(memory - size) / pixels:.0f} bytes of memory per pixel; "
        fitting = f"at most {pixels * _MOST_BYTES / memory / 1e6:.0f} megapixels are accepted"
        raise ApiError(413, "too_many_pixels", message + fitting)
    every_frame = verb == "crop" and options.format != "json" and any(is_animated(p.stored()) for p in pictures)
    heavy = every_frame or seconds > _LIGHT_SECONDS or memory > _LIGHT_BYTES
    return Needs(heavy, sum(answer for _, answer in costs), seconds)


def _sheet_cost(pictures: Sequence[Picture]) -> tuple[DecodingCost, int]:
    """Of drawing each picture twice, of the sheet that holds them, and of its PNG file; and the bytes of that."""
    column = min(COLUMN, max(picture.size[1] for picture in pictures))
    heights = (min(column * picture.size[0] / picture.size[1], 2 * column) for picture in pictures)
    pixels = int(len(pictures) * column * (2 * max(heights) + column / 2))
    return DecodingCost(15 * pixels, 2e-7 * pixels), int(3.1 * pixels)


def _cost(
    verb: str, picture: Picture, options: Options, predictor: Predictor, limits: Limits
) -> tuple[DecodingCost, int]:
    """Of one picture, and the bytes that it adds to the answer at most."""
    cost, answer = picture.cost(predictor.card.working_size(picture.size)), _FACTS_BYTES
    kind = options.format if options.format != "json" else "heat" if options.heat else ""
    if verb == "crop" and kind:  # all pixels, and those of the window once more
        height, width = options.size or picture.size
        cost = picture.cost(picture.size) + DecodingCost(8 * height * width, 1.5e-7 * height * width)
        answer = _cut_bytes(picture, options)
    elif kind and verb == "gaze":
        height, width = _answer_size(picture, options, limits)
        height += render.legend_height(width) if options.legend and kind == "overlay" else 0
        seconds, memory, sent = _FORMAT_COSTS[kind]
        cost = cost + DecodingCost(height * width * memory, height * width * seconds)
        answer += int(height * width * sent)
    return cost, answer


def gaze(predictor: Predictor, picture: Picture, options: Options, limits: Limits) -> JobResult | Document:
    """The answer of ``POST /v1/gaze``."""
    size = _answer_size(picture, options, limits)
    windows = pixels_needed(picture.size, ()) if options.format == "json" and options.ratios else None
    view = predictor.look(picture, at_least=size if options.format == "overlay" else windows)
    found = view.at(size, options.center_bias)
    if options.format != "json":
        return JobResult(_file(found, options), _MEDIA_TYPES[options.format])
    facts = _facts(found, options)
    if options.heat:
        facts["heat"] = "data:image/png;base64," + base64.b64encode(_heat_png(found, size)).decode("ascii")
    return facts


def crop(predictor: Predictor, picture: Picture, options: Options, limits: Limits) -> JobResult | Document:
    """The answer of ``POST /v1/crop``: windows, or the best one as a picture."""
    check_focus(options, picture.size)
    cuts = [] if options.format == "json" else [(options.ratios[0], options.size)]
    found = predictor.look(picture, pixels_needed(picture.size, cuts)).at(None, options.center_bias)
    if options.format == "json":
        return _facts(found, options)
    try:
        made = found.cut(options.ratios[0], options.size, options.focus, options.format)
    except ArgumentError as error:  # options were checked, so that only the number of frames can be too large
        message = "all frames together have too many pixels; ask for a smaller size"
        raise ApiError(413, "too_many_pixels", message) from error
    if len(made.content) > _cut_bytes(picture, options):  # an animation may come to any size
        raise ApiError(413, NO_MEMORY, f"the picture that was cut has more than {amount(limits.bytes)}; ask for a size")
    return JobResult(made.content, f"image/{made.format}")


def compare(
    predictor: Predictor, opened: Sequence[Picture], names: Sequence[str], options: Options
) -> JobResult | Document:
    """The answer of ``POST /v1/compare``: what changed, or the pictures side by side."""
    gazes = [predictor.look(picture).at(None, options.center_bias) for picture in opened]
    regions = [parse_region(text) for text in options.regions]
    boxes = [boxes_in(regions, gaze.picture_size, number) for number, gaze in enumerate(gazes, 1)]
    try:
        check_pictures(regions, len(gazes))
        found = Comparison(gazes, names, boxes, options.fixations)
    except ArgumentError as error:
        raise bad_option(str(error)) from None
    if options.format == "overlay":
        return JobResult(encode_png(found.image(options.style)), _MEDIA_TYPES["overlay"])
    return found.to_json(options.peaks, options.ratios, options.n) | {"milliseconds": {}}


def _facts(found: GazeMap, options: Options) -> Document:
    boxes = _boxes(found, options)
    return found.to_json(options.peaks, options.ratios, options.n, boxes, options.fixations, options.focus)


def _boxes(found: GazeMap, options: Options) -> dict[str, tuple[float, float, float, float]]:
    """The regions that were asked for, of which each must hold a pixel of the picture."""
    regions = [parse_region(text) for text in options.regions]
    boxes = boxes_in(regions, found.picture_size)
    try:
        check_pictures(regions, 1)
        found.regions(boxes)
    except ArgumentError as error:
        raise bad_option(str(error)) from None
    return boxes


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
        regions = found.regions(_boxes(found, options))
        return encode_png(found.overlay(options.opacity, None, options.style, options.legend, regions=regions))
    buffer = io.BytesIO()
    np.save(buffer, found.log_density, allow_pickle=False)
    return buffer.getvalue()


def _heat_png(found: GazeMap, size: Size) -> bytes:
    """The heat map to lay over the picture, with the opacity of every level."""
    buffer = io.BytesIO()
    render.heat_image(found, size).save(buffer, "PNG", compress_level=1)
    return buffer.getvalue()
