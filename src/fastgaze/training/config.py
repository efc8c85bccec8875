"""A run's settings in one TOML file, one section for each stage; what a section leaves out keeps its default.

[workshop]            # data sets and folders
[teacher]             # DeepGaze II: [teacher.fit] on the large set, [teacher.folds] on the eye-tracking sets
[student]             # distillation: [student.mixture], [student.fit]
[prune]               # pruning while training
[tune]                # fine-tuning of a student: [tune.mixture], [tune.fit]
[sweep]               # random search: what is drawn
"""

import os
import tomllib
from dataclasses import MISSING, dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import Literal, TypeVar, get_args, get_origin, get_type_hints

from fastgaze.core.errors import ArgumentError
from fastgaze.core.jsonable import Document
from fastgaze.core.sizes import Size, parse_size
from fastgaze.training.datasets import Workshop
from fastgaze.training.fit import FitSettings, check_positive


@dataclass(frozen=True)
class Mixture:
    """What a student learns from.

    eye_tracking: share of eye-tracking images, the paper's 0.1.
    teacher: in the large set, share of the soft targets in what is learned; the rest are the set's own
        fixations. 0 needs no teacher.
    teachers: the runs that taught, ``teacher`` for the ensemble, others for students; their soft targets are averaged.
    variants: share of the large set's images in a batch that are variants of its images (drawings, noise and such),
        with the soft targets that ``teachers`` gave these; those have no fixations.
    mixed_shapes: share of images from the sets of mixed shapes.
    eye_teacher: as ``teacher``, in the eye-tracking sets and those of mixed shapes; 0 needs no teacher there.
    """

    eye_tracking: float = 0.1
    teacher: float = 0.5
    teachers: tuple[str, ...] = ("teacher",)
    variants: float = 0.0
    mixed_shapes: float = 0.0
    eye_teacher: float = 0.0

    @property
    def taught(self) -> bool:
        """Whether anything is learned from ``teachers``."""
        return any((self.teacher, self.variants, self.eye_teacher))


Settings = TypeVar("Settings")


@dataclass(frozen=True)
class TeacherSettings:
    """DeepGaze II in two stages.

    starts: readouts trained on the large set from different random numbers; the members take turns to start from them.
    large_share: weight of the large set against the eye-tracking sets in the second stage, so that it is not forgotten.
    """

    backbone: str = "vgg19"
    members: int = 10
    starts: int = 1
    large_share: float = 0.0
    fit: FitSettings = field(default_factory=FitSettings)
    folds: FitSettings = field(default_factory=FitSettings)


@dataclass(frozen=True)
class StudentSettings:
    """Distillation of an unpruned student."""

    architecture: str = "fastgaze"
    backbone: str = "vgg16"
    mixture: Mixture = field(default_factory=Mixture)
    fit: FitSettings = field(default_factory=FitSettings)


@dataclass(frozen=True)
class TuneSettings:
    """Fine-tuning of a student, pruned or not."""

    mixture: Mixture = field(default_factory=Mixture)
    fit: FitSettings = field(default_factory=FitSettings)


@dataclass(frozen=True)
class PruneSettings:
    """The paper removes 1 map every 10 steps of 8 images with SGD 0.0025, momentum 0.9.

    marks: costs at which a snapshot is kept, the first network at or below each; the run ends at the lowest.
    remove: maps to remove in all, the paper's other way to end a run; 0 for no such limit.
    observed: steps at the end of a round that collect signals; the others only train. 0 for all, as in the paper.
    share: of the removable maps to remove per round instead of ``maps``; 0 for none.
    round_to: maps leave in bunches that end on multiples of this, the blocks in which an engine computes; 1 for single
        maps.
    objective: ``beta*``, ``beta`` (with the value of ``beta``, nats per unit of the marks), or ``none``.
    cost: ``flops`` (marks in GFLOP at 640x480) or ``latency`` of the shipping engine (marks in milliseconds).
    frozen_cost: costs of the unpruned network throughout, as Molchanov et al.; for FLOPs only.
    first_order: the linear term of equation 5 in the signal, which the paper leaves out.
    patience: rounds in which loss + ``beta`` * cost may fail to fall before the run ends; 0 for no early stopping.
    precision, scale: as in ``FitSettings``; a latency is that of images so scaled.
    """

    marks: tuple[float, ...] = ()
    remove: int = 0
    steps: int = 10
    observed: int = 0
    maps: int = 1
    share: float = 0.0
    round_to: int = 1
    objective: Literal["beta*", "beta", "none"] = "beta*"
    beta: float = 0.0
    cost: Literal["flops", "latency"] = "flops"
    frozen_cost: bool = False
    first_order: bool = False
    patience: int = 0
    optimizer: Literal["adam", "sgd"] = "sgd"
    learning_rate: float = 0.0025
    batch: int = 8
    precision: Literal["bf16", "fp32"] = "bf16"
    scale: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        if self.frozen_cost and self.cost == "latency":
            raise ArgumentError(NO_FROZEN_COST)
        if self.round_to < 1:
            raise ArgumentError(f"round_to = {self.round_to} is not a number of maps of at least 1, such as 16")
        if not 0 <= self.observed <= self.steps:
            raise ArgumentError(f"observed = {self.observed} is not between 0 and the {self.steps} steps of a round")
        if self.patience and not self.beta > 0:
            raise ArgumentError(
                f"patience = {self.patience} stops on loss + beta * cost and beta is {self.beta:g}; give a beta above 0"
            )
        check_positive("learning_rate", self.learning_rate)
        check_positive("scale", self.scale)


NO_FROZEN_COST = "frozen_cost is for cost = 'flops'; a measured latency follows the network: leave one of them out"


