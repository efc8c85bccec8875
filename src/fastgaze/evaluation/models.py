"""Models of every kind as the one thing that ``evaluate`` takes: an object with ``log_density``."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastgaze.core.center_bias import CenterBias
from fastgaze.core.errors import ArgumentError, ModelError, require
from fastgaze.core.sizes import Size, format_size
from fastgaze.evaluation.checkpoints import load
from fastgaze.evaluation.evaluate import LogDensityModel
from fastgaze.runtime.card import IMAGENET_MEAN, IMAGENET_STD
from fastgaze.runtime.predictor import Predictor
from fastgaze.runtime.resize import prepare

_MEAN, _SPREAD = np.array(IMAGENET_MEAN, np.float32), np.array(IMAGENET_STD, np.float32)
_SUFFIXES = (".safetensors", ".onnx", ".vxm")


def open_model(sources: Sequence[str], resized: bool = False, threads: int | None = None) -> LogDensityModel:
    """A bundled name, an exported .onnx, a checkpoint .safetensors, a peer .vxm, or several of them as an ensemble.

    "deepgaze2" is the teacher, as ``fastgaze.load`` finds it. A folder stands for all models in it.
    resized: images come at the size at which the model is to work; otherwise .onnx and .vxm models choose it.
    """
    expanded = [member for source in sources for member in _expand(source)]
    if not expanded:
        raise ArgumentError("no model was given; name a bundled one or give .onnx, .safetensors or .vxm files")
    members = [_open(source, resized, threads) for source in expanded]
    return members[0] if len(members) == 1 else Ensemble(members)


def _expand(source: str) -> list[str]:
    path = Path(source)
    if not path.is_dir():
        return [source]
    found = sorted(str(p) for p in path.iterdir() if p.suffix in _SUFFIXES and not p.name.startswith("."))
    if not found:
        raise ModelError(f"no {', '.join(_SUFFIXES)} file in {source}; give a folder of models or one model")
    return found


def _open(source: str, resized: bool, threads: int | None) -> LogDensityModel:
    path = Path(source)
    if path.suffix in _SUFFIXES and not path.is_file():
        raise ModelError(f"no model file at {source}")
    if path.suffix == ".safetensors":
        return CheckpointModel(path, threads)
    if path.suffix == ".vxm":
        from fastgaze.evaluation.peers import WIDTH, TwitterFastGaze

        return TwitterFastGaze(path, None if resized else WIDTH, threads or 0)
    return RuntimeModel(load(source, threads=threads), resized)


class RuntimeModel:
    """What ships: a bundled or exported ONNX model."""

    def __init__(self, predictor: Predictor, resized: bool = False) -> None:
        self._predictor = predictor
        self._resized = resized

    def log_density(self, image: NDArray[np.uint8], size: Size, center_bias: CenterBias) -> NDArray[np.floating]:
        """As ``LogDensityModel``; at the predictor's own working size unless images come resized."""
        if not self._resized:
            return self._predictor.predict(image, size=size, center_bias=center_bias).log_density
        working, card = (image.shape[0], image.shape[1]), self._predictor.card
        if any(side % card.working_size.stride for side in working):
            raise ArgumentError(
                f"size {format_size(working)}: {card.name} works at multiples of {card.working_size.stride}"
            )
        view = self._predictor.see(prepare(image, working, card))
        return view.at(size, center_bias).log_density


class CheckpointModel:
    """A network in torch, from a checkpoint; it works at the size of the image that it is given."""

    def __init__(self, path: Path, threads: int | None = None) -> None:
        self._torch = require("torch", "train")
        from fastgaze.networks.checkpoint import load_checkpoint

        model, _ = load_checkpoint(path)
        if threads:
            self._torch.set_num_threads(threads)
        self._model = model.eval()

    @property
    def stride(self) -> int:
        """What both sides of an image should be multiples of; others are padded."""
        return self._model.stride

    def log_density(self, image: NDArray[np.uint8], size: Size, center_bias: CenterBias) -> NDArray[np.floating]:
        """As ``LogDensityModel``; the tail goes from the working size to ``size`` in one step, as in the runtime."""
        pixels = ((image.astype(np.float32) / 255 - _MEAN) / _SPREAD).transpose(2, 0, 1)[None]
        with self._torch.inference_mode():
            batch = self._torch.from_numpy(np.ascontiguousarray(pixels))
            output = self._model(batch, size=size, center_bias=self._bias(center_bias))[0]
        return np.asarray(output.double().numpy())

    def _bias(self, center_bias: CenterBias) -> Any:
        if isinstance(center_bias, np.ndarray):
            return self._torch.from_numpy(center_bias.astype(np.float32))
        return self._torch.zeros(1, 1) if center_bias is None else None


class Ensemble:
    """Several models as one: the mean of their densities."""

    def __init__(self, members: Sequence[LogDensityModel]) -> None:
        self._members = members

    def log_density(self, image: NDArray[np.uint8], size: Size, center_bias: CenterBias) -> NDArray[np.floating]:
        """As ``LogDensityModel``."""
        densities = [np.exp(m.log_density(image, size, center_bias), dtype=np.float64) for m in self._members]
        with np.errstate(divide="ignore"):  # a pixel that no member gives any mass
            mean: NDArray[np.floating] = np.log(np.mean(densities, axis=0))
        return mean
