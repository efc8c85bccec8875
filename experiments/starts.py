"""Networks that experiments start from: checkpoints, kept ones among them, or bundled models read from ONNX files.

python -m experiments.starts fastgaze-l densegaze-m    writes runs/NAME/best.safetensors
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from experiments import common
from experiments.common import ROOT, RUNS
from fastgaze.networks.checkpoint import TrainingRecord, load_gaze_model, save_checkpoint
from fastgaze.networks.gaze import GazeModel
from fastgaze.onnx.read import reopen
from fastgaze.training.config import Config, TuneSettings, read_settings
from fastgaze.training.datasets import Workshop
from fastgaze.training.soft_targets import ENSEMBLE, soft_targets_file, write_soft_targets

KEPT = ROOT / "checkpoints"


def open_network(name: str) -> tuple[GazeModel, TrainingRecord]:
    """A checkpoint below the repository, one that is kept in checkpoints/, or a bundled model, by path or name."""
    kept = KEPT / f"{name}.safetensors"
    if name.endswith(".safetensors") or kept.is_file():
        return load_gaze_model(ROOT / name if name.endswith(".safetensors") else kept)
    return reopen(name)


def checkpoint_of(name: str, runs: Path) -> Path:
    """A checkpoint below the repository as it is; of a named model the one in ``runs/NAME``, written if missing."""
    if name.endswith(".safetensors"):
        return ROOT / name
    path = runs / name / "best.safetensors"
    if not path.is_file():
        model, record = open_network(name)
        save_checkpoint(model, path, record)
    return path


def teach(config: Config) -> None:
    """Make the soft targets of the students that tuning learns from, where they are missing."""
    for name in config.tune.mixture.teachers:
        if name != ENSEMBLE and not soft_targets_file(config.workshop, name).is_file():
            write_soft_targets(config, checkpoint_of(name, config.workshop.runs).parent)


@dataclass(frozen=True)
class RunSettings:
    """What files of settings have in common: the data, and the folder of the runs."""

    workshop: Workshop


_Settings = TypeVar("_Settings", bound=RunSettings)


def read_runs(kind: type[_Settings], options: argparse.Namespace) -> _Settings:
    """The settings in ``options.config``, with ``options.runs`` as the folder of the runs if it is given."""
    settings = read_settings(kind, options.config)
    return replace(settings, workshop=replace(settings.workshop, runs=options.runs)) if options.runs else settings


def tiny_workshop(workshop: Workshop) -> Workshop:
    """A few small images, as in experiments/configs/tiny.toml, with runs of their own."""
    return replace(workshop, runs=workshop.runs / "tiny", size=(96, 128), limit=32, validation_images=16)


def tiny_tuning(tune: TuneSettings) -> TuneSettings:
    """Two steps, taught by the ensemble of the same workshop."""
    fit = replace(tune.fit, steps=2, validate_every=1, warmup=0)
    return replace(tune, fit=fit, mixture=replace(tune.mixture, teachers=("teacher",)))


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = common.make_parser(__doc__, __file__, data=False)
    parser.add_argument("models", nargs="+", help="names of bundled models")
    parser.add_argument("--runs", type=Path, default=RUNS)
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the checkpoints."""
    options = common.parse(make_parser(), arguments)
    for name in options.models:
        print(checkpoint_of(name, options.runs))


if __name__ == "__main__":
    main()
