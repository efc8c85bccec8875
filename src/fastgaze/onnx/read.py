"""An exported network back in torch, so that a model that exists only as ONNX can be trained further.

Its weights were stored as float16, which changes nothing that matters. Where the export folded a BatchNorm into a
convolution, the network gets one back that only adds the convolution's bias: it computes the same.
"""

import json
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, fx, nn

from fastgaze.core.errors import ModelError, require
from fastgaze.core.jsonable import Json
from fastgaze.core.spec import spec_from_json
from fastgaze.networks.checkpoint import TrainingRecord
from fastgaze.networks.factory import create_model
from fastgaze.networks.gaze import GazeModel
from fastgaze.onnx.write import foldable
from fastgaze.runtime import zoo
from fastgaze.runtime.card import ModelCard


def reopen(source: str | Path) -> tuple[GazeModel, TrainingRecord]:
    """The network of a bundled name or an .onnx file, in evaluation mode, and its record as its card knows it."""
    path, content, card = zoo.read_model(Path(source))
    spec = spec_from_json(json.dumps(card.spec))
    model = create_model(spec.architecture, spec)
    if not isinstance(model, GazeModel) or card.precision != "fp32":
        raise ModelError(
            f"{path.name} is a {card.precision} {spec.architecture}; only fp32 exports of gaze networks can be "
            "trained further: give the checkpoint (.safetensors) that it was exported from"
        )
    fill(model, content, path)
    _restore_tail(model, card)
    data = (card.data,) if card.data else ()
    details: dict[str, Json] = {"model": card.name, "scores": dict(card.scores)}
    return model.eval(), TrainingRecord("exported", spec.architecture, card.working_size.pixels, data, details=details)


def fill(model: GazeModel, content: bytes, path: Path) -> None:
    """Copy the parameters of an ONNX file into ``model``, a network of the same widths; ``path`` names it in errors.

    They are in the order of the graph, which is that in which the modules run.
    """
    onnx = require("onnx", "train")
    graph = onnx.load_from_string(content).graph
    stored = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in graph.initializer}
    # Weights pass a Cast from float16 before they reach their convolution.
    stored |= {node.output[0]: stored[node.input[0]] for node in graph.node if node.op_type == "Cast"}
    folded = foldable(model)
    norms = {model.network.get_submodule(name) for name in folded.values()}
    order = _in_order(model)
    for kind, operation in ((nn.Conv2d, "Conv"), (nn.PReLU, "PRelu"), (nn.BatchNorm2d, "BatchNormalization")):
        names = [n for n, module in order.items() if isinstance(module, kind) and module not in norms]
        nodes = [node for node in graph.node if node.op_type == operation]
        if len(names) != len(nodes):
            raise ModelError(f"{path.name}: {len(nodes)} {operation} nodes, but its spec has {len(names)}")
        for name, node in zip(names, nodes, strict=True):
            targets = _tensors(order[name])
            if name in folded:
                norm = model.network.get_submodule(folded[name])
                assert isinstance(norm, nn.BatchNorm2d)
                targets.append(_only_adds(norm))
            for target, key in zip(targets, node.input[1:], strict=True):
                _copy(target, stored[key], path)


def _in_order(model: GazeModel) -> dict[str, nn.Module]:
    """Modules of the network by name, in the order in which they run."""
    nodes = fx.symbolic_trace(model.network).graph.nodes
    return {str(node.target): model.network.get_submodule(node.target) for node in nodes if node.op == "call_module"}


def _tensors(module: nn.Module) -> list[Tensor]:
    """What an ONNX node of this module holds, in its order."""
    if isinstance(module, nn.BatchNorm2d):
        return [getattr(module, name) for name in ("weight", "bias", "running_mean", "running_var")]
    return list(module.parameters())


@torch.no_grad()
def _only_adds(norm: nn.BatchNorm2d) -> Tensor:
    """Make a BatchNorm the identity but for its bias, which is returned to be filled."""
    assert norm.running_mean is not None
    assert norm.running_var is not None
    norm.running_mean.zero_()
    norm.running_var.fill_(1 - norm.eps)
    norm.weight.fill_(1)
    return norm.bias


@torch.no_grad()
def _copy(parameter: Tensor, values: NDArray[np.generic], path: Path) -> None:
    if parameter.numel() != values.size:
        raise ModelError(f"{path.name}: {list(values.shape)} weights for a layer of {list(parameter.shape)}")
    parameter.copy_(torch.from_numpy(np.array(values, np.float32)).reshape(parameter.shape))


@torch.no_grad()
def _restore_tail(model: GazeModel, card: ModelCard) -> None:
    """Blur and centre bias of the card. Its temperature, a factor on the output, goes into the last convolution."""
    model.tail.log_sigma.fill_(float(np.log(card.sigma)))
    model.tail.center_bias.copy_(torch.from_numpy(card.center_bias))
    *_, last = (module for module in model.readout.modules() if isinstance(module, nn.Conv2d))
    for parameter in last.parameters():
        parameter.mul_(card.temperature)
