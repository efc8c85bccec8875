"""Fit a network to densities: the paper's recipe, every number a setting.

A run lives in a folder: ``state.safetensors`` (to continue from), ``best.safetensors`` (the parameters with the best
validation score), ``log.csv``, ``validation.csv`` and TensorBoard events. Killed at any step and started again, it
gives the same parameters as a run that was not.
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from fastgaze.core.errors import ArgumentError
from fastgaze.core.jsonable import Json
from fastgaze.core.progress import Progress, silent
from fastgaze.core.spec import scaled_size
from fastgaze.networks.ensemble import GazeEnsemble
from fastgaze.networks.gaze import GazeModel
from fastgaze.training.datasets import channels_last, reduced_precision
from fastgaze.training.runs import (
    RunLog,
    load_state,
    optimizer_tensors,
    rank,
    refuse_another,
    restore_optimizer,
    save_state,
    summed,
    world_size,
)
from fastgaze.training.stream import Batch, Source, Stream, in_order


@dataclass(frozen=True)
class FitSettings:
    """The paper's numbers; ``steps`` bounds what early stopping would leave open.

    learning_rate: at the start; ``trunk_rate`` times that for pretrained layers.
    momentum: of SGD; Adam has its own.
    decay: ``cosine`` to zero over ``steps``, or ``none``. warmup: steps of a linear rise before it.
    validate_every, patience: in steps, and validations without improvement before the run stops.
    precision: ``bf16`` autocast where the machine computes in it, or ``fp32``.
    flips: mirror half of the images.
    scale: of the images' sides before the network sees them, for a model that is to work at a smaller size.
    average: decay of the running mean of parameters that is validated and kept; 0 keeps the parameters themselves.
    save_seconds: time between two states to continue from.
    """

    steps: int = 10_000
    batch: int = 8
    optimizer: Literal["adam", "sgd"] = "adam"
    learning_rate: float = 0.001
    trunk_rate: float = 1.0
    momentum: float = 0.9
    weight_decay: float = 0.0
    decay: Literal["cosine", "none"] = "cosine"
    warmup: int = 0
    validate_every: int = 100
    patience: int = 20
    precision: Literal["bf16", "fp32"] = "bf16"
    flips: bool = True
    scale: float = 1.0
    average: float = 0.0
    seed: int = 0
    save_seconds: float = 120.0

    def __post_init__(self) -> None:
        check_positive("learning_rate", self.learning_rate)
        check_positive("scale", self.scale)
        if not 0 <= self.trunk_rate < math.inf:
            raise ArgumentError(f"trunk_rate = {self.trunk_rate} is not a number of at least 0")


def check_positive(name: str, value: float) -> None:
    """ArgumentError for a setting that is not a number above 0."""
    if not 0 < value < math.inf:
        raise ArgumentError(f"{name} = {value} is not a number above 0")


@dataclass(frozen=True)
class FitResult:
    """step: where the run stopped; best_step, best_loss: where validation was best, nats per fixation."""

    step: int
    best_step: int
    best_loss: float


def device() -> torch.device:
    """The GPU if there is one, or else the CPU."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def cross_entropy(log_density: Tensor, targets: Tensor) -> Tensor:
    """-sum over cells of target * log density, one value per image: (N, h, w), (N, h, w) -> (N,), nats."""
    return -(targets * log_density).sum(dim=(1, 2))


def per_image_loss(model: nn.Module, batch: Batch, precision: str = "bf16", scale: float = 1.0) -> Tensor:
    """Cross-entropy of each image of a batch (N,), in nats per fixation on the loss grid; ``scale`` as in settings."""
    place = device()
    inputs = batch.inputs.to(place, memory_format=torch.channels_last)
    shape = (inputs.shape[-2], inputs.shape[-1])
    if (size := working_size(model, shape, scale)) != shape:
        inputs = nn.functional.interpolate(inputs, size, mode="bilinear", antialias=True)
    with reduced_precision(place, precision):
        log_density = model(inputs, size=batch.grid, center_bias=batch.center_bias.to(place))
    return cross_entropy(log_density, batch.targets.to(place))


