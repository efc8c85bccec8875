"""``fastgaze teacher``, ``distill``, ``prune`` and the verbs that go with them: the workshop."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.table import Table

from fastgaze.app.cli.common import note, out, print_json, progress, say
from fastgaze.core.errors import ArgumentError, require

if TYPE_CHECKING:
    from fastgaze.core.progress import Progress
    from fastgaze.training.config import Config

ConfigFile = Annotated[Path, typer.Option("--config", help="Settings of the run, a TOML file.")]
Start = Annotated[Path, typer.Option("--start", help="Checkpoint to start from.")]
Out = Annotated[Path, typer.Option("--out", help="Folder of the run; one that exists is gone on with.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


def teacher(config: ConfigFile, json: Json = False) -> None:
    """Train the DeepGaze II ensemble and write its maps of the large set."""
    settings = _read(config)
    from fastgaze.training.runs import processes
    from fastgaze.training.teacher import train_teacher

    with processes(), training_bar("teacher") as report:
        result = train_teacher(settings, report)
    losses = {"large_set_losses": [fit.best_loss for fit in result.starts]}
    losses |= {"fold_losses": [fit.best_loss for fit in result.folds]}
    print_result({"teacher": str(result.checkpoint), **losses}, json)


def distill(
    config: ConfigFile,
    out_folder: Out,
    start: Annotated[Path | None, typer.Option("--start", help="Fine-tune this checkpoint.")] = None,
    grow: Annotated[
        Path | None, typer.Option("--grow", help="Start a new student with what this pruned checkpoint learned.")
    ] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Instead of the number in the settings.")] = None,
    scale: Annotated[
        float | None,
        typer.Option(min=0.1, max=1.0, help="Of the images' sides, for a model that shall work at a smaller size."),
    ] = None,
    json: Json = False,
) -> None:
    """Train a student on the teacher's maps: a new one, or fine-tune a checkpoint."""
    if start is not None and grow is not None:
        raise ArgumentError("--start fine-tunes a checkpoint as it is, --grow begins a wider one from it: give one")
    settings = _read(config).with_fit(steps, scale)
    from fastgaze.training.runs import processes
    from fastgaze.training.student import distill_student, tune_student

    with processes(), training_bar(out_folder.name) as report:
        if start is None:
            result = distill_student(settings, out_folder, grow, report)
        else:
            result = tune_student(settings, start, out_folder, report)
    facts = {"checkpoint": str(out_folder / "best.safetensors"), "loss": result.best_loss, "step": result.best_step}
    print_result(facts, json)


def maps(
    run: Annotated[Path, typer.Argument(help="Folder of a student's run.")],
    config: ConfigFile,
    variants: Annotated[
        bool, typer.Option("--variants", help="Of drawings, noise and other changed versions of the images.")
    ] = False,
    json: Json = False,
) -> None:
    """Write a student's maps of the large set, so that `teachers = [...]` in a mixture can name its run."""
    settings = _read(config)
    from fastgaze.training.runs import processes
    from fastgaze.training.soft_targets import write_soft_targets

    with processes(), training_bar("soft targets") as report:
        path = write_soft_targets(settings, run, variants, report)
    print_result({"soft_targets": str(path)}, json)


def prune(
    config: ConfigFile,
    start: Start,
    out_folder: Out,
    objective: Annotated[
        Literal["beta*", "beta", "none"] | None, typer.Option(help="Instead of the one in the settings.")
    ] = None,
    frozen_cost: Annotated[
        bool, typer.Option("--frozen-cost", help="Costs of the unpruned network throughout, as Molchanov et al.")
    ] = False,
    json: Json = False,
) -> None:
    """Fisher pruning of a student while it trains; keeps a snapshot at every mark of cost."""
    settings = _read(config)
    if objective is not None:
        settings = replace(settings, prune=replace(settings.prune, objective=objective))
    if frozen_cost:
        settings = replace(settings, prune=replace(settings.prune, frozen_cost=True))
    from fastgaze.training.prune import prune_student

    with training_bar(out_folder.name) as report:
        snapshots = prune_student(settings, start, out_folder, report)
    print_result({"snapshots": [str(path) for path in snapshots]}, json)


def narrow(
    config: ConfigFile,
    start: Start,
    widths: Annotated[str, typer.Option(help="Maps of every trunk layer in order, such as 16,16,16,32,32,48,48,64.")],
    readout: Annotated[str, typer.Option(help="Maps of the hidden readout layers, such as 30,16,2.")],
    out_file: Annotated[Path, typer.Option("--out", help="Checkpoint to write.")],
    json: Json = False,
) -> None:
    """Bring a FastGaze checkpoint to given widths, such as an engine's blocks; the least important maps go."""
    settings = _read(config)
    from fastgaze.core.cost import flops
    from fastgaze.training.prune import narrow_student

    spec = narrow_student(settings, start, _integers(widths), _integers(readout), out_file)
    print_result({"checkpoint": str(out_file), "gflop": flops(spec, (480, 640)) / 1e9}, json)


def _integers(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError as error:
        raise ArgumentError(f"{text!r} is no list of whole numbers such as 16,16,32") from error


def sweep(
    config: ConfigFile,
    start: Start,
    out_folder: Out,
    trials: Annotated[int, typer.Option(help="Finished trials that the study shall have in all.")] = 20,
    study: Annotated[str, typer.Option(help="Name of the study.")] = "sweep",
    storage: Annotated[
        str, typer.Option(help="Database URL; postgresql://... lets many machines work on one study.")
    ] = "",
    json: Json = False,
) -> None:
    """Random search over beta and the number of pruned maps; several workers may share one study."""
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
    table = Table("trial", "beta", "removed maps", "GFLOP", "loss", "Pareto")
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


def print_result(facts: dict[str, object], json: bool) -> None:
    """Facts as JSON, or one a line."""
    if json:
        print_json(facts)
    else:
        for key, value in facts.items():
            say(f"{key}: {value}")
