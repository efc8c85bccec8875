"""A network's graph in 8 bits: static quantisation by onnxruntime."""

import logging
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from fastgaze.core.errors import require

if TYPE_CHECKING:
    from onnx import ModelProto

Array = npt.NDArray[np.float32]


def quantised(graph: "ModelProto", samples: Sequence[Array]) -> "ModelProto":
    """Static QDQ quantisation, weights by channel.

    The readout, 0.1% of the arithmetic, stays in fp32, and so do the first layers, where 8 bits take longer.
    """
    onnx = require("onnx", "train")
    from onnxruntime import quantization

    readout = [node.name for node in graph.graph.node if "readout" in node.name]
    with tempfile.TemporaryDirectory() as folder, quiet():
        source, target = Path(folder) / "fp32.onnx", Path(folder) / "int8.onnx"
        onnx.save(graph, source)
        quantization.quantize_static(
            source,
            target,
            _Reader(samples),
            quant_format=quantization.QuantFormat.QDQ,
            per_channel=True,
            activation_type=quantization.QuantType.QUInt8,
            weight_type=quantization.QuantType.QInt8,
            # Weights of 7 bits: CPUs without VNNI add two products in 16 bits, which 8 bits overflow silently.
            reduce_range=True,
            nodes_to_exclude=readout + _first_layers(graph),
        )
        quantised: ModelProto = onnx.load(target)
        return quantised


def _first_layers(graph: "ModelProto") -> list[str]:
    """Names of the nodes from the picture up to the convolution that 8 bits begin with, which is not among them.

    A convolution of three maps, and a depthwise one at that size, take onnxruntime twice as long in 8 bits as in fp32.
    The 1x1 convolution behind a depthwise one does not, but it halves the maps that have to leave the layout of fp32.
    """
    weights = {tensor.name: tensor.dims for tensor in graph.graph.initializer}
    names, before = list[str](), 0  # before: maps that each map of the convolution before reads
    for node in graph.graph.node:
        if node.op_type == "Conv":
            reads, *kernel = weights[node.input[1]][1:]
            if names and reads != 1 and not (before == 1 and kernel == [1, 1]):
                break
            before = reads
        names.append(node.name)
    return names


class _Reader:
    """Hands the calibration images to onnxruntime, one per call, then None."""

    def __init__(self, samples: Sequence[Array]) -> None:
        self._samples = iter(samples)

    def get_next(self) -> dict[str, Array] | None:
        sample = next(self._samples, None)
        return None if sample is None else {"image": sample[None]}


@contextmanager
def quiet() -> Iterator[None]:
    """No deprecation notices from the exporter and no advice from the quantiser: checks of the result judge it."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
