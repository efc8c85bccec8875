"""The stages of the paper, each a function that goes on where it was: teacher, student, pruning, tuning."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fastgaze.errors import ArgumentError
from fastgaze.files import replacing
from fastgaze.models.checkpoint import load_checkpoint, save_checkpoint
from fastgaze.models.ensemble import GazeEnsemble
from fastgaze.models.factory import create_model
from fastgaze.models.gaze import GazeModel
from fastgaze.models.spec import GazeSpec
from fastgaze.models.weights import load_backbone
from fastgaze.pruning import Cost, Removal
from fastgaze.training.config import Config, TeacherSettings
from fastgaze.training.distill import Mixture, distillation_sources, fit_student, new_student, student_maps
from fastgaze.training.distributed import barrier, rank, world_size
from fastgaze.training.fit import FitResult, FitSettings, Report, working_size
from fastgaze.training.grow import grow_into
from fastgaze.training.identity import Facts, claim, weights_digest, workshop_facts
from fastgaze.training.latency import latency_cost
from fastgaze.training.prepare import write_json
from fastgaze.training.prune import PruneSettings, narrow_to, prune_while_training, trace
from fastgaze.training.stream import Source, fixation_source
from fastgaze.training.teacher import fit_folds, fit_readout, is_dead, mean_maps, save_teacher
from fastgaze.training.variants import KEY, variants
from fastgaze.training.widths import with_widths
from fastgaze.training.workshop import Workshop

Say = Callable[[str], None]


def teacher_file(workshop: Workshop) -> Path:
    """The ensemble's checkpoint."""
    return workshop.runs / "teacher" / "ensemble.safetensors"


def maps_file(workshop: Workshop, run: str = "teacher", variants: bool = False) -> Path:
    """A run's maps of the large set or of its variants; ``teacher`` is the ensemble."""
    return workshop.runs / run / f"{KEY if variants else 'maps'}-{len(workshop.large)}.npy"


def train_teacher(config: Config, say: Say, report: Report | None = None) -> GazeEnsemble:
    """DeepGaze II on the large set, its ensemble on the folds of the eye-tracking sets, and the ensemble's maps."""
    workshop, settings, folder = config.workshop, config.teacher, config.workshop.runs / "teacher"
    claim(folder, _teacher_facts(workshop, settings), _teacher_facts(_ANY_WORKSHOP, TeacherSettings()))
    trunk, record = _new_teacher(workshop, settings, seed=0)
    _extract_all(workshop, trunk, say)
    features = workshop.features(None, workshop.pretraining)
    large = fixation_source(workshop.large, features=features)
    validation = workshop.validation_source(trunk)
    starts = []
    for number in range(settings.starts):
        say(f"readout {number + 1} of {settings.starts} on the large set")
        model, result = _large_readout(config, number, large, validation, folder, report)
        say(f"validation loss {result.best_loss:.4f} at step {result.best_step}")
        if number == 0:
            facts = {"data": [workshop.pretraining], "fit": asdict(result), "settings": asdict(settings)}
            save_checkpoint(model, folder / "single.safetensors", record | facts)
        starts.append(model)
    extra = [replace(large, weight=settings.large_share)] if settings.large_share else []
    results: dict[int, FitResult] = {}

    def fold_done(fold: int, result: FitResult) -> None:
        results[fold] = result
        say(f"fold {fold}: validation loss {result.best_loss:.4f} at step {result.best_step}")

    pairs = workshop.small_features(trunk)
    models = fit_folds(starts, pairs, extra, settings.members, settings.folds, folder, fold_done)
    record |= {"data": [workshop.pretraining, *workshop.eye_tracking], "settings": asdict(settings)}
    record |= {"folds": {str(fold): asdict(result) for fold, result in results.items()}}
    ensemble = save_teacher(models, teacher_file(workshop), record)
    say("maps of the large set")
    with replacing(maps_file(workshop)) as part:
        np.save(part, mean_maps(ensemble, features, workshop.large))
    return ensemble


def _teacher_facts(workshop: Workshop, settings: TeacherSettings) -> Facts:
    """What a teacher is of; its fits know their own settings."""
    chosen = {key: value for key, value in asdict(settings).items() if key not in ("fit", "folds")}
    return {"workshop": workshop_facts(workshop), "teacher": chosen}


_ANY_WORKSHOP = Workshop(Path(), Path())  # for the defaults of its settings


