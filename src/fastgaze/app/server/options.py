"""What a request asks for, from its query and its form fields, checked before any work is done."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from fastgaze.app.server.limits import LONGEST_MAP_SIDE, ApiError, Limits, bad_option, shown
from fastgaze.core.center_bias import BIASES, KINDS, NamedBias
from fastgaze.core.errors import ArgumentError
from fastgaze.core.jsonable import Document
from fastgaze.core.sizes import Size, format_size
from fastgaze.runtime.card import ModelCard
from fastgaze.runtime.crop import parse_ratio
from fastgaze.runtime.regions import FIXATIONS, MOST_FIXATIONS, checked_regions, parse_region
from fastgaze.runtime.render import STYLES

GAZE_OPTIONS = (
    "model",
    "format",
    "size",
    "center_bias",
    "peaks",
    "opacity",
    "style",
    "legend",
    "heat",
    "ratio",
    "n",
    "region",
    "fixations",
)
CROP_OPTIONS = ("model", "format", "size", "center_bias", "ratio", "n", "focus")
COMPARE_OPTIONS = ("model", "format", "center_bias", "peaks", "style", "ratio", "n", "region", "fixations")
FORMATS = ("json", "png", "overlay", "npy")
CROP_FORMATS = ("json", "keep", "jpeg", "jpg", "png", "webp")
"""Of ``/v1/crop``: windows as facts, or the best one as a picture, in the format of the source or in another."""
COMPARE_FORMATS = ("json", "overlay")
"""Of ``/v1/compare``: facts, or the pictures side by side as one."""
MOST_PEAKS = 20
MOST_WINDOWS = 10
MOST_RATIOS = 12
FOCUS = r"([0-9]{1,6}(?:\.[0-9]{1,6})?)\s*,\s*([0-9]{1,6}(?:\.[0-9]{1,6})?)"
"""X,Y of a point, neither below 0."""
MOST_STRETCH = 0.02
"""Of a window whose ratio and size are both given: 1200x628 is what many mean by 1.91:1."""


@dataclass(frozen=True)
class Options:
    """One request for a map, for windows, or for both."""

    model: str | None = None
    """A name of ``GET /v1/models``; None is the default one."""
    format: str = "json"
    size: Size | None = None
    """(height, width) of a map that is sent back; None is the picture's own, scaled down to the limit."""
    center_bias: NamedBias = "model"
    peaks: int = 5
    opacity: float | None = None
    """Of what is drawn where it is strongest, for ``overlay``; None is that of the style."""
    style: str = "heat"
    """Of ``overlay``: one of ``runtime.render.STYLES``."""
    legend: bool = False
    """Add a strip to ``overlay`` that explains it."""
    heat: bool = False
    """Add the heat map to the JSON, as a data URL."""
    ratios: tuple[str, ...] = ()
    n: int = 1
    """Windows for every ratio."""
    regions: tuple[str, ...] = ()
    """Boxes whose attention is measured, as ``runtime.regions`` reads them."""
    fixations: int = FIXATIONS
    """Within which the chance that a region is seen is given."""
    focus: tuple[float, float] | None = None
    """(x, y), in pixels of the upright picture: the point that windows are put around."""

    @classmethod
    def from_json(cls, facts: Document) -> "Options":
        """From what ``dataclasses.asdict`` gave, after its way through JSON, which knows lists but no tuples."""
        tuples = {name: facts[name] and tuple(facts[name]) for name in ("size", "focus")}
        tuples |= {name: tuple(facts[name]) for name in ("ratios", "regions")}
        return cls(**{**facts, **tuples})


OPTIONS = {
    "gaze": (GAZE_OPTIONS, FORMATS),
    "crop": (CROP_OPTIONS, CROP_FORMATS),
    "compare": (COMPARE_OPTIONS, COMPARE_FORMATS),
}
"""Names and formats by verb."""


def parse_request(verb: str, fields: Iterable[tuple[str, str]], models: Sequence[ModelCard], limits: Limits) -> Options:
    """What is asked for, with the name of the model, the first one by default; 400 and 404 for what is not valid."""
    known, formats = OPTIONS[verb]
    options = parse_options(fields, known, limits, formats)
    if verb == "crop":
        options = _shaped(options)
    known_models = {card.name: card for card in models}
    name = models[0].name if options.model is None else options.model
    if name not in known_models:
        raise ApiError(404, "unknown_model", f"there is no model {shown(name)}; choose from {', '.join(known_models)}")
    if options.center_bias not in biases_of([known_models[name]]).values():
        raise bad_option(f"center_bias={options.center_bias}: {name} has one for all pictures; use model or none")
    return replace(options, model=name)


def biases_of(models: Sequence[ModelCard]) -> dict[str, NamedBias]:
    """The centre biases, by name, that one of these models has."""
    told = any(card.kinds is not None for card in models)
    return {name: bias for name, bias in BIASES.items() if told or bias not in KINDS}


def _shaped(options: Options) -> Options:
    """Options of ``/v1/crop`` with the shape that a size stands for; 400 where a picture would have no one shape."""
    if options.format == "jpg":
        options = replace(options, format="jpeg")
    height, width = options.size or (0, 0)
    if options.focus is not None and options.n > 1:
        raise bad_option(f"with focus there is one window for every ratio, not n={options.n}; leave out one of them")
    if not options.ratios and not options.size:
        raise bad_option("nothing says what to cut; add ratio=16:9 or size=1200x630")
    if not options.ratios:
        try:
            parse_ratio((width, height))
        except ArgumentError:
            raise bad_option(f"size={width}x{height} is not between 1:100 and 100:1") from None
        return replace(options, ratios=(f"{width}:{height}",))
    if options.format != "json" and len(options.ratios) > 1:
        raise bad_option("a picture is cut in one ratio; leave out the others, or ask for format=json")
    if options.format != "json" and options.size and _stretch(options.size, options.ratios[0]) > MOST_STRETCH:
        raise bad_option(
            f"size={width}x{height} has another shape than ratio={options.ratios[0]}; leave out ratio, and the shape "
            "follows from size"
        )
    return options


