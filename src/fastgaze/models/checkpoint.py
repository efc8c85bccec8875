"""Checkpoints: safetensors with the spec and the training record as JSON in the metadata. No pickle."""

import json
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from fastgaze.errors import ModelError
from fastgaze.files import replacing
from fastgaze.models.factory import Model, create_model
from fastgaze.models.spec import spec_from_json, spec_to_json

FORMAT = "fastgaze-checkpoint-1"


def save_checkpoint(model: Model, path: str | Path, record: dict[str, Any] | None = None, half: bool = False) -> None:
    """Write a network and how it came to be; the file is replaced in one step.

    record: anything JSON can hold: data, seeds, scores, the run it came from.
    half: store the weights of convolutions as float16, half the size, as exported files do.
    """
    path = Path(path)
    metadata = {"format": FORMAT, "spec": spec_to_json(model.spec), "record": json.dumps(record or {})}
    tensors = {name: _stored(tensor, half) for name, tensor in model.state_dict().items()}
    with replacing(path) as part:
        save_file(tensors, part, metadata)


def _stored(tensor: Tensor, half: bool) -> Tensor:
    tensor = tensor.detach().contiguous().clone()
    return tensor.half() if half and tensor.dim() == 4 else tensor


def load_checkpoint(path: str | Path) -> tuple[Model, dict[str, Any]]:
    """The network in evaluation mode, and its record."""
    if not Path(path).is_file():
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
    spec = spec_from_json(metadata["spec"])
    model = create_model(spec.architecture, spec)
    expected = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    found = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    if expected != found:
        raise ModelError(f"{path}: spec and tensors disagree at {_first_difference(expected, found)}")
    model.load_state_dict(tensors)
    return model.eval(), json.loads(metadata["record"])


def _first_difference(expected: dict[str, tuple[int, ...]], found: dict[str, tuple[int, ...]]) -> str:
    name = min(name for name in expected.keys() | found.keys() if expected.get(name) != found.get(name))
    shapes = [str(list(shape)) if shape is not None else "absent" for shape in (expected.get(name), found.get(name))]
    return f"{name}: the spec says {shapes[0]}, the file has {shapes[1]}"