def working_size(model: nn.Module, size: tuple[int, int], scale: float) -> tuple[int, int]:
    """(height, width) at which ``model`` sees inputs of ``size``; stored features are seen as they are."""
    network = model.module if isinstance(model, DistributedDataParallel) else model
    if isinstance(network, GazeModel | GazeEnsemble):
        return scaled_size(size, scale, network.stride)
    if scale != 1:
        raise ArgumentError(f"scale = {scale:g} is for networks that see images; stored features cannot be scaled")
    return size


@torch.no_grad()
def validate(
    model: nn.Module,
    source: Source | Sequence[Source],
    precision: str = "bf16",
    batch: int = 16,
    scale: float = 1.0,
) -> float:
    """Mean cross-entropy over all images of one source or several, nats per fixation on the loss grid.

    Processes that train together share the work and have the same result.
    """
    model.eval()
    sources = [source] if isinstance(source, Source) else source
    parts = (part for one in sources for part in in_order(one, batch))
    losses = [per_image_loss(model, part, precision, scale) for part in islice(parts, rank(), None, world_size())]
    sums = sum(float(loss.double().sum()) for loss in losses), sum(map(len, losses))
    loss, images = summed(torch.tensor(sums, dtype=torch.float64)).tolist()
    return float(loss / images)


def make_optimizer(model: nn.Module, settings: FitSettings) -> torch.optim.Optimizer:
    """Adam or SGD over what is not frozen, the trunk with its own rate."""
    trunk: list[nn.Parameter] = []
    rest: list[nn.Parameter] = []
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            (trunk if ".trunk." in f".{name}" else rest).append(parameter)
    groups = [
        {"params": parameters, "lr": settings.learning_rate * factor, "factor": factor}
        for parameters, factor in ((rest, 1.0), (trunk, settings.trunk_rate))
        if parameters
    ]
    if not groups:
        raise ArgumentError("nothing to train: every parameter of the network is frozen")
    if settings.optimizer == "adam":
        return torch.optim.AdamW(groups, weight_decay=settings.weight_decay)
    return torch.optim.SGD(groups, momentum=settings.momentum, weight_decay=settings.weight_decay)


def learning_rate(settings: FitSettings, step: int) -> float:
    """Rate of a step: a linear rise over ``warmup``, then the decay."""
    if step < settings.warmup:
        return settings.learning_rate * (step + 1) / settings.warmup
    if settings.decay == "none":
        return settings.learning_rate
    return settings.learning_rate * 0.5 * (1 + math.cos(math.pi * step / settings.steps))