def _stretch(size: Size, ratio: str) -> float:
    """How much a window of ``ratio`` is stretched along one side to fill ``size`` (height, width), from 0 on."""
    shape, wanted = size[1] / size[0], parse_ratio(ratio)
    return max(shape / wanted, wanted / shape) - 1


def parse_options(
    fields: Iterable[tuple[str, str]], known: tuple[str, ...], limits: Limits, formats: tuple[str, ...] = FORMATS
) -> Options:
    """The options among ``fields``; 400 for one that is unknown, given twice or not valid."""
    fields = list(fields)
    values = _collect(fields, known)
    return Options(
        model=values.get("model"),
        format=_choice(values, "format", formats),
        size=_size(values.get("size"), limits),
        center_bias=BIASES[_choice(values, "center_bias", tuple(BIASES))],
        peaks=_whole(values, "peaks", 5, MOST_PEAKS),
        opacity=_opacity(values.get("opacity")),
        style=_choice(values, "style", STYLES),
        legend=_choice(values, "legend", ("false", "true")) == "true",
        heat=_choice(values, "heat", ("false", "true")) == "true",
        ratios=_ratios(values.get("ratio")),
        n=_whole(values, "n", 1, MOST_WINDOWS),
        regions=_regions([value for name, value in fields if name == "region"]),
        fixations=_whole(values, "fixations", FIXATIONS, MOST_FIXATIONS),
        focus=_focus(values.get("focus")),
    )


def _collect(fields: Iterable[tuple[str, str]], known: tuple[str, ...]) -> dict[str, str]:
    values: dict[str, str] = {}
    for name, value in fields:
        if name not in known:
            raise bad_option(f"there is no option {shown(name)}; choose from {', '.join(known)}")
        if name == "ratio" and name in values:
            values[name] += f",{value}"
        elif name in values and name != "region":
            raise bad_option(f"option {name} is given twice")
        else:
            values[name] = value
    return values


def _choice(values: Mapping[str, str], name: str, choices: tuple[str, ...]) -> str:
    value = values.get(name, choices[0])
    if value not in choices:
        raise bad_option(f"{name}={shown(value)} is not one of {', '.join(choices)}")
    return value


def _whole(values: Mapping[str, str], name: str, default: int, most: int) -> int:
    text = values.get(name, str(default))
    if not re.fullmatch(r"[0-9]{1,4}", text) or not 1 <= int(text) <= most:
        raise bad_option(f"{name}={shown(text)} is not a whole number from 1 to {most}")
    return int(text)


def _opacity(text: str | None) -> float | None:
    if text is None:
        return None
    if not re.fullmatch(r"[0-9]{0,4}\.?[0-9]{0,8}", text) or text in ("", ".") or not 0 <= float(text) <= 1:
        raise bad_option(f"opacity={shown(text)} is not a number from 0 to 1")
    return float(text)


def _size(text: str | None, limits: Limits) -> Size | None:
    if text is None:
        return None
    match = re.fullmatch(r"([0-9]{1,6})[xX]([0-9]{1,6})", text)
    width, height = (int(match[1]), int(match[2])) if match else (0, 0)
    if not (0 < height <= LONGEST_MAP_SIDE and 0 < width <= LONGEST_MAP_SIDE and height * width <= limits.map_pixels):
        raise bad_option(
            f"size={shown(text)} is not WIDTHxHEIGHT, such as 640x480, with sides up to {LONGEST_MAP_SIDE} "
            f"and at most {limits.map_pixels} pixels"
        )
    return height, width


def _focus(text: str | None) -> tuple[float, float] | None:
    if text is None:
        return None
    match = re.fullmatch(FOCUS, text)
    if match is None:
        raise bad_option(f"focus={shown(text)} is not X,Y in pixels of the upright picture, such as 640,360")
    return float(match[1]), float(match[2])


def check_focus(options: Options, size: Size) -> None:
    """400 for a focus outside a picture of ``size`` (height, width)."""
    if options.focus is not None and not (options.focus[0] <= size[1] and options.focus[1] <= size[0]):
        x, y = options.focus
        raise bad_option(f"focus={x:g},{y:g} is outside the picture, which has {format_size(size)} pixels")


def _ratios(text: str | None) -> tuple[str, ...]:
    if text is None:
        return ()
    ratios = tuple(dict.fromkeys(part.strip() for part in text.split(",", MOST_RATIOS)))
    if len(ratios) > MOST_RATIOS:
        raise bad_option(f"more than {MOST_RATIOS} ratios are given")
    for ratio in ratios:
        try:
            parse_ratio(ratio)
        except ArgumentError:
            raise bad_option(
                f"ratio={shown(ratio)} is not WIDTH:HEIGHT between 1:100 and 100:1, such as 16:9"
            ) from None
    return ratios


def _regions(texts: Sequence[str]) -> tuple[str, ...]:
    try:
        checked_regions([parse_region(text) for text in texts])
    except ArgumentError as error:
        raise bad_option(str(error)) from None
    return tuple(texts)
