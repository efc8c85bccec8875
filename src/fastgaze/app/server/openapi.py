"""The API as an OpenAPI 3.1 document."""

from collections.abc import Sequence

from fastgaze import __version__
from fastgaze.app.server.limits import LONGEST_MAP_SIDE, SERVED_FORMATS, Limits, amount
from fastgaze.app.server.options import (
    COMPARE_FORMATS,
    COMPARE_OPTIONS,
    CROP_FORMATS,
    CROP_OPTIONS,
    FOCUS,
    FORMATS,
    GAZE_OPTIONS,
    MOST_PEAKS,
    MOST_RATIOS,
    MOST_WINDOWS,
    biases_of,
)
from fastgaze.core.jsonable import Document
from fastgaze.runtime.card import ModelCard
from fastgaze.runtime.compare import MOST_PICTURES
from fastgaze.runtime.regions import FIXATIONS, MOST_FIXATIONS, MOST_REGIONS
from fastgaze.runtime.render import OPACITY, STYLES

# A number that is not zero, alone or as one of two.
_NUMBER = r"(?=[0-9.]*[1-9])[0-9]*\.?[0-9]*"
_ONE_RATIO = rf"{_NUMBER}(\s*[:/x]\s*{_NUMBER})?"
_RATIO = rf"^{_ONE_RATIO}(,\s*{_ONE_RATIO})*$"
_SIDE = r"\s*-?[0-9]{1,7}(\.[0-9]{1,6})?\s*%?\s*"
_REGION = rf"^.+={_SIDE}(,{_SIDE}){{3}}$"