class Fit:
    """One run; ``run`` starts it, or continues where it stopped.

    save_best: called whenever the model holds better parameters than ever before, with where that was.
    watched: further sets by name whose losses are logged at every validation; they decide nothing.
    """

    def __init__(
        self,
        model: nn.Module,
        sources: Sequence[Source],
        validation: Source | Sequence[Source],
        settings: FitSettings,
        folder: Path,
        save_best: Callable[[FitResult], None] | None = None,
        watched: Mapping[str, Sequence[Source]] | None = None,
    ) -> None:
        self.model = channels_last(model.to(device()))
        self._watched = watched or {}
        self.settings, self.validation, self.folder = settings, validation, folder
        self._stream = Stream(sources, settings.batch, settings.seed, settings.flips)
        self._optimizer = make_optimizer(model, settings)
        self._save_best = save_best
        self._mean = {name: p.detach().clone() for name, p in self._trained()} if settings.average else {}
        self.step, self.best_step, self.best_loss, self._bad = 0, 0, math.inf, 0
        self._best: dict[str, Tensor] = {}

    def run(self, progress: Progress = silent) -> FitResult:
        """Train until early stopping or the last step; the model then holds the best parameters."""
        state = self.folder / "state.safetensors"
        if state.is_file():
            self._resume(state)
        wrapped = DistributedDataParallel(self.model) if world_size() > 1 else self.model
        batches = self._stream.prefetched(self.step, self.settings.steps, rank(), world_size())
        with closing(batches), closing(RunLog(self.folder, main=rank() == 0)) as log:
            saved = time.monotonic()
            while not self._finished():
                self._advance(wrapped, next(batches), log, progress)
                if time.monotonic() - saved > self.settings.save_seconds:
                    self._save(state)
                    saved = time.monotonic()
        self._save(state)
        self.model.load_state_dict(self._best, strict=False)
        return self._result()

    def _advance(self, wrapped: nn.Module, batch: Batch, log: RunLog, progress: Progress) -> None:
        """One step, with its logs and, when due, a validation."""
        rate = learning_rate(self.settings, self.step)
        loss = self._update(wrapped, batch, rate)
        self.step += 1
        if not math.isfinite(loss):
            raise ArgumentError(
                f"the loss of step {self.step} is {loss:g}; the run stays as last saved: use a lower learning rate"
            )
        log.training(self.step, loss, rate)
        progress(self.step, self.settings.steps, f"loss {loss:.3f}")
        if self.step % self.settings.validate_every == 0 or self.step == self.settings.steps:
            log.validation(self.step, *self._validate())

    def _update(self, wrapped: nn.Module, batch: Batch, rate: float) -> float:
        train_mode(self.model)
        for group in self._optimizer.param_groups:
            group["lr"] = rate * group["factor"]
        loss = per_image_loss(wrapped, batch, self.settings.precision, self.settings.scale).mean()
        self._optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        self._optimizer.step()
        for name, parameter in self._trained() if self._mean else ():
            # A young mean follows faster, or it would keep the values of the start.
            keep = min(self.settings.average, (self.step + 1) / (self.step + 10))
            self._mean[name].lerp_(parameter.detach(), 1 - keep)
        return float(loss.detach())

    def _validate(self) -> tuple[float, dict[str, float]]:
        """Losses of the validation set, which decides what is best, and of the watched sets."""
        current = {name: parameter.detach().clone() for name, parameter in self._trained()}
        candidate = self._mean or current
        self.model.load_state_dict(candidate, strict=False)
        loss = self._loss(self.validation)
        watched = {name: self._loss(sources) for name, sources in self._watched.items()}
        if loss < self.best_loss:
            self.best_loss, self.best_step, self._bad = loss, self.step, 0
            self._best = {name: tensor.clone() for name, tensor in candidate.items()}
            if self._save_best and rank() == 0:
                self._save_best(self._result())
        else:
            self._bad += 1
        self.model.load_state_dict(current, strict=False)
        return loss, watched

    def _loss(self, sources: Source | Sequence[Source]) -> float:
        return validate(self.model, sources, self.settings.precision, scale=self.settings.scale)

    def _finished(self) -> bool:
        return self.step >= self.settings.steps or self._bad >= self.settings.patience

    def _trained(self) -> Iterator[tuple[str, nn.Parameter]]:
        return ((name, p) for name, p in self.model.named_parameters() if p.requires_grad)

    def _result(self) -> FitResult:
        return FitResult(self.step, self.best_step, self.best_loss)

    def _facts(self) -> dict[str, Json]:
        facts: dict[str, Json] = {"step": self.step, "best_step": self.best_step, "bad": self._bad}
        facts["settings"] = asdict(self.settings)
        return facts | ({"best_loss": self.best_loss} if self._best else {})

    def _save(self, path: Path) -> None:
        if rank() != 0:
            return
        tensors: dict[str, Tensor] = {f"model/{name}": p for name, p in self._trained()}
        tensors |= {f"mean/{name}": tensor for name, tensor in self._mean.items()}
        tensors |= {f"best/{name}": tensor for name, tensor in self._best.items()}
        save_state(path, tensors | optimizer_tensors(self.model, self._optimizer), self._facts())

    def _resume(self, path: Path) -> None:
        tensors, facts = load_state(path)
        refuse_another(
            self.folder, {"fit": facts["settings"]}, {"fit": asdict(self.settings)}, {"fit": asdict(FitSettings())}
        )

        def part(prefix: str) -> dict[str, Tensor]:
            found = {name: t for name, t in tensors.items() if name.startswith(prefix)}
            return {name.removeprefix(prefix): t.to(device()) for name, t in found.items()}

        self.model.load_state_dict(part("model/"), strict=False)
        self._best = part("best/")
        self._mean = part("mean/")
        restore_optimizer(self.model, self._optimizer, tensors)
        self.step, self.best_step, self._bad = facts["step"], facts["best_step"], facts["bad"]
        self.best_loss = facts.get("best_loss", math.inf)


def train_mode(model: nn.Module) -> None:
    """Training mode, but BatchNorm keeps its running statistics: a batch of 8 is too few, and couples its images."""
    model.train()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.eval()
