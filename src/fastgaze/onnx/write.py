"""From a torch network to the file that ships: ONNX of the convolutional part, with a card inside.

The file takes an image of any size that is a multiple of the stride; blur, centre bias and normalisation are the
runtime's, from the card. Every file is read back by the runtime and compared with torch before it is put in
place: one that differs is never left behind.
"""

import copy
import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from fastgaze.core.cost import flops, parameters, prunable_maps
from fastgaze.core.errors import ExportError, ModelError, require
from fastgaze.core.files import replacing
from fastgaze.core.jsonable import Document
from fastgaze.core.pictures import open_picture
from fastgaze.core.spec import spec_to_json
from fastgaze.networks import GazeModel, TrainingRecord
from fastgaze.onnx.int8 import quantised, quiet
from fastgaze.onnx.layers import graph_layers
from fastgaze.onnx.pad import padded
from fastgaze.runtime.card import KEY, ModelCard, WorkingSize
from fastgaze.runtime.engines import make_engine
from fastgaze.runtime.predictor import Predictor
from fastgaze.runtime.resize import prepare

if TYPE_CHECKING:
    from onnx import ModelProto
    from torch import nn

Array = npt.NDArray[np.float32]

PARITY = 2e-3
"""Largest difference of log densities between torch and the file, in nats, anywhere on any test image."""
INT8_DIVERGENCE = 0.05
"""Largest mean Kullback-Leibler divergence of the int8 file from the network, in nats, over the calibration images."""
_OPSET = 17
_IR_VERSION = 9
_COUNTED = (480, 640)  # (height, width) for which costs are given
# Upright, flat, square and both extreme strips: every kind of border a picture can have.
_RATIOS = (3 / 4, 4 / 3, 1.0, 8.0, 1 / 8)


@dataclass(frozen=True)
class Facts:
    """What a card says beyond the network itself."""

    name: str
    scores: Document = field(default_factory=dict)
    data: str = ""
    licence: str = "Apache-2.0"
    working_size: WorkingSize = field(default_factory=WorkingSize)
    seen_pixels: int = 0

    @classmethod
    def of(cls, name: str, record: TrainingRecord, pixels: int | None = None) -> "Facts":
        """What a network's record says; ``pixels`` in place of those that it was trained with."""
        working = pixels or record.working_pixels or WorkingSize.pixels
        return cls(name, data=", ".join(record.trained_on), working_size=WorkingSize(pixels=working))


def export_onnx(model: GazeModel, path: Path, facts: Facts, half: bool = True) -> ModelCard:
    """Write ``model`` as ONNX (fp32 arithmetic) to ``path`` and check it against torch.

    half: store the weights as float16, half the size; the engine turns them back when it loads the file.
    """
    model = padded(model)
    model = _rounded(model) if half else copy.deepcopy(model)
    model.eval()
    card = make_card(model, facts)
    graph = _graph(model)
    check_cost(model, graph)
    if half:
        _store_half(graph)
    _publish(graph, card, path, lambda predictor: check_parity(model, predictor))
    return card


def network_bytes(model: GazeModel) -> bytes:
    """The convolutional part of ``model`` as an ONNX file without a card and a summary, its weights as float16."""
    graph = _graph(_rounded(padded(model)), summary=False)
    _store_half(graph)
    graph.ir_version = _IR_VERSION
    content: bytes = graph.SerializeToString()
    return content


def export_int8(model: GazeModel, path: Path, facts: Facts, images: Sequence[Path]) -> ModelCard:
    """Write ``model`` with 8-bit weights and maps, calibrated on the image files ``images``, and check it."""
    if not images:
        raise ExportError("int8 needs images to calibrate on; give a folder with at least one image")
    model = copy.deepcopy(padded(model)).eval()
    card = replace(make_card(model, facts), precision="int8", name=f"{facts.name}.int8")
    samples = [_sample(card, image) for image in images]
    graph = quantised(_graph(model), samples)
    _publish(graph, card, path, lambda predictor: check_divergence(model, predictor, samples))
    return card


def make_card(model: GazeModel, facts: Facts) -> ModelCard:
    """The card of a network: costs from its widths, blur and centre bias from its tail."""
    spec = model.spec
    return ModelCard(
        name=facts.name,
        architecture=spec.architecture,
        parameters=parameters(spec),
        maps=prunable_maps(spec),
        gflop_640x480=flops(spec, _COUNTED) / 1e9,
        spec=json.loads(spec_to_json(spec)),
        sigma=float(model.tail.sigma.detach()),
        center_bias=model.tail.center_bias.detach().cpu().numpy().astype(np.float32),
        working_size=replace(facts.working_size, stride=model.stride),
        seen_pixels=facts.seen_pixels,
        scores=facts.scores,
        data=facts.data,
        licence=facts.licence,
    )


