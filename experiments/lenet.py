"""LeNet-5 and the handwritten digits of MNIST, for the LeNet table and figure of the paper.

The network is the one of Caffe's MNIST example: there is no nonlinearity but pooling between the convolutions. Digits
are read from the four original files (IDX, gzip or plain).
"""

import gzip
import json
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from fastgaze.core.errors import DataError, ModelError
from fastgaze.core.files import replacing

Widths = tuple[int, int, int, int]
WIDTHS: Widths = (20, 50, 500, 10)  # maps of conv1 and conv2, units of fc1, classes
VALIDATION = 7_000  # of the 60,000 training digits, as in the paper
FORMAT = "lenet-5"
_TYPES: dict[int, np.dtype[np.generic]] = {
    0x08: np.dtype("u1"),
    0x09: np.dtype("i1"),
    0x0B: np.dtype(">i2"),
    0x0C: np.dtype(">i4"),
}


class LeNet5(nn.Module):
    """conv 5x5, pool, conv 5x5, pool, linear, ReLU, linear: digits (N, 1, 28, 28) -> class scores (N, classes)."""

    def __init__(self, widths: Widths = WIDTHS) -> None:
        super().__init__()
        conv1, conv2, fc1, classes = widths
        self.conv1 = nn.Conv2d(1, conv1, 5)
        self.pool1 = nn.MaxPool2d(2)
        self.conv2 = nn.Conv2d(conv1, conv2, 5)
        self.pool2 = nn.MaxPool2d(2)
        self.flatten = nn.Flatten()
        self.fc1 = nn.Linear(conv2 * 4 * 4, fc1)
        self.relu = nn.ReLU()
        self.fc2 = nn.Linear(fc1, classes)

    @property
    def widths(self) -> Widths:
        """The widths that the layers have now, after any pruning."""
        return self.conv1.out_channels, self.conv2.out_channels, self.fc1.out_features, self.fc2.out_features

    def forward(self, digits: Tensor) -> Tensor:
        """digits (N, 1, 28, 28) in 0..1 -> scores (N, classes) before the softmax."""
        x = self.pool1(self.conv1(digits))  # (N, 20, 12, 12)
        x = self.pool2(self.conv2(x))  # (N, 50, 4, 4)
        scores: Tensor = self.fc2(self.relu(self.fc1(self.flatten(x))))
        return scores


def lenet_flops(widths: Widths = WIDTHS) -> int:
    """FLOPs for one digit by the paper's formula, H W Cout (2 Cin K^2 + 1)."""
    conv1, conv2, fc1, classes = widths
    convolutions = 24 * 24 * conv1 * (2 * 25 + 1) + 8 * 8 * conv2 * (2 * conv1 * 25 + 1)
    return convolutions + fc1 * (2 * conv2 * 4 * 4 + 1) + classes * (2 * fc1 + 1)


def save_lenet(net: LeNet5, path: Path, facts: dict[str, float] | None = None) -> None:
    """Write the weights, with widths and ``facts`` as JSON in the metadata."""
    metadata = {"format": FORMAT, "widths": json.dumps(net.widths), "facts": json.dumps(facts or {})}
    tensors = {name: tensor.detach().contiguous().clone() for name, tensor in net.state_dict().items()}
    with replacing(path) as part:
        save_file(tensors, part, metadata)


def is_lenet(path: Path) -> bool:
    """Whether ``save_lenet`` wrote the safetensors file at ``path``."""
    with safe_open(path, framework="pt") as file:
        return (file.metadata() or {}).get("format") == FORMAT


def load_lenet(path: Path) -> tuple[LeNet5, dict[str, float]]:
    """The network in evaluation mode, and the facts that were saved with it."""
    if not is_lenet(path):
        raise ModelError(f"{path} holds no LeNet-5; run experiments.lenet_mnist again, which trains one")
    with safe_open(path, framework="pt") as file:
        metadata = file.metadata()
        net = LeNet5(tuple(json.loads(metadata["widths"])))
        net.load_state_dict({name: file.get_tensor(name) for name in file.keys()})  # noqa: SIM118 (not a dict)
    return net.eval(), json.loads(metadata["facts"])


@dataclass(frozen=True)
class Digits:
    """images uint8 (N, 28, 28), 0 is background; labels int64 (N,), 0 to 9."""

    images: NDArray[np.uint8]
    labels: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True)
class MNIST:
    """53,000 digits to train on, 7,000 to validate, 10,000 to test."""

    train: Digits
    validation: Digits
    test: Digits


def load_mnist(folder: Path, seed: int = 0) -> MNIST:
    """Read the four files in ``folder``; ``seed`` chooses the 7,000 validation digits among the 60,000."""
    known = _digits(folder, "train")
    order = np.random.default_rng(seed).permutation(len(known))
    held_out = min(VALIDATION, len(known) // 2)
    parts = [Digits(known.images[k], known.labels[k]) for k in (order[held_out:], order[:held_out])]
    return MNIST(parts[0], parts[1], _digits(folder, "t10k"))


def _digits(folder: Path, part: str) -> Digits:
    images = read_idx(_find(folder, f"{part}-images-idx3-ubyte"))
    labels = read_idx(_find(folder, f"{part}-labels-idx1-ubyte"))
    if images.ndim != 3 or labels.shape != images.shape[:1]:
        raise DataError(
            f"{folder}: {part} has images {images.shape} and labels {labels.shape}; each image needs one label"
        )
    return Digits(images.astype(np.uint8, copy=False), labels.astype(np.int64))


def _find(folder: Path, name: str) -> Path:
    for path in (folder / f"{name}.gz", folder / name):
        if path.is_file():
            return path
    raise DataError(f"{folder}: no {name}.gz and no {name}; put the four MNIST files there")


def read_idx(path: Path) -> NDArray[np.generic]:
    """An array from an IDX file: two zero bytes, type, number of dimensions, big-endian sizes, values."""
    try:
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(f"{path}: damaged gzip file ({error}); fetch it again") from error
    if len(content) < 4 or content[:2] != b"\0\0" or content[2] not in _TYPES:
        raise DataError(f"{path}: not an IDX file of integers; expected the original MNIST files")
    dtype, start = _TYPES[content[2]], 4 + 4 * content[3]
    shape = tuple(int(n) for n in np.frombuffer(content[4:start], ">u4"))
    if len(content) != start + int(np.prod(shape)) * dtype.itemsize:
        raise DataError(f"{path}: {len(content)} bytes do not hold an array {shape}; the file is truncated")
    values: NDArray[np.generic] = np.frombuffer(content, dtype, offset=start)
    return values.reshape(shape)
