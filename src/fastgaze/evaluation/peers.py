"""Twitter's own FastGaze, the network behind its image cropping, from the .vxm file in which it was published.

The file, little endian: 4 magic bytes, uint32 number of records, then records {uint32 length, key ending in NUL,
uint32 length, value}. Layer i has ``{i}Type`` (0 convolution, 2 max-pooling, 3 blur), weights ``{i}w`` and ``{i}b``
with ``.shape``, and ``{i}Act`` (1 ReLU, 4 PReLU with ``{i}alpha``).
"""

import struct
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from fastgaze.core.center_bias import CenterBias, resample_log_density
from fastgaze.core.errors import ModelError, require
from fastgaze.core.sizes import Size

if TYPE_CHECKING:
    from onnx import NodeProto, TensorProto

MAGIC = b"\x01tPM"
BGR_MEAN = np.array([103.939, 116.779, 123.68], dtype=np.float32)
WIDTH = 640  # of its input; larger is slower and scores higher
STRIDE = 16
_CONVOLUTION, _POOL, _BLUR = 0, 2, 3
_RELU, _PRELU = 1, 4
_PADDING = {"repeated": "edge", "mirrored": "symmetric", "zero": "constant"}
BORDERS = tuple(_PADDING)
"""What may lie beyond the border of the blur, which the file does not say; of these, repeated samples give the scores
nearest to those measured with the original."""


@dataclass(frozen=True, eq=False)
class PeerLayer:
    """One layer: a convolution (weight, bias, slope of its PReLU or None for ReLU), a 2x2 pooling or the blur."""

    kind: int
    weight: NDArray[np.float32]
    bias: NDArray[np.float32]
    slope: NDArray[np.float32] | None
    taps: int = 0
    sigma: float = 0.0


def read_layers(path: Path) -> list[PeerLayer]:
    """The layers of a .vxm file, in order."""
    records = _records(path)
    count = sum(key.removesuffix("Type").isdigit() for key in records if key.endswith("Type"))
    try:
        return [_layer(records, str(i)) for i in range(count)]
    except (KeyError, ValueError, struct.error) as error:
        raise ModelError(f"{path}: a record is missing or damaged ({error}); get the file again") from error


def _records(path: Path) -> dict[str, bytes]:
    content = path.read_bytes()
    if content[:4] != MAGIC:
        raise ModelError(f"{path}: not a .vxm model (it starts with {content[:4]!r}, not {MAGIC!r})")
    records: dict[str, bytes] = {}
    try:
        (count,), offset = struct.unpack_from("<I", content, 4), 8
        for _ in range(count):
            key, offset = _field(content, offset)
            records[key.rstrip(b"\0").decode()], offset = _field(content, offset)
    except struct.error as error:
        raise ModelError(f"{path}: the file ends inside a record; get it again") from error
    return records


def _field(content: bytes, offset: int) -> tuple[bytes, int]:
    (length,) = struct.unpack_from("<I", content, offset)
    return content[offset + 4 : offset + 4 + length], offset + 4 + length


def _layer(records: dict[str, bytes], i: str) -> PeerLayer:
    def number(key: str) -> int:
        return int(struct.unpack("<i", records[i + key])[0])

    def array(key: str) -> NDArray[np.float32]:
        return np.frombuffer(records[i + key], "<f4").reshape(np.frombuffer(records[f"{i}{key}.shape"], "<i4"))

    nothing = np.empty(0, np.float32)
    kind = number("Type")
    if kind == _POOL:
        return PeerLayer(kind, nothing, nothing, None)
    if kind == _BLUR:
        return PeerLayer(kind, nothing, nothing, None, number("KernelSize"), float(number("Std")))
    if kind != _CONVOLUTION or number("Act") not in (_RELU, _PRELU):
        raise ModelError(f"layer {i}: type {kind} is not convolution (0), pooling (2) or blur (3) with ReLU or PReLU")
    return PeerLayer(kind, array("w"), array("b"), array("alpha") if number("Act") == _PRELU else None)


