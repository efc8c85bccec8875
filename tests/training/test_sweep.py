"""The sweep: random search on SQLite, and two workers on one real PostgreSQL."""

import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from optuna.storages._heartbeat import BaseHeartbeat

from fastgaze.core.errors import ArgumentError
from fastgaze.training import sweep
from fastgaze.training.config import PruneSettings, SweepSettings
from fastgaze.training.sweep import Point, open_study, pareto, run_sweep

MAPS = 2803
BASE = PruneSettings(steps=3)


def arithmetic_trial(settings: PruneSettings, _folder: Path) -> tuple[float, float]:
    """Loss and cost by a formula: regularised pruning is cheaper at the same loss."""
    left = 1 - settings.remove / MAPS
    return 5 - left, 90 * left * (0.5 if settings.beta else 1.0)


def _sweep(url: str, folder: Path, trials: int) -> list[Point]:
    return run_sweep(arithmetic_trial, MAPS, BASE, SweepSettings(), url, "test", trials, folder)


def test_a_sweep_draws_within_its_bounds_and_resumes(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'study.db'}"
    assert len(_sweep(url, tmp_path, 5)) == 5
    found = _sweep(url, tmp_path, 30)
    assert len(found) == 30
    assert {p.number for p in found} == set(range(30))
    assert all(0.3 * MAPS - 1 <= p.removed <= 0.95 * MAPS + 1 for p in found)
    assert all(3e-4 <= p.beta <= 3e-1 for p in found if p.objective == "beta")
    assert {p.objective for p in found} == {"beta", "none"}
    assert len(_sweep(url, tmp_path, 10)) == 30


def test_the_front_holds_what_nothing_else_beats(tmp_path: Path) -> None:
    def point(number: int, loss: float, gflop: float) -> Point:
        return Point(number, "beta", 0.1, 10, loss, gflop, "")

    found = [point(0, 3.0, 10), point(1, 2.0, 20), point(2, 2.5, 30), point(3, 1.0, 40), point(4, 3.5, 10)]
    assert [p.number for p in pareto(found)] == [0, 1, 3]


def test_a_database_that_is_not_there_is_one_clear_line() -> None:
    with pytest.raises(ArgumentError, match=r"no study at postgresql://nobody@127\.0\.0\.1:9"):
        open_study("postgresql://nobody@127.0.0.1:9/none?connect_timeout=2", "test")


def test_a_password_is_never_part_of_an_error() -> None:
    url = "postgresql://user:s3cr3t%40x@127.0.0.1:9/none?connect_timeout=2"
    with pytest.raises(ArgumentError) as refused:
        open_study(url, "test")
    assert "s3cr3t" not in str(refused.value)
    assert "postgresql://user:***@127.0.0.1:9" in str(refused.value)
    assert refused.value.__cause__ is None


def test_what_a_killed_worker_left_open_is_failed_and_made_up_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep, "_BEAT_SECONDS", 1)
    url = f"sqlite:///{tmp_path / 'study.db'}"
    left = open_study(url, "test")
    with pytest.warns(UserWarning, match="Heartbeat"):  # as it does not come from optimize
        open_trial = left.ask()
    assert isinstance(left._storage, BaseHeartbeat)
    left._storage.record_heartbeat(open_trial._trial_id)
    found = _sweep(url, tmp_path, 3)
    states = [trial.state.name for trial in open_study(url, "test").trials]
    assert len(found) == 3
    assert states.count("RUNNING") == 0
    assert states.count("COMPLETE") == 3


def test_two_workers_never_do_one_trial_too_many(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'study.db'}"
    open_study(url, "test")
    with ThreadPoolExecutor(2) as workers:
        both = [workers.submit(_sweep, url, tmp_path / str(n), 6) for n in range(2)]
        assert [len(future.result()) for future in both] == [6, 6]


def _postgres_command(name: str) -> str:
    found = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}")) or [Path(shutil.which(name) or "")]
    if not found[-1].is_file():
        pytest.skip("no PostgreSQL server here: apt-get install postgresql (CI has it)")
    return str(found[-1])


@pytest.fixture
def postgres() -> Iterator[str]:
    """A PostgreSQL of the test's own on a free port of the loopback; gives its URL."""
    initdb, server = _postgres_command("initdb"), _postgres_command("pg_ctl")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    folder = Path(tempfile.mkdtemp(prefix="fastgaze-postgres-"))
    # The server refuses to run as root; Debian's package brings a user for it.
    as_user = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
    if as_user:
        shutil.chown(folder, "postgres", "postgres")
    options = f"-p {port} -k '' -h 127.0.0.1 -c fsync=off"
    run = [*as_user, server, "-D", str(folder)]
    subprocess.run(
        [*as_user, initdb, "-D", str(folder), "-A", "trust", "-U", "gaze"], check=True, capture_output=True, cwd="/"
    )
    subprocess.run(
        [*run, "-o", options, "-l", str(folder / "log"), "-w", "start"], check=True, capture_output=True, cwd="/"
    )
    try:
        yield f"postgresql://gaze@127.0.0.1:{port}/postgres"
    finally:
        subprocess.run([*run, "-m", "immediate", "stop"], check=True, capture_output=True, cwd="/")
        shutil.rmtree(folder)


_WORKER = """
import sys, time
from pathlib import Path
from fastgaze.training.config import SweepSettings
from fastgaze.training.sweep import run_sweep
from tests.training.test_sweep import BASE, MAPS, arithmetic_trial
def trial(settings, folder):
    time.sleep(0.05)
    return arithmetic_trial(settings, folder)
def tell(done, total, note):
    print(note.removeprefix("trial ").split(":")[0])
run_sweep(trial, MAPS, BASE, SweepSettings(), sys.argv[1], "test", 16, Path(sys.argv[2]), tell)
"""


def test_two_workers_share_one_study_in_postgresql(postgres: str, tmp_path: Path) -> None:
    open_study(postgres, "test")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", _WORKER, postgres, str(tmp_path)]
    workers = [subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    try:
        numbers = [[int(n) for n in worker.communicate(timeout=600)[0].split()] for worker in workers]
    finally:
        for worker in workers:
            worker.kill()
    assert [worker.returncode for worker in workers] == [0, 0]
    assert all(numbers), "one worker did nothing"
    assert not set(numbers[0]) & set(numbers[1]), "a trial ran twice"
    found = _sweep(postgres, tmp_path, 16)
    assert {p.number for p in found} == set(numbers[0]) | set(numbers[1])
