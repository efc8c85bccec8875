"""Calibration finds what was changed in a model, leaves the rest alone, and writes a model that computes with it."""

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fastgaze.core.center_bias import resample_log_density
from fastgaze.core.errors import ArgumentError, DataError
from fastgaze.data.fixations import FixationSet, from_lists
from fastgaze.evaluation.calibrate import Calibration, calibrate
from fastgaze.evaluation.evaluate import evaluate
from fastgaze.evaluation.models import RuntimeModel
from fastgaze.onnx.write import Facts, export_onnx
from fastgaze.runtime.card import Kinds, ModelCard, identity, read_card, with_card
from fastgaze.runtime.predictor import Predictor, load
from tests.commands import run
from tests.small_models import bright_model

SIZE = (48, 64)


@pytest.fixture(scope="module")
def truth(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model from whose densities the fixations of these tests are drawn."""
    path = tmp_path_factory.mktemp("truth") / "truth.onnx"
    export_onnx(bright_model(gain=1.0), path, Facts("truth"))
    return path


@pytest.fixture(scope="module")
def sure(truth: Path, tmp_path_factory: pytest.TempPathFactory) -> "Sure":
    """A model that is twice too sure, with fixations and what calibration makes of them."""
    folder = tmp_path_factory.mktemp("sure")
    data = study(folder, load(truth, threads=1), 24)
    export_onnx(bright_model(gain=2.0), folder / "sure.onnx", Facts("sure", scores={"osie": {"means": {}}}))
    return Sure(folder / "sure.onnx", data, calibrate(folder / "sure.onnx", data, "my-study", threads=1))


@dataclass(frozen=True)
class Sure:
    path: Path
    data: FixationSet
    found: Calibration


def study(folder: Path, viewers: Predictor, images: int, fixations: int = 150) -> FixationSet:
    """Smooth pictures with fixations drawn from what ``viewers`` predicts."""
    rng = np.random.default_rng(5)
    names, points = [], []
    for i in range(images):
        noise = rng.integers(0, 256, (4, 5, 3), dtype=np.uint8)
        picture = Image.fromarray(noise).resize((SIZE[1], SIZE[0]), Image.Resampling.BICUBIC)
        picture.save(folder / f"{i}.png")
        density = viewers.predict(picture).density.astype(np.float64).ravel()
        rows, columns = np.divmod(rng.choice(density.size, fixations, p=density / density.sum()), SIZE[1])
        points.append(np.stack([columns, rows], axis=1) + rng.random((fixations, 2)))
        names.append(f"{i}.png")
    return from_lists(names, [folder / name for name in names], [SIZE] * images, points)


def changed(path: Path, folder: Path, change: Callable[[ModelCard], ModelCard]) -> Path:
    """The same network with another card."""
    other = folder / "other.onnx"
    other.write_bytes(with_card(path.read_bytes(), change(read_card(path))))
    return other


def adopted(found: Calibration) -> dict[str, float | str]:
    return {part.name: part.after for part in found.parts if part.adopted}


def test_an_overconfident_model_gets_its_temperature_back(sure: Sure) -> None:
    found = sure.found
    assert set(adopted(found)) == {"temperature"}
    assert found.card.temperature == pytest.approx(0.5, abs=0.05)
    assert found.after - found.before > 5 * found.error > 0


def test_a_blur_that_is_too_narrow_is_widened(truth: Path, tmp_path: Path) -> None:
    wide = changed(truth, tmp_path, lambda card: replace(card, sigma=32.0, temperature=3.0))
    narrow = tmp_path / "narrow.onnx"
    narrow.write_bytes(with_card(wide.read_bytes(), replace(read_card(wide), sigma=8.0)))
    found = calibrate(narrow, study(tmp_path, load(wide, threads=1), 24), threads=1)
    assert set(adopted(found)) == {"blur"}
    assert 22 < found.card.sigma < 46


def test_viewers_who_look_at_a_corner_give_the_model_their_centre_bias(truth: Path, tmp_path: Path) -> None:
    y, x = np.mgrid[0:1:48j, 0:1:64j]
    corner = (-6 * (x**2 + y**2)).astype(np.float32)
    viewers = load(changed(truth, tmp_path, lambda card: replace(card, center_bias=corner)), threads=1)
    data = study(tmp_path, viewers, 24)
    found = calibrate(truth, data, threads=1)
    assert adopted(found)["center_bias"] == "data"
    assert np.exp(found.card.center_bias).sum() == pytest.approx(1, abs=1e-4)
    assert found.card.center_bias.argmax() % 64 < 16
    found.write(tmp_path / "calibrated.onnx")
    means = [
        evaluate(RuntimeModel(load(path, threads=1)), data, center_bias="model", resamples=10).means
        for path in (truth, tmp_path / "calibrated.onnx")
    ]
    assert means[1]["log_likelihood_bits"] - means[0]["log_likelihood_bits"] == pytest.approx(
        found.after - found.before, abs=0.1
    )


def test_a_model_keeps_to_the_kinds_of_pictures_unless_the_viewers_have_a_centre_bias_of_their_own(
    truth: Path, sure: Sure, tmp_path: Path
) -> None:
    y, x = np.mgrid[0:1:48j, 0:1:64j]
    corner = (-6 * (x**2 + y**2)).astype(np.float32)
    viewers = load(changed(truth, tmp_path, lambda card: replace(card, center_bias=corner)), threads=1)
    data = study(tmp_path, viewers, 24)
    summary = load(truth, threads=1)._engine(np.zeros((1, 3, 64, 96), np.float32))[1]
    own = read_card(truth).center_bias
    other = resample_log_density(corner, corner.shape).astype(np.float32)
    kinds = Kinds(own, other, np.zeros_like(summary[0]), -9.0)  # all pictures are photographs
    known = changed(truth, tmp_path, lambda card: replace(card, kinds=kinds))
    assert calibrate(known, data, threads=1).card.kinds is None
    known = changed(sure.path, tmp_path, lambda card: replace(card, kinds=kinds))
    found = calibrate(known, sure.data, threads=1)
    assert set(adopted(found)) == {"temperature"}
    assert found.card.kinds is not None


def test_the_habit_that_a_model_expects_in_each_picture_counts(truth: Path, sure: Sure, tmp_path: Path) -> None:
    y, x = np.mgrid[0:1:48j, 0:1:64j]
    summary = load(truth, threads=1)._engine(np.zeros((1, 3, 64, 96), np.float32))[1]
    across, down = (resample_log_density(-3 * ramp, ramp.shape).astype(np.float32) for ramp in (x, y))
    kinds = Kinds(across, down, np.zeros_like(summary[0]), 9.0)  # all pictures are screens
    known = changed(sure.path, tmp_path, lambda card: replace(card, kinds=kinds))
    found = calibrate(known, sure.data, threads=1)
    model = RuntimeModel(load(known, threads=1))
    means = evaluate(model, sure.data, center_bias="model", resamples=10).means
    assert found.before == pytest.approx(means["log_likelihood_bits"], abs=0.05)
    assert abs(found.before - sure.found.before) > 0.2


@pytest.mark.parametrize("seed", [0, 1])
def test_nothing_is_fitted_to_the_noise_in_a_model_s_own_fixations(truth: Path, tmp_path: Path, seed: int) -> None:
    data = study(tmp_path, load(truth, threads=1), 30, fixations=40)
    found = calibrate(truth, data.subset(np.random.default_rng(seed).permutation(30)[:24]), threads=1)
    assert not found.changed
    assert found.after == found.before
    assert found.card.center_bias == pytest.approx(read_card(truth).center_bias, abs=1e-5)
    assert (found.card.temperature, found.card.sigma) == (1.0, read_card(truth).sigma)


def test_too_few_images_are_refused(truth: Path, tmp_path: Path) -> None:
    data = study(tmp_path, load(truth, threads=1), 11, fixations=5)
    with pytest.raises(DataError, match=r"11 images with fixations are too few .* at least 12, better 24"):
        calibrate(truth, data)


def test_a_centre_bias_needs_more_images_than_a_number(truth: Path, tmp_path: Path) -> None:
    found = calibrate(truth, study(tmp_path, load(truth, threads=1), 12, fixations=20), threads=1)
    tried = {part.name: part.gain is not None for part in found.parts}
    assert tried == {"temperature": True, "blur": True, "center_bias_weight": True, "center_bias": False}


def test_the_written_model_is_the_same_network_at_another_temperature(sure: Sure, tmp_path: Path) -> None:
    mine = tmp_path / "mine.onnx"
    sure.found.write(mine)
    card = read_card(mine)
    assert (card.name, card.scores, card.data) == ("mine", {}, "calibrated on my-study (24 images)")
    # Without a centre bias the temperature is a factor on all differences of log densities.
    before, after = (
        float(np.ptp(load(path, threads=1).predict(sure.data.paths[0], center_bias=None).log_density))
        for path in (sure.path, mine)
    )
    assert after / before == pytest.approx(card.temperature, rel=1e-3)
    assert identity(mine.read_bytes()) != identity(sure.path.read_bytes())
    assert with_card(mine.read_bytes(), read_card(sure.path)) == sure.path.read_bytes()


def test_a_model_is_written_to_an_onnx_file_only(sure: Sure, tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match=r"does not end in \.onnx"):
        sure.found.write(tmp_path / "mine.json")


def folder_of(data: FixationSet, folder: Path) -> None:
    """The set in the layout ``folder``."""
    lines = ["image,x,y"]
    for i, name in enumerate(data.names):
        lines += [f"{name},{x},{y}" for x, y in data.fixations(i)]
    (folder / "fixations.csv").write_text("\n".join(lines))


def test_the_command_writes_a_model_that_other_commands_take(
    sure: Sure, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(sure.path.parent, tmp_path / "pictures")
    folder_of(sure.data, tmp_path / "pictures")
    assert run("calibrate", "--data", "pictures", "--model", str(sure.path), "--threads", "1") == 0
    shown = capsys.readouterr().out
    assert "sure on pictures: 24 images" in shown
    assert "adopted" in shown
    assert "use it with --model sure-calibrated.onnx" in shown
    assert run("predict", "pictures/0.png", "--model", "sure-calibrated.onnx", "--json") == 0
    capsys.readouterr()
    assert run("info", "sure-calibrated.onnx", "--json") == 0
    assert json.loads(capsys.readouterr().out)["record"]["temperature"] == pytest.approx(0.5, abs=0.05)


def test_the_command_writes_nothing_where_nothing_helps(
    truth: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder_of(study(tmp_path, load(truth, threads=1), 12, fixations=20), tmp_path)
    assert run("calibrate", "--data", str(tmp_path), "--model", str(truth), "--out", str(tmp_path / "m.onnx")) == 0
    assert "no file was written" in capsys.readouterr().out
    assert run("calibrate", "--data", str(tmp_path), "--model", str(truth), "--json") == 0
    assert json.loads(capsys.readouterr().out)["file"] is None
    assert not list(tmp_path.glob("*.onnx"))
