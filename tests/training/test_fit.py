"""Fit: learns, stops early, goes on after a kill with the same parameters, and trains the same with two processes."""

import os
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch

from fastgaze.core.errors import ArgumentError
from fastgaze.training.fit import Fit, FitSettings, learning_rate, validate
from fastgaze.training.runs import load_state
from tests.training.helpers import source, tiny_model

QUICK = FitSettings(steps=40, learning_rate=0.01, validate_every=10, precision="fp32", save_seconds=0)


def _parameters(folder: Path) -> dict[str, torch.Tensor]:
    return load_state(folder / "state.safetensors")[0]


class KilledError(Exception):
    """Stands for a kill between two steps."""


def _kill_at(limit: int, step: int, _steps: int | None, _note: str) -> None:
    if step == limit:
        raise KilledError


def test_a_run_learns_and_keeps_the_best_parameters(tmp_path: Path) -> None:
    model, validation = tiny_model(), source(20, seed=9)
    before = validate(model, validation, "fp32")
    result = Fit(model, [source()], validation, replace(QUICK, steps=120), tmp_path).run()
    assert result.best_loss < before - 0.3
    assert validate(model, validation, "fp32") == pytest.approx(result.best_loss, abs=1e-5)
    rows = (tmp_path / "validation.csv").read_text().splitlines()
    assert rows[0] == "step,loss,seconds"
    assert len(rows) == 1 + 12


def test_scaled_images_reach_the_network_smaller_and_are_scored_on_the_same_grid() -> None:
    seen: list[tuple[int, ...]] = []
    model, validation = tiny_model(), source(4, seed=9)
    model.trunk.register_forward_pre_hook(lambda _, inputs: seen.append(tuple(inputs[0].shape[-2:])))
    height, width = validation.inputs.shape[1:3]
    whole, half = validate(model, validation, "fp32"), validate(model, validation, "fp32", scale=0.5)
    assert seen == [(height, width), (height // 2, width // 2)]
    assert half == pytest.approx(whole, abs=0.5)


@pytest.mark.parametrize(
    "settings", [QUICK, replace(QUICK, optimizer="sgd", average=0.9), replace(QUICK, precision="bf16")]
)
def test_killed_at_any_step_and_resumed_it_gives_the_same_parameters(settings: FitSettings, tmp_path: Path) -> None:
    Fit(tiny_model(), [source()], source(8, seed=9), settings, tmp_path / "whole").run()

    for limit in (1, 13, 30, 31):
        run = Fit(tiny_model(), [source()], source(8, seed=9), settings, tmp_path / "killed")
        with pytest.raises(KilledError):
            run.run(partial(_kill_at, limit))
    result = Fit(tiny_model(), [source()], source(8, seed=9), settings, tmp_path / "killed").run()
    assert result.step == settings.steps
    whole, killed = _parameters(tmp_path / "whole"), _parameters(tmp_path / "killed")
    assert whole.keys() == killed.keys()
    for name, tensor in whole.items():
        assert torch.equal(tensor, killed[name]), name


def test_a_run_stops_when_validation_no_longer_improves(tmp_path: Path) -> None:
    settings = replace(QUICK, steps=1000, learning_rate=1e-9, patience=3, validate_every=2)
    result = Fit(tiny_model(), [source()], source(8, seed=9), settings, tmp_path).run()
    assert result.step <= 2 * (3 + 3)


def test_a_folder_with_other_settings_is_not_overwritten(tmp_path: Path) -> None:
    Fit(tiny_model(), [source()], source(8), replace(QUICK, steps=5), tmp_path).run()
    with pytest.raises(ArgumentError, match=r"another run: fit.steps is 5 there, 6 here, fit.batch is 8 there, 4"):
        Fit(tiny_model(), [source()], source(8), replace(QUICK, steps=6, batch=4), tmp_path).run()


def test_frozen_parameters_stay_and_a_frozen_network_is_refused(tmp_path: Path) -> None:
    model = tiny_model()
    model.trunk.requires_grad_(False)
    before = {name: p.clone() for name, p in model.trunk.named_parameters()}
    Fit(model, [source()], source(8), replace(QUICK, steps=5), tmp_path).run()
    assert all(torch.equal(p, before[name]) for name, p in model.trunk.named_parameters())
    with pytest.raises(ArgumentError, match="frozen"):
        Fit(tiny_model().requires_grad_(False), [source()], source(8), QUICK, tmp_path / "frozen")


def test_learning_rate_rises_then_falls_to_zero() -> None:
    settings = FitSettings(steps=100, learning_rate=0.01, warmup=10)
    rates = [learning_rate(settings, step) for step in range(100)]
    assert rates[0] == pytest.approx(0.001)
    assert max(rates) == pytest.approx(0.01, rel=0.03)
    assert rates[-1] < 1e-5
    assert learning_rate(replace(settings, decay="none"), 99) == 0.01


_WORKER = """
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from fastgaze.training.fit import Fit
from fastgaze.training.runs import processes
from tests.training.helpers import source, tiny_model
from tests.training.test_fit import QUICK
with processes():
    settings = replace(QUICK, steps=10, optimizer="sgd")
    Fit(tiny_model(), [source()], source(24, seed=9), settings, Path(sys.argv[1])).run()
"""


def test_two_processes_train_the_same_model_as_one(tmp_path: Path) -> None:
    Fit(tiny_model(), [source()], source(24, seed=9), replace(QUICK, steps=10, optimizer="sgd"), tmp_path / "one").run()
    script = tmp_path / "worker.py"
    script.write_text(_WORKER)
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--master-port=29517"]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [*command, str(script), str(tmp_path / "two")], env=environment, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
    one, two = _parameters(tmp_path / "one"), _parameters(tmp_path / "two")
    for name, tensor in one.items():
        torch.testing.assert_close(two[name], tensor, atol=1e-5, rtol=1e-3, msg=name)
    # One process validated 16 images, the other 8.
    assert _validation(tmp_path / "two") == pytest.approx(_validation(tmp_path / "one"), abs=1e-4)


def _validation(folder: Path) -> list[float]:
    rows = (folder / "validation.csv").read_text().splitlines()[1:]
    return [float(row.split(",")[1]) for row in rows]
