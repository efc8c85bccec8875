"""A user's own fixations: fine-tune a checkpoint on them, or train a student from a backbone; prune it on the way.

No teacher and no large set are needed. Images keep their shapes: those of one working size share batches. The model's
centre bias becomes that of the data, since it belongs to the viewers and their task, not to the network.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from fastgaze.core.center_bias import resample_log_density
from fastgaze.core.cost import flops
from fastgaze.core.errors import ArgumentError, DataError
from fastgaze.core.jsonable import Json
from fastgaze.core.progress import Progress, silent
from fastgaze.core.sizes import Size
from fastgaze.core.spec import STRIDE, spec_on
from fastgaze.data.fixations import FixationSet, held_out
from fastgaze.networks.backbones import load_backbone
from fastgaze.networks.checkpoint import BackboneRecord, TrainingRecord, load_gaze_model
from fastgaze.networks.factory import create_model
from fastgaze.networks.gaze import GazeModel
from fastgaze.onnx.read import reopen
from fastgaze.runtime.card import WorkingSize
from fastgaze.runtime.zoo import read_model
from fastgaze.training.config import PruneSettings
from fastgaze.training.datasets import PreparedSet, by_size, dataset_center_bias, normalise, prepare, shared_sizes
from fastgaze.training.fit import FitSettings, device, validate
from fastgaze.training.prune import REFERENCE, prune_while_training
from fastgaze.training.runs import Facts, claim, write_json
from fastgaze.training.stream import Source, fixation_source, weighted
from fastgaze.training.student import fit_network


@dataclass(frozen=True)
class Start:
    """Where a run begins: a network, or an architecture with the weights of a pretrained backbone.

    network: a checkpoint (.safetensors), an exported .onnx file, or the name of a bundled model.
    """

    network: str | None = None
    architecture: str = "fastgaze"
    backbone: str = "vgg16"


@dataclass(frozen=True)
class OwnSettings:
    """How to train on one data set.

    size: (height, width) whose area every image is scaled to, each at its own shape.
    validation_share: of the images, by a hash of the name; 0.1 are those of ``fastgaze evaluate --held-out``.
    prune_to: GFLOP at 640x480 to prune down to before the fit; 0 for no pruning.
    """

    size: Size = (240, 320)
    validation_share: float = 0.1
    prune_to: float = 0.0
    fit: FitSettings = field(default_factory=lambda: FitSettings(steps=2000, learning_rate=2e-4, average=0.98))


@dataclass(frozen=True)
class OwnData:
    """Training and validation images, one prepared set for each working size; the centre bias is the training's."""

    training: list[PreparedSet]
    validation: list[PreparedSet]
    center_bias: NDArray[np.float32]

    @property
    def images(self) -> int:
        """Images to train on."""
        return sum(map(len, self.training))

    @property
    def validation_images(self) -> int:
        """Images to stop on."""
        return sum(map(len, self.validation))


@dataclass(frozen=True)
class OwnResult:
    """Validation losses in nats per fixation on the loss grid: of the best step, of the start, of the centre bias."""

    checkpoint: Path
    best_step: int
    loss: float
    start_loss: float
    center_bias_loss: float
    images: int
    validation_images: int
    gflop: float


def train_own(
    data: FixationSet,
    name: str,
    start: Start,
    settings: OwnSettings,
    folder: Path,
    progress: Progress = silent,
) -> OwnResult:
    """Train on ``data``; ``folder/best.safetensors`` is the best network so far. Started again, the run continues.

    name: of the data, for the record.
    """
    data = data.subset([i for i in range(len(data)) if data.inside(i).any()])
    claim(folder, _facts(_digest(data), start, settings), {"fit": asdict(FitSettings())})
    model, earlier = _begin(start)
    own = prepare_own(data, settings, folder / "cache", model.stride)
    backbone = _adapt(model, start, own)
    _check_goal(model, settings.prune_to)
    record = _record(model, earlier, name, own, settings)
    record = record if backbone is None else replace(record, backbone=backbone)
    validation = [fixation_source(part) for part in own.validation]
    sources = weighted([fixation_source(part) for part in own.training], 1.0)
    before, flat = validate(model, validation, settings.fit.precision), center_bias_loss(validation)
    if settings.prune_to:
        model, record = _prune(model, sources, settings, folder / "pruned", record, progress)
    fitted = fit_network(model, sources, validation, settings.fit, folder, record, progress)
    result = OwnResult(
        folder / "best.safetensors",
        fitted.best_step,
        fitted.best_loss,
        before,
        flat,
        own.images,
        own.validation_images,
        flops(model.spec, REFERENCE) / 1e9,
    )
    write_json(folder / "result.json", asdict(result) | {"checkpoint": str(result.checkpoint)})
    return result