def to_onnx(layers: list[PeerLayer]) -> bytes:
    """The network before the blur as an ONNX file: ``image`` (1, 3, H, W) -> ``saliency`` (1, 1, h, w)."""
    onnx = require("onnx", "train")
    helper, numpy_helper = onnx.helper, onnx.numpy_helper
    nodes: list[NodeProto] = []
    weights: list[TensorProto] = []
    value = "image"
    for i, layer in enumerate(layers):
        if layer.kind == _POOL:
            nodes.append(helper.make_node("MaxPool", [value], [f"x{i}"], kernel_shape=[2, 2], strides=[2, 2]))
        elif layer.kind == _CONVOLUTION:
            pad = layer.weight.shape[2] // 2
            arrays = {f"w{i}": layer.weight, f"b{i}": layer.bias}
            nodes.append(helper.make_node("Conv", [value, *arrays], [f"c{i}"], pads=[pad] * 4))
            if layer.slope is None:
                nodes.append(helper.make_node("Relu", [f"c{i}"], [f"x{i}"]))
            else:
                arrays[f"a{i}"] = layer.slope.reshape(1, 1, 1)
                nodes.append(helper.make_node("PRelu", [f"c{i}", f"a{i}"], [f"x{i}"]))
            weights += [numpy_helper.from_array(array, name) for name, array in arrays.items()]
        else:
            continue
        value = f"x{i}"
    tensor = helper.make_tensor_value_info
    kind = onnx.TensorProto.FLOAT
    graph = helper.make_graph(
        [*nodes, helper.make_node("Identity", [value], ["saliency"])],
        "twitter-fastgaze",
        [tensor("image", kind, [1, 3, "H", "W"])],
        [tensor("saliency", kind, [1, 1, "h", "w"])],
        weights,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    content: bytes = model.SerializeToString()
    return content


@lru_cache(maxsize=16)
def _blur_matrix(n: int, taps: int, sigma: float, border: str) -> NDArray[np.float64]:
    """(n, n): a Gaussian cut to ``taps``; ``border`` says what lies beyond the ends."""
    reach = np.arange(-(taps // 2), taps // 2 + 1)
    kernel = np.exp(-0.5 * (reach / sigma) ** 2)
    padded = np.pad(np.eye(n), ((taps // 2, taps // 2), (0, 0)), mode=_PADDING[border])  # type: ignore[call-overload]
    weights = kernel / kernel.sum()
    return np.asarray(sum(weight * padded[k : k + n] for k, weight in enumerate(weights)))


class TwitterFastGaze:
    """The peer as a model for ``evaluate``: exp of its output is the density; it has no centre bias of its own."""

    def __init__(
        self,
        path: Path,
        width: int | None = WIDTH,
        threads: int = 0,
        border: Literal["repeated", "mirrored", "zero"] = "repeated",
        blurred: bool = True,
    ) -> None:
        """width: images are scaled to it, keeping their shape; None: images are taken as they are given.

        border, blurred: how the blur at the end is read; the file leaves the border open.
        """
        runtime = require("onnxruntime", "data")
        layers = read_layers(path)
        self._blur = next((layer for layer in layers if layer.kind == _BLUR and blurred), None)
        self._border = border
        self._width = width
        options = runtime.SessionOptions()
        options.intra_op_num_threads = threads
        self._session = runtime.InferenceSession(to_onnx(layers), options, providers=["CPUExecutionProvider"])

    def log_density(self, image: NDArray[np.uint8], size: Size, center_bias: CenterBias) -> NDArray[np.float64]:
        """Log density ``size`` (h, w); a centre bias that is an array is added to the network's output."""
        return self.finish(self.network(self.prepare(image)), size, center_bias)

    def finish(self, output: NDArray[np.float32], size: Size, center_bias: CenterBias) -> NDArray[np.float64]:
        """The network's output -> log density ``size``."""
        saliency = resample_log_density(self.blur(output), size)
        if isinstance(center_bias, np.ndarray):
            saliency = resample_log_density(saliency + resample_log_density(center_bias, size), size)
        return saliency

    def saliency(self, image: NDArray[np.uint8]) -> NDArray[np.float64]:
        """The network's output (ceil(H / 16), ceil(W / 16)) for RGB uint8 (H, W, 3), blurred."""
        return self.blur(self.network(self.prepare(image)))

    def prepare(self, image: NDArray[np.uint8]) -> NDArray[np.float32]:
        """RGB uint8 (H, W, 3) -> what the network sees, (1, 3, H', W'), BGR."""
        if self._width is not None and image.shape[1] != self._width:
            height = max(STRIDE, round(image.shape[0] * self._width / image.shape[1]))
            image = np.asarray(Image.fromarray(image).resize((self._width, height), Image.Resampling.BILINEAR))
        pad = [(0, -side % STRIDE) for side in image.shape[:2]]
        pixels = np.pad(image[:, :, ::-1].astype(np.float32) - BGR_MEAN, [*pad, (0, 0)], mode="edge")
        return np.ascontiguousarray(pixels.transpose(2, 0, 1)[None], dtype=np.float32)

    def network(self, pixels: NDArray[np.float32]) -> NDArray[np.float32]:
        """(1, 3, H, W) -> (H / 16, W / 16), before the blur."""
        output: NDArray[np.float32] = self._session.run(None, {"image": pixels})[0][0, 0]
        return output

    def blur(self, output: NDArray[np.float32]) -> NDArray[np.float64]:
        """The file's last layer, on the network's output (h, w)."""
        if self._blur is None:
            return output.astype(np.float64)
        rows, columns = (_blur_matrix(n, self._blur.taps, self._blur.sigma, self._border) for n in output.shape)
        return np.asarray(rows @ output.astype(np.float64) @ columns.T)
