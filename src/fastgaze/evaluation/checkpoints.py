"""Checkpoints as predictors, in torch: DeepGaze II, whose trunk is too large to ship, and any other network.

What ships is exported and runs without torch (``runtime.predictor``). This is for comparisons: the same pictures, the
same working size and the same tail, with the network computed by torch. The members of an ensemble have one trunk; the
density is the mean of theirs.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from fastgaze.core.center_bias import CenterBias, resample_log_density
from fastgaze.core.cost import flops, parameters, prunable_maps
from fastgaze.core.errors import ArgumentError, ModelError, require
from fastgaze.core.files import cache_dir
from fastgaze.core.pictures import Picture
from fastgaze.core.progress import Clock
from fastgaze.core.sizes import Size
from fastgaze.runtime import predictor
from fastgaze.runtime.card import REFERENCE, ModelCard, WorkingSize
from fastgaze.runtime.gazemap import LogDensity
from fastgaze.runtime.predictor import Predictor, View

if TYPE_CHECKING:
    from fastgaze.networks.checkpoint import TrainingRecord
    from fastgaze.networks.ensemble import GazeEnsemble

Array = npt.NDArray[np.float32]

DEEPGAZE2 = "deepgaze2"
_READOUTS = f"{DEEPGAZE2}.safetensors"


def load(
    name: str | os.PathLike[str] | None = None, engine: str = "onnxruntime", threads: int | None = None
) -> Predictor:
    """A model that is ready to predict.

    name: a bundled model (the default one if None), the path of an exported .onnx file, "deepgaze2", or the path of a
        .safetensors checkpoint. The last two need torch, and DeepGaze II needs the file of VGG-19.
    engine: "onnxruntime", "openvino" or "openvino-bf16". threads: of the network, all cores by default.
    """
    if name is None or (str(name) != DEEPGAZE2 and Path(name).suffix != ".safetensors"):
        return predictor.load(name, engine, threads)
    if engine != "onnxruntime":
        raise ArgumentError(f"{name} runs in torch, not in engine {engine!r}; leave the engine out")
    return load_in_torch(find_readouts() if str(name) == DEEPGAZE2 else Path(name), threads)


def find_readouts() -> Path:
    """The file with the readouts of DeepGaze II: in the cache, or in ``checkpoints/`` of the repository."""
    require("torch", "train")
    places = (cache_dir(), Path(__file__).parents[3] / "checkpoints")
    for place in places:
        if (path := place / _READOUTS).is_file():
            return path
    raise ModelError(
        f"no {_READOUTS} in {places[0]}; put it there from checkpoints/ of the repository, or give its path"
    )


def load_in_torch(path: Path, threads: int | None = None) -> Predictor:
    """The network or ensemble of a checkpoint."""
    torch = require("torch", "train")
    require("safetensors", "train")
    from fastgaze.networks.checkpoint import load_checkpoint
    from fastgaze.networks.ensemble import GazeEnsemble
    from fastgaze.networks.gaze import GazeModel

    if threads:
        torch.set_num_threads(threads)
    model, record = load_checkpoint(path)
    ensemble = GazeEnsemble.of([model]) if isinstance(model, GazeModel) else model
    card = _card(path.stem, ensemble, record)
    return TorchPredictor(card, _TorchEngine(ensemble), _members(card, ensemble))


def _card(name: str, ensemble: "GazeEnsemble", record: "TrainingRecord") -> ModelCard:
    """What the ensemble is as a whole; blur and centre bias are means over its members."""
    spec = ensemble.spec if len(ensemble.heads) > 1 else ensemble.spec.member
    sigmas, biases = _tails(ensemble)
    density = np.mean([np.exp(resample_log_density(bias, bias.shape)) for bias in biases], axis=0)
    return ModelCard(
        name=name,
        architecture=spec.architecture,
        parameters=parameters(spec),
        maps=prunable_maps(spec),
        gflop_640x480=flops(spec, REFERENCE) / 1e9,
        sigma=float(np.mean(sigmas)),
        center_bias=np.log(density).astype(np.float32),
        working_size=WorkingSize(record.working_pixels or WorkingSize.pixels, ensemble.stride),
        data=", ".join(record.trained_on),
    )


def _members(card: ModelCard, ensemble: "GazeEnsemble") -> tuple[ModelCard, ...]:
    sigmas, biases = _tails(ensemble)
    return tuple(replace(card, sigma=sigma, center_bias=bias) for sigma, bias in zip(sigmas, biases, strict=True))


def _tails(ensemble: "GazeEnsemble") -> tuple[list[float], list[Array]]:
    """Blur and centre bias of every member."""
    tails = [head.get_submodule("tail") for head in ensemble.heads]
    biases = [one.get_buffer("center_bias").numpy().astype(np.float32) for one in tails]
    return [float(one.get_parameter("log_sigma").detach().exp()) for one in tails], biases


class _TorchEngine:
    """Trunk and readouts: normalised images (1, 3, H, W) -> saliency of all members (1, members, H / 16, W / 16)."""

    def __init__(self, ensemble: "GazeEnsemble") -> None:
        self._ensemble = ensemble

    def __call__(self, images: Array) -> Sequence[Array]:
        import torch

        with torch.inference_mode():
            features = self._ensemble.trunk(torch.from_numpy(images))
            maps = [head.get_submodule("readout")(features) for head in self._ensemble.heads]
            saliency: Array = torch.cat(maps, dim=1).numpy()
        return [saliency]


class TorchPredictor(Predictor):
    """A network or an ensemble of several readouts, computed by torch. members: the card of each."""

    def __init__(self, card: ModelCard, engine: _TorchEngine, members: Sequence[ModelCard]) -> None:
        super().__init__(card, engine)
        self.members = [Predictor(member, engine) for member in members]

    def working_at(self, working_size: WorkingSize) -> "TorchPredictor":
        """The same networks with another working size."""
        assert isinstance(self._engine, _TorchEngine)
        cards = [member.card for member in self.members]
        return TorchPredictor(self.card.with_working_size(working_size), self._engine, cards)

    def _run(self, pixels: Array, picture_size: Size, picture: Picture | None, clock: Clock) -> View:
        with clock("network"):
            maps = self._engine(pixels[None])[0][0]
        if not np.isfinite(maps).all():
            raise ModelError(f"model {self.name} gives NaN or infinity for this picture; its weights are damaged")
        working = (pixels.shape[1], pixels.shape[2])
        views = tuple(
            View(member, saliency, None, working, picture_size)
            for member, saliency in zip(self.members, maps, strict=True)
        )
        return EnsembleView(self, maps.mean(axis=0), None, working, picture_size, picture, clock, views)


@dataclass(frozen=True, eq=False)
class EnsembleView(View):
    """What an ensemble made of one picture; ``saliency`` is the mean of the members' maps."""

    members: tuple[View, ...] = ()

    def _density(self, center_bias: CenterBias) -> LogDensity:
        return _Mean(tuple(view._density(center_bias) for view in self.members))


@dataclass(frozen=True, eq=False)
class _Mean:
    """The mean of several densities."""

    members: tuple[LogDensity, ...]

    def log_density(self, size: Size) -> Array:
        """As ``LogDensity``."""
        log_densities = np.stack([member.log_density(size) for member in self.members])
        highest = log_densities.max(axis=0)
        mean: Array = highest + np.log(np.exp(log_densities - highest).mean(axis=0))
        return mean