def prepare_own(data: FixationSet, settings: OwnSettings, cache: Path, stride: int = STRIDE) -> OwnData:
    """Split by the hash of the name, decode every image at its working size, fit the training images' centre bias.

    stride: of the network, of which the sides of working sizes are multiples.
    """
    held = held_out(data.names, settings.validation_share)
    if held.all() or not held.any():
        raise DataError(
            f"of {len(data)} images with fixations, a validation share of {settings.validation_share:g} keeps "
            f"{int(held.sum())}; some must be left for training and for validation: give another share or more images"
        )
    bias = dataset_center_bias(data.subset(~held))
    working = WorkingSize(pixels=settings.size[0] * settings.size[1], stride=stride)
    sizes = shared_sizes([working(data.size(i)) for i in range(len(data))], settings.fit.batch)

    def parts(chosen: NDArray[np.bool_], role: str) -> list[PreparedSet]:
        made = []
        for size, indices in by_size(sizes, chosen):
            subset = data.subset(indices)
            made.append(replace(prepare(subset, f"{role}-{_digest(subset)}", size, cache), center_bias=bias))
        return made

    return OwnData(parts(~held, "training"), parts(held, "validation"), bias)


def center_bias_loss(sources: Sequence[Source]) -> float:
    """Mean cross-entropy of the centre bias alone, nats per fixation: a network above it has learned nothing."""
    losses = [-(one.targets * resample_log_density(one.center_bias, one.grid)).sum((1, 2)) for one in sources]
    return float(np.concatenate(losses).mean())


def _begin(start: Start) -> tuple[GazeModel, TrainingRecord | None]:
    """The network that training begins with and its record; a new one has none."""
    if start.network is None:
        torch.manual_seed(0)
        model = create_model(start.architecture, spec_on(start.architecture, start.backbone))
        assert isinstance(model, GazeModel)  # only checkpoints hold ensembles
        return model, None
    return load_gaze_model(start.network) if start.network.endswith(".safetensors") else reopen(start.network)


def _adapt(model: GazeModel, start: Start, own: OwnData) -> BackboneRecord | None:
    """Give the network the data's centre bias and, if it is new, the weights of its backbone."""
    backbone = None
    if start.network is None:
        backbone = load_backbone(model.trunk, start.backbone, normalise(own.training[0].images[:8]))
    model.tail.center_bias.copy_(torch.from_numpy(own.center_bias))
    model.to(device())
    return backbone


def _record(
    model: GazeModel,
    start: TrainingRecord | None,
    name: str,
    own: OwnData,
    settings: OwnSettings,
) -> TrainingRecord:
    return TrainingRecord(
        "finetune",
        model.spec.architecture,
        settings.size[0] * settings.size[1],
        (name,),
        start=start,
        backbone=None if start is None else start.backbone,
        precision=settings.fit.precision,
        seed=settings.fit.seed,
        details={"images": own.images, "fit": asdict(settings.fit)},
    )


def _check_goal(model: GazeModel, prune_to: float) -> None:
    if (gflop := flops(model.spec, REFERENCE) / 1e9) <= prune_to:
        raise ArgumentError(f"the network already costs {gflop:.3g} GFLOP at 640x480; prune to less than that")


def _prune(
    model: GazeModel,
    sources: Sequence[Source],
    settings: OwnSettings,
    folder: Path,
    record: TrainingRecord,
    progress: Progress,
) -> tuple[GazeModel, TrainingRecord]:
    """``model`` pruned while it trains, or the network that an earlier start of this run had pruned."""
    done = folder / "last.safetensors"
    if not done.is_file():
        how = PruneSettings((settings.prune_to,), steps=6, share=0.06, optimizer="adam", learning_rate=5e-5)
        prune_while_training(model, sources, replace(how, batch=settings.fit.batch), folder, record, progress=progress)
    pruned, its_record = load_gaze_model(done)
    return pruned, replace(record, pruning=its_record.pruning)


def _facts(data: str, start: Start, settings: OwnSettings) -> Facts:
    """What a run is made from; ``data`` is the digest of its images and fixations."""
    origin: Json = [start.architecture, start.backbone]
    if start.network is not None:
        origin = hashlib.sha256(_content(start.network)).hexdigest()
    return {"data": data, "start": origin} | asdict(settings)


def _content(network: str) -> bytes:
    if not network.endswith(".safetensors"):
        return read_model(Path(network))[1]
    try:
        return Path(network).read_bytes()
    except OSError as error:
        raise ArgumentError(f"cannot read the checkpoint {network}: {error.strerror or error}") from error


def _digest(data: FixationSet) -> str:
    """Changes with the images' files, names and sizes and with the fixations."""
    digest = hashlib.sha256()
    for path, name in zip(data.paths, data.names, strict=True):
        try:
            facts = path.stat()
        except OSError as error:
            raise DataError(f"no image at {path}; `fastgaze data check` lists all that are missing") from error
        digest.update(f"{name}\0{facts.st_size}\0{facts.st_mtime_ns}\0".encode())
    for array in (data.sizes, data.start, data.x, data.y):
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()[:16]
