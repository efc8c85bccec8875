"""An exported VGG network back in torch, so that a model which is only there as ONNX can be trained further.

Its weights were stored as float16, which changes nothing that matters. A DenseNet's normalisation was folded into its
convolutions at the export, so such a network needs its checkpoint.
"""

import json
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fastgaze.core.errors import ModelError, require
from fastgaze.core.spec import spec_from_json
from fastgaze.networks.checkpoint import Json, TrainingRecord
from fastgaze.networks.factory import create_model
from fastgaze.networks.gaze import GazeModel
from fastgaze.runtime import zoo
from fastgaze.runtime.card import ModelCard


def reopen(source: str | Path) -> tuple[GazeModel, TrainingRecord]:
    """The network of a bundled name or an .onnx file, in evaluation mode, and its record as its card knows it."""
    path, content, card = zoo.read_model(Path(source))
    spec = spec_from_json(json.dumps(card.spec))
    model = create_model(spec.architecture, spec)
    if not isinstance(model, GazeModel) or card.precision != "fp32" or spec.architecture == "densegaze":
        raise ModelError(
            f"{path.name} is a {card.precision} {spec.architecture}; only fp32 exports of VGG networks can be "
            "trained further: give the checkpoint (.safetensors) that it was exported from"
        )
    _fill(model, content, path)
    _restore_tail(model, card)
    data = (card.data,) if card.data else ()
    details: dict[str, Json] = {"model": card.name, "scores": dict(card.scores)}
    return model.eval(), TrainingRecord("exported", spec.architecture, card.working_size.pixels, data, details=details)


def _fill(model: GazeModel, content: bytes, path: Path) -> None:
    """Convolutions and slopes in the order of the graph, which is that of the modules."""
    onnx = require("onnx", "train")
    graph = onnx.load_from_string(content).graph
    stored = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in graph.initializer}
    # Weights pass a Cast from float16 before they reach their convolution.
    stored |= {node.output[0]: stored[node.input[0]] for node in graph.node if node.op_type == "Cast"}
    for kind, operation in ((nn.Conv2d, "Conv"), (nn.PReLU, "PRelu")):
        modules = [module for module in model.network.modules() if isinstance(module, kind)]
        nodes = [node for node in graph.node if node.op_type == operation]
        if len(modules) != len(nodes):
            raise ModelError(f"{path.name}: {len(nodes)} {operation} nodes, but its spec has {len(modules)}")
        for module, node in zip(modules, nodes, strict=True):
            for parameter, name in zip(module.parameters(), node.input[1:], strict=True):
                _copy(parameter, stored[name], path)


@torch.no_grad()
def _copy(parameter: Tensor, values: NDArray[np.generic], path: Path) -> None:
    if parameter.numel() != values.size:
        raise ModelError(f"{path.name}: {list(values.shape)} weights for a layer of {list(parameter.shape)}")
    parameter.copy_(torch.from_numpy(np.array(values, np.float32)).reshape(parameter.shape))


@torch.no_grad()
def _restore_tail(model: GazeModel, card: ModelCard) -> None:
    model.tail.log_sigma.fill_(float(np.log(card.sigma)))
    model.tail.center_bias.copy_(torch.from_numpy(card.center_bias))
