"""Screens beside config: sets of many shapes in one mixture, and networks of stride 32 that learn from it."""

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from fastgaze.core.errors import ArgumentError
from fastgaze.core.spec import LiteSpec
from fastgaze.data.fixations import from_lists, held_out
from fastgaze.data.formats.npz import write_arrays
from fastgaze.networks import load_checkpoint, save_checkpoint
from fastgaze.networks.checkpoint import untrained
from fastgaze.training.config import Config, Mixture
from fastgaze.training.datasets import dataset_center_bias
from fastgaze.training.fit import per_image_loss, validate, working_size
from fastgaze.training.prune import narrow_student
from fastgaze.training.soft_targets import (
    distillation_sources,
    eye_tracking_sets,
    student_densities,
    write_soft_targets,
)
from fastgaze.training.stream import Stream, in_order
from fastgaze.training.student import tune_student, watched_sources
from tests.small_models import LITE, random_model
from tests.training.helpers import source, tiny_model


def _write_screens(folder: Path) -> None:
    """48 images of two shapes, upright and very flat, with all fixations at the top left."""
    (folder / "images").mkdir(parents=True)
    names = [f"screen{i:02d}" for i in range(48)]
    sizes = [(128, 64) if i % 2 else (32, 192) for i in range(48)]
    for name, (height, width) in zip(names, sizes, strict=True):
        Image.new("RGB", (width, height), "white").save(folder / "images" / f"{name}.webp")
    paths = [folder / "images" / f"{name}.webp" for name in names]
    points = [np.full((5, 2), 3.0)] * len(names)
    write_arrays(folder / "fixations.npz", from_lists(names, paths, sizes, points), names)


@pytest.fixture
def mixed(config: Config) -> Config:
    _write_screens(config.workshop.data / "screens")
    return replace(config, workshop=replace(config.workshop, mixed_shapes=("screens",)))


def test_images_keep_their_shapes_and_a_tenth_of_them_stays_out(mixed: Config) -> None:
    workshop = mixed.workshop
    data = workshop.load("screens")
    out = {name for name, kept in zip(data.names, held_out(data.names), strict=True) if kept}
    # A strip is squeezed to 4:1, as near as multiples of 32 allow.
    assert {part.size for part in workshop.shaped} == {(128, 64), (32, 160)}
    trained = [name for part in workshop.shaped for name in part.names]
    assert len(trained) + len(out) == 48
    assert not out & set(trained)
    watched = workshop.kept_out()
    assert set(watched) == {"eyes", "screens"}
    assert sum(map(len, watched["screens"])) == len(out) > 0
    known = dataset_center_bias(data.subset(~held_out(data.names)))
    for part in workshop.shaped:
        np.testing.assert_array_equal(part.center_bias, known)


def test_the_mixture_gives_every_kind_of_image_its_share(mixed: Config) -> None:
    mixture = Mixture(eye_tracking=0.2, mixed_shapes=0.3, teacher=0)
    sources = distillation_sources(mixed.workshop, mixture)
    weights = {part.name.split("-")[0]: 0.0 for part in sources}
    for part in sources:
        weights[part.name.split("-")[0]] += part.weight
    assert weights == pytest.approx({"large": 0.5, "eyes": 0.2, "screens": 0.3})
    np.testing.assert_allclose(sources[0].targets.sum(axis=(1, 2)), 1, rtol=1e-5)
    batches = [Stream(sources, 4, seed=0, flips=True).batch(step) for step in range(200)]
    flat = np.mean([batch.inputs.shape[-2:] != (64, 96) for batch in batches])
    assert flat == pytest.approx(0.3, abs=0.02)


def test_teachers_label_images_of_every_shape_and_their_mean_joins_the_fixations(mixed: Config) -> None:
    workshop = mixed.workshop
    teachers = {"first": random_model(LITE, seed=1), "second": random_model(LITE, seed=2)}
    for name, model in teachers.items():
        save_checkpoint(model, workshop.runs / name / "best.safetensors")
        folder = write_soft_targets(mixed, workshop.runs / name, "eye-tracking")
        assert {path.parent for path in folder.iterdir()} == {workshop.runs / name / "eye-tracking"}
    mixture = Mixture(eye_tracking=0.2, mixed_shapes=0.3, teacher=0, teachers=tuple(teachers), eye_teacher=0.25)
    large, *taught = distillation_sources(workshop, mixture)
    assert sum(source.weight for source in taught) == pytest.approx(0.5)
    plain = distillation_sources(workshop, replace(mixture, eye_teacher=0.0))
    np.testing.assert_array_equal(large.targets, plain[0].targets)
    assert {data.name for data in eye_tracking_sets(workshop)} == {"eyes", "screens-training"}
    for data, mine, own in zip(eye_tracking_sets(workshop), taught, plain[1:], strict=True):
        cells = data.grid[0] * data.grid[1]
        maps = [np.concatenate(list(student_densities(m, data, untrained(LITE)))) for m in teachers.values()]
        expected = 0.25 * np.mean(maps, axis=0, dtype=np.float64) / cells + 0.75 * own.targets
        np.testing.assert_allclose(mine.targets.astype(np.float64) * mine.scale, expected, rtol=3e-3)
        assert mine.inputs.shape == own.inputs.shape


