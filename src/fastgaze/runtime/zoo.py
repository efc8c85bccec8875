"""The models that come with the package, in ``runtime/bundled``.

Next to ``NAME.onnx`` and ``NAME.int8.onnx`` are an index of their cards, ``models.json``, and the times that were
measured on one machine, ``times.json``: a file that is timed again does not become another model.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fastgaze.core.center_bias import KINDS
from fastgaze.core.errors import ModelError
from fastgaze.core.files import replacing
from fastgaze.core.jsonable import Document, Json
from fastgaze.core.sizes import Size, size_to_json
from fastgaze.runtime.card import REFERENCE, ModelCard, WorkingSize, parse_card, read_card

BUNDLED = Path(__file__).parent / "bundled"
INDEX = "models.json"
TIMES = "times.json"
_TOOK_THE_PLACE_OF = {
    "densegaze-m": "large",
    "fastgaze-l": "large",
    "fastgaze-m": "default",
    "fastgaze-s": "small",
    "fastgaze-xs": "tiny",
}


@dataclass(frozen=True)
class BundledModel:
    """One model of the package: what it costs and how well it does.

    cpu_ms: CPU milliseconds of one core from a picture of 512x384 to its log density, on the machine named in
    ``times.json``; None if it was not timed. ``fastgaze bench`` measures here and now.
    """

    name: str
    architecture: str
    precision: str
    parameters: int
    gflop_640x480: float
    working_pixels: int
    bytes: int
    stride: int = WorkingSize.stride
    default: bool = False
    scores: Document = field(default_factory=dict, repr=False)
    data: str = ""
    licence: str = ""
    cpu_ms: float | None = None

    @property
    def working_size(self) -> Size:
        """(height, width) that the network sees of a picture of 640x480."""
        return WorkingSize(self.working_pixels, self.stride)(REFERENCE)

    @property
    def gflop_working(self) -> float:
        """GFLOP at ``working_size``: what a prediction costs. ``gflop_640x480`` is what the paper states costs for."""
        height, width = self.working_size
        return self.gflop_640x480 * height * width / (REFERENCE[0] * REFERENCE[1])

    def to_json(self) -> dict[str, Json]:
        """Plain values."""
        facts = {name: getattr(self, name) for name in self.__dataclass_fields__ if name != "scores"}
        working = {"working_size": size_to_json(self.working_size), "gflop_working": self.gflop_working}
        return facts | working | {"scores": dict(self.scores)}


def models(folder: Path = BUNDLED) -> list[BundledModel]:
    """The bundled models, the default first, then by cost."""
    index, times = read_index(folder), read_times(folder)
    listed = [
        BundledModel(**facts, default=facts["name"] == index["default"], cpu_ms=times.get(facts["name"]))
        for facts in index["models"]
    ]
    return sorted(listed, key=lambda model: (not model.default, -model.gflop_640x480, model.name))


def default_name(folder: Path = BUNDLED) -> str:
    """Name of the model used when none is given."""
    name = read_index(folder)["default"]
    if not isinstance(name, str):
        raise ModelError("no trained model is bundled yet; give the path of an .onnx made with `fastgaze export`")
    return name


def find(name: str | Path, folder: Path = BUNDLED, others: str = "") -> Path:
    """The file of a bundled name, or the path itself when it is one of an .onnx file.

    others: what the caller takes besides, in words, for the message about anything else.
    """
    text = str(name)
    names = [facts["name"] for facts in read_index(folder)["models"]]
    if text in names:
        return folder / f"{text}.onnx"
    if replaced := _replaced(text, names):
        raise ModelError(replaced)
    path = Path(text)
    if path.suffix == ".onnx":
        if path.is_file():
            return path
        raise ModelError(f"no model file {path}")
    known = f"choose from {', '.join(names)}" if names else "no trained model is bundled yet"
    path_of = f"the path of an .onnx file, {others}" if others else "the path of an .onnx file"
    raise ModelError(f"no bundled model {text!r}; {known}, or give {path_of}")


def _replaced(name: str, names: Sequence[str]) -> str | None:
    """A sentence that names the model which took the place of one that is no longer bundled."""
    base, _, precision = name.partition(".")
    new = _TOOK_THE_PLACE_OF.get(base)
    if new is None or precision not in ("", "int8"):
        return None
    new = f"{new}.int8" if precision and f"{new}.int8" in names else new
    return f"{name} is no longer bundled; {new!r} took its place"


def read_index(folder: Path = BUNDLED) -> Document:
    """``{"default": NAME or None, "models": [facts]}``; empty when nothing is bundled."""
    path = folder / INDEX
    if not path.is_file():
        return {"default": None, "models": []}
    index: Document = json.loads(path.read_text())
    return index


def write_index(folder: Path, default: str) -> None:
    """Write the index from the cards inside the .onnx files of ``folder``."""
    facts = [_facts(path, read_card(path)) for path in sorted(folder.glob("*.onnx"))]
    if default not in [fact["name"] for fact in facts]:
        raise ModelError(f"default model {default!r} is not in {folder}")
    _write(folder / INDEX, {"default": default, "models": facts})


def read_times(folder: Path = BUNDLED) -> dict[str, float]:
    """CPU milliseconds by name of the model, as ``write_times`` left them; empty when nothing was timed."""
    path = folder / TIMES
    if not path.is_file():
        return {}
    times: dict[str, float] = json.loads(path.read_text())["cpu_ms"]
    return times


def write_times(folder: Path, times: Mapping[str, float], conditions: Mapping[str, Json]) -> None:
    """Store CPU milliseconds by name next to the models. conditions: machine, engine, threads, size of the picture."""
    _write(folder / TIMES, {**conditions, "cpu_ms": dict(times)})


def _write(path: Path, document: Mapping[str, Json]) -> None:
    with replacing(path) as part:
        part.write_text(json.dumps(document, indent=2) + "\n")


def _facts(path: Path, card: ModelCard) -> dict[str, Json]:
    return {
        "name": path.name.removesuffix(".onnx"),
        "architecture": card.architecture,
        "precision": card.precision,
        "parameters": card.parameters,
        "gflop_640x480": card.gflop_640x480,
        "working_pixels": card.working_size.pixels,
        "stride": card.working_size.stride,
        "bytes": path.stat().st_size,
        "scores": dict(card.scores),
        "data": card.data,
        "licence": card.licence,
    }


def describe(name: str | Path, folder: Path = BUNDLED, others: str = "") -> Document:
    """Facts of a bundled name or an .onnx path: the card, the spec as one line of JSON, without grids and weights.

    others: see ``find``.
    """
    path = find(name, folder, others)
    card = read_card(path)
    facts = card.to_json()
    del facts["center_bias"]
    return facts | {
        "kinds": None if card.kinds is None else list(KINDS),
        "spec": json.dumps(dict(card.spec), sort_keys=True),
        "file": str(path),
        "bytes": path.stat().st_size,
        "gflop_working": card.gflop_working,
        "working_640x480": size_to_json(card.working_size(REFERENCE)),
        "cpu_ms": read_times(folder).get(card.name),
    }


def read_model(name: str | Path, folder: Path = BUNDLED) -> tuple[Path, bytes, ModelCard]:
    """Path, bytes and card of a bundled name or an .onnx path."""
    path = find(name, folder)
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ModelError(f"cannot read the model {path}: {error.strerror or error}") from error
    return path, content, parse_card(content, str(path))
