"""A user's own fixations: fine-tune a checkpoint on them, or train a student from a backbone; prune it on the way.

No teacher and no large set are needed. Images keep their shapes: those of one working size share batches. The model's
centre bias becomes that of the data, since it belongs to the viewers and their task, not to the network.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from math import log
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fastgaze.core.center_bias import resample_log_density
from fastgaze.core.cost import flops
from fastgaze.core.errors import ArgumentError, DataError
from fastgaze.core.sizes import Size
from fastgaze.data.fixations import FixationSet, held_out
from fastgaze.networks.backbones import load_backbone
from fastgaze.networks.checkpoint import load_checkpoint, save_checkpoint
from fastgaze.networks.factory import Model, create_model
from fastgaze.networks.gaze import GazeModel
from fastgaze.onnx.read import reopen
from fastgaze.pruning import Removal
from fastgaze.runtime.card import WorkingSize
from fastgaze.runtime.zoo import read_model
from fastgaze.training.datasets import PreparedSet, dataset_center_bias, normalise, prepare, write_json
from fastgaze.training.fit import Fit, FitSettings, Report, device, validate
from fastgaze.training.prune import REFERENCE, PruneSettings, prune_while_training
from fastgaze.training.stream import Source, fixation_source
from fastgaze.training.workshop import weighted

Say = Callable[[str], None]
MOST_SQUEEZE = 1.2  # a rare shape joins a common one if no side changes by more than this factor


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
    say: Say,
    report: Report | None = None,
    on_removal: Callable[[Removal], None] | None = None,
) -> OwnResult:
    """Train on ``data``; ``folder/best.safetensors`` is the best network so far. Started again, the run goes on.

    name: of the data, for the record.
    """
    data = data.subset([i for i in range(len(data)) if data.inside(i).any()])
    facts = _run_facts(folder, data, start, settings)
    own = prepare_own(data, settings, folder / "cache")
    validation = [fixation_source(part) for part in own.validation]
    model, record = _begin(start, own)
    _check_goal(model, settings.prune_to)
    write_json(folder / "run.json", facts)
    precision = settings.fit.precision
    before, flat = validate(model, validation, precision), center_bias_loss(validation)
    counts = sum(map(len, own.training)), sum(map(len, own.validation))
    say(f"{counts[0]} images to train on, {counts[1]} to validate, {len(own.training)} working sizes")
    say(f"validation loss at the start {before:.4f}, of the centre bias alone {flat:.4f}")
    record |= {"data": name, "images": counts[0], "working_pixels": settings.size[0] * settings.size[1]}
    sources = weighted([fixation_source(part) for part in own.training], 1.0)
    if settings.prune_to:
        model = _prune(model, sources, settings, folder / "pruned", record, on_removal)
        record |= {"pruned_to": settings.prune_to}

    def save_best(_: torch.nn.Module, facts: dict[str, Any]) -> None:
        save_checkpoint(model, folder / "best.safetensors", record | {"fit": facts})

    fitted = Fit(model, sources, validation, settings.fit, folder, save_best).run(report)
    gflop = flops(model.spec, REFERENCE) / 1e9
    best = folder / "best.safetensors"
    result = OwnResult(best, fitted.best_step, fitted.best_loss, before, flat, *counts, gflop)
    write_json(folder / "result.json", asdict(result) | {"checkpoint": str(best)})
    return result


def prepare_own(data: FixationSet, settings: OwnSettings, cache: Path) -> OwnData:
    """Split by the hash of the name, decode every image at its working size, fit the training images' centre bias."""
    held = held_out(data.names, settings.validation_share)
    if held.all() or not held.any():
        raise DataError(
            f"of {len(data)} images with fixations, a validation share of {settings.validation_share:g} keeps "
            f"{int(held.sum())}; some must be left for training and for validation: give another share or more images"
        )
    bias = dataset_center_bias(data.subset(~held))
    working = WorkingSize(pixels=settings.size[0] * settings.size[1])
    sizes = shared_sizes([working(data.size(i)) for i in range(len(data))], settings.fit.batch)

    def parts(chosen: NDArray[np.bool_], role: str) -> list[PreparedSet]:
        made = []
        for size in sorted(set(sizes)):
            indices = np.flatnonzero(chosen & np.array([s == size for s in sizes]))
            if len(indices):
                subset = data.subset(indices)
                made.append(replace(prepare(subset, f"{role}-{_digest(subset)}", size, cache), center_bias=bias))
        return made

    return OwnData(parts(~held, "training"), parts(held, "validation"), bias)