def document(models: Sequence[ModelCard], limits: Limits) -> Document:
    """The document for a server with these models and limits."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "fastgaze",
            "version": __version__,
            "summary": "Where people look in a picture.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "paths": {
            "/v1/gaze": {"post": _post("gaze", GAZE_OPTIONS, _gaze_answer(), models, limits)},
            "/v1/crop": {"post": _post("crop", CROP_OPTIONS, _crop_answer(), models, limits)},
            "/v1/compare": {"post": _post("compare", COMPARE_OPTIONS, _compare_answer(), models, limits)},
            "/v1/models": {"get": _get("models", "The models and the limits.", "Models")},
            "/livez": {"get": _get("live", "That the server answers.", "Live")},
            "/readyz": {
                "get": _get("ready", "Whether pictures can be looked at now, and how busy the server is.", "Ready")
            },
            "/openapi.json": {"get": _get("openapi", "This document.", "Document")},
        },
        "components": {"schemas": _schemas(), "responses": {"Error": _error("An error.")}},
    }


def _get(name: str, summary: str, schema: str) -> Document:
    answers = {"200": {"description": summary, "content": _json_answer(schema)}, "405": _error("Only GET is served.")}
    return {"operationId": name, "summary": summary, "responses": answers}


def _post(
    name: str, options: tuple[str, ...], content: Document, models: Sequence[ModelCard], limits: Limits
) -> Document:
    summaries = {
        "gaze": "Where people look in a picture.",
        "crop": "Windows that keep what people look at.",
        "compare": "What changes from the first picture to the others.",
    }
    described = _options(models, limits)
    if name == "crop":
        described |= _crop_options(limits)
    if name == "compare":
        described |= _compare_options()
    parameters = [
        {
            "name": option,
            "in": "query",
            "required": False,
            "description": described[option][0],
            "schema": described[option][1],
        }
        for option in options
    ]
    return {
        "operationId": name,
        "summary": summaries[name],
        "description": "Options may also be fields of a multipart form.",
        "parameters": parameters,
        "requestBody": _body(name, limits),
        "responses": {"200": {"description": summaries[name], "content": content}, **_errors(limits)},
    }


def _options(models: Sequence[ModelCard], limits: Limits) -> dict[str, tuple[str, Document]]:
    """Description and schema by option."""
    whole: Document = {"type": "integer", "minimum": 1}
    names = [card.name for card in models]
    return {
        "model": ("One of /v1/models.", {"type": "string", "enum": names, "default": names[0]}),
        "format": (
            "json: peaks and facts. png: the heat map with opacity, to lay over the picture. overlay: the picture "
            "under the heat map. npy: the log density, float32 (height, width), natural log.",
            {"type": "string", "enum": list(FORMATS), "default": "json"},
        ),
        "size": (
            f"WIDTHxHEIGHT of the map that is sent back (with json, of heat): sides of at most {LONGEST_MAP_SIDE} and "
            f"at most {limits.map_pixels / 1e6:g} megapixels. Without it, the map has the picture's own size, or the "
            "largest that is allowed, and the longer side of an overlay has at most 1600 pixels.",
            {"type": "string", "pattern": "^[0-9]{1,6}[xX][0-9]{1,6}$", "examples": ["1200x630"]},
        ),
        "center_bias": (
            "Where people look by habit. model: in the middle of a photograph and at the top left of a screen, by what "
            "the picture is. photograph, screen: as in such pictures. none: the picture alone.",
            {"type": "string", "enum": list(biases_of(models)), "default": "model"},
        ),
        "peaks": ("Most places to give, in json.", whole | {"maximum": MOST_PEAKS, "default": 5}),
        "opacity": (
            "Of what is drawn where it is strongest, in overlay. "
            f"By default {', '.join(f'{opacity:g} for {style}' for style, opacity in OPACITY.items())}.",
            {"type": "number", "minimum": 0, "maximum": 1},
        ),
        "style": (
            "Of overlay. heat: colours where people look more than on average. focus: fog over the rest. contours: "
            "lines around the areas with 25, 50, 75 and 90% of the attention. gray: the map without the picture.",
            {"type": "string", "enum": list(STYLES), "default": "heat"},
        ),
        "legend": ("Add a strip to the overlay that explains it.", {"type": "boolean", "default": False}),
        "heat": ("Add the heat map to the json, as a data URL.", {"type": "boolean", "default": False}),
        "ratio": (
            f"WIDTH:HEIGHT between 1:100 and 100:1, at most {MOST_RATIOS}, separated by commas or repeated.",
            {"type": "string", "pattern": _RATIO, "examples": ["16:9", "1:1,4:5"]},
        ),
        "region": (
            "NAME=LEFT,TOP,WIDTH,HEIGHT of a box whose attention is measured, in pixels or percent of the picture; "
            f"repeated for at most {MOST_REGIONS}. An overlay outlines them.",
            {"type": "string", "pattern": _REGION, "examples": ["cta=4,3,20,6", "logo=0%,0%,25%,12.5%"]},
        ),
        "fixations": (
            "Within which the chance that a region is seen is given.",
            whole | {"maximum": MOST_FIXATIONS, "default": FIXATIONS},
        ),
        "n": ("Most windows for every ratio.", whole | {"maximum": MOST_WINDOWS, "default": 1}),
    }


def _crop_options(limits: Limits) -> dict[str, tuple[str, Document]]:
    """Those that mean something else when a window is asked for."""
    return {
        "format": (
            "json: the windows. Others: the best window as a picture; keep: in the format that was sent. jpg is jpeg.",
            {"type": "string", "enum": list(CROP_FORMATS), "default": "json"},
        ),
        "size": (
            f"WIDTHxHEIGHT of the picture that is sent back, at most {limits.map_pixels / 1e6:g} megapixels; "
            "that of the window by default. Without ratio, the window has this shape.",
            {"type": "string", "pattern": "^[0-9]{1,6}[xX][0-9]{1,6}$", "examples": ["1200x630"]},
        ),
        "focus": (
            "X,Y of a point of the upright picture, in pixels: the largest window of every ratio with this point as "
            "near to its middle as the picture allows, instead of the best ones. Not together with n above 1.",
            {"type": "string", "pattern": f"^{FOCUS}$", "examples": ["40,30"]},
        ),
    }


def _compare_options() -> dict[str, tuple[str, Document]]:
    """Those that mean something else when pictures are compared."""
    return {
        "format": (
            "json: every picture, and what changed. overlay: the pictures side by side on one scale, and below them "
            "where they draw more or less attention than the first.",
            {"type": "string", "enum": list(COMPARE_FORMATS), "default": "json"},
        ),
        "region": (
            "NAME=LEFT,TOP,WIDTH,HEIGHT of a box in all pictures, in pixels or percent; NAME@2=... is its box in the "
            f"second picture alone. Repeated for at most {MOST_REGIONS}.",
            {"type": "string", "pattern": _REGION, "examples": ["cta=4,3,20,6", "cta@2=0%,0%,25%,12.5%"]},
        ),
    }


def _body(name: str, limits: Limits) -> Document:
    binary: Document = {"type": "string", "contentMediaType": "image/*"}
    form: Document = {"type": "object", "properties": {"image": binary}, "required": ["image"]}
    description = (
        f"A picture of at most {amount(limits.bytes)} and {limits.pixels / 1e6:g} megapixels: "
        f"{', '.join(SERVED_FORMATS)}."
    )
    if name == "gaze":
        several = {"type": "object", "properties": {"file": _list(binary) | {"maxItems": limits.pictures}}}
        form = {"anyOf": [form, several | {"required": ["file"]}]}
        description += (
            f" A form may hold up to {limits.pictures} pictures of {amount(limits.bytes)} together; "
            "the answer to two or more is Results, in their order and with the names of their files."
        )
    if name == "compare":
        most = min(MOST_PICTURES, limits.pictures)
        description = f"2 to {most} pictures of {amount(limits.bytes)} together: {', '.join(SERVED_FORMATS)}."
        files = _list(binary) | {"minItems": 2, "maxItems": most}
        form = {"type": "object", "properties": {"file": files}, "required": ["file"]}
        return {"required": True, "description": description, "content": {"multipart/form-data": {"schema": form}}}
    return {
        "required": True,
        "description": description,
        "content": {"image/*": {}, "application/octet-stream": {}, "multipart/form-data": {"schema": form}},
    }


def _gaze_answer() -> Document:
    either = [_reference("Gaze"), _reference("Results")]
    return {"application/json": {"schema": {"oneOf": either}}, "image/png": {}, "application/octet-stream": {}}


def _crop_answer() -> Document:
    pictures = ("jpeg", "png", "webp", "avif", "gif", "tiff")
    return _json_answer("Gaze") | {f"image/{kind}": {} for kind in pictures}


def _compare_answer() -> Document:
    return _json_answer("Comparison") | {"image/png": {}}


def _json_answer(schema: str) -> Document:
    return {"application/json": {"schema": _reference(schema)}}


def _reference(schema: str) -> Document:
    return {"$ref": f"#/components/schemas/{schema}"}


def _error(description: str) -> Document:
    return {"description": description, "content": _json_answer("Error")}


def _errors(limits: Limits) -> Document:
    busy = _error(f"busy: {limits.in_flight} requests are in flight.")
    busy["headers"] = {"Retry-After": {"description": "Seconds.", "schema": {"type": "integer"}}}
    return {
        "400": _error("bad_option, bad_form, no_picture, or bad_picture: a damaged picture."),
        "404": _error("unknown_model."),
        "405": _error("Only POST is served."),
        "408": _error(
            f"upload_too_slow: nothing of the body came for {limits.upload_seconds:g} s, "
            f"or less than {amount(limits.rate)} per second."
        ),
        "413": _error("too_many_bytes, too_many_pixels, too_many_parts, too_many_pictures or too_much_memory."),
        "415": _error("not_a_picture: nothing that can be decoded."),
        "401": _error("no_token: this server needs a token or a signed address."),
        "403": _error("cross_origin, wrong_signature or signature_over."),
        "421": _error("wrong_host."),
        "429": _error("too_many_requests of one client."),
        "500": _error("internal, or worker_died: the process that looked at the picture ended."),
        "503": busy,
        "504": _error(f"too_slow: the work took longer than {limits.seconds:g} s."),
    }


def _object(properties: Document, optional: tuple[str, ...] = ()) -> Document:
    required = [name for name in properties if name not in optional]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _list(items: Document, length: int | None = None) -> Document:
    return {"type": "array", "items": items} | ({"minItems": length, "maxItems": length} if length else {})


def _schemas() -> Document:
    text, number, whole = {"type": "string"}, {"type": "number"}, {"type": "integer"}
    share = {"type": "number", "minimum": 0, "maximum": 1}
    side = {"type": "integer", "minimum": 1}
    size = _object({"width": side, "height": side}) | {"description": "in pixels"}
    times = {"type": "object", "additionalProperties": {"type": "number", "minimum": 0}}
    point = {"description": "in pixels of the picture; the centre of the first pixel is at 0.5"}
    box = _object({"left": whole, "top": whole, "width": side, "height": side})
    box |= {"description": "in pixels of the picture"}
    window = _object(
        {
            "box": box,
            "mass": share | {"description": "share of all fixations expected inside"},
            "gain": {"type": "number", "description": "mass minus that of a window of this size in the middle"},
            "focal_point": _object({"x": number, "y": number}) | point,
            "scale": share | {"description": "size relative to the largest window of this ratio"},
            "object_position": {"type": ["string", "null"], "description": "for CSS; null if scale is below 1"},
        }
    )
    region = _object(
        {
            "name": text,
            "box": box,
            "share": share | {"description": "share of all fixations expected inside"},
            "lift": {"type": "number", "minimum": 0, "description": "share, divided by the share of the area"},
            "rank": {"type": "integer", "minimum": 1, "description": "1 for the largest share"},
            "seen": share | {"description": "chance that one of the first fixations lands inside: 1 - (1 - share)^n"},
        }
    )
    crops = _list(_object({"ratio": text, "windows": _list(window)}))
    gaze = {
        "model": text,
        "center_bias": {"enum": ["model", "photograph", "screen", "none"]},
        "screen": {"type": ["number", "null"], "minimum": 0, "maximum": 1}
        | {"description": "how likely the picture is a screen, not a photograph; null if the model does not tell"},
        "picture_size": size,
        "bits": number | {"description": "how far the map is from saying nothing"},
        "peaks": _list(_object({"x": number | point, "y": number | point, "mass": share, "density": share})),
        "crops": crops,
        "regions": _list(region),
        "milliseconds": times,
        "heat": text,
    }
    nullable = _list({"type": ["number", "null"]})
    error = _object({"code": text, "message": text})
    failure = _object({"name": text, "error": error})
    change = _object({"name": text, "shares": nullable, "changes": nullable})
    return {
        "Gaze": _object(gaze, ("heat",)),
        "Comparison": _object(
            {
                "scale_top": number | {"description": "times the average attention that the highest colour stands for"},
                "pictures": _list(_object({"name": text, **gaze}, ("heat",))),
                "overlaps": _list(share) | {"description": "attention at the same places as in the first picture"},
                "regions": _list(change) | {"description": "shares, and their difference to the first picture"},
                "milliseconds": times,
            }
        ),
        "Results": _object({"results": _list({"oneOf": [_object({"name": text, **gaze}, ("heat",)), failure]})}),
        "Models": _object({"default": text, "models": _list(_model()), "limits": {"type": "object"}}),
        "Live": _object({"status": {"const": "ok"}, "version": text}),
        "Ready": _object({"status": {"enum": ["ok", "starting"]}, "in_flight": whole, "workers": {"type": "object"}}),
        "Document": {"type": "object"},
        "Error": _object({"error": error}),
    }


def _model() -> Document:
    text, number, whole = {"type": "string"}, {"type": "number"}, {"type": "integer"}
    return _object(
        {
            "name": text,
            "architecture": text,
            "precision": text,
            "parameters": whole,
            "gflop_640x480": number,
            "gflop_working": number,
            "working_pixels": whole,
            "scores": {"type": "object"},
            "data": text,
            "licence": text,
        }
    )
