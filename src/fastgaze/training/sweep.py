"""Random search over beta and the number of pruned maps, as in the paper, by one machine or many.

Every trial prunes the same student its own way, fine-tunes what is left and reports (validation loss, GFLOP). The study
lives in a database: SQLite for one machine, PostgreSQL for many workers on one study. Only finished trials count, so
what a killed worker left open is made up for by the others.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from fastgaze.core.cost import flops
from fastgaze.core.errors import ArgumentError, require
from fastgaze.core.pareto import pareto as front
from fastgaze.networks.checkpoint import load_checkpoint
from fastgaze.networks.gaze import GazeModel
from fastgaze.training.config import Config, SweepSettings
from fastgaze.training.prune import REFERENCE, PruneSettings

Trial = Callable[[PruneSettings, Path], tuple[float, float]]  # settings, folder -> validation loss, GFLOP


@dataclass(frozen=True)
class Point:
    """One finished trial."""

    number: int
    objective: str
    beta: float
    removed: int
    loss: float
    gflop: float
    checkpoint: str


def run_sweep(
    trial: Trial,
    maps: int,
    base: PruneSettings,
    settings: SweepSettings,
    url: str,
    name: str,
    trials: int,
    folder: Path,
    report: Callable[[Point], None] | None = None,
) -> list[Point]:
    """Work on the study ``name`` at ``url`` until it has ``trials`` finished trials; returns all of them.

    trial: prunes and tunes in the folder it is given.
    maps: number of maps of the unpruned network, the output map included.
    """
    optuna = require("optuna", "train")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = open_study(url, name)

    def objective(drawn: Any) -> tuple[float, float]:
        chosen = draw(drawn, maps, base, settings)
        out = folder / f"trial{drawn.number}-{chosen.objective}"
        loss, gflop = trial(chosen, out)
        drawn.set_user_attr("checkpoint", str(out))
        if report:
            report(Point(drawn.number, chosen.objective, chosen.beta, chosen.remove, loss, gflop, str(out)))
        return loss, gflop

    enough = optuna.study.MaxTrialsCallback(trials, states=(optuna.trial.TrialState.COMPLETE,))
    try:
        if len(points(study)) < trials:
            study.optimize(objective, callbacks=[enough])
        return points(study)
    finally:
        study._storage.remove_session()


def open_study(url: str, name: str) -> Any:
    """The study in a database, made if it is not there."""
    optuna = require("optuna", "train")
    NullPool = require("sqlalchemy.pool", "train").NullPool
    try:
        return optuna.create_study(
            study_name=name,
            # No pool: a connection is closed as soon as it is not needed.
            storage=optuna.storages.RDBStorage(_driver(url), engine_kwargs={"poolclass": NullPool}),
            load_if_exists=True,
            directions=["minimize", "minimize"],
            sampler=optuna.samplers.RandomSampler(),  # no seed: workers must not draw the same trials
        )
    except (require("sqlalchemy.exc", "train").SQLAlchemyError, ImportError) as error:
        raise ArgumentError(f"no study at {url}: {str(error).splitlines()[0]}") from error


def _driver(url: str) -> str:
    """``postgresql://`` with the driver that the ``train`` extra installs."""
    return url.replace("postgresql://", "postgresql+psycopg://", 1)


def draw(trial: Any, maps: int, base: PruneSettings, settings: SweepSettings) -> PruneSettings:
    """The settings of a trial."""
    regularised = trial.suggest_float("regularised", 0, 1) >= settings.unregularised
    beta = trial.suggest_float("beta", *settings.beta, log=True) if regularised else 0.0
    removed = trial.suggest_int("removed", *(round(share * maps) for share in settings.removed))
    return replace(base, marks=(), remove=removed, beta=beta, objective="beta" if regularised else "none")


def points(study: Any) -> list[Point]:
    """Finished trials, cheapest first."""
    found = []
    for trial in study.trials:
        if trial.state.is_finished() and trial.values is not None:
            beta = trial.params.get("beta", 0.0)
            loss, gflop = trial.values
            found.append(
                Point(
                    trial.number,
                    "beta" if beta else "none",
                    beta,
                    trial.params["removed"],
                    loss,
                    gflop,
                    trial.user_attrs.get("checkpoint", ""),
                )
            )
    return sorted(found, key=lambda point: point.gflop)


def pareto(found: list[Point]) -> list[Point]:
    """Points that no other beats in both loss and GFLOP, cheapest first."""
    return front(found, cost=lambda p: p.gflop, loss=lambda p: p.loss)


def student_trial(config: Config, start: Path) -> tuple[Trial, int]:
    """The real trial: prune ``start``, tune what is left; and the number of its maps."""
    from fastgaze.core.cost import prunable_maps
    from fastgaze.training.stages import prune_student, tune_student

    model, _ = load_checkpoint(start)

    def trial(settings: PruneSettings, folder: Path) -> tuple[float, float]:
        prune_student(replace(config, prune=settings), start, folder)
        result = tune_student(config, folder / "last.safetensors", folder / "tuned", say=lambda _: None)
        pruned, _ = load_checkpoint(folder / "tuned" / "best.safetensors")
        assert isinstance(pruned, GazeModel)
        return result.best_loss, flops(pruned.spec, REFERENCE) / 1e9

    return trial, prunable_maps(model.spec)


def summary(found: list[Point]) -> dict[str, Any]:
    """All points and the front, for JSON."""
    return {"points": [asdict(p) for p in found], "pareto": [p.number for p in pareto(found)]}
