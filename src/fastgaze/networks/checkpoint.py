"""Checkpoints: safetensors with the spec and the training record as JSON in the metadata. No pickle."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from fastgaze.core.errors import ModelError
from fastgaze.core.files import write_whole
from fastgaze.core.jsonable import Document, Json
from fastgaze.core.spec import Spec, spec_from_json, spec_to_json
from fastgaze.networks.factory import Model, create_model
from fastgaze.networks.gaze import GazeModel
from fastgaze.networks.vgg import VGG

FORMAT = "fastgaze-checkpoint-2"
_TRUNK, _FROM_BACKBONE = "trunk", "backbone"  # in the metadata of files without the tensors of a frozen trunk

Stage = Literal["untrained", "teacher", "distill", "tune", "prune", "narrow", "finetune", "exported"]


@dataclass(frozen=True)
class BackboneRecord:
    """Pretrained weights that a trunk was filled with.

    layers: ``all`` of the file's, or those ``matching`` by name.
    spreads: for every layer that was rescaled, what its output was divided by.
    """

    file: str
    sha256: str
    layers: Literal["all", "matching"]
    spreads: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class PruningRecord:
    """How a network was made smaller.

    cost: of the network when it was saved, in ``unit`` (GFLOP at 640x480, or milliseconds of an engine).
    mark: the cost at or below which it was to be saved, in the same unit; None at the end of a run.
    """

    objective: str
    unit: Literal["GFLOP", "ms"]
    cost: float
    mark: float | None = None


@dataclass(frozen=True)
class TrainingRecord:
    """What a network is and how it came to be. Every stage fills every field that it can know.

    working_pixels: height times width of the images that the network saw; None if that is not known.
    data: names of the sets that this stage trained on.
    teachers: runs whose soft targets this stage learned from.
    start: the record of the network that this stage began with.
    precision: of the arithmetic in training.
    steps: of this stage, up to the parameters that were saved.
    loss: on the validation images, nats per fixation on the loss grid.
    details: more for readers, such as the stage's settings; no code depends on them.
    """

    stage: Stage
    architecture: str
    working_pixels: int | None
    data: tuple[str, ...]
    teachers: tuple[str, ...] = ()
    start: "TrainingRecord | None" = None
    backbone: BackboneRecord | None = None
    pruning: PruningRecord | None = None
    precision: Literal["bf16", "fp32"] = "bf16"
    steps: int = 0
    seed: int = 0
    loss: float | None = None
    details: Mapping[str, Json] = field(default_factory=dict)

    @property
    def trained_on(self) -> tuple[str, ...]:
        """Names of all sets, of this stage and of those before it, each once, in order."""
        earlier = () if self.start is None else self.start.trained_on
        return tuple(dict.fromkeys((*earlier, *self.data)))

    def to_json(self) -> dict[str, Json]:
        """As ``from_json`` reads it."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: Document) -> "TrainingRecord":
        """The inverse of ``to_json``."""
        start, backbone, pruning = values["start"], values["backbone"], values["pruning"]
        typed = {
            "data": tuple(values["data"]),
            "teachers": tuple(values["teachers"]),
            "start": start and cls.from_json(start),
            "backbone": backbone and BackboneRecord(**backbone),
            "pruning": pruning and PruningRecord(**pruning),
        }
        return cls(**{**values, **typed})


def untrained(spec: Spec) -> TrainingRecord:
    """The record of a network with fresh weights."""
    return TrainingRecord("untrained", spec.architecture, None, ())


def save_checkpoint(
    model: Model,
    path: str | Path,
    record: TrainingRecord | None = None,
    dtype: Literal["float32", "float16"] = "float32",
    trunk: bool = True,
) -> None:
    """Write a network and how it came to be; the file is replaced in one step.

    dtype: of the convolutions' weights; ``float16`` halves the file and changes log densities by about 0.001 nats.
    trunk: False leaves out a trunk that was never trained: it is filled from its backbone when the file is loaded, so
        that the ten readouts of DeepGaze II take 1 MB instead of 80.
    """
    record = untrained(model.spec) if record is None else record
    metadata = {"format": FORMAT, "spec": spec_to_json(model.spec), "record": json.dumps(record.to_json())}
    tensors = {name: tensor.detach().contiguous().clone() for name, tensor in model.state_dict().items()}
    if not trunk:
        metadata[_TRUNK] = _FROM_BACKBONE
        _check_frozen(model, record)
        tensors = {name: tensor for name, tensor in tensors.items() if not name.startswith(_trunk_prefix(model))}
    if dtype == "float16":
        tensors = {name: _halved(name, tensor) for name, tensor in tensors.items()}
    write_whole(Path(path), save(tensors, metadata))


