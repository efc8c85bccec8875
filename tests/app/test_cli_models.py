"""``fastgaze export``, ``bench`` and ``info`` on exported files."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fastgaze.core.cost import flops
from fastgaze.evaluation.bench import BenchSetup, at_size, bench
from fastgaze.networks import TrainingRecord, save_checkpoint
from fastgaze.networks.ensemble import GazeEnsemble
from fastgaze.runtime.predictor import Predictor, load
from tests.commands import run
from tests.small_models import PLAIN, bright_model, random_model


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    path = tmp_path / "net.safetensors"
    record = TrainingRecord("tune", "fastgaze", 192 * 256, ("salicon/train", "osie"))
    save_checkpoint(random_model(PLAIN), path, record)
    return path


def test_a_checkpoint_becomes_a_model_with_its_record(checkpoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("export", checkpoint, "--name", "mine", "--json") == 0
    written = json.loads(capsys.readouterr().out)
    assert written[0]["file"] == str(checkpoint.with_suffix(".onnx"))
    model = load(checkpoint.with_suffix(".onnx"), threads=1)
    assert (model.name, model.card.data) == ("mine", "salicon/train, osie")
    assert model.card.working_size((480, 640)) == (192, 256)


def test_int8_is_written_beside_it(tmp_path: Path) -> None:
    save_checkpoint(bright_model(), tmp_path / "net.safetensors")
    (tmp_path / "photos").mkdir()
    for index in range(3):
        noise = np.random.default_rng(index).integers(0, 256, (12, 16, 3), dtype=np.uint8)
        Image.fromarray(noise).resize((320, 240)).save(tmp_path / "photos" / f"{index}.png")
    arguments = ["export", tmp_path / "net.safetensors", "--out", tmp_path / "small.onnx", "--int8"]
    assert run(*arguments, "--calibrate", tmp_path / "photos") == 0
    assert load(tmp_path / "small.int8.onnx", threads=1).card.precision == "int8"


def test_what_cannot_be_exported_is_refused(
    checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save_checkpoint(GazeEnsemble.of([bright_model(), bright_model()]), tmp_path / "ensemble.safetensors")
    for arguments in (
        [tmp_path / "ensemble.safetensors"],
        [tmp_path / "absent.safetensors"],
        [checkpoint, "--out", "-"],
        [checkpoint, "--int8"],
        [checkpoint, "--int8", "--calibrate", tmp_path / "absent"],
    ):
        assert run("export", *arguments) == 2
        assert len(capsys.readouterr().err.strip().splitlines()) == 1


def test_bench_reports_what_was_promised(bright_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["bench", bright_file, "--size", "96x64", "--rounds", 3, "--no-cold", "--against", bright_file]
    assert run(*arguments, "--json") == 0
    result = json.loads(capsys.readouterr().out)
    assert {"median_ms", "p10_ms", "p90_ms", "cpu_ms", "gflop", "peak_share", "own_size", "against"} <= set(result)
    for part in (result, result["own_size"], result["against"]):
        assert set(part["split_ms"]) == {"decode", "prepare", "network", "tail"}
        assert part["median_ms"] > 0
    assert result["gflop"] == pytest.approx(flops(bright_model().spec, (64, 96)) / 1e9)
    # The same file on both sides: the ratio is 1 but for noise.
    assert 0.2 < result["against"]["ratio"] < 5
    assert run(*arguments) == 0
    assert "times this model's time" in capsys.readouterr().out.replace("\n", " ")
    assert run("bench", bright_file, "--size", "60x50") == 2


@pytest.mark.slow
def test_bench_measures_fresh_processes(bright_file: Path) -> None:
    result = bench(BenchSetup(str(bright_file), (64, 96), rounds=3))
    assert 0 < result["cold_start_cpu_s"] < 3
    assert 20 < result["peak_rss_mb"] < 500


def test_a_forced_working_size_is_exact(bright: Predictor) -> None:
    for size in ((384, 512), (32, 32), (64, 1024), (240, 320)):
        assert at_size(bright, size).card.working_size(size) == size


def test_info_describes_an_exported_file(bright_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("info", bright_file, "--json", "--size", "320x240") == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["gflop"] == pytest.approx(flops(bright_model().spec, (240, 320)) / 1e9)
    assert facts["maps"] == 6