def shared_sizes(sizes: Sequence[Size], least: int) -> list[Size]:
    """The working size of every image; one that fewer than ``least`` images have gives way to a similar common one.

    Otherwise a batch of a rare shape would hold the same few images several times.
    """
    common = [size for size, count in Counter(sizes).items() if count >= least]

    def misfit(size: Size, other: Size) -> float:
        return max(abs(log(a / b)) for a, b in zip(size, other, strict=True))

    def settle(size: Size) -> Size:
        best = min(common, key=lambda other: misfit(size, other), default=size)
        return best if misfit(size, best) <= log(MOST_SQUEEZE) else size

    return [size if size in common else settle(size) for size in sizes]


def center_bias_loss(sources: Sequence[Source]) -> float:
    """Mean cross-entropy of the centre bias alone, nats per fixation: a network above it has learned nothing."""
    losses = [-(one.targets * resample_log_density(one.center_bias, one.grid)).sum((1, 2)) for one in sources]
    return float(np.concatenate(losses).mean())


def _begin(start: Start, own: OwnData) -> tuple[GazeModel, dict[str, Any]]:
    """The network with the data's centre bias, and where it came from."""
    model: Model
    if start.network is not None:
        checkpoint = start.network.endswith(".safetensors")
        model, earlier = load_checkpoint(start.network) if checkpoint else reopen(start.network)
        record = {"start": earlier}
    else:
        torch.manual_seed(0)
        model, record = create_model(start.architecture), {}
    if not isinstance(model, GazeModel):
        raise ArgumentError(
            f"{start.network or start.architecture}: a {model.spec.architecture} cannot be trained on fixations; "
            "give fastgaze, densegaze or a network of theirs"
        )
    if start.network is None:
        record = load_backbone(model.trunk, start.backbone, normalise(own.training[0].images[:8]))
    model.tail.center_bias.copy_(torch.from_numpy(own.center_bias))
    return model.to(device()), record


def _check_goal(model: GazeModel, prune_to: float) -> None:
    if (gflop := flops(model.spec, REFERENCE) / 1e9) <= prune_to:
        raise ArgumentError(f"the network already costs {gflop:.3g} GFLOP at 640x480; prune to less than that")


def _prune(
    model: GazeModel,
    sources: Sequence[Source],
    settings: OwnSettings,
    folder: Path,
    record: dict[str, Any],
    report: Callable[[Removal], None] | None,
) -> GazeModel:
    """``model`` pruned while it trains, or the network that an earlier start of this run had pruned."""
    done = folder / "last.safetensors"
    if done.is_file():
        pruned, _ = load_checkpoint(done)
        assert isinstance(pruned, GazeModel)
        return pruned
    how = PruneSettings((settings.prune_to,), steps=6, share=0.06, optimizer="adam", learning_rate=5e-5)
    prune_while_training(model, sources, replace(how, batch=settings.fit.batch), folder, record, report=report)
    return model


def _run_facts(folder: Path, data: FixationSet, start: Start, settings: OwnSettings) -> dict[str, Any]:
    """What the run in ``folder`` is of, for its ``run.json``; another run that is there already is refused."""
    origin = start.network and hashlib.sha256(_content(start.network)).hexdigest()
    made = {"data": _digest(data), "start": origin or [start.architecture, start.backbone]} | asdict(settings)
    facts: dict[str, Any] = json.loads(json.dumps(made))
    if (file := folder / "run.json").is_file():
        known = json.loads(file.read_text())
        if changed := sorted(key for key in facts if known.get(key) != facts[key]):
            raise ArgumentError(f"{folder} holds a run with other {', '.join(changed)}; choose another folder")
    return facts


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
