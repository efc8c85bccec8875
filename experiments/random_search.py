"""The paper's random search: a random beta and a random number of maps for each trial, on Optuna.

    python -m experiments.random_search
    python -m experiments.random_search --storage postgresql://...    several machines work on one study

Every trial prunes the same start its own way and is tuned for a while; runs/sweep holds the networks, which
`experiments.front` scores. Only finished trials count, and a search that was stopped can be resumed. The trials and
every setting go to results/sweep.json, which says how many are planned and is written again after every trial.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from experiments import common
from experiments.common import CONFIGS, RESULTS, Record
from experiments.starts import RunSettings, checkpoint_of, read_runs, teach, tiny_tuning, tiny_workshop
from fastgaze.core.sizes import format_size
from fastgaze.training.config import Config, PruneSettings, StudentSettings, SweepSettings, TuneSettings
from fastgaze.training.sweep import open_study, points, run_sweep, student_trial, summary

STUDY = "sweep"


@dataclass(frozen=True)
class Search(RunSettings):
    """A file in experiments/configs; ``start`` is a bundled name or a checkpoint below the repository."""

    start: str
    trials: int
    prune: PruneSettings = field(default_factory=PruneSettings)
    tune: TuneSettings = field(default_factory=TuneSettings)
    sweep: SweepSettings = field(default_factory=SweepSettings)

    @property
    def config(self) -> Config:
        """Pruning learns from what tuning learns from."""
        student = StudentSettings(mixture=self.tune.mixture)
        return Config(self.workshop, student=student, prune=self.prune, tune=self.tune, sweep=self.sweep)

    def tiny(self) -> "Search":
        """Small enough for a test: two trials of a few steps on a few images."""
        prune, tune = replace(self.prune, steps=1, share=0.5), tiny_tuning(self.tune)
        return replace(self, workshop=tiny_workshop(self.workshop), trials=2, prune=prune, tune=tune)


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = common.make_parser(
        __doc__, __file__, data=False, out=RESULTS / "sweep.json", tiny="two trials of two steps", threads=True
    )
    parser.add_argument("--config", type=Path, default=CONFIGS / "sweep.toml")
    parser.add_argument("--trials", type=int, help="instead of the number in the settings")
    parser.add_argument("--storage", default="", help="URL of the study's database; a file in the run's folder")
    parser.add_argument("--runs", type=Path, help="folder of the runs, instead of the one in the settings")
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    """Search until the study has its trials."""
    options = common.parse(make_parser(), arguments)
    search = read_runs(Search, options)
    search = search.tiny() if options.tiny else search
    folder = search.workshop.runs / "sweep"
    folder.mkdir(parents=True, exist_ok=True)
    teach(search.config)
    trial, maps = student_trial(search.config, checkpoint_of(search.start, search.workshop.runs))
    url = options.storage or f"sqlite:///{folder.resolve() / 'study.db'}"
    trials = options.trials or search.trials
    about = common.about(options, trials=trials, **_settings(search))

    def say(done: int, total: int | None, note: str) -> None:
        """What is finished by now; the trial at hand, ``done``, is stored after this."""
        common.write_record(options.out, about | summary(points(open_study(url, STUDY))))
        print(f"{done} of {total}: {note}", flush=True)

    found = run_sweep(trial, maps, search.prune, search.sweep, url, STUDY, trials, folder, say)
    common.write_record(options.out, about | summary(found))


def _settings(search: Search) -> Record:
    """What the report says of the search."""
    prune, fit, drawn = search.prune, search.tune.fit, search.sweep
    return {
        "start": search.start,
        "beta": list(drawn.beta),
        "removed": list(drawn.removed),
        "unregularised": drawn.unregularised,
        "share": prune.share,
        "steps": prune.steps,
        "batch": prune.batch,
        "optimizer": prune.optimizer,
        "learning_rate": prune.learning_rate,
        "tuning_steps": fit.steps,
        "validation_images": search.workshop.validation_images,
        "size": format_size(search.workshop.size),
        "scale": fit.scale,
        "images": search.workshop.limit,
        "precision": fit.precision,
    }


if __name__ == "__main__":
    main()
