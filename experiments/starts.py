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
from fastgaze.networks.checkpoint import load_checkpoint, load_gaze_model, save_checkpoint
from fastgaze.networks.factory import Model
from fastgaze.onnx.read import reopen
from fastgaze.onnx.write import Facts, export_onnx
from fastgaze.runtime import zoo
from fastgaze.training.config import TuneSettings, read_settings
from fastgaze.training.datasets import Workshop

CHECKPOINTS = ROOT / "checkpoints"
LINE = ("densegaze-m", "fastgaze-l", "fastgaze-m", "fastgaze-s", "fastgaze-xs")
"""The paper's line: Fisher-pruned DenseGaze and FastGaze, which were bundled before LiteGaze took their place."""


def kept(name: str) -> Path:
    """The checkpoint of a network of the paper's line."""
    return CHECKPOINTS / f"{name}.safetensors"


def network(name: str) -> Model:
    """The network, in torch, of a model of the paper's line, a bundled model, an .onnx file or a checkpoint."""
    if name in LINE:
        return load_checkpoint(kept(name))[0]
    return load_checkpoint(ROOT / name)[0] if name.endswith(".safetensors") else reopen(name)[0]


def checkpoint_of(name: str, runs: Path) -> Path:
    """A checkpoint below the repository as it is; of a model with a name the one in ``runs/NAME``, written if missing.

    Next to it, ``workshop soft-targets`` puts what the model teaches others.
    """
    if name.endswith(".safetensors"):
        return ROOT / name
    path = runs / name / "best.safetensors"
    if not path.is_file():
        model, record = load_gaze_model(kept(name)) if name in LINE else reopen(name)
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
