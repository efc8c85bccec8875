"""Where a cut would hurt: how likely each part of a picture belongs to a head, from crown to chin.

People look at eyes and mouth, so attention alone never sees the hair, and of two windows that keep the same attention
one may clip a crown. A network of 18,000 parameters looks at a grey thumbnail and says, cell by cell, how likely a head
is there. Its only use is to choose among windows that keep nearly the same attention: it draws no boxes, counts nobody
and tells nobody apart. ``python -m experiments.crops fit`` makes it.

    x = 4 (luminance - 0.45)                                  thumbnail (1, 4 h, 4 w), 16 h w = 12,288 cells
    5x5, stride 2 | 3x3, stride 2 | 3x3 | 3x3, dilation 2 | 3x3, dilation 4 | 1x1, logistic         -> (h, w)
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files

import numpy as np
import numpy.typing as npt
from PIL import Image

from fastgaze.core.pictures import Picture
from fastgaze.core.sizes import Size

Array = npt.NDArray[np.float32]

CELLS = 96 * 128
"""Of a thumbnail, whatever the shape of the picture: heads of less than a twelfth of its height are not looked for."""
STRIDE = 4
# (stride, dilation) of every layer; kernels are square and padded, so that strides alone change the size.
_LAYERS = ((2, 1), (2, 1), (1, 1), (1, 2), (1, 4), (1, 1))
_MEAN, _GAIN = 0.45, 4.0
_WEIGHTS = "headroom.npz"


@dataclass(frozen=True, eq=False)
class Layer:
    """One convolution: weight (outputs, inputs, k, k) and bias (outputs,)."""

    weight: Array
    bias: Array
    stride: int
    dilation: int


def head_map(picture: Picture) -> Array:
    """How likely each cell of a picture belongs to a head, float32 (h, w), 0..1; h * w is about 768."""
    return run(thumbnail(picture), layers())


def thumbnail(picture: Picture) -> Array:
    """Luminance, float32 (4 h, 4 w), 0..1."""
    height, width = _thumbnail_size(picture.size)
    grey = picture.rgb(at_least=(height, width)).convert("L")
    small = grey.resize((width, height), Image.Resampling.BILINEAR, reducing_gap=2.0)
    return np.asarray(small, dtype=np.float32) / np.float32(255)


def _thumbnail_size(size: Size) -> Size:
    """(height, width) of ``CELLS`` cells in the shape of ``size``, multiples of the stride."""
    across = math.sqrt(CELLS * size[1] / size[0]) / STRIDE
    columns = min(max(round(across), 1), CELLS // STRIDE**2)
    return STRIDE * max(round(CELLS / STRIDE**2 / columns), 1), STRIDE * columns


def run(luminance: Array, network: tuple[Layer, ...]) -> Array:
    """luminance (4 h, 4 w), 0..1 -> probabilities (h, w)."""
    maps = ((luminance - np.float32(_MEAN)) * np.float32(_GAIN))[None]
    for layer in network[:-1]:
        maps = np.maximum(convolve(maps, layer), 0)
    logits = convolve(maps, network[-1])[0]
    probability: Array = (1 / (1 + np.exp(-logits))).astype(np.float32)
    return probability


def convolve(maps: Array, layer: Layer) -> Array:
    """maps (inputs, h, w) -> (outputs, h / stride, w / stride): one product of the weights with shifted copies."""
    outputs, inputs, kernel, _ = layer.weight.shape
    margin = layer.dilation * (kernel // 2)
    padded = np.pad(maps, ((0, 0), (margin, margin), (margin, margin)))
    height, width = (-(-length // layer.stride) for length in maps.shape[1:])
    taps = np.empty((inputs, kernel, kernel, height, width), np.float32)
    for row in range(kernel):
        for column in range(kernel):
            top, left = row * layer.dilation, column * layer.dilation
            taps[:, row, column] = padded[
                :,
                top : top + layer.stride * (height - 1) + 1 : layer.stride,
                left : left + layer.stride * (width - 1) + 1 : layer.stride,
            ]
    product = layer.weight.reshape(outputs, -1) @ taps.reshape(-1, height * width)
    product += layer.bias[:, None]
    return product.reshape(outputs, height, width)


@lru_cache(maxsize=1)
def layers() -> tuple[Layer, ...]:
    """The network, from the file that comes with the package."""
    with (files("fastgaze.runtime") / "bundled" / _WEIGHTS).open("rb") as file:
        arrays = np.load(file, allow_pickle=False)
        return from_arrays([arrays[name].astype(np.float32) for name in sorted(arrays.files)])


def from_arrays(arrays: list[Array]) -> tuple[Layer, ...]:
    """weight, bias, weight, bias, ... -> layers."""
    pairs = zip(arrays[::2], arrays[1::2], _LAYERS, strict=True)
    return tuple(Layer(weight, bias, stride, dilation) for weight, bias, (stride, dilation) in pairs)