@dataclass(frozen=True)
class SweepSettings:
    """What is drawn at random, log-uniformly for beta and uniformly for the share of maps.

    beta: nats per GFLOP at 640x480; the paper searched 3e-4 to 3e-1.
    removed: share of the maps to remove.
    unregularised: share of trials with beta = 0, so that both fronts can be compared.
    """

    beta: tuple[float, float] = (3e-4, 3e-1)
    removed: tuple[float, float] = (0.3, 0.95)
    unregularised: float = 0.25


@dataclass(frozen=True)
class Config:
    """Everything from data to the last fine-tuning."""

    workshop: Workshop
    teacher: TeacherSettings = field(default_factory=TeacherSettings)
    student: StudentSettings = field(default_factory=StudentSettings)
    prune: PruneSettings = field(default_factory=lambda: PruneSettings(marks=(10.7, 3.0, 1.3, 0.9)))
    tune: TuneSettings = field(default_factory=TuneSettings)
    sweep: SweepSettings = field(default_factory=SweepSettings)

    def with_fit(self, steps: int | None = None, scale: float | None = None) -> "Config":
        """The same with other steps and scale for students, new ones and those that are fine-tuned."""

        def changed(fit: FitSettings) -> FitSettings:
            return replace(fit, steps=steps or fit.steps, scale=scale or fit.scale)

        student = replace(self.student, fit=changed(self.student.fit))
        return replace(self, student=student, tune=replace(self.tune, fit=changed(self.tune.fit)))


def read_config(path: Path) -> Config:
    """Read and check a TOML file; relative folders in it are relative to the file.

    ``base = "other.toml"`` at its top takes what the file leaves out from another one. The environment variable
    FASTGAZE_DATA, where it is set, takes the place of ``data``.
    """
    return read_settings(Config, path)


def read_settings(kind: type[Settings], path: Path) -> Settings:
    """``read_config`` for any dataclass of settings; its [workshop], if it has one, names data and runs."""
    try:
        values = _read(path)
    except RecursionError as error:
        raise ArgumentError(f"{path}: its base leads back to itself, or it is nested too deeply") from error
    if kind is Config and "workshop" not in values:
        raise ArgumentError(f"{path}: no section [workshop]; it names the data and the folder of the runs")
    if "workshop" in values and "FASTGAZE_DATA" in os.environ:
        values["workshop"]["data"] = Path(os.environ["FASTGAZE_DATA"])
    return _build(kind, values, str(path))


def _read(path: Path) -> Document:
    """The tables of a file over those of its base, with absolute folders."""
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ArgumentError(f"{path}: not a readable TOML file ({error})") from error
    workshop = values.get("workshop")
    if isinstance(workshop, dict):
        workshop |= {key: path.parent / workshop[key] for key in ("data", "runs") if isinstance(workshop.get(key), str)}
    base = values.pop("base", None)
    return values if base is None else _over(_read(path.parent / str(base)), values)


def _over(base: Document, values: Document) -> Document:
    """``values`` laid over ``base``, table by table."""
    merged = dict(base)
    for key, value in values.items():
        both = isinstance(value, dict) and isinstance(merged.get(key), dict)
        merged[key] = _over(merged[key], value) if both else value
    return merged


def _build(kind: type[Settings], values: object, where: str) -> Settings:
    """A settings object from a table; unknown keys and wrong types are refused by name."""
    if not isinstance(values, dict):
        raise ArgumentError(f"{where} = {values!r} is not a section of settings")
    hints = get_type_hints(kind)
    known = [f.name for f in fields(kind)]  # type: ignore[arg-type]
    if unknown := sorted(set(values) - set(known)):
        raise ArgumentError(f"{where}: no setting {unknown[0]!r}; the settings are {', '.join(known)}")
    made: dict[str, object] = {}
    for key, value in values.items():
        hint = hints[key]
        if is_dataclass(hint) and isinstance(hint, type):
            made[key] = _build(hint, value, f"{where}: {key}")
        else:
            made[key] = _convert(value, hint, f"{where}: {key}")
    for needed in fields(kind):  # type: ignore[arg-type]
        if needed.name not in made and needed.default is MISSING and needed.default_factory is MISSING:
            raise ArgumentError(f"{where}: {needed.name} is missing; give it a value")
    return kind(**made)


def _convert(value: object, hint: object, where: str) -> object:
    """A TOML value as the type of its setting: a list becomes a tuple, text a path or a size."""
    if hint == Size:
        if not isinstance(value, str):
            raise ArgumentError(f'{where} = {value!r} is not text; write WIDTHxHEIGHT in quotes, such as "320x240"')
        return parse_size(value)
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Literal:
        if value not in parts:
            raise ArgumentError(f"{where} = {value!r} is not one of {', '.join(map(repr, parts))}")
        return value
    if origin is tuple and isinstance(value, list):
        hints = parts[:1] * len(value) if parts[-1] is ... else parts
        if len(value) != len(hints):
            raise ArgumentError(f"{where} = {value!r} has {len(value)} values, not {len(hints)}")
        return tuple(_convert(item, part, where) for item, part in zip(value, hints, strict=True))
    if hint is Path and isinstance(value, str | Path):
        return Path(value)
    if hint is float and type(value) is int:
        return float(value)
    wanted = origin or hint
    if type(value) is not wanted:
        raise ArgumentError(f"{where} = {value!r} is not {_KINDS[wanted]}")
    return value


_KINDS: dict[object, str] = {
    int: "a whole number",
    float: "a number",
    str: "text",
    bool: "true or false",
    tuple: "a list",
    Path: "a path",
}