def check_cost(model: GazeModel, graph: "ModelProto") -> None:
    """Refuse a graph whose convolutions do not cost what the network's widths imply."""
    said, found = flops(model.spec, _COUNTED), sum(layer.flops for layer in graph_layers(graph, _COUNTED))
    if said != found:
        raise ExportError(f"the exported graph costs {found:,} FLOPs at 640x480, its widths {said:,}; not written")


def check_parity(model: GazeModel, predictor: Predictor) -> float:
    """Largest difference of log densities between torch and the file, in nats; more than ``PARITY`` is refused."""
    differences = []
    for index, ratio in enumerate(_RATIOS):
        height, width = predictor.card.working_size((round(1000 * ratio), 1000))
        image = _test_image(height, width, seed=index)
        expected, found = _torch_log_density(model, image), _runtime_log_density(predictor, image)
        differences.append(np.abs(expected - found).max())
    worst = float(np.max(differences))  # NaN if any is, which max() would drop
    if not worst <= PARITY:
        raise ExportError(
            f"the exported network differs from torch by {worst:.2g} nats, more than {PARITY}; not written"
        )
    return worst


def check_divergence(model: GazeModel, predictor: Predictor, samples: Sequence[Array]) -> float:
    """Mean divergence KL(network | file) over ``samples``, in nats; more than ``INT8_DIVERGENCE`` is refused."""
    divergences = []
    for image in samples:
        expected, found = _torch_log_density(model, image), _runtime_log_density(predictor, image)
        divergences.append(float((np.exp(expected) * (expected - found)).sum(dtype=np.float64)))
    mean = float(np.mean(divergences))
    if not mean <= INT8_DIVERGENCE:
        raise ExportError(
            f"int8 diverges from the network by {mean:.2g} nats, more than {INT8_DIVERGENCE}; not written"
        )
    return mean


def _torch_log_density(model: GazeModel, image: Array) -> Array:
    import torch

    with torch.inference_mode():
        log_density: Array = model(torch.from_numpy(image[None]))[0].numpy()
    return log_density


def _runtime_log_density(predictor: Predictor, image: Array) -> Array:
    return predictor.see(image).at().log_density


