"""A run's state on disk, without pickle: tensors in safetensors, the rest as JSON in its metadata."""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from fastgaze.core.errors import ModelError
from fastgaze.core.files import replacing


def save_state(path: Path, tensors: dict[str, Tensor], facts: dict[str, Any]) -> None:
    """Replace the file in one step."""
    content = {name: tensor.detach().contiguous() for name, tensor in tensors.items()}
    with replacing(path) as part:
        save_file(content, part, {"facts": json.dumps(facts)})


def load_state(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """What ``save_state`` wrote."""
    try:
        with safe_open(path, framework="pt") as file:
            facts = json.loads((file.metadata() or {})["facts"])
            return {name: file.get_tensor(name) for name in file.keys()}, facts  # noqa: SIM118 (not a dict)
    except (SafetensorError, OSError, KeyError, ValueError) as error:
        raise ModelError(f"{path}: not the state of a run ({error}); delete its folder to start again") from error


def optimizer_tensors(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Momentum, moments and step counts, keyed by the parameter's name."""
    tensors = {}
    for name, parameter in model.named_parameters():
        for kind, value in optimizer.state.get(parameter, {}).items():
            if value is not None:
                tensors[f"optimizer/{kind}/{name}"] = torch.as_tensor(value)
    return tensors


def restore_optimizer(model: nn.Module, optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    """The inverse of ``optimizer_tensors``."""
    parameters = dict(model.named_parameters())
    for key, value in tensors.items():
        if key.startswith("optimizer/"):
            _, kind, name = key.split("/", 2)
            optimizer.state[parameters[name]][kind] = value.to(parameters[name].device) if kind != "step" else value
