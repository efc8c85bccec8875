"""The server's processes: what a death costs, how they end, and what a worker can do to the server."""

import asyncio
import contextlib
import os
import re
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from fastgaze.app.server import wire, workers
from fastgaze.app.server.api import Outermost
from tests.app.serving import encoded, head, make_models, metric, picture, raw, serving_app, wait_for, write_model

SMALL = encoded(picture(64, 48))


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Outermost]]:
    with serving_app(make_models(tmp_path_factory.mktemp("models"))) as found:
        yield found


def test_a_killed_worker_costs_nobody_else_anything(served: tuple[str, Outermost]) -> None:
    url, app = served
    for _ in range(5):
        for worker in list(app.pool.light.workers):
            os.kill(worker.pid, signal.SIGKILL)
        assert httpx.post(f"{url}/v1/gaze", content=SMALL, timeout=20).status_code == 200
    wait_for(lambda: len(app.pool.light.workers) == 2)
    assert app.pool.events["died"] > 0


def test_the_process_that_workers_come_from_is_started_again(served: tuple[str, Outermost]) -> None:
    url, app = served
    nursery = app.pool._nursery._process
    assert nursery is not None
    nursery.kill()
    for worker in list(app.pool.light.workers):
        os.kill(worker.pid, signal.SIGKILL)
    assert httpx.post(f"{url}/v1/gaze", content=SMALL, timeout=30).status_code == 200


def children(pid: int) -> list[int]:
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if int(status.read_text().rpartition(")")[2].split()[1]) == pid:
                found.append(int(status.parent.name))
    return found


def running(tmp_path: Path, *arguments: str, descriptors: int | None = None) -> subprocess.Popen[str]:
    """``fastgaze serve`` in a process of its own."""
    model = write_model(tmp_path / "bright.onnx", "bright")
    command = [sys.executable, "-m", "fastgaze", "serve", "--model", str(model), "--port", "0", *arguments]

    def limit() -> None:
        if descriptors is not None:
            resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))

    return subprocess.Popen(
        command,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        preexec_fn=limit if descriptors else None,
    )


def address_of(process: subprocess.Popen[str]) -> str:
    assert process.stderr is not None
    line = process.stderr.readline()
    found = re.search(r"at (http://\S+) \(Ctrl", line)
    assert found is not None, line
    return found[1]


def test_no_process_is_left_when_the_server_is_killed(tmp_path: Path) -> None:
    with running(tmp_path) as process:
        try:
            url = address_of(process)
            wait_for(lambda: httpx.get(f"{url}/readyz").status_code == 200)
            nursery = children(process.pid)
            workers = [pid for parent in nursery for pid in children(parent)]
            assert len(nursery) == 1
            assert len(workers) >= 2
        finally:
            process.kill()
    wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in nursery + workers))


def test_after_sigterm_it_ends_in_the_stated_time_whatever_clients_do(tmp_path: Path) -> None:
    with running(tmp_path, "--drain", "1", "--quiet") as process, contextlib.ExitStack() as stack:
        try:
            url = address_of(process)
            stack.enter_context(raw(url)).sendall(head(1000) + b"abc")
            reader = stack.enter_context(raw(url, 4096))
            reader.sendall(head(len(SMALL), "/v1/gaze?format=npy&size=2000x2000") + SMALL)
            stack.enter_context(raw(url))
            wait_for(lambda: metric(url, "fastgaze_requests_in_flight") == 1)
            start = time.monotonic()
            process.send_signal(signal.SIGTERM)
            process.wait(10)
            assert time.monotonic() - start < 5
            assert process.stderr is not None
            assert "Traceback" not in process.stderr.read()
        finally:
            process.kill()


def test_running_out_of_descriptors_shuts_nobody_out_and_fills_no_log(tmp_path: Path) -> None:
    with running(tmp_path, "--quiet", descriptors=120) as process, contextlib.ExitStack() as stack:
        try:
            url = address_of(process)
            for _ in range(150):
                stack.enter_context(raw(url))
            for _ in range(5):
                assert httpx.get(f"{url}/livez", timeout=20).status_code == 200
            assert httpx.post(f"{url}/v1/gaze", content=SMALL, timeout=20).status_code == 200
            process.send_signal(signal.SIGTERM)
            assert process.stderr is not None
            assert len(process.stderr.read()) < 10_000
        finally:
            process.kill()


@pytest.mark.parametrize(
    "message",
    [
        b"{}",
        b"[]",
        b"3",
        b'{"kind": 3}',
        b'{"kind": "answer", "size": "9"}',
        b'{"kind": "a", "b": 1}',
        b"[" * 100_000,
        b'{"kind": "needs", "cost": NaN}',
        b'{"kind": "error", "status": true}',
    ],
)
def test_a_worker_that_an_attacker_has_taken_over_cannot_confuse_the_server(message: bytes) -> None:
    with pytest.raises(ValueError, match="no Outcome"):
        wire.unpack(wire.Outcome, message)


@pytest.mark.parametrize("header", [wire.HEADER.pack(13, 1 << 40), wire.HEADER.pack(1 << 31, 0)])
def test_a_worker_cannot_make_the_server_hold_endless_bytes(header: bytes) -> None:
    async def received() -> None:
        reader = asyncio.StreamReader()
        reader.feed_data(header + b'{"kind": "a"}' + bytes(1000))
        await workers.receive(reader)

    with pytest.raises(OSError, match="not a message"):
        asyncio.run(asyncio.wait_for(received(), 5))
