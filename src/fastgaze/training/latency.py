"""Milliseconds of single layers in the shipping engine: the table behind pruning by latency."""

from collections.abc import Callable
from pathlib import Path
from time import process_time

import numpy as np

from fastgaze.errors import require
from fastgaze.pruning import ChannelGraph, Latency, LatencyTable, LayerShape
from fastgaze.pruning.latency import stair_widths

ENGINE = "onnxruntime, fp32, one thread"
COARSE = 128  # channels from which only every fourth stair is measured


def measured_widths(width: int, step: int) -> list[int]:
    """Every stair up to 128 channels, every fourth beyond: wide layers lose maps long before a stair matters."""
    return sorted({w for w in stair_widths(width, step) if w <= COARSE or w % (4 * step) == 0} | {width})


def layer_milliseconds(shape: LayerShape, rounds: int = 7) -> float:
    """CPU milliseconds of one convolution with ReLU on one thread of onnxruntime, the least of several rounds."""
    runtime = require("onnxruntime", "train")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = runtime.InferenceSession(_convolution(shape), options, providers=["CPUExecutionProvider"])
    height, width = (n * s for n, s in zip((shape.height, shape.width), shape.stride, strict=True))
    x = np.zeros((1, shape.channels_in, height, width), np.float32)
    times = []
    for _ in range(rounds + 2):
        start = process_time()
        session.run(None, {"x": x})
        times.append(process_time() - start)
    return 1000 * min(times[2:])


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
    size = [1, shape.channels_in, *(n * s for n, s in zip((shape.height, shape.width), shape.stride, strict=True))]
    graph = helper.make_graph(
        nodes,
        "layer",
        [helper.make_tensor_value_info("x", float32, size)],
        [helper.make_tensor_value_info("z", float32, [1, shape.channels_out, shape.height, shape.width])],
        [numpy_helper.from_array(weight, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    content: bytes = model.SerializeToString()
    return content


def latency_cost(
    graph: ChannelGraph, size: tuple[int, int], file: Path, report: Callable[[int], None] | None = None
) -> Latency:
    """The cost in milliseconds for inputs of ``size`` (height, width); measured once and kept in ``file``."""
    if not file.is_file():
        done = 0

        def measure(shape: LayerShape) -> float:
            nonlocal done
            done += 1
            if report:
                report(done)
            return layer_milliseconds(shape)

        LatencyTable.measure(graph, size, measure, engine=ENGINE, widths=measured_widths).save(file)
    return Latency(LatencyTable.load(file), size)
