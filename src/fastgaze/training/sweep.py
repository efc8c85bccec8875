"""Random search over beta and the number of pruned maps, as in the paper, by one machine or many.

Every trial prunes the same student its own way, fine-tunes what is left and reports (validation loss, GFLOP). The study
lives in a database: SQLite for one machine, PostgreSQL for many workers on one study. Only finished trials count, so
the others make up for a trial that a killed worker left unfinished.
"""

import re
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from fastgaze.core.cost import flops, prunable_maps
from fastgaze.core.errors import ArgumentError, require
from fastgaze.core.jsonable import Json
from fastgaze.core.pareto import pareto as front
from fastgaze.core.progress import Progress, silent
from fastgaze.networks.checkpoint import load_gaze_model
from fastgaze.training.config import Config, PruneSettings, SweepSettings
from fastgaze.training.prune import REFERENCE, prune_student
from fastgaze.training.student import tune_student

if TYPE_CHECKING:
    import optuna

_BEAT_SECONDS = 15
_WAIT_SECONDS = 1.0

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
    progress: Progress = silent,
) -> list[Point]:
    """Work on the study ``name`` at ``url`` until it has ``trials`` finished trials; returns all of them.

    trial: prunes and tunes in the folder it is given.
    maps: number of maps of the unpruned network, the output map included.
    """
    library = require("optuna", "train")
    library.logging.set_verbosity(library.logging.WARNING)
    study = open_study(url, name)

    def objective(drawn: "optuna.Trial") -> tuple[float, float]:
        if _begun(study, drawn.number) > trials:  # another worker was faster
            raise library.TrialPruned
        chosen = draw(drawn, maps, base, settings)
        out = folder / f"trial{drawn.number}-{chosen.objective}"
        loss, gflop = trial(chosen, out)
        drawn.set_user_attr("checkpoint", str(out))
        figures = f"beta {chosen.beta:.2g}, {gflop:.2f} GFLOP, loss {loss:.4f}"
        progress(len(points(study)) + 1, trials, f"trial {drawn.number}: {figures}")
        return loss, gflop

    try:
        while len(points(study)) < trials:
            if _begun(study) < trials:
                study.optimize(objective, n_trials=1)
            else:  # others are at the last ones; should one of them die, its trial is made up for here
                time.sleep(_WAIT_SECONDS)
                _fail_stale(study)
        return points(study)
    finally:
        study._storage.remove_session()


def _fail_stale(study: "optuna.Study") -> None:
    library = require("optuna", "train")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", library.exceptions.ExperimentalWarning)
        library.storages.fail_stale_trials(study)


def _begun(study: "optuna.Study", last: int | None = None) -> int:
    """Trials that are finished or being worked on, up to the one of number ``last``."""
    states = require("optuna.trial", "train").TrialState
    found = study.get_trials(deepcopy=False, states=(states.COMPLETE, states.RUNNING))
    return sum(last is None or trial.number <= last for trial in found)


def open_study(url: str, name: str) -> "optuna.Study":
    """The study in a database, made if it is not there."""
    library = require("optuna", "train")
    try:
        study: optuna.Study = library.create_study(
            study_name=name,
            storage=_storage(url),
            load_if_exists=True,
            directions=["minimize", "minimize"],
            sampler=library.samplers.RandomSampler(),  # no seed: workers must not draw the same trials
        )
    except (require("sqlalchemy.exc", "train").SQLAlchemyError, ImportError) as error:
        raise ArgumentError(
            f"no study at {masked(url)}: {_without_password(str(error).splitlines()[0], url)}"
        ) from None
    return study


def _storage(url: str) -> "optuna.storages.RDBStorage":
    """A worker that has not been heard of for a while counts as dead, and its trial as failed."""
    library = require("optuna", "train")
    # No pool: a connection is closed as soon as it is not needed.
    engine = {"poolclass": require("sqlalchemy.pool", "train").NullPool}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", library.exceptions.ExperimentalWarning)
        storage: optuna.storages.RDBStorage = library.storages.RDBStorage(
            _driver(url), engine, heartbeat_interval=_BEAT_SECONDS, grace_period=4 * _BEAT_SECONDS
        )
    return storage


def masked(url: str) -> str:
    """The address of a database without its password."""
    return re.sub(r"(://[^/@]*?:).*@", r"\1***@", url)


def _without_password(text: str, url: str) -> str:
    password = re.search(r"://[^/@]*?:(.*)@", url)
    for secret in (password[1], unquote(password[1])) if password else ():
        text = text.replace(secret, "***") if secret else text
    return text


def _driver(url: str) -> str:
    """``postgresql://`` with the driver that the ``train`` extra installs."""
    return url.replace("postgresql://", "postgresql+psycopg://", 1)


def draw(trial: "optuna.Trial", maps: int, base: PruneSettings, settings: SweepSettings) -> PruneSettings:
    """The settings of a trial."""
    regularised = trial.suggest_float("regularised", 0, 1) >= settings.unregularised
    beta = trial.suggest_float("beta", *settings.beta, log=True) if regularised else 0.0
    removed = trial.suggest_int("removed", *(round(share * maps) for share in settings.removed))
    return replace(base, marks=(), remove=removed, beta=beta, objective="beta" if regularised else "none")


def points(study: "optuna.Study") -> list[Point]:
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
    model, _ = load_gaze_model(start)

    def trial(settings: PruneSettings, folder: Path) -> tuple[float, float]:
        prune_student(replace(config, prune=settings), start, folder)
        result = tune_student(config, folder / "last.safetensors", folder / "tuned")
        pruned, _ = load_gaze_model(folder / "tuned" / "best.safetensors")
        return result.best_loss, flops(pruned.spec, REFERENCE) / 1e9

    return trial, prunable_maps(model.spec)


def summary(found: list[Point]) -> dict[str, Json]:
    """All points and the front, for JSON."""
    return {"points": [asdict(p) for p in found], "pareto": [p.number for p in pareto(found)]}
