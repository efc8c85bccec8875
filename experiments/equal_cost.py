"""Ways of pruning compared at equal cost: from one start, tuned alike, several seeds, scored image by image.

    python -m experiments.equal_cost experiments/configs/equal_cost.toml    beta*, beta, beta = 0, frozen costs
    python -m experiments.equal_cost experiments/configs/choices.toml       SGD or Adam while pruning

Every variant prunes the same start until its cost is at or below the same GFLOP, which stops it within one map, and is
tuned with the same settings. A variant with several values of beta keeps the one with the lowest validation loss of
each seed. Scores are those of the exported networks on SALICON val, on the kept-out tenth of OSIE and on CAT2000; those
of every image are kept, for paired intervals. A run that was stopped can be resumed: what is finished is kept.
"""

import argparse
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from experiments import common, scoring
from experiments.common import RESULTS, Record
from experiments.starts import RunSettings, checkpoint_of, read_runs, teach, tiny_tuning, tiny_workshop
from fastgaze.core.cost import flops, layers
from fastgaze.core.sizes import format_size
from fastgaze.evaluation.models import RuntimeModel
from fastgaze.networks.checkpoint import load_gaze_model
from fastgaze.onnx.write import Facts, export_onnx
from fastgaze.runtime.predictor import load
from fastgaze.training.config import Config, PruneSettings, StudentSettings, TuneSettings
from fastgaze.training.prune import REFERENCE, prune_student
from fastgaze.training.student import tune_student

SETS = ("salicon-val", "osie-held-out", "cat2000")


@dataclass(frozen=True)
class Comparison(RunSettings):
    """A file in experiments/configs.

    start: a bundled name or a checkpoint below the repository.
    gflop: at 640x480, at which every variant stops.
    variants: what each one changes in [prune]; a list of values of beta is tried out.
    pairs: differences that the report shows, such as ``beta* - none``.
    """

    start: str
    gflop: float
    seeds: tuple[int, ...]
    pairs: tuple[str, ...]
    variants: dict[str, dict[str, Any]]
    prune: PruneSettings = field(default_factory=PruneSettings)
    tune: TuneSettings = field(default_factory=TuneSettings)

    def config(self, changes: dict[str, Any], seed: int) -> Config:
        """The settings of one run."""
        prune = replace(self.prune, marks=(self.gflop,), seed=seed, **changes)
        tune = replace(self.tune, fit=replace(self.tune.fit, seed=seed))
        return Config(self.workshop, student=StudentSettings(mixture=self.tune.mixture), prune=prune, tune=tune)

    def tiny(self) -> "Comparison":
        """Small enough for a test: one seed, a few steps on a few images."""
        prune, seeds = replace(self.prune, steps=1, share=0.5), self.seeds[:1]
        workshop, tune = tiny_workshop(self.workshop), tiny_tuning(self.tune)
        return replace(self, workshop=workshop, seeds=seeds, prune=prune, tune=tune)


def run(comparison: Comparison, name: str, seed: int, folder: Path, options: argparse.Namespace) -> Record:
    """Prune and tune one variant with one seed, and score what is left."""
    changes = dict(comparison.variants[name])
    betas = changes.pop("beta", [None])
    found = []
    for number, beta in enumerate(betas):
        config = comparison.config(changes if beta is None else changes | {"beta": beta}, seed)
        loss, path = _prune_and_tune(config, comparison.start, folder / str(number))
        found.append((loss, number, path))
    loss, best, path = min(found)
    spec = load_gaze_model(path)[0].spec
    facts = {"seed": seed, "gflop": flops(spec, REFERENCE) / 1e9, "loss": loss, "beta": betas[best]}
    widths = [[layer.name, layer.maps] for layer in layers(spec, REFERENCE)]
    return facts | {"layers": widths, "rows": score(path, options)}


def _prune_and_tune(config: Config, start: str, folder: Path) -> tuple[float, Path]:
    """Validation loss and checkpoint of the tuned network."""
    prune_student(config, checkpoint_of(start, config.workshop.runs), folder / "pruned")
    result = tune_student(config, folder / "pruned" / "last.safetensors", folder / "tuned")
    return result.best_loss, folder / "tuned" / "best.safetensors"


def score(path: Path, options: argparse.Namespace) -> dict[str, Record]:
    """Scores of every image, by set, of the exported network."""
    model, record = load_gaze_model(path)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "model.onnx"
        export_onnx(model, file, Facts.of(path.parent.name, record))
        runtime = RuntimeModel(load(file, threads=options.threads))
        return {
            name: scoring.columns(scoring.score(runtime, name, options.data, options.limit)) for name in options.sets
        }


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = common.make_settings_parser(__doc__, __file__, "equal_cost.toml", tiny="one seed, two steps, 4 images")
    parser.add_argument("--only", nargs="+", help="variants; all by default")
    parser.add_argument("--sets", nargs="+", choices=SETS, default=SETS)
    parser.add_argument("--limit", type=int, help="score only this many images of each set, evenly spread")
    parser.add_argument("--runs", type=Path, help="folder of the runs, instead of the one in the settings")
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    """Run every variant and seed that is missing."""
    options = common.parse(make_parser(), arguments)
    comparison = read_runs(Comparison, options)
    if options.tiny:
        comparison, options.limit = comparison.tiny(), 4
    out = options.out or RESULTS / f"{options.config.stem}.json"
    record = common.read_record(out) or common.about(options, **_settings(comparison)) | {"variants": {}}
    record["pairs"] = list(comparison.pairs)
    teach(comparison.config({}, seed=0))
    for seed in comparison.seeds:
        for name in comparison.variants:
            done = record["variants"].setdefault(name, [])
            if any(each["seed"] == seed for each in done) or (options.only and name not in options.only):
                continue
            folder = comparison.workshop.runs / options.config.stem / f"{name.replace('*', '-star')}-seed{seed}"
            done.append(run(comparison, name, seed, folder, options))
            common.write_record(out, record)
            print(f"{name}, seed {seed}: {done[-1]['gflop']:.3f} GFLOP, loss {done[-1]['loss']:.4f}", flush=True)


def _settings(comparison: Comparison) -> Record:
    """What the report says of the runs."""
    prune, fit = comparison.prune, comparison.tune.fit
    return {
        "start": comparison.start,
        "gflop": comparison.gflop,
        "seeds": list(comparison.seeds),
        "share": prune.share,
        "maps": prune.maps,
        "steps": prune.steps,
        "optimizer": prune.optimizer,
        "learning_rate": prune.learning_rate,
        "tuning_steps": fit.steps,
        "precision": fit.precision,
        "size": format_size(comparison.workshop.size),
        "scale": fit.scale,
        "images": comparison.workshop.limit,
        "variants": comparison.variants,
    }


if __name__ == "__main__":
    main()