def test_without_labels_of_the_eye_tracking_sets_a_student_says_what_to_run(mixed: Config) -> None:
    mixture = Mixture(mixed_shapes=0.3, teacher=0, teachers=("first",), eye_teacher=0.25)
    with pytest.raises(ArgumentError, match=r"fastgaze workshop soft-targets .*runs/first --eye-tracking --config"):
        distillation_sources(mixed.workshop, mixture)
    with pytest.raises(ArgumentError, match="the ensemble has soft targets of the large set only; set eye_teacher = 0"):
        distillation_sources(mixed.workshop, replace(mixture, teachers=("teacher",)))
    bare = replace(mixed, workshop=replace(mixed.workshop, eye_tracking=(), mixed_shapes=()))
    save_checkpoint(random_model(LITE), bare.workshop.runs / "first" / "best.safetensors")
    with pytest.raises(ArgumentError, match="eye_tracking and mixed_shapes name no data set"):
        write_soft_targets(bare, bare.workshop.runs / "first", "eye-tracking")


def test_watched_losses_are_those_of_the_network_that_was_saved(mixed: Config, tmp_path: Path) -> None:
    save_checkpoint(random_model(LITE), tmp_path / "start.safetensors")
    mixture = Mixture(eye_tracking=0.2, mixed_shapes=0.3, teacher=0)
    settings = replace(mixed, tune=replace(mixed.tune, mixture=mixture))
    result = tune_student(settings, tmp_path / "start.safetensors", tmp_path / "run")
    with (tmp_path / "run" / "watched.csv").open() as file:
        losses = {(int(row["step"]), row["set"]): float(row["loss"]) for row in csv.DictReader(file)}
    model, record = load_checkpoint(tmp_path / "run" / "best.safetensors")
    assert (record.data, record.teachers) == (("large", "eyes", "screens"), ())
    assert record.working_pixels == 64 * 96
    screens = validate(model, watched_sources(mixed.workshop)["screens"], "fp32")
    assert screens == pytest.approx(losses[result.best_step, "screens"], abs=1e-4)


def test_a_set_of_which_nothing_is_kept_out_is_not_watched(config: Config) -> None:
    few = replace(config.workshop, limit=2)
    assert not held_out(few.load("eyes").names).any()
    assert watched_sources(few) == {}


def test_a_network_of_stride_32_sees_images_at_multiples_of_32_and_the_loss_keeps_its_grid() -> None:
    model, (batch,) = random_model(LITE), in_order(source(3, size=(80, 112)), 4)
    assert working_size(model, (80, 112), 1.0) == (64, 128)
    assert working_size(tiny_model(), (80, 112), 1.0) == (80, 112)
    resized = torch.nn.functional.interpolate(batch.inputs, (64, 128), mode="bilinear", antialias=True)
    with torch.no_grad():
        expected = model(resized, size=(20, 28), center_bias=batch.center_bias)
        losses = per_image_loss(model, batch, "fp32")
    torch.testing.assert_close(losses, -(batch.targets * expected).sum((1, 2)))


def test_a_mobile_network_is_narrowed_to_a_list_of_widths(mixed: Config, tmp_path: Path) -> None:
    save_checkpoint(random_model(LITE), tmp_path / "start.safetensors")
    widths = [5, 3, 4, 7, 8, 5, 9, 6, 11, 10, 9, 6, 8, 7, 8, 11, 12]
    mixture = Mixture(teacher=0)
    settings = replace(mixed, student=replace(mixed.student, mixture=mixture))
    spec = narrow_student(settings, tmp_path / "start.safetensors", widths, [5, 3, 2], tmp_path / "narrow.safetensors")
    model, _ = load_checkpoint(tmp_path / "narrow.safetensors")
    assert model.spec == spec
    assert spec.readout == (5, 3, 2, 1)
    assert isinstance(spec.trunk, LiteSpec)
    assert [stage.expansions for stage in spec.trunk.stages][:2] == [(7, 8), (9,)]