def _large_readout(
    config: Config, number: int, large: Source, validation: Source, folder: Path, report: Report | None
) -> tuple[GazeModel, FitResult]:
    """A readout trained on the large set. One that dies, as both maps of its narrow layer may, is begun anew."""
    settings = config.teacher
    for seed in range(number, _ATTEMPTS * settings.starts, settings.starts):
        model, _ = _new_teacher(config.workshop, settings, seed)
        place = folder / (f"large{seed}" if seed else "large")
        fit = replace(settings.fit, seed=settings.fit.seed + seed)
        result = fit_readout(model, [large], validation, config.workshop.size, fit, place, report)
        if not is_dead(model, validation.inputs):
            return model, result
    raise ArgumentError(
        f"{_ATTEMPTS} readouts in a row died: they predict the same for every image; "
        f"lower teacher.fit.learning_rate = {settings.fit.learning_rate}"
    )


_ATTEMPTS = 4  # about one readout in six dies


def _new_teacher(workshop: Workshop, settings: TeacherSettings, seed: int) -> tuple[GazeModel, dict[str, Any]]:
    """DeepGaze II with a frozen trunk and a new readout, and the record of where its weights came from."""
    torch.manual_seed(seed)
    model = create_model("deepgaze2")
    record = load_backbone(model.trunk, settings.backbone, workshop.sample())
    model.requires_grad_(False)
    model.readout.requires_grad_(True)
    model.tail.requires_grad_(True)
    model.tail.center_bias.copy_(torch.from_numpy(workshop.large.center_bias))
    return model, record


def _extract_all(workshop: Workshop, model: GazeModel, say: Say) -> None:
    for name in (*workshop.eye_tracking, workshop.validation, workshop.pretraining):
        total = len(workshop.prepared(name))
        for done in workshop.extract(model, name):
            if done % 400 == 0 or done == total:
                say(f"features of {name}: {done} of {total}")


def teacher_maps(workshop: Workshop, runs: Sequence[str] = ("teacher",), variants: bool = False) -> NDArray[np.float16]:
    """The mean of the maps of one teacher or several, float16 (n, h, w) relative to uniform."""
    if not runs:
        raise ArgumentError("mixture: teachers is empty; name at least one run, such as 'teacher'")
    if variants and "teacher" in runs:
        raise ArgumentError(
            "mixture: the ensemble has maps of photographs only; set variants = 0 or name students in teachers, "
            "such as teachers = ['densegaze-m']"
        )
    paths = [maps_file(workshop, run, variants) for run in runs]
    for run, path in zip(runs, paths, strict=True):
        if not path.is_file():
            verb = "teacher" if run == "teacher" else f"maps {workshop.runs / run}{' --variants' if variants else ''}"
            raise ArgumentError(f"no teacher maps at {path}; first: fastgaze {verb} --config ...")
    files = [np.load(path, mmap_mode="r") for path in paths]
    if len(files) == 1:
        return np.array(files[0], np.float16)
    return np.stack([np.mean([f[i] for f in files], axis=0, dtype=np.float32) for i in range(len(files[0]))]).astype(
        np.float16
    )


def map_large_set(
    config: Config, run: Path, of_variants: bool = False, report: Callable[[int, int], None] | None = None
) -> Path:
    """Write the maps of a run's best student, from which others can learn; returns their file.

    The student sees the images as in its training, in precision and size. Under ``torchrun`` processes share the work.
    """
    workshop = config.workshop
    data = workshop.large
    if of_variants:
        data = replace(data, images=variants(data, workshop.cache))
    path = run / maps_file(workshop, variants=of_variants).name
    model, record = _load(run / "best.safetensors")
    fit = FitSettings(**record["fit"]["settings"]) if "fit" in record else config.student.fit
    mine = np.array_split(np.arange(len(data)), world_size())[rank()]
    parts: list[NDArray[np.float16]] = []
    for part in student_maps(model, data.subset(mine), precision=fit.precision, scale=fit.scale):
        parts.append(part)
        if report:
            report(sum(map(len, parts)), len(mine))
    _save(_part_of(path, rank()), np.concatenate(parts))
    barrier()
    if rank() == 0:
        _save(path, np.concatenate([np.load(_part_of(path, number)) for number in range(world_size())]))
        for number in range(world_size()):
            _part_of(path, number).unlink()
    return path


def _part_of(path: Path, number: int) -> Path:
    """What one of several processes leaves for the first, which joins the parts."""
    return path.with_suffix(f".part{number}.npy")