def _test_image(height: int, width: int, seed: int) -> Array:
    """Normalised RGB (3, height, width) with large shapes and noise, in the range of photographs."""
    generator = np.random.default_rng(seed)
    coarse = generator.standard_normal((3, height // 16, width // 16)).repeat(16, 1).repeat(16, 2)
    return (coarse + 0.3 * generator.standard_normal((3, height, width))).astype(np.float32)


def _sample(card: ModelCard, path: Path) -> Array:
    """One image file as the network sees it, (3, H, W)."""
    picture = open_picture(path)
    working = card.working_size(picture.size)
    return prepare(picture.pixels(working), working, card)


def _rounded(model: GazeModel) -> GazeModel:
    """A copy whose convolution weights are float16 numbers, so that storing them so loses nothing.

    BatchNorm is folded before: folded later, by the exporter, it would scale the rounded weights.
    """
    model = _folded(model)
    for name, parameter in model.network.named_parameters():
        if name.endswith("weight") and parameter.dim() == 4:
            parameter.data = parameter.data.half().float()
    return model


def _folded(model: GazeModel) -> GazeModel:
    """A copy in evaluation mode in which every BatchNorm that alone reads a convolution is part of it."""
    from torch import nn
    from torch.nn.utils.fusion import fuse_conv_bn_eval

    model = copy.deepcopy(model).eval()
    network = model.network
    for conv_name, norm_name in foldable(model).items():
        convolution, norm = network.get_submodule(conv_name), network.get_submodule(norm_name)
        assert isinstance(convolution, nn.Conv2d)
        assert isinstance(norm, nn.BatchNorm2d)
        network.set_submodule(conv_name, fuse_conv_bn_eval(convolution, norm))
        network.set_submodule(norm_name, nn.Identity())
    return model


def foldable(model: GazeModel) -> dict[str, str]:
    """Convolutions whose maps only a BatchNorm reads, and that BatchNorm: names within ``model.network``."""
    from torch import fx, nn

    network, found = model.network, {}
    for node in fx.symbolic_trace(network).graph.nodes:
        if node.op != "call_module" or not isinstance(network.get_submodule(node.target), nn.BatchNorm2d):
            continue
        (before,) = node.all_input_nodes
        if before.op != "call_module" or len(before.users) != 1:
            continue
        if isinstance(network.get_submodule(before.target), nn.Conv2d):
            found[str(before.target)] = str(node.target)
    return found


def _graph(model: GazeModel, summary: bool = True) -> "ModelProto":
    """The convolutional part as an ONNX model, every BatchNorm that follows a convolution folded into it.

    summary: with a second output, by which the runtime tells kinds of pictures apart.
    """
    import torch

    onnx = require("onnx", "train")
    network, pads = _symmetric(model.network)
    axes = {"image": {0: "n", 2: "height", 3: "width"}, "saliency": {0: "n", 2: "rows", 3: "columns"}}
    if summary:
        network, axes["summary"] = _summarised(network), {0: "n"}
    with tempfile.TemporaryDirectory() as folder, quiet():
        path = Path(folder) / "network.onnx"
        # The TorchScript exporter: the same nodes as the newer one, in 0.1 s instead of 9 and without onnxscript.
        torch.onnx.export(
            network,
            (torch.zeros(1, 3, 64, 96),),
            path,
            dynamo=False,
            opset_version=_OPSET,
            input_names=["image"],
            output_names=list(axes)[1:],
            dynamic_axes=axes,
        )
        graph: ModelProto = onnx.load(path)
    _set_pads(graph, pads)
    onnx.checker.check_model(graph)
    return graph


def _symmetric(network: "nn.Module") -> tuple["nn.Module", dict[int, list[int]]]:
    """A copy whose convolutions pad by themselves, alike on both sides, and the pads that those must have instead.

    By number of the convolution in the order of execution: top, left, bottom, right. torch has no convolution with
    asymmetric padding and ONNX has, so that a pass over the maps is saved.
    """
    from torch import fx, nn

    network, pads = copy.deepcopy(network), dict[int, list[int]]()
    calls = [node for node in fx.symbolic_trace(network).graph.nodes if node.op == "call_module"]
    convolutions = [node for node in calls if isinstance(network.get_submodule(node.target), nn.Conv2d)]
    for number, node in enumerate(convolutions):
        convolution, before = network.get_submodule(node.target), node.args[0]
        assert isinstance(convolution, nn.Conv2d)
        pad = network.get_submodule(before.target) if before.op == "call_module" else None
        if isinstance(pad, nn.ZeroPad2d):
            left, right, top, bottom = pad.padding
            pads[number] = [top, left, bottom, right]
            network.set_submodule(before.target, nn.Identity())
            convolution.padding = (convolution.kernel_size[0] // 2, convolution.kernel_size[1] // 2)
    return network, pads


def _summarised(network: "nn.Module") -> "nn.Module":
    """A network whose second output is the mean of each of its deepest maps, (N, k)."""
    from torch import Tensor, nn
    from torch.nn import functional as F

    class Summarised(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.trunk, self.readout = network.get_submodule("trunk"), network.get_submodule("readout")

        def forward(self, image: Tensor) -> tuple[Tensor, Tensor]:
            features = self.trunk(image)
            deepest = features[-1] if isinstance(features, tuple) else features
            # A pooling, since onnxruntime has one for the layout in which it computes.
            return self.readout(features), F.adaptive_avg_pool2d(deepest, 1).flatten(1)

    return Summarised()


def _set_pads(model: "ModelProto", pads: Mapping[int, list[int]]) -> None:
    convolutions = [node for node in model.graph.node if node.op_type == "Conv"]
    for number, sides in pads.items():
        (own,) = (attribute for attribute in convolutions[number].attribute if attribute.name == "pads")
        own.ints[:] = sides


def _store_half(graph: "ModelProto") -> None:
    """Keep convolution weights as float16 with a Cast each; engines fold the Cast when they load the file."""
    onnx = require("onnx", "train")
    weights = {node.input[1] for node in graph.graph.node if node.op_type == "Conv"}
    casts = []
    for tensor in graph.graph.initializer:
        if tensor.name not in weights:
            continue
        name, values = tensor.name, onnx.numpy_helper.to_array(tensor)
        tensor.CopyFrom(onnx.numpy_helper.from_array(values.astype(np.float16), f"{name}.half"))
        casts.append(onnx.helper.make_node("Cast", [f"{name}.half"], [name], to=onnx.TensorProto.FLOAT))
    nodes = list(graph.graph.node)
    del graph.graph.node[:]
    graph.graph.node.extend(casts + nodes)


def _publish(graph: "ModelProto", card: ModelCard, path: Path, check: Callable[[Predictor], float]) -> None:
    """Write the graph with its card under a temporary name, load it, check it, and only then rename it to ``path``."""
    onnx = require("onnx", "train")
    graph.ir_version = _IR_VERSION
    graph.producer_name, graph.producer_version, graph.doc_string = "fastgaze", "", ""
    for node in graph.graph.node:
        node.doc_string = ""
    del graph.metadata_props[:]
    onnx.helper.set_model_props(graph, {KEY: json.dumps(card.to_json())})
    content: bytes = graph.SerializeToString()
    predictor = Predictor(card, make_engine(path, content, threads=1))
    try:
        check(predictor)
    except ModelError as error:
        raise ExportError(f"the exported network cannot be used: {error}; not written") from error
    with replacing(path) as part:
        part.write_bytes(content)
