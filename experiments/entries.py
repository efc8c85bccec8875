"""The list of models in experiments/configs/front.toml, and each of them opened as it is scored, timed or shown."""

import hashlib
import json
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from experiments.common import PEER, ROOT, Record
from experiments.starts import model_file
from fastgaze.core.center_bias import CenterBias
from fastgaze.core.cost import flops, layers, parameters, prunable_maps
from fastgaze.core.spec import EnsembleSpec, GazeSpec, spec_from_json
from fastgaze.evaluation.evaluate import LogDensityModel
from fastgaze.evaluation.models import CheckpointModel, RuntimeModel
from fastgaze.evaluation.peers import TwitterFastGaze, read_layers
from fastgaze.networks import GazeModel, load_checkpoint
from fastgaze.networks.ensemble import Member
from fastgaze.onnx.read import reopen
from fastgaze.onnx.write import Facts, export_onnx
from fastgaze.runtime.card import WorkingSize, identity, read_card
from fastgaze.runtime.predictor import load

REFERENCE = (480, 640)


@dataclass(frozen=True)
class Entry:
    """One model of the list: a bundled file, a checkpoint, or the peer.

    kind: finished (the paper's line), bundled, unpruned, teacher, peer; of pruning experiments regularised (beta > 0 or
        beta*), unregularised (beta = 0) or frozen (costs estimated once).
    source: ``search`` for a trial of the random search, ``comparison`` for a snapshot that is compared at equal cost.
    found: whether pruning chose the widths, so that Figure 3 may show them; widths that were typed in are not found.
    pixels: the area at which the model is scored; a bundled file says it itself.
    legacy: also scored by the MIT benchmark's older code, for Table 2.
    """

    name: str
    path: Path
    family: str
    kind: str
    source: str = ""
    found: bool = False
    pixels: int = WorkingSize.pixels
    legacy: bool = False

    @property
    def sha256(self) -> str:
        """Of what the file computes: what was measured once is not measured again."""
        content = self.path.read_bytes()
        return identity(content) if self.path.suffix == ".onnx" else hashlib.sha256(content).hexdigest()

    @property
    def engine(self) -> str:
        """What computes the scores."""
        return "torch, fp32" if self.kind == "teacher" else "onnxruntime, fp32"


def read_entries(path: Path, only: list[str] | None = None) -> list[Entry]:
    """The models whose files are there, stars expanded, largest mark first; the others are named on the screen."""
    found: list[Entry] = []
    for facts in tomllib.loads(path.read_text())["model"]:
        own = list(_expand(facts))
        if not own:
            print(f"skipped {facts['name']}: no {facts['path']}", flush=True)
        found += own
    return [entry for entry in found if not only or entry.name in only]


def _expand(facts: dict[str, Any]) -> Iterator[Entry]:
    pattern = facts["path"]
    if "*" not in pattern:
        path = _resolve(pattern)
        if path.is_file():
            pixels = {"pixels": read_card(path).working_size.pixels} if path.suffix == ".onnx" else {}
            yield Entry(**{**facts, "path": path, **pixels})
        return
    marks = {}
    for path in ROOT.glob(pattern):
        match = re.fullmatch(re.escape(pattern).replace(r"\*", "(.*)"), str(path.relative_to(ROOT)))
        if match and "/" not in match[1] and not _training(path.parent):
            marks[match[1]] = path
    for mark in sorted(marks, key=_natural):
        yield Entry(**{**facts, "name": facts["name"].replace("*", mark), "path": marks[mark]})


def _training(folder: Path) -> bool:
    """Whether a run in the folder has begun and not ended, so that its best network may still change."""
    return (folder / "state.safetensors").is_file() and not (folder / "result.json").is_file()


def _resolve(text: str) -> Path:
    """``peer``, the name of a model of the paper's line or of a bundled one, or a path below the repository."""
    if text == "peer":
        return PEER
    return ROOT / text if Path(text).suffix else model_file(text)


def _natural(mark: str) -> tuple[float, str]:
    """Numbers from the largest down, then anything else by name."""
    return (-float(mark), "") if re.fullmatch(r"\d+(\.\d+)?", mark) else (0.0, mark)