def _trunk_prefix(model: Model) -> str:
    """How the names of the trunk's tensors begin."""
    return "network.trunk." if isinstance(model, GazeModel) else "trunk."


def _check_frozen(model: Model, record: TrainingRecord) -> None:
    """Refuse to leave out a trunk that its backbone would not give back."""
    again = _filled_trunk(create_model(model.spec.architecture, model.spec), record, None).state_dict()
    for name, tensor in model.trunk.state_dict().items():
        if not torch.allclose(tensor, again[name], rtol=1e-4, atol=1e-6):
            raise ModelError(f"{name} of the trunk was trained; save the network with its trunk")


def _filled_trunk(model: Model, record: TrainingRecord, backbone: str | Path | None) -> VGG:
    """The trunk of ``model``, filled again with the weights that its record names."""
    from fastgaze.networks.backbones import refill_backbone  # which needs the records of this module

    if record.backbone is None or not isinstance(model.trunk, VGG):
        raise ModelError(f"the trunk of this {model.spec.architecture} cannot be filled from a backbone")
    refill_backbone(model.trunk, record.backbone, backbone)
    return model.trunk


def _halved(name: str, tensor: Tensor) -> Tensor:
    """Weights of a convolution as float16; anything else is small and keeps its digits and its range."""
    if tensor.dim() != 4:
        return tensor
    half = tensor.half()
    if not torch.isfinite(half).all():
        raise ModelError(f"{name} holds weights beyond 65,504, which float16 cannot store; save with dtype='float32'")
    return half


def load_checkpoint(path: str | Path, backbone: str | Path | None = None) -> tuple[Model, TrainingRecord]:
    """The network in float32 and evaluation mode, and its record.

    backbone: the file of a trunk that was left out, by default that of its name in the cache.
    """
    metadata, tensors = _read(Path(path))
    spec = spec_from_json(metadata["spec"])
    model = create_model(spec.architecture, spec)
    if metadata.get(_TRUNK) == _FROM_BACKBONE:
        filled = _filled_trunk(model, _read_record(metadata, path), backbone).state_dict()
        tensors |= {f"{_trunk_prefix(model)}{name}": tensor for name, tensor in filled.items()}
    expected = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    found = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    if expected != found:
        raise ModelError(f"{path}: spec and tensors disagree at {_first_difference(expected, found)}")
    model.load_state_dict(tensors)
    return model.eval(), _read_record(metadata, path)


def _read_record(metadata: Mapping[str, str], path: str | Path) -> TrainingRecord:
    try:
        return TrainingRecord.from_json(json.loads(metadata["record"]))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ModelError(f"{path}: its training record is damaged ({error!r}); save the network again") from error


def load_gaze_model(path: str | Path) -> tuple[GazeModel, TrainingRecord]:
    """As ``load_checkpoint``, for what needs one network: an ensemble is refused."""
    model, record = load_checkpoint(path)
    if not isinstance(model, GazeModel):
        raise ModelError(f"{path} holds a {model.spec.architecture}; give the checkpoint of a single network")
    return model, record


def _read(path: Path) -> tuple[dict[str, str], dict[str, Tensor]]:
    """Metadata and tensors of a checkpoint."""
    if not path.is_file():
        raise ModelError(f"no checkpoint at {path}; give a .safetensors file that fastgaze wrote")
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    except (SafetensorError, OSError) as error:
        raise ModelError(
            f"{path}: not a readable checkpoint ({error}); it may be truncated or of another format"
        ) from error
    if metadata.get("format") != FORMAT:
        raise ModelError(
            f"{path}: a safetensors file, but not a checkpoint of fastgaze (no {FORMAT!r} in its metadata)"
        )
    return metadata, tensors


def _first_difference(expected: dict[str, tuple[int, ...]], found: dict[str, tuple[int, ...]]) -> str:
    name = min(name for name in expected.keys() | found.keys() if expected.get(name) != found.get(name))
    shapes = [str(list(shape)) if shape is not None else "absent" for shape in (expected.get(name), found.get(name))]
    return f"{name}: the spec says {shapes[0]}, the file has {shapes[1]}"