def _save(path: Path, array: NDArray[np.float16]) -> None:
    with replacing(path) as part:
        np.save(part, array)


def distill_student(
    config: Config, out: Path, say: Say, report: Report | None = None, grow: Path | None = None
) -> FitResult:
    """An unpruned student from its backbone; with ``grow``, a pruned checkpoint, from what that one learned too."""
    settings = config.student
    model, record = new_student(config.workshop, settings.architecture, settings.backbone)
    start = [settings.architecture, settings.backbone]
    if grow is not None:
        small, its_record = _load(grow)
        start.append(weights_digest(small))
        grow_into(small, model)
        record = record | {"grown_from": its_record}
    _claim(config.workshop, start, settings.mixture, out)
    return _fit(config, model, settings.mixture, settings.fit, out, record, say, report)


def tune_student(config: Config, start: Path, out: Path, say: Say, report: Report | None = None) -> FitResult:
    """Fine-tune a checkpoint, pruned or not, by distillation."""
    model, record = _load(start)
    _claim(config.workshop, weights_digest(model), config.tune.mixture, out)
    return _fit(config, model, config.tune.mixture, config.tune.fit, out, {"start": record}, say, report)


def prune_student(
    config: Config, start: Path, out: Path, report: Callable[[Removal], None] | None = None
) -> list[Path]:
    """Prune a checkpoint while training it; returns the snapshots."""
    model, record = _load(start)
    _claim(config.workshop, weights_digest(model), config.student.mixture, out, config.prune)
    cost: Cost | None = None
    if config.prune.cost == "latency":
        size = working_size(model, config.workshop.size, config.prune.scale)
        cost = latency_cost(trace(model), size, out / "latency.json")
    sources = _sources(config.workshop, config.student.mixture)
    return prune_while_training(model, sources, config.prune, out, {"start": record}, cost, report)


def narrow_student(config: Config, start: Path, widths: Sequence[int], readout: Sequence[int], out: Path) -> GazeSpec:
    """Bring a checkpoint to given widths, those of the trunk in the order of ``trunk_widths``; returns its spec."""
    model, record = _load(start)
    wanted = with_widths(model.spec, widths, readout)
    sources = _sources(config.workshop, config.student.mixture)
    narrow_to(model, wanted, sources, precision=config.prune.precision)
    save_checkpoint(model, out, {"start": record, "narrowed": {"widths": list(widths), "readout": list(readout)}})
    return wanted


def _sources(workshop: Workshop, mixture: Mixture) -> list[Source]:
    changed = teacher_maps(workshop, mixture.teachers, variants=True) if mixture.variants else None
    maps = teacher_maps(workshop, mixture.teachers) if mixture.teacher else None
    return distillation_sources(workshop, maps, mixture, changed)


def _claim(
    workshop: Workshop, start: str | list[str], mixture: Mixture, out: Path, prune: PruneSettings | None = None
) -> None:
    """Refuse ``out`` if it holds a run from another start, on other data or with other settings."""
    facts: Facts = {"run": {"start": start}, "workshop": workshop_facts(workshop), "mixture": asdict(mixture)}
    defaults = {
        "workshop": workshop_facts(_ANY_WORKSHOP),
        "mixture": asdict(Mixture()),
        "prune": asdict(PruneSettings()),
    }
    claim(out, facts | ({"prune": asdict(prune)} if prune else {}), defaults)


def _load(path: Path) -> tuple[GazeModel, dict[str, Any]]:
    model, record = load_checkpoint(path)
    if not isinstance(model, GazeModel):
        raise ArgumentError(f"{path} is no student but a {model.spec.architecture}")
    return model, record


def _fit(
    config: Config,
    model: GazeModel,
    mixture: Mixture,
    settings: FitSettings,
    out: Path,
    record: dict[str, Any],
    say: Say,
    report: Report | None,
) -> FitResult:
    workshop = config.workshop
    sources = _sources(workshop, mixture)
    height, width = working_size(model, workshop.size, settings.scale)
    record = record | {"data": workshop.trained_on(mixture.mixed_shapes > 0), "mixture": asdict(mixture)}
    record |= {"working_pixels": height * width}
    result = fit_student(model, workshop, sources, settings, out, record, report)
    write_json(out / "result.json", asdict(result))
    say(f"{out.name}: validation loss {result.best_loss:.4f} at step {result.best_step} of {result.step}")
    return result
