"""What an exported model says about itself: one JSON document in the ONNX file's metadata.

The document travels in the file under the key ``fastgaze``. It is read and replaced here without the onnx package, by
walking the top level of the protobuf, so that listing models loads no network and new scores leave every other byte of
a file as it was.

A model's ``identity`` is what it computes: the graph with its weights, and the numbers of the card that the runtime
computes with. Its name, its scores and how fast it was on some machine are not part of it.
"""

import base64
import binascii
import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fastgaze.core.center_bias import KINDS
from fastgaze.core.errors import ModelError
from fastgaze.core.jsonable import Document, Json
from fastgaze.core.sizes import Size

FORMAT = 1
KEY = "fastgaze"
IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)
REFERENCE: Size = (480, 640)
"""Picture for which costs are stated, (height, width): as the paper does, and at the working size that it leads to."""
_MOST_SIGMA = 1e4
_TEMPERATURES = (0.01, 100.0)
_LEAST_STD = 1e-6
_DOUBT = 0.01  # how sure one can be of the kind of a picture
_MOST_WORKING_PIXELS = 16_000_000
# How ONNX names a separate file that holds weights: the first field of an entry, eight bytes long.
_EXTERNAL = b"\x0a\x08location\x12"
# ModelProto's graph, operator sets and functions: all that computes.
_COMPUTING_FIELDS = (7, 8, 25)
# ModelProto.metadata_props and the key and value of its StringStringEntryProto.
_METADATA_FIELD, _KEY_FIELD, _VALUE_FIELD = 14, 1, 2


@dataclass(frozen=True, eq=False)
class Kinds:
    """The two kinds of pictures: how a model tells them apart, and where people look in each by habit.

    In photographs it is the middle, on screens and other designs the top left, where one begins to read.

    photograph, screen: their centre biases, log densities float32 (h, w), natural log.
    weights, offset: float32 (k,) and a number; with the network's summary s (k,) of a picture, the mean of each of its
    deepest feature maps, the picture is a screen with the probability 1 / (1 + exp(-(weights s + offset))).
    """

    photograph: npt.NDArray[np.float32]
    screen: npt.NDArray[np.float32]
    weights: npt.NDArray[np.float32]
    offset: float

    def is_screen(self, summary: npt.NDArray[np.float32]) -> float:
        """How likely the picture with this ``summary`` (k,) is a screen, 0..1."""
        # In float64 no finite weights overflow: a file may say anything.
        logit = float(self.weights.astype(np.float64) @ summary) + self.offset
        return 0.5 + 0.5 * math.tanh(logit / 2)

    def center_bias(self, screen: float) -> npt.NDArray[np.float64]:
        """That of a picture which is a screen with the probability ``screen``: log of the mean density, (h, w)."""
        sure = min(max(screen, _DOUBT), 1 - _DOUBT)
        bias: npt.NDArray[np.float64] = np.logaddexp(
            math.log1p(-sure) + self.photograph.astype(np.float64), math.log(sure) + self.screen.astype(np.float64)
        )
        return bias


@dataclass(frozen=True)
class WorkingSize:
    """Which size an image is scaled to before the network sees it.

    ``pixels`` is the area aimed at; both sides are multiples of ``stride`` and at least ``least``; an image longer than
    ``max_ratio`` times its width (or the other way round) is squeezed to that ratio.
    """

    pixels: int = 240 * 320
    stride: int = 16
    max_ratio: float = 4.0
    least: int = 32

    def __call__(self, size: Size) -> Size:
        """The working (height, width) of an image of ``size`` (height, width)."""
        return _working_size(self, *size)

    def _nearest(self, size: Size) -> Size:
        ratio = min(max(size[0] / size[1], 1 / self.max_ratio), self.max_ratio)
        ideal = (math.sqrt(self.pixels * ratio), math.sqrt(self.pixels / ratio))
        heights, widths = (self._neighbours(side) for side in ideal)

        def misfit(candidate: Size) -> float:
            height, width = candidate
            return math.log(height * width / self.pixels) ** 2 + math.log(height / width / ratio) ** 2

        return min(((height, width) for height in heights for width in widths), key=misfit)

    def _neighbours(self, side: float) -> tuple[int, int]:
        below = math.floor(side / self.stride) * self.stride
        least = math.ceil(self.least / self.stride) * self.stride
        return max(below, least), max(below + self.stride, least)


