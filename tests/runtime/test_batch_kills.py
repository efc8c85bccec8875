"""Every image exactly once whatever is killed, by both runners, which give the same rows."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from fastgaze.runtime.batch import BatchOptions, run
from tests.runtime.batches import fill, read_rows

_DRIVER = """
import json, sys
from fastgaze.runtime.batch import BatchOptions, run
if __name__ == "__main__":
    source, output, model, runner, shard = sys.argv[1:]
    summary = run(source, output, model, BatchOptions(shard=int(shard)), runner, workers=2)
    print(json.dumps(summary.to_json()))
"""


def _start(folder: Path, output: Path, model: str, engine: str, shard: int) -> subprocess.Popen[bytes]:
    script = output.parent / "driver.py"
    script.write_text(_DRIVER)
    arguments = [sys.executable, str(script), str(folder), str(output), model, engine, str(shard)]
    marked = os.environ | {"FASTGAZE_TEST": str(output)}
    return subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=marked)


def _workers_of(driver: int) -> list[int]:
    """Process ids of a driver's worker processes."""
    children = Path(f"/proc/{driver}/task/{driver}/children").read_text().split()
    return [int(child) for child in children if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes()]


def _actors_of(output: Path) -> list[int]:
    """Process ids of the Ray actors that a driver for ``output`` started; they inherit its environment."""
    found = []
    for folder in Path("/proc").iterdir():
        try:
            named = b"ray::MapWorker" in (folder / "cmdline").read_bytes()
            ours = f"FASTGAZE_TEST={output}\0".encode() in (folder / "environ").read_bytes()
        except OSError:
            continue
        if named and ours:
            found.append(int(folder.name))
    return found


def _wait_for_shards(output: Path, count: int) -> None:
    deadline = time.monotonic() + 600
    while len(list(output.glob("part-*.parquet"))) < count:
        assert time.monotonic() < deadline, "the job makes no progress"
        time.sleep(0.01)


def _kill_worker_then_driver_then_finish(
    folder: Path, count: int, model: str, tmp_path: Path, shard: int
) -> Counter[str]:
    """How often each picture has a row in the end."""
    output, shards = tmp_path / "out", count // shard
    with _start(folder, output, model, "local", shard) as driver:
        _wait_for_shards(output, shards // 5)
        os.kill(_workers_of(driver.pid)[0], signal.SIGKILL)
        _wait_for_shards(output, 2 * shards // 5)
        orphans = _workers_of(driver.pid)
        driver.kill()
    assert len(orphans) == 2, "the killed worker was not replaced"
    assert len(list(output.glob("part-*.parquet"))) < shards
    with _start(folder, output, model, "local", shard) as driver:
        report = json.loads(driver.communicate(timeout=900)[0])
    assert 0 < report["done"] < count
    assert not [name for name in os.listdir(output) if name.startswith("_tmp")]
    return Counter(row["path"] for row in read_rows(output))


def test_every_image_exactly_once_after_kill_9_of_a_worker_and_of_the_driver(model: str, tmp_path: Path) -> None:
    folder = fill(tmp_path / "images", 300)
    rows = _kill_worker_then_driver_then_finish(folder, 300, model, tmp_path, shard=10)
    assert rows == Counter(str(path) for path in folder.iterdir())


@pytest.mark.slow
def test_5000_images_exactly_once_after_kill_9(model: str, tmp_path: Path) -> None:
    folder = fill(tmp_path / "images", 5000)
    rows = _kill_worker_then_driver_then_finish(folder, 5000, model, tmp_path, shard=50)
    assert rows == Counter(str(path) for path in folder.iterdir())


@pytest.mark.slow
def test_ray_gives_the_same_rows_and_goes_on_where_the_local_runner_stopped(
    images: Path, model: str, tmp_path: Path
) -> None:
    run(str(images), str(tmp_path / "local"), model, BatchOptions(shard=10), workers=1)
    (tmp_path / "ray").mkdir()
    with _start(images, tmp_path / "ray" / "out", model, "ray", 10) as driver:
        report = json.loads(driver.communicate(timeout=900)[0])
    assert (report["runner"], report["done"], report["errors"]) == ("ray", 43, 2)
    assert read_rows(tmp_path / "ray" / "out") == read_rows(tmp_path / "local")
    assert {path.name for path in (tmp_path / "ray" / "out").iterdir()} == {
        path.name for path in (tmp_path / "local").iterdir()
    }
    (tmp_path / "ray" / "out" / "part-0000-000002.parquet").unlink()
    assert run(str(images), str(tmp_path / "ray" / "out"), model, BatchOptions(shard=10), workers=1).done == 10
    assert read_rows(tmp_path / "ray" / "out") == read_rows(tmp_path / "local")


@pytest.mark.slow
def test_ray_too_has_every_image_exactly_once_after_kill_9(model: str, tmp_path: Path) -> None:
    folder, output = fill(tmp_path / "images", 400), tmp_path / "out"
    with _start(folder, output, model, "ray", 10) as driver:
        _wait_for_shards(output, 4)
        os.kill(_actors_of(output)[0], signal.SIGKILL)
        _wait_for_shards(output, 16)
        driver.kill()
    before = len(list(output.glob("part-*.parquet")))
    assert before < 40
    assert run(str(folder), str(output), model, BatchOptions(shard=10), workers=1).done > 0
    assert Counter(row["path"] for row in read_rows(output)) == Counter(str(path) for path in folder.iterdir())
