"""The paper's stages on a toy data set and a real VGG-19: they run, resume and hand over to each other."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from experiments import kinds
from fastgaze.core.center_bias import fade_border
from fastgaze.core.cost import flops, prunable_maps
from fastgaze.core.errors import ArgumentError
from fastgaze.core.files import cache_dir
from fastgaze.core.spec import GazeSpec, VGGSpec
from fastgaze.data.fixations import held_out
from fastgaze.data.formats import load
from fastgaze.networks import GazeModel, create_model, load_checkpoint, save_checkpoint
from fastgaze.networks.checkpoint import TrainingRecord, untrained
from fastgaze.networks.ensemble import GazeEnsemble
from fastgaze.pruning import History
from fastgaze.runtime.card import read_card
from fastgaze.training.config import Config, Mixture, PruneSettings, read_config
from fastgaze.training.datasets import dataset_center_bias
from fastgaze.training.fit import FitSettings
from fastgaze.training.prune import narrow_student, narrow_to, prune_student, prune_while_training
from fastgaze.training.soft_targets import (
    distillation_sources,
    mixed_targets,
    read_soft_targets,
    soft_targets_file,
    student_densities,
    write_soft_targets,
)
from fastgaze.training.student import tune_student
from fastgaze.training.teacher import fit_folds, is_dead, train_teacher
from tests.commands import run
from tests.training.helpers import SIZE, TINY, bright_squares, source, tiny_model, write_set

RECORD = untrained(TINY)


def test_settings_come_from_the_file_and_unknown_ones_are_refused(config: Config, tmp_path: Path) -> None:
    assert config.workshop.data == tmp_path / "data"
    assert config.workshop.size == SIZE
    assert config.teacher.folds.steps == 4
    (tmp_path / "bad.toml").write_text('[workshop]\ndata = "d"\nruns = "r"\n[tune]\nfit = { stepz = 4 }')
    with pytest.raises(ArgumentError, match="tune: fit: no setting 'stepz'; the settings are steps, batch"):
        read_config(tmp_path / "bad.toml")


_WORKSHOP = "[workshop]\ndata = 'd'\nruns = 'r'\n"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[tune]", r"no section \[workshop\]"),
        ("workshop = 5", "workshop = 5 is not a section"),
        ("[workshop]\nsize = [240, 320]", "size = .* write WIDTHxHEIGHT in quotes"),
        ("[workshop]\nlimit = 1.5", "limit = 1.5 is not a whole number"),
        (_WORKSHOP + "[tune]\nfit = { steps = 'many' }", "tune: fit: steps = 'many' is not a whole number"),
        (_WORKSHOP + "[tune]\nfit = { precision = 'fp8' }", "precision = 'fp8' is not one of 'bf16', 'fp32'"),
        (_WORKSHOP + "[prune]\nmarks = 3", "marks = 3 is not a list"),
        ("\xff", "not a readable TOML file"),
        ("[workshop]\nruns = 'r'", "workshop: data is missing; give it a value"),
    ],
)
def test_a_setting_of_another_type_is_refused_by_name(tmp_path: Path, text: str, reason: str) -> None:
    (tmp_path / "bad.toml").write_bytes(text.encode("latin-1"))
    with pytest.raises(ArgumentError, match=reason):
        read_config(tmp_path / "bad.toml")


def test_images_that_are_kept_out_are_never_prepared_for_training(config: Config) -> None:
    (eyes,) = config.workshop.small
    assert 0 < len(eyes) < 20
    assert not held_out(eyes.names).any()
    whole = config.workshop.load("eyes")
    np.testing.assert_array_equal(eyes.center_bias, dataset_center_bias(whole.subset(~held_out(whole.names))))
    assert not np.array_equal(eyes.center_bias, config.workshop.prepared("eyes").center_bias)


def test_keeping_images_out_can_be_switched_off(config: Config) -> None:
    (eyes,) = replace(config.workshop, kept_out_share=0.0).small
    assert len(eyes) == 20
    assert held_out(eyes.names).any()


def test_a_file_takes_from_its_base_what_it_leaves_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "inner").mkdir()
    base, file = tmp_path / "base.toml", tmp_path / "inner" / "own.toml"
    base.write_text('[workshop]\ndata = "d"\nruns = "r"\nlimit = 7\n[tune.fit]\nsteps = 3\nbatch = 2\n')
    file.write_text('base = "../base.toml"\n[workshop]\nruns = "s"\n[tune.fit]\nsteps = 9\n')
    own = read_config(file)
    assert own.workshop.data.resolve() == tmp_path / "d", "folders are relative to the file that names them"
    assert own.workshop.runs.resolve() == tmp_path / "inner" / "s"
    assert (own.workshop.limit, own.tune.fit.steps, own.tune.fit.batch) == (7, 9, 2)
    monkeypatch.setenv("FASTGAZE_DATA", "/elsewhere")
    assert read_config(file).workshop.data == Path("/elsewhere")


def test_a_shipped_centre_bias_does_not_know_what_is_kept_out(tmp_path: Path) -> None:
    sets = [tmp_path / name for name in kinds.TRAINED_ON]
    for seed, folder in enumerate(sets):
        write_set(folder, 20, seed)
    kept = []
    for folder in sets:
        data = load("npz", folder)
        kept.append(data if folder.name == "train" else data.subset(~held_out(data.names)))
    assert min(map(len, kept[1:])) < 20
    mean = np.mean([np.exp(dataset_center_bias(data)) for data in kept], axis=0)
    learned = kinds.learned(tmp_path)
    assert [len(data) for data in learned.values()] == [len(data) for data in kept]
    found, photograph, screen = kinds.center_biases(learned)
    np.testing.assert_allclose(found, fade_border(np.log(mean)), rtol=1e-5)
    assert np.abs(photograph - screen).max() > 0.1


def test_targets_mix_teacher_and_fixations_and_sum_to_one(config: Config) -> None:
    large = config.workshop.large
    uniform = np.ones((len(large), *large.grid), np.float16)
    targets = mixed_targets(large, uniform, teacher_share=0.25)
    np.testing.assert_allclose(targets.astype(np.float64).mean(axis=(1, 2)), 1, rtol=1e-2)
    nobody = large.counts[0] == 0
    np.testing.assert_allclose(targets[0][nobody], 0.25)
    unseen = replace(large, counts=np.zeros_like(large.counts))
    np.testing.assert_array_equal(mixed_targets(unseen, uniform, teacher_share=0.25), uniform)
    _uniform_targets(config)
    taught, eyes = distillation_sources(config.workshop, Mixture(eye_tracking=0.2, teacher=1.0))
    assert (taught.weight, eyes.weight) == (0.8, 0.2)


def test_teacher_ensemble_averages_its_folds_and_leaves_maps(config: Config) -> None:
    if not (cache_dir() / "vgg19.safetensors").is_file():
        pytest.skip(f"no backbones in {cache_dir()}: `make backbones` gets them")
    notes: list[str] = []
    result = train_teacher(config, lambda _done, _total, note: notes.append(note))
    assert (len(result.starts), len(result.folds)) == (2, 2)
    assert {"features of large", "features of eyes"} <= set(notes)
    assert notes[-1].startswith("fold 2 of 2: loss ")
    maps = read_soft_targets(config.workshop)
    assert maps.shape == (24, 16, 24)
    np.testing.assert_allclose(maps.astype(np.float64).mean(axis=(1, 2)), 1, rtol=1e-2)
    saved, record = load_checkpoint(result.checkpoint)
    assert isinstance(saved, GazeEnsemble)
    assert len(saved.heads) == 2
    image = torch.randn(1, 3, 64, 96)
    with torch.inference_mode():
        mean = torch.stack([h(saved.trunk(image), SIZE, SIZE).exp() for h in saved.heads]).mean(0)
        torch.testing.assert_close(saved(image).exp(), mean)
    assert (record.stage, record.data, record.working_pixels) == ("teacher", ("large", "eyes"), 64 * 96)
    assert record.architecture == "deepgaze2-ensemble"
    assert record.backbone is not None
    assert record.backbone.file == "vgg19.safetensors"
    assert record.loss == pytest.approx(np.mean([fold.best_loss for fold in result.folds]))
    single = load_checkpoint(config.workshop.runs / "teacher" / "single.safetensors")[1]
    assert (single.data, single.loss) == (("large",), result.starts[0].best_loss)
    # Started again, it finds everything done and gives the same maps.
    train_teacher(config)
    np.testing.assert_array_equal(read_soft_targets(config.workshop), maps)


def _uniform_targets(config: Config) -> None:
    path = soft_targets_file(config.workshop)
    path.parent.mkdir(parents=True)
    np.save(path, np.ones((24, 16, 24), np.float16))


def test_without_teacher_maps_a_student_says_what_to_run(config: Config) -> None:
    with pytest.raises(ArgumentError, match="fastgaze workshop teacher"):
        read_soft_targets(config.workshop)
    with pytest.raises(ArgumentError, match=r"fastgaze workshop soft-targets .*runs/small"):
        read_soft_targets(config.workshop, ["small"])
    with pytest.raises(ArgumentError, match="name at least one run"):
        read_soft_targets(config.workshop, [])


def test_a_student_teaches_beside_the_ensemble_with_maps_that_know_no_left_and_right(config: Config) -> None:
    _uniform_targets(config)
    small = config.workshop.runs / "small"
    save_checkpoint(tiny_model(), small / "best.safetensors")
    path = write_soft_targets(config, small)
    assert path == soft_targets_file(config.workshop, "small")
    maps = np.load(path).astype(np.float64)
    assert maps.shape == (24, 16, 24)
    np.testing.assert_allclose(maps.mean(axis=(1, 2)), 1, rtol=1e-2)
    both = read_soft_targets(config.workshop, ["teacher", "small"])
    np.testing.assert_allclose(both, (1 + maps) / 2, rtol=2e-3)
    large = config.workshop.large
    symmetric = replace(large, center_bias=np.zeros((4, 4), np.float32))
    mirrored = replace(symmetric, images=np.ascontiguousarray(large.images[:, :, ::-1]))
    plain, other = (
        np.concatenate(list(student_densities(tiny_model(), data, RECORD))) for data in (symmetric, mirrored)
    )
    np.testing.assert_allclose(other[:, :, ::-1], plain, rtol=2e-2, atol=1e-3)


def test_variants_take_their_share_from_the_large_set(config: Config) -> None:
    _uniform_targets(config)
    small = config.workshop.runs / "small"
    save_checkpoint(tiny_model(), small / "best.safetensors")
    path = write_soft_targets(config, small, "variants")
    assert path == soft_targets_file(config.workshop, "small", of_variants=True)
    write_soft_targets(config, small)
    mixture = Mixture(eye_tracking=0.2, variants=0.25, teachers=("small",))
    taught, changed, eyes = distillation_sources(config.workshop, mixture)
    assert (taught.weight, changed.weight, eyes.weight) == pytest.approx((0.6, 0.2, 0.2))
    assert (changed.inputs != taught.inputs).mean() > 0.5
    with pytest.raises(ArgumentError, match=r"fastgaze workshop soft-targets .*other --variants"):
        read_soft_targets(config.workshop, ("other",), of_variants=True)
    with pytest.raises(ArgumentError, match="the ensemble has soft targets of the large set only; set variants = 0"):
        read_soft_targets(config.workshop, of_variants=True)


def test_a_readout_whose_maps_are_all_zero_is_dead() -> None:
    torch.manual_seed(0)
    model = create_model("deepgaze2")
    features = np.random.default_rng(0).standard_normal((4, 2048, 4, 6)).astype(np.float16)
    assert not is_dead(model, features)
    last = list(model.readout.parameters())[-2]
    last.data.zero_()
    assert is_dead(model, features)


def test_folds_start_from_the_readouts_in_turn(tmp_path: Path) -> None:
    first, second = create_model("deepgaze2"), create_model("deepgaze2")
    squares = bright_squares(8, SIZE, seed=0)
    features = np.zeros((8, 1, 1, 1), np.float16)
    untrained = FitSettings(steps=0)
    fitted = fit_folds([first, second], [(squares, features)], [], folds=3, settings=untrained, folder=tmp_path)
    for (model, _), start in zip(fitted, (first, second, first), strict=True):
        for name, tensor in start.readout.state_dict().items():
            assert torch.equal(model.readout.state_dict()[name], tensor), name


def test_pruned_snapshots_are_smaller_and_can_be_tuned(config: Config, tmp_path: Path) -> None:
    _uniform_targets(config)
    start = tmp_path / "start.safetensors"
    save_checkpoint(tiny_model(), start)
    snapshots = prune_student(config, start, tmp_path / "pruned")
    trunks = [model.spec.trunk for model, _ in map(load_checkpoint, snapshots) if isinstance(model, GazeModel)]
    widths = [sum(map(sum, trunk.blocks)) for trunk in trunks if isinstance(trunk, VGGSpec)]
    assert len(snapshots) == len(widths) == 2
    assert sum((4, 6, 6, 8, 8)) > widths[0] > widths[1]
    result = tune_student(config.with_fit(steps=3), snapshots[-1], tmp_path / "tuned")
    assert result.step == 3
    tuned, record = load_checkpoint(tmp_path / "tuned" / "best.safetensors")
    assert tuned.spec == load_checkpoint(snapshots[-1])[0].spec
    assert (record.stage, record.loss, record.steps) == ("tune", result.best_loss, result.best_step)
    # Neither another start nor another objective goes on in the same folder.
    with pytest.raises(ArgumentError, match=r"tuned holds another run: run.start is .* choose another folder"):
        tune_student(config.with_fit(steps=3), snapshots[0], tmp_path / "tuned")
    other = replace(config, prune=replace(config.prune, objective="none"))
    with pytest.raises(ArgumentError, match=r"prune.objective is 'beta\*' there, 'none' here"):
        prune_student(other, start, tmp_path / "pruned")
    assert prune_student(config, start, tmp_path / "pruned") == snapshots


def _pruned(config: Config, folder: Path) -> Path:
    """A snapshot of a pruned student that began without a record."""
    _uniform_targets(config)
    save_checkpoint(tiny_model(), folder / "start.safetensors")
    return prune_student(config, folder / "start.safetensors", folder / "pruned")[-1]


def test_every_stage_says_what_it_was_trained_on_and_how_far_it_was_pruned(config: Config, tmp_path: Path) -> None:
    snapshot = _pruned(config, tmp_path)
    record = load_checkpoint(snapshot)[1]
    assert (record.stage, record.architecture, record.working_pixels) == ("prune", "fastgaze", 64 * 96)
    assert (record.data, record.teachers) == (("large", "eyes"), ("teacher",))
    assert record.pruning is not None
    assert (record.pruning.objective, record.pruning.unit, record.pruning.mark) == ("beta*", "GFLOP", 0.05)
    assert record.pruning.cost == pytest.approx(flops(load_checkpoint(snapshot)[0].spec, (480, 640)) / 1e9)
    assert record.steps > 0
    last = load_checkpoint(tmp_path / "pruned" / "last.safetensors")[1]
    assert last.pruning == replace(record.pruning, mark=None)
    spec = load_checkpoint(snapshot)[0].spec
    assert isinstance(spec, GazeSpec)
    assert isinstance(spec.trunk, VGGSpec)
    widths = [max(width - 1, 1) for block in spec.trunk.blocks for width in block]
    narrow_student(config, snapshot, widths, spec.readout[:-1], tmp_path / "narrow.safetensors")
    narrowed = load_checkpoint(tmp_path / "narrow.safetensors")[1]
    assert (narrowed.stage, narrowed.start, narrowed.data) == ("narrow", record, ("large", "eyes"))


def test_a_student_tuned_at_half_the_sides_is_exported_with_its_own_pixels_and_data(
    config: Config, tmp_path: Path
) -> None:
    tune_student(config.with_fit(steps=2, scale=0.5), _pruned(config, tmp_path), tmp_path / "tuned")
    record = load_checkpoint(tmp_path / "tuned" / "best.safetensors")[1]
    assert record.working_pixels == 32 * 48
    assert isinstance(record.start, TrainingRecord)
    assert record.pruning == record.start.pruning
    assert (record.start.stage, record.start.working_pixels) == ("prune", 64 * 96)
    assert run("export", tmp_path / "tuned" / "best.safetensors", "--out", tmp_path / "model.onnx") == 0
    card = read_card(tmp_path / "model.onnx")
    assert (card.working_size.pixels, card.data) == (32 * 48, "large, eyes")


def test_pruning_killed_between_rounds_goes_on_to_the_same_network(tmp_path: Path) -> None:
    settings = PruneSettings(marks=(0.06,), steps=2, maps=1, learning_rate=0.01)
    whole = tiny_model()
    prune_while_training(whole, [source()], settings, tmp_path / "whole", RECORD)

    class KilledError(Exception):
        pass

    rounds = 0

    def kill(_done: int, _total: int | None, _note: str) -> None:
        nonlocal rounds
        rounds += 1
        if rounds == 7:
            raise KilledError

    with pytest.raises(KilledError):
        prune_while_training(tiny_model(), [source()], settings, tmp_path / "killed", RECORD, progress=kill)
    resumed = tiny_model()
    prune_while_training(resumed, [source()], settings, tmp_path / "killed", RECORD)
    assert resumed.spec == whole.spec
    for name, tensor in whole.state_dict().items():
        assert torch.equal(tensor, resumed.state_dict()[name]), name


def test_pruning_ends_at_a_number_of_maps(tmp_path: Path) -> None:
    settings = PruneSettings(remove=5, steps=1, maps=2)
    assert prune_while_training(tiny_model(), [source()], settings, tmp_path, RECORD) == []
    left, _ = load_checkpoint(tmp_path / "last.safetensors")
    assert prunable_maps(left.spec) == prunable_maps(tiny_model().spec) - 5


def test_only_the_last_steps_of_a_round_collect_signals(tmp_path: Path) -> None:
    settings = PruneSettings(remove=4, steps=3, observed=1, maps=2, batch=2)
    prune_while_training(tiny_model(), [source()], settings, tmp_path, RECORD)
    history = History.load(tmp_path / "history.json")
    assert [(removal.step, removal.images) for removal in history.removals] == [(3, 2), (6, 2)]
    with pytest.raises(ArgumentError, match="observed = 4 is not between 0 and the 3 steps"):
        PruneSettings(steps=3, observed=4)


def test_pruning_stops_early_on_loss_and_cost_together(tmp_path: Path) -> None:
    settings = PruneSettings(remove=30, steps=1, patience=1, beta=1e-9)
    prune_while_training(tiny_model(), [source()], settings, tmp_path, RECORD)
    removals = History.load(tmp_path / "history.json").removals
    losses = [removal.loss for removal in removals if removal.loss is not None]
    assert len(losses) == len(removals)
    assert losses[:-1] == sorted(losses[:-1], reverse=True)  # falling, until the first that rises
    assert losses[-1] > losses[-2]
    with pytest.raises(ArgumentError, match="patience = 1 stops on loss"):
        PruneSettings(patience=1)


def test_a_network_is_narrowed_to_the_widths_of_a_spec(tmp_path: Path) -> None:
    model = tiny_model()
    wanted = replace(TINY, trunk=VGGSpec(((4,), (3,), (6,), (2,), (8,)), ("relu5_1",)), readout=(2, 1))
    narrow_to(model, wanted, [source()], steps=2)
    assert model.spec == wanted
    assert model(torch.zeros(1, 3, 64, 96)).shape == (1, 64, 96)