@lru_cache(maxsize=1024)
def _working_size(policy: WorkingSize, height: int, width: int) -> Size:
    return policy._nearest((height, width))


@dataclass(frozen=True)
class ModelCard:
    """Everything the runtime and a reader need to know about one exported model."""

    name: str
    architecture: str
    parameters: int
    gflop_640x480: float
    sigma: float
    """Standard deviation of the blur, in pixels of the working size."""
    center_bias: npt.NDArray[np.float32]
    """Log density (natural log) on a fixed grid, (48, 64)."""
    kinds: Kinds | None = None
    """The centre biases of photographs and screens, of which ``center_bias`` is a mean, and how to tell them apart."""
    temperature: float = 1.0
    """Factor on the log density before the centre bias is added; below 1 for a network that is too sure of itself."""
    maps: int = 0
    precision: str = "fp32"
    spec: Mapping[str, Json] = field(default_factory=dict)
    working_size: WorkingSize = WorkingSize()
    seen_pixels: int = 0
    """Area of the images that training scaled to the working size. A larger picture is made as soft as if it had been
    scaled to that area first (``runtime.resize``): sharper ones than it learned from mislead a network. 0: as it is."""
    mean: tuple[float, float, float] = IMAGENET_MEAN
    std: tuple[float, float, float] = IMAGENET_STD
    scores: Document = field(default_factory=dict)
    data: str = ""
    licence: str = "Apache-2.0"

    def gflop(self, size: Size) -> float:
        """GFLOP by the paper's formula for a network input of ``size`` (height, width), multiples of the stride."""
        return self.gflop_640x480 * size[0] * size[1] / (480 * 640)

    @property
    def gflop_working(self) -> float:
        """GFLOP of what is computed for a picture of 640x480, at the model's own working size."""
        return self.gflop(self.working_size(REFERENCE))

    def with_working_size(self, working_size: WorkingSize) -> "ModelCard":
        """The same model at another working size."""
        return replace(self, working_size=working_size)

    @property
    def numerics(self) -> dict[str, Json]:
        """The part of ``to_json`` that the runtime computes with."""
        names = ("working_size", "seen_pixels", "normalisation", "sigma", "temperature", "center_bias", "kinds")
        return {name: value for name, value in self.to_json().items() if name in names}

    def to_json(self) -> dict[str, Json]:
        """The document as it stands in the file."""
        facts = {name: getattr(self, name) for name in ("name", "architecture", "precision", "parameters", "maps")}
        return {
            "format": FORMAT,
            **facts,
            "gflop_640x480": self.gflop_640x480,
            "spec": dict(self.spec),
            "working_size": asdict(self.working_size),
            # Files without it, or without a temperature, are older, and their identity must not change.
            **({"seen_pixels": self.seen_pixels} if self.seen_pixels else {}),
            "normalisation": {"order": "RGB", "range": [0, 1], "mean": list(self.mean), "std": list(self.std)},
            "sigma": self.sigma,
            **({} if self.temperature == 1 else {"temperature": self.temperature}),
            "center_bias": _pack(self.center_bias),
            **({} if self.kinds is None else {"kinds": _pack_kinds(self.kinds)}),
            "scores": dict(self.scores),
            "data": self.data,
            "licence": self.licence,
        }

    @classmethod
    def from_json(cls, document: Document) -> "ModelCard":
        """The card of a document; raises ModelError when the document is of another format or incomplete."""
        if document.get("format") != FORMAT:
            raise ModelError(f"model format {document.get('format')!r} is not {FORMAT}; export the model again")
        try:
            normalisation = document["normalisation"]
            card = cls(
                name=str(document["name"]),
                architecture=str(document["architecture"]),
                precision=str(document["precision"]),
                parameters=int(document["parameters"]),
                maps=int(document["maps"]),
                gflop_640x480=float(document["gflop_640x480"]),
                spec=document["spec"],
                working_size=WorkingSize(**document["working_size"]),
                seen_pixels=int(document.get("seen_pixels", 0)),
                mean=_triple(normalisation["mean"]),
                std=_triple(normalisation["std"]),
                sigma=float(document["sigma"]),
                temperature=float(document.get("temperature", 1.0)),
                center_bias=_unpack(document["center_bias"]),
                kinds=_unpack_kinds(document["kinds"]) if "kinds" in document else None,
                scores=document["scores"],
                data=str(document["data"]),
                licence=str(document["licence"]),
            )
            card._check()
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise ModelError(f"the model's metadata is damaged ({error!r}); export the model again") from error
        return card

    def _check(self) -> None:
        """What the runtime computes with must make sense: a file may come from anybody."""
        policy = self.working_size
        sound = {
            "sigma": 0 <= self.sigma <= _MOST_SIGMA,
            "temperature": _TEMPERATURES[0] <= self.temperature <= _TEMPERATURES[1],
            "mean": bool(np.isfinite(self.mean).all()),
            "std": all(_LEAST_STD <= value < math.inf for value in self.std),
            "center_bias": bool(np.isfinite(self.center_bias).all()),
            "seen_pixels": 0 <= self.seen_pixels <= _MOST_WORKING_PIXELS,
            "gflop_640x480": 0 <= self.gflop_640x480 < math.inf,
            "working_size": all(isinstance(side, int) for side in (policy.pixels, policy.stride, policy.least))
            and 1 <= policy.stride <= 256
            and 1 <= policy.least <= 4096
            and 1 <= policy.max_ratio <= 100
            and 1 <= policy.pixels <= _MOST_WORKING_PIXELS,
        }
        if wrong := [name for name, holds in sound.items() if not holds]:
            raise ModelError(f"the model's {', '.join(wrong)} is out of range or not a number; export the model again")


