"""Every verb of the workshop killed 25 times: nothing is truncated, and the end is as if nothing had happened."""

import contextlib
import importlib
import json
import os
import random
import shutil
import signal
import sqlite3
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open

from fastgaze.core.files import cache_dir
from fastgaze.networks import save_checkpoint
from tests.commands import run
from tests.training.helpers import WORKSHOP, tiny_model, write_sets

KILLS = 25
_BEAT_SECONDS = 1
STAGES = """
[teacher]
members = 2
starts = 2
large_share = 0.5
fit = { steps = 6, validate_every = 2, precision = "fp32" }
folds = { steps = 4, validate_every = 2, precision = "fp32" }
[student]
architecture = "litegaze"
backbone = "efficientnet-lite0"
fit = { steps = 6, validate_every = 2, precision = "fp32" }
[prune]
marks = [0.09, 0.07, 0.05]
steps = 2
maps = 1
precision = "fp32"
[sweep]
removed = [0.3, 0.6]
[tune]
fit = { steps = 30, validate_every = 3, precision = "fp32" }
"""
VERBS: dict[str, tuple[str, ...]] = {
    "teacher": ("teacher",),
    "distill": ("distill", "--out", "runs/out"),
    "tune": ("tune", "--start", "start.safetensors", "--out", "runs/out"),
    "soft-targets": ("soft-targets", "runs/small"),
    "prune": ("prune", "--start", "start.safetensors", "--out", "runs/out"),
    "sweep": ("sweep", "--start", "start.safetensors", "--out", "runs/out", "--trials", "4"),
}
BACKBONES = {"teacher": "vgg19", "distill": "efficientnet-lite0"}


@pytest.fixture
def pristine(tmp_path: Path) -> Path:
    """What is there before the first run."""
    folder = tmp_path / "pristine"
    write_sets(folder / "data")
    (folder / "run.toml").write_text(WORKSHOP + STAGES)
    save_checkpoint(tiny_model(), folder / "start.safetensors")
    save_checkpoint(tiny_model(), folder / "runs" / "small" / "best.safetensors")
    return folder


def start(folder: Path, verb: str) -> int:
    """Number of a process that runs the verb in ``folder``: a fork, which has torch already."""
    child = os.fork()
    if child:
        return child
    code = 70
    try:
        os.chdir(folder)
        with open("log", "ab") as log:
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
        torch.set_num_threads(1)
        from fastgaze.training import sweep

        sweep._BEAT_SECONDS = _BEAT_SECONDS  # what a killed trial leaves open is noticed sooner
        code = run("workshop", *VERBS[verb], "--config", "run.toml")
        Path("modules").write_text("\n".join(sys.modules))
    finally:
        os._exit(code)


def preload(folder: Path) -> None:
    """Import what a run in ``folder`` imported: a fork would do it again, every time."""
    for name in (folder / "modules").read_text().split():
        if name.startswith(("torch", "sympy", "optuna", "sqlalchemy", "matplotlib", "tensorboard", "fastgaze")):
            with contextlib.suppress(Exception):
                importlib.import_module(name)


def finish(folder: Path, verb: str) -> float:
    """Run the verb to its end; the seconds that took."""
    began = time.monotonic()
    _, status = os.waitpid(start(folder, verb), 0)
    assert status == 0, (folder / "log").read_text()[-2000:]
    return time.monotonic() - began


def check_readable(folder: Path) -> None:
    """Every file that has its final name is whole."""
    for path in (path for path in (folder / "runs").rglob("*") if path.is_file() and not path.name.startswith(".")):
        if path.suffix == ".safetensors":
            with safe_open(path, "pt") as file:
                assert all(file.get_tensor(name) is not None for name in file.keys())  # noqa: SIM118
        elif path.suffix == ".npy":
            np.load(path, mmap_mode="r")
        elif path.suffix == ".json":
            json.loads(path.read_text())


def outcome(folder: Path) -> dict[str, object]:
    """The arrays that a run leaves, by file."""
    found: dict[str, object] = {}
    for path in sorted((folder / "runs").rglob("*")):
        name = str(path.relative_to(folder))
        if path.suffix == ".safetensors":
            with safe_open(path, "pt") as file:
                found[name] = {key: file.get_tensor(key).numpy().tobytes() for key in file.keys()}  # noqa: SIM118
        elif path.suffix == ".npy":
            found[name] = path.read_bytes()
    return found


def finished_trials(folder: Path) -> dict[str, object]:
    """How the trials of a sweep ended; what was drawn for a killed one is drawn anew, so that values may differ."""
    with sqlite3.connect(folder / "runs" / "out" / "study.db") as database:
        states = [state for (state,) in database.execute("select state from trials")]
    return {"complete": states.count("COMPLETE"), "running": states.count("RUNNING")}


Seen = Callable[[Path], dict[str, object]]


def kill_and_resume(pristine: Path, folder: Path, verb: str, seconds: float, check: Callable[[], None]) -> None:
    """Kill the verb until it has been killed often enough, then let it end; when it ends before, start over."""
    rng, kills = random.Random(verb), 0
    shutil.copytree(pristine, folder)
    while kills < KILLS:
        child = start(folder, verb)
        time.sleep(rng.uniform(0.05, 0.7) * seconds)
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        if os.WIFSIGNALED(status):
            kills += 1
            check_readable(folder)
            continue
        assert os.WEXITSTATUS(status) == 0, (folder / "log").read_text()[-2000:]
        check()
        shutil.rmtree(folder)
        shutil.copytree(pristine, folder)
    time.sleep(5 * _BEAT_SECONDS)
    finish(folder, verb)
    check_readable(folder)
    check()


@pytest.mark.slow
@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_that_is_killed_again_and_again_ends_as_if_it_had_not_been(
    verb: str, pristine: Path, tmp_path: Path
) -> None:
    needed = BACKBONES.get(verb)
    if needed and not (cache_dir() / f"{needed}.safetensors").is_file():
        pytest.skip(f"no backbones in {cache_dir()}: `make backbones` gets them")
    if verb != "teacher":
        (pristine / "runs" / "teacher").mkdir()
        np.save(pristine / "runs" / "teacher" / "maps-24.npy", np.ones((24, 16, 24), np.float16))
    seen: Seen = finished_trials if verb == "sweep" else outcome
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    shutil.copytree(pristine, whole)
    finish(whole, verb)
    expected = seen(whole)
    preload(whole)
    shutil.copytree(pristine, killed)
    seconds = finish(killed, verb)

    def check() -> None:
        found = seen(killed)
        assert sorted(found) == sorted(expected)
        assert not [name for name in expected if found[name] != expected[name]]

    check()
    shutil.rmtree(killed)
    kill_and_resume(pristine, killed, verb, seconds, check)
