"""What the layers of an ONNX graph are and cost: FLOPs of a graph, milliseconds of single layers in the engine."""

from pathlib import Path
from time import process_time
from typing import TYPE_CHECKING

import numpy as np

from fastgaze.core.cost import LayerCost
from fastgaze.core.errors import ModelError, require
from fastgaze.core.progress import Progress, silent
from fastgaze.pruning import ChannelGraph, Latency, LatencyTable, LayerShape
from fastgaze.pruning.latency import stair_widths

if TYPE_CHECKING:
    import onnx

ENGINE = "onnxruntime, fp32, one thread"
_PASSED_ON = ("Cast", "DequantizeLinear", "Identity")  # between stored weights and their convolution
COARSE = 128  # channels from which only every fourth stair is measured


def graph_layers(model: "onnx.ModelProto", size: tuple[int, int]) -> list[LayerCost]:
    """Every convolution of a graph for an input of ``size`` (height, width), in order."""
    onnx = require("onnx", "train")
    fixed = onnx.ModelProto()
    fixed.CopyFrom(model)
    for dimension, value in zip(fixed.graph.input[0].type.tensor_type.shape.dim, (1, 3, *size), strict=True):
        dimension.dim_value = value
    graph = onnx.shape_inference.infer_shapes(fixed, strict_mode=True, data_prop=True).graph
    shapes = {
        value.name: [dimension.dim_value for dimension in value.type.tensor_type.shape.dim]
        for value in (*graph.value_info, *graph.output)
    }
    weights = {tensor.name: list(tensor.dims) for tensor in graph.initializer}
    weights |= {
        node.output[0]: weights[node.input[0]]
        for node in graph.node
        if node.op_type in _PASSED_ON and node.input[0] in weights
    }
    return [_layer(node, weights, shapes[node.output[0]]) for node in graph.node if node.op_type == "Conv"]


def _layer(node: "onnx.NodeProto", weights: dict[str, list[int]], output: list[int]) -> LayerCost:
    if node.input[1] not in weights:
        raise ModelError(f"the weights of {node.name} are computed in the graph; only stored ones can be counted")
    maps, maps_in, *kernel = weights[node.input[1]]
    if kernel[0] != kernel[1]:
        raise ModelError(f"{node.name} has a kernel of {kernel}; only square ones can be counted")
    parameters = maps * maps_in * kernel[0] ** 2 + (maps if len(node.input) > 2 else 0)
    return LayerCost(node.name, maps_in, maps, kernel[0], output[2], output[3], parameters)


def measured_widths(width: int, step: int) -> list[int]:
    """Every stair up to 128 channels, every fourth beyond: wide layers lose maps long before a stair matters."""
    return sorted({w for w in stair_widths(width, step) if w <= COARSE or w % (4 * step) == 0} | {width})


def layer_milliseconds(shape: LayerShape, rounds: int = 7) -> float:
    """CPU milliseconds of one convolution with ReLU on one thread of onnxruntime, the least of several rounds."""
    runtime = require("onnxruntime", "train")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = runtime.InferenceSession(_convolution(shape), options, providers=["CPUExecutionProvider"])
    x = np.zeros(_input_size(shape), np.float32)
    times = []
    for _ in range(rounds + 2):
        start = process_time()
        session.run(None, {"x": x})
        times.append(process_time() - start)
    return 1000 * min(times[2:])


def _input_size(shape: LayerShape) -> tuple[int, int, int, int]:
    return 1, shape.channels_in, shape.height * shape.stride[0], shape.width * shape.stride[1]


def _convolution(shape: LayerShape) -> bytes:
    """An ONNX file with one convolution of ``shape`` and a ReLU."""
    onnx = require("onnx", "train")
    helper, numpy_helper, float32 = onnx.helper, onnx.numpy_helper, onnx.TensorProto.FLOAT
    groups = shape.channels_in if shape.depthwise else shape.groups
    weight = np.full((shape.channels_out, shape.channels_in // groups, *shape.kernel), 0.01, np.float32)
    padding = [d * (k // 2) for k, d in zip(shape.kernel, shape.dilation, strict=True)] * 2
    options = {"strides": list(shape.stride), "pads": padding, "group": groups, "dilations": list(shape.dilation)}
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["y"], **options),
        helper.make_node("Relu", ["y"], ["z"]),
    ]
    graph = helper.make_graph(
        nodes,
        "layer",
        [helper.make_tensor_value_info("x", float32, _input_size(shape))],
        [helper.make_tensor_value_info("z", float32, [1, shape.channels_out, shape.height, shape.width])],
        [numpy_helper.from_array(weight, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    content: bytes = model.SerializeToString()
    return content


def latency_cost(graph: ChannelGraph, size: tuple[int, int], file: Path, progress: Progress = silent) -> Latency:
    """The cost in milliseconds for inputs of ``size`` (height, width); measured once and kept in ``file``."""
    if not file.is_file():
        done = 0

        def measure(shape: LayerShape) -> float:
            nonlocal done
            done += 1
            progress(done, None, "layers measured")
            return layer_milliseconds(shape)

        LatencyTable.measure(graph, size, measure, engine=ENGINE, widths=measured_widths).save(file)
    return Latency(LatencyTable.load(file), size)