def read_card(path: Path) -> ModelCard:
    """The card inside the ONNX file at ``path``."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ModelError(f"cannot read the model {path}: {error.strerror or error}") from error
    return parse_card(content, str(path))


def parse_card(content: bytes, label: str) -> ModelCard:
    """The card inside the bytes of an ONNX file; ``label`` names the file in errors."""
    try:
        entries = dict(_metadata(memoryview(content)))
        text = entries[KEY]
    except (IndexError, KeyError, ValueError) as error:
        raise ModelError(f"{label} is not a fastgaze model; make one with `fastgaze export CHECKPOINT`") from error
    if _EXTERNAL in content:
        raise ModelError(f"{label} has weights in another file, which is not read; save the model as one file")
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ModelError(f"the metadata of {label} is not JSON; export the model again") from error
    if not isinstance(document, dict):
        raise ModelError(f"the metadata of {label} is not a JSON object; export the model again")
    return ModelCard.from_json(document)


def identity(content: bytes, label: str = "model") -> str:
    """SHA-256 of what a model file computes: two files with the same identity give the same maps."""
    digest = hashlib.sha256(json.dumps(parse_card(content, label).numerics, sort_keys=True).encode())
    for number, value, _ in _fields(memoryview(content)):
        if number in _COMPUTING_FIELDS and isinstance(value, memoryview):
            digest.update(b"%d:%d:" % (number, len(value)))
            digest.update(value)
    return digest.hexdigest()


def with_card(content: bytes, card: ModelCard) -> bytes:
    """The bytes of an ONNX file with ``card`` in place of its own; every other byte stays as it is."""
    entry = _field(_KEY_FIELD, KEY.encode()) + _field(_VALUE_FIELD, json.dumps(card.to_json()).encode())
    kept = [
        bytes(raw)
        for number, value, raw in _fields(memoryview(content))
        if number != _METADATA_FIELD or not isinstance(value, memoryview) or _entry(value)[0] != KEY
    ]
    return b"".join([*kept, _field(_METADATA_FIELD, entry)])


def _field(number: int, value: bytes) -> bytes:
    """A protobuf field that holds bytes."""
    return _to_varint(number << 3 | 2) + _to_varint(len(value)) + value


def _to_varint(value: int) -> bytes:
    groups = [value >> shift & 0x7F for shift in range(0, max(value.bit_length(), 1), 7)]
    return bytes([*(group | 0x80 for group in groups[:-1]), groups[-1]])


def _metadata(message: memoryview) -> Iterator[tuple[str, str]]:
    for number, value, _ in _fields(message):
        if number == _METADATA_FIELD and isinstance(value, memoryview):
            yield _entry(value)


def _entry(value: memoryview) -> tuple[str, str]:
    """Key and value of one entry of the metadata."""
    texts = {number: str(text, "utf-8") for number, text, _ in _fields(value) if isinstance(text, memoryview)}
    return texts.get(_KEY_FIELD, ""), texts.get(_VALUE_FIELD, "")


def _fields(message: memoryview) -> Iterator[tuple[int, memoryview | int, memoryview]]:
    """The top-level fields of a protobuf message: (field number, bytes or number, the whole field as it stands)."""
    position = 0
    while position < len(message):
        start = position
        tag, position = _varint(message, position)
        kind = tag & 7
        if kind == 0:
            value, position = _varint(message, position)
            yield tag >> 3, value, message[start:position]
            continue
        if kind == 2:
            length, position = _varint(message, position)
        elif kind in (1, 5):
            length = 8 if kind == 1 else 4
        else:
            raise ValueError(f"wire type {kind}")
        if position + length > len(message):
            raise ValueError("truncated")
        yield tag >> 3, message[position : position + length], message[start : position + length]
        position += length


def _varint(message: memoryview, position: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        byte = message[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise ValueError("varint too long")


def _triple(values: Iterable[float]) -> tuple[float, float, float]:
    red, green, blue = (float(value) for value in values)
    return red, green, blue


def _pack(array: npt.NDArray[np.float32]) -> dict[str, Json]:
    data = np.ascontiguousarray(array, dtype="<f4").tobytes()
    return {"size": list(array.shape), "dtype": "float32", "data": base64.b64encode(data).decode("ascii")}


def _pack_kinds(kinds: Kinds) -> dict[str, Json]:
    biases = {name: _pack(getattr(kinds, name)) for name in KINDS}
    return {**biases, "weights": _pack(kinds.weights[None]), "offset": kinds.offset}


def _unpack_kinds(packed: Document) -> Kinds:
    photograph, screen, weights = (_unpack(packed[name]) for name in (*KINDS, "weights"))
    if photograph.shape != screen.shape:
        raise ValueError("the centre biases of photographs and screens have different sizes")
    if not math.isfinite(offset := float(packed["offset"])):
        raise ValueError("kinds: the offset is not a finite number")
    return Kinds(photograph, screen, weights.ravel(), offset)


def _unpack(packed: Document) -> npt.NDArray[np.float32]:
    height, width = (int(side) for side in packed["size"])
    try:
        data = base64.b64decode(packed["data"], validate=True)
    except binascii.Error as error:
        raise ValueError(f"an array of the card: {error}") from error
    array = np.frombuffer(data, dtype="<f4").reshape(height, width).astype(np.float32)
    if not np.isfinite(array).all():
        raise ValueError("an array of the card holds NaN or infinity")
    return array
