"""The steps of lite.sh that are not verbs of fastgaze: keeping a checkpoint, and looking at its calibration."""

import json
import re
from dataclasses import replace
from math import prod
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from experiments import choose, keep, lite_check
from experiments.common import CONFIGS, ROOT
from experiments.entries import Scaled
from fastgaze.evaluation.models import CheckpointModel
from fastgaze.networks import load_checkpoint, save_checkpoint
from fastgaze.networks.checkpoint import TrainingRecord
from fastgaze.onnx.write import Facts, export_onnx
from fastgaze.training.config import read_config
from fastgaze.training.fit import validate
from fastgaze.training.stream import fixation_source, in_order
from tests.small_models import LITE, random_model
from tests.training.helpers import source

RECORD = TrainingRecord("tune", "litegaze", 192 * 256, ("salicon/train", "ueyes"), steps=3)


def test_a_kept_checkpoint_is_half_as_large_and_has_the_same_record(tmp_path: Path) -> None:
    wide = replace(LITE, readout=(64, 64, 64, 1))
    save_checkpoint(random_model(wide), tmp_path / "best.safetensors", RECORD)
    keep.main([str(tmp_path / "best.safetensors"), str(tmp_path / "kept" / "m.safetensors")])
    kept, record = load_checkpoint(tmp_path / "kept" / "m.safetensors")
    assert record == RECORD
    assert kept.spec == wide
    sizes = [(tmp_path / name).stat().st_size for name in ("best.safetensors", "kept/m.safetensors")]
    assert sizes[1] < 0.8 * sizes[0]


def test_a_checkpoint_is_scored_at_multiples_of_its_own_stride(tmp_path: Path) -> None:
    save_checkpoint(random_model(LITE), tmp_path / "m.safetensors", RECORD)
    model = CheckpointModel(tmp_path / "m.safetensors")
    image = np.random.default_rng(0).integers(0, 256, (80, 112, 3), dtype=np.uint8)
    expected = np.asarray(Image.fromarray(image).resize((96, 64), Image.Resampling.BILINEAR))
    found = Scaled(model, pixels=64 * 128).log_density(image, (20, 28), None)
    np.testing.assert_allclose(found, model.log_density(expected, (20, 28), None))


@pytest.mark.parametrize("temperature", [0.6, 1.0, 1.3])
def test_the_temperature_that_fits_is_the_one_that_the_fixations_were_made_with(temperature: float) -> None:
    model, data = random_model(LITE), source(6, size=(64, 96))
    (batch,) = in_order(data, 6)
    with torch.no_grad():
        log_density = model(batch.inputs, size=batch.grid, center_bias=torch.zeros(1, 1))
    targets = torch.softmax(temperature * log_density.flatten(1), dim=1).reshape(log_density.shape)
    found = lite_check.check(model, [replace(data, targets=targets.numpy())])
    assert found.temperature == pytest.approx(temperature)
    entropy = float(-(targets * targets.log()).sum((1, 2)).mean())
    # The centre bias of the set is uniform.
    assert found.fitted_gain == pytest.approx((np.log(prod(batch.grid)) - entropy) / np.log(2), abs=1e-4)
    assert found.gain == pytest.approx(found.bits, abs=1e-4)
    assert found.gain <= found.fitted_gain + 1e-6


def test_images_are_seen_at_the_size_that_the_record_names() -> None:
    assert lite_check.trained_scale(RECORD, (240, 320)) == pytest.approx(0.8)
    assert lite_check.trained_scale(replace(RECORD, working_pixels=None), (240, 320)) == 1


def test_every_set_with_images_that_were_kept_out_is_checked(small_data: Path, tmp_path: Path) -> None:
    path, config, out = (tmp_path / name for name in ("m.safetensors", "run.toml", "check.json"))
    save_checkpoint(random_model(LITE), path, replace(RECORD, working_pixels=96 * 128))
    sets = f'data = "{small_data}"\nformat = "npz"\neye_tracking = ["osie"]'
    config.write_text(f'[workshop]\nruns = "runs"\nsize = "128x96"\nvalidation_images = 16\n{sets}')
    lite_check.main([str(path), "--config", str(config), "--out", str(out)])
    found = json.loads(out.read_text())[str(path)]
    assert set(found) == {"salicon/val", "osie"}
    validation = fixation_source(read_config(config).workshop.validation_set)
    expected = validate(load_checkpoint(path)[0], validation, "fp32")
    assert found["salicon/val"]["nats"] == pytest.approx(expected, abs=1e-4)


def test_the_settings_and_scripts_that_the_recipe_names_exist() -> None:
    text = (ROOT / "experiments" / "lite.sh").read_text()
    runs = {"lite0-pruned": "lite0", "small-pruned": "lite_small", "small-pruned-again": "lite_small_again"}
    for run, config in runs.items():
        marks = re.findall(rf"{run}/([\d.]+)\.safetensors", text)
        assert marks, run
        assert set(map(float, marks)) <= set(read_config(CONFIGS / f"{config}.toml").prune.marks)
    for script in re.findall(r"experiments\.(\w+)", text):
        assert (ROOT / "experiments" / f"{script}.py").is_file(), script
    for name in re.findall(r"\$configs/(\w+)\.toml", text):
        assert (CONFIGS / f"{name}.toml").is_file(), name


def test_the_largest_snapshot_that_is_fast_enough_is_chosen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    export_onnx(random_model(LITE), tmp_path / "other.onnx", Facts("other"))
    for mark in ("8.5", "3"):
        save_checkpoint(random_model(LITE), tmp_path / f"{mark}.safetensors", RECORD)
    save_checkpoint(random_model(LITE), tmp_path / "last.safetensors", RECORD)
    for limit, expected in (("100", "8.5"), ("0", "3")):
        choose.main([str(tmp_path), "--than", str(tmp_path / "other.onnx"), "--limit", limit, "--rounds", "2"])
        assert capsys.readouterr().out.strip() == str(tmp_path / f"{expected}.safetensors")
