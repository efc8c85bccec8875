"""Networks by name: the paper's line from checkpoints/, bundled models read back from their ONNX files.

python -m experiments.starts fastgaze-l densegaze-m    writes runs/NAME/best.safetensors

Some experiments train a network further (`checkpoint_of`), others run one as the product would (`model_file`).
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
from fastgaze.onnx.write import Facts, export_onnx
from fastgaze.runtime import zoo
from fastgaze.training.config import Config, TuneSettings, read_settings
from fastgaze.training.datasets import Workshop
from fastgaze.training.soft_targets import ENSEMBLE, soft_targets_file, write_soft_targets

CHECKPOINTS = ROOT / "checkpoints"
LINE = ("densegaze-m", "fastgaze-l", "fastgaze-m", "fastgaze-s", "fastgaze-xs")
"""The paper's line: Fisher-pruned DenseGaze and FastGaze, which were bundled before LiteGaze took their place."""


def kept(name: str) -> Path:
    """The checkpoint of a network of the paper's line."""
    return CHECKPOINTS / f"{name}.safetensors"


def open_network(name: str) -> tuple[GazeModel, TrainingRecord]:
    """The network, in torch, of a checkpoint below the repository, one kept in checkpoints/, or a bundled model."""
    if name.endswith(".safetensors"):
        return load_gaze_model(ROOT / name)
    return load_gaze_model(kept(name)) if kept(name).is_file() else reopen(name)


def checkpoint_of(name: str, runs: Path) -> Path:
    """A checkpoint below the repository as it is; of a model with a name the one in ``runs/NAME``, written if missing.

    Next to it, ``workshop soft-targets`` puts what the model teaches others.
    """
    if name.endswith(".safetensors"):
        return ROOT / name
    path = runs / name / "best.safetensors"
    if not path.is_file():
        model, record = open_network(name)
        save_checkpoint(model, path, record)
    return path


def model_file(name: str | Path, folder: Path = RUNS / "line") -> Path:
    """The .onnx file of a bundled model, a path as it is, or a model of the paper's line, exported into ``folder``."""
    if name not in LINE:
        return zoo.find(name)
    path, source = folder / f"{name}.onnx", kept(str(name))
    if not path.is_file() or path.stat().st_mtime < source.stat().st_mtime:
        model, record = load_gaze_model(source)
        scores = record.details.get("scores", {})
        assert isinstance(scores, dict)
        folder.mkdir(parents=True, exist_ok=True)
        export_onnx(model, path, replace(Facts.of(str(name), record), scores=scores))
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
    parser.add_argument("models", nargs="+", help="names of bundled models or of the paper's line")
    parser.add_argument("--runs", type=Path, default=RUNS)
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the checkpoints."""
    options = common.parse(make_parser(), arguments)
    for name in options.models:
        print(checkpoint_of(name, options.runs))


if __name__ == "__main__":
    main()