def describe(entry: Entry) -> Record:
    """Cost and maps of every convolution, from the widths alone."""
    if entry.path.suffix == ".vxm":
        return _describe_peer(entry.path)
    spec = _spec(entry.path)
    single = spec.member if isinstance(spec, EnsembleSpec) else spec
    return {
        "parameters": parameters(single),
        "maps": prunable_maps(single),
        "gflop_640x480": round(flops(single, REFERENCE) / 1e9, 4),
        "members": spec.members if isinstance(spec, EnsembleSpec) else 1,
        "layers": [[layer.name, layer.maps] for layer in layers(single, REFERENCE)],
    }


def _spec(path: Path) -> GazeSpec | EnsembleSpec:
    if path.suffix == ".onnx":
        spec = spec_from_json(json.dumps(dict(read_card(path).spec)))
    else:
        spec = load_checkpoint(path)[0].spec
    assert isinstance(spec, GazeSpec | EnsembleSpec), f"{path} is not a gaze model"
    return spec


def _describe_peer(path: Path) -> Record:
    """As ``describe``, for the layers of a .vxm file: convolutions with 2x2 pools between."""
    (height, width), cost, size = REFERENCE, 0, 0
    widths: list[tuple[str, int]] = []
    for layer in read_layers(path):
        if layer.weight.size:
            maps, maps_in, kernel = layer.weight.shape[:3]
            cost += height * width * maps * (2 * maps_in * kernel**2 + 1)
            size += layer.weight.size + layer.bias.size + (0 if layer.slope is None else layer.slope.size)
            widths.append((f"conv{len(widths) + 1}", int(maps)))
        elif not layer.taps:
            height, width = height // 2, width // 2
    facts = {"parameters": int(size), "maps": sum(maps for _, maps in widths), "members": 1, "layers": widths}
    return facts | {"gflop_640x480": round(cost / 1e9, 4)}


class Scaled:
    """A checkpoint in torch that works at about ``pixels``, as exported models do."""

    def __init__(self, model: CheckpointModel, pixels: int) -> None:
        self._model, self._working = model, WorkingSize(pixels, model.stride)

    def log_density(
        self, image: npt.NDArray[np.uint8], size: tuple[int, int], center_bias: CenterBias
    ) -> npt.NDArray[np.floating]:
        """As ``LogDensityModel``."""
        height, width = self._working((image.shape[0], image.shape[1]))
        scaled = np.asarray(Image.fromarray(image).resize((width, height), Image.Resampling.BILINEAR))
        return self._model.log_density(scaled, size, center_bias)


def single_model(path: Path) -> GazeModel:
    """The network of a file in torch; of an ensemble its first member, which costs what a single model costs."""
    if path.suffix == ".onnx":
        return reopen(path)[0]
    model = load_checkpoint(path)[0]
    if isinstance(model, GazeModel):
        return model.eval()
    head = model.heads[0]
    assert isinstance(head, Member)
    single = GazeModel(model.spec.member)
    single.trunk.load_state_dict(model.trunk.state_dict())
    single.readout.load_state_dict(head.readout.state_dict())
    single.tail.load_state_dict(head.tail.state_dict())
    return single.eval()


def exported(entry: Entry, folder: Path) -> Path:
    """The network as an ONNX file, as it ships or would ship."""
    if entry.path.suffix == ".onnx":
        return entry.path
    path = folder / f"{entry.name}.onnx"
    export_onnx(single_model(entry.path), path, Facts(entry.name, working_size=WorkingSize(entry.pixels)))
    return path


def open_scored(entry: Entry, folder: Path, threads: int) -> LogDensityModel:
    """Students through onnxruntime as they ship, the teacher's ensemble in torch, the peer as it was published."""
    if entry.path.suffix == ".vxm":
        return TwitterFastGaze(entry.path, threads=threads)
    if entry.kind == "teacher":
        return Scaled(CheckpointModel(entry.path, threads), entry.pixels)
    return RuntimeModel(load(exported(entry, folder), threads=threads))
