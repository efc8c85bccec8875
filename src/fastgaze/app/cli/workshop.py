"""``fastgaze workshop``: the stages of the paper, from the teacher to the pruned student."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.table import Table

from fastgaze.app.cli.common import (
    Json,
    OutFile,
    Verb,
    note,
    out,
    print_json,
    print_result,
    progress,
    refuse_stdout,
)
from fastgaze.core.errors import ArgumentError, require

if TYPE_CHECKING:
    from fastgaze.core.progress import Progress
    from fastgaze.training.config import Config
    from fastgaze.training.fit import FitResult
    from fastgaze.training.soft_targets import Labelled

app = typer.Typer(
    help="Make models as the paper did: teacher, distillation, Fisher pruning, tuning. Every stage can be resumed.",
    no_args_is_help=True,
)
Settings = Annotated[Path, typer.Option("--config", help="TOML file with the settings.", show_default=False)]
Start = Annotated[Path, typer.Option("--start", help="Checkpoint to start from.", show_default=False)]
RunFolder = Annotated[
    Path,
    typer.Option(
        "--out",
        help="Folder of the run. A run that was interrupted there is resumed.",
        callback=refuse_stdout,
        show_default=False,
    ),
]
Steps = Annotated[
    int | None, typer.Option(min=1, help="Training steps, instead of the number in the settings.", show_default=False)
]
Scale = Annotated[
    float | None,
    typer.Option(
        min=0.1,
        max=1.0,
        help="Scale the sides of the images by this, for a model that is to work at a smaller size.",
        show_default=False,
    ),
]


@app.command(cls=Verb)
def teacher(config: Settings, json: Json = False) -> None:
    """Train the DeepGaze II ensemble and write its soft targets for the large data set."""
    settings = _read(config)
    from fastgaze.training.runs import processes
    from fastgaze.training.teacher import train_teacher

    with processes(), training_bar("teacher") as report:
        result = train_teacher(settings, report)
    losses = {"large_set_losses": [fit.best_loss for fit in result.starts]}
    losses |= {"fold_losses": [fit.best_loss for fit in result.folds]}
    print_result({"teacher": str(result.checkpoint), **losses}, json)


@app.command(cls=Verb)
def distill(
    config: Settings,
    out_folder: RunFolder,
    grow: Annotated[
        Path | None,
        typer.Option(
            "--grow", help="Begin with what this pruned checkpoint has learned, at full width.", show_default=False
        ),
    ] = None,
    steps: Steps = None,
    scale: Scale = None,
    json: Json = False,
) -> None:
    """Train a new student on the soft targets, with the settings of the section student."""
    settings = _read(config).with_fit(steps, scale)
    from fastgaze.training.student import distill_student

    _fit(lambda report: distill_student(settings, out_folder, grow, report), out_folder, json)


@app.command(cls=Verb)
def tune(
    config: Settings, start: Start, out_folder: RunFolder, steps: Steps = None, scale: Scale = None, json: Json = False
) -> None:
    """Train an existing student further on the soft targets, with the settings of the section tune."""
    settings = _read(config).with_fit(steps, scale)
    from fastgaze.training.student import tune_student

    _fit(lambda report: tune_student(settings, start, out_folder, report), out_folder, json)


def _fit(train: "Callable[[Progress], FitResult]", folder: Path, json: bool) -> None:
    """Train a student in ``folder`` with a progress bar, and print where its best checkpoint is and how good it is."""
    from fastgaze.training.runs import processes

    with processes(), training_bar(folder.name) as report:
        result = train(report)
    facts = {"checkpoint": str(folder / "best.safetensors"), "loss": result.best_loss, "step": result.best_step}
    print_result(facts, json)


@app.command("soft-targets", cls=Verb)
def soft_targets(
    run: Annotated[Path, typer.Argument(help="Folder of a student's run.", show_default=False)],
    config: Settings,
    variants: Annotated[
        bool,
        typer.Option("--variants", help="Predict drawings, noise and other changed versions of the images instead."),
    ] = False,
    eye_tracking: Annotated[
        bool,
        typer.Option("--eye-tracking", help="Predict the eye-tracking sets instead, those of mixed shapes too."),
    ] = False,
    json: Json = False,
) -> None:
    """Write a student's predictions for the large data set, from which other students can learn.

    Name its run in the settings of a mixture, as in `teachers = ["lite1"]`.
    """
    if variants and eye_tracking:
        raise ArgumentError("--variants and --eye-tracking exclude each other; run the command once with each")
    settings = _read(config)
    from fastgaze.training.runs import processes
    from fastgaze.training.soft_targets import write_soft_targets

    with processes(), training_bar("soft targets") as report:
        labelled: Labelled = "variants" if variants else "eye-tracking" if eye_tracking else "large"
        path = write_soft_targets(settings, run, labelled, report)
    print_result({"soft_targets": str(path)}, json)


@app.command(cls=Verb)
def prune(
    config: Settings,
    start: Start,
    out_folder: RunFolder,
    objective: Annotated[
        Literal["beta*", "beta", "none"] | None,
        typer.Option(help="How loss and cost are traded, instead of the way in the settings.", show_default=False),
    ] = None,
    frozen_cost: Annotated[
        bool,
        typer.Option(
            "--frozen-cost", help="Use the costs of the unpruned network throughout, as Molchanov et al. did."
        ),
    ] = False,
    json: Json = False,
) -> None:
    """Remove feature maps from a student by Fisher pruning while it trains.

    A snapshot is kept at each cost that the section prune of the settings lists as a mark.
    """
    settings = _read(config)
    if objective is not None:
        settings = replace(settings, prune=replace(settings.prune, objective=objective))
    if frozen_cost:
        settings = replace(settings, prune=replace(settings.prune, frozen_cost=True))
    from fastgaze.training.prune import prune_student

    with training_bar(out_folder.name) as report:
        snapshots = prune_student(settings, start, out_folder, report)
    print_result({"snapshots": [str(path) for path in snapshots]}, json)


@app.command(cls=Verb)
def narrow(
    config: Settings,
    start: Start,
    widths: Annotated[
        str,
        typer.Option(
            help="Feature maps of the trunk's layers in order, such as 16,16,16,32,32,48,48,64.", show_default=False
        ),
    ],
    readout: Annotated[
        str,
        typer.Option(help="Feature maps of the readout's hidden layers in order, such as 30,16,2.", show_default=False),
    ],
    out_file: OutFile,
    json: Json = False,
) -> None:
    """Reduce a checkpoint to given widths by removing the least important feature maps.

    Widths that fill the blocks of an engine make a network faster than its GFLOP suggest.
    """
    settings = _read(config)
    from fastgaze.core.cost import flops
    from fastgaze.training.prune import narrow_student

    spec = narrow_student(settings, start, _integers("--widths", widths), _integers("--readout", readout), out_file)
    print_result({"checkpoint": str(out_file), "gflop_640x480": flops(spec, (480, 640)) / 1e9}, json)


def _integers(option: str, text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError as error:
        raise ArgumentError(f"{option} {text!r} is not a list of whole numbers such as 16,16,32") from error


@app.command(cls=Verb)
def sweep(
    config: Settings,
    start: Start,
    out_folder: RunFolder,
    trials: Annotated[int, typer.Option(min=1, help="Number of finished trials at which the search ends.")] = 20,
    study: Annotated[str, typer.Option(help="Name of the study in the database.")] = "sweep",
    storage: Annotated[
        str,
        typer.Option(
            help="URL of the database; with postgresql://... several machines can share a study. "
            "By default a file in the folder of the run.",
            show_default=False,
        ),
    ] = "",
    json: Json = False,
) -> None:
    """Search at random over beta and the number of feature maps to remove.

    Several processes and machines may work on one study.
    """
    settings = _read(config)
    from fastgaze.evaluation.figures import pareto_figure
    from fastgaze.training.sweep import pareto, run_sweep, student_trial, summary

    out_folder.mkdir(parents=True, exist_ok=True)

    trial, maps = student_trial(settings, start)
    url = storage or f"sqlite:///{out_folder.resolve() / 'study.db'}"
    with training_bar(study) as report:
        found = run_sweep(trial, maps, settings.prune, settings.sweep, url, study, trials, out_folder, report)
    front = {point.number for point in pareto(found)}
    pareto_figure([(p.gflop, p.loss, p.objective) for p in found], out_folder / "pareto.png")
    if json:
        print_json(summary(found))
        return
    table = Table("trial", "beta", "removed maps", "GFLOP", "loss", "Pareto", box=None)
    for p in found:
        cells = (str(p.number), f"{p.beta:.2g}", str(p.removed), f"{p.gflop:.2f}", f"{p.loss:.4f}")
        table.add_row(*cells, "yes" if p.number in front else "")
    out.print(table)


def _read(path: Path) -> "Config":
    require("torch", "train")
    from fastgaze.training.config import read_config

    return read_config(path)


@contextmanager
def training_bar(what: str) -> Iterator["Progress"]:
    """A progress bar on a terminal; elsewhere a line on stderr every half minute, so that a log tells how far it is."""
    with progress() as bar:
        task = bar.add_task(what, total=None)
        told = time.monotonic()

        def report(done: int, total: int | None, words: str) -> None:
            nonlocal told
            bar.update(task, completed=done, total=total, description=f"{what}  {words}")
            if bar.disable and time.monotonic() - told > _SECONDS_BETWEEN_LINES:
                note(f"{what}: {done}{'' if total is None else f' of {total}'}, {words}")
                told = time.monotonic()

        yield report


_SECONDS_BETWEEN_LINES = 30
