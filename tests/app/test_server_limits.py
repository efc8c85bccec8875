"""Every limit has its own answer, and the server stays awake while it works."""

import contextlib
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from fastgaze.app.server import connection, run
from fastgaze.app.server.limits import Limits
from fastgaze.core.errors import ArgumentError
from tests.app.serving import encoded, head, make_models, picture, raw, serving, serving_app, write_model
from tests.commands import run as run_command

SMALL = encoded(picture(64, 48))


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return make_models(tmp_path_factory.mktemp("models"))


@pytest.fixture
def held(models: list[Path]) -> Iterator[tuple[str, Callable[[], None]]]:
    """A server of one light worker that stands still until the function is called, as if its picture took so long."""
    with serving_app(models, Limits(in_flight=3, seconds=20), workers=1) as (url, app):
        pids = [worker.pid for worker in app.pool.light.workers]
        signal_all(pids, signal.SIGSTOP)
        yield url, lambda: signal_all(pids, signal.SIGCONT)
        signal_all(pids, signal.SIGCONT)


def signal_all(pids: list[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def error(response: httpx.Response) -> tuple[int, str]:
    return response.status_code, response.json()["error"]["code"]


def wait_for(url: str, in_flight: int) -> None:
    deadline = time.monotonic() + 10
    with httpx.Client(base_url=url, verify=False) as client:
        while client.get("/readyz").json()["in_flight"] != in_flight:
            assert time.monotonic() < deadline
            time.sleep(0.02)


def wait_for_metric(url: str, name: str, value: float) -> None:
    deadline = time.monotonic() + 10
    while f"\n{name} {value}\n" not in httpx.get(f"{url}/metrics").text:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_too_many_bytes_are_refused_before_they_are_sent(models: list[Path]) -> None:
    with serving(models, Limits(bytes=10_000)) as url, raw(url) as connection:
        head = (
            b"POST /v1/gaze HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 99999999999\r\nExpect: 100-continue\r\n\r\n"
        )
        connection.sendall(head)
        answer = connection.recv(4096)
        assert answer.startswith(b"HTTP/1.1 413 ")
        assert b"too_many_bytes" in answer or b"too_many_bytes" in connection.recv(4096)


def test_too_many_bytes_of_unknown_number_are_refused_on_the_way(models: list[Path]) -> None:
    sent = 0

    def pieces() -> Iterator[bytes]:
        nonlocal sent
        for _ in range(2000):
            sent += 1
            yield bytes(1 << 16)

    with serving(models, Limits(bytes=100_000)) as url:
        response = httpx.post(f"{url}/v1/gaze", content=pieces())
        assert error(response) == (413, "too_many_bytes")
        form = httpx.post(f"{url}/v1/gaze", files={"image": bytes(120_000)})
        assert error(form) == (413, "too_many_bytes")
    assert sent < 1000


def test_a_picture_of_too_many_pixels_is_refused_by_its_header(models: list[Path]) -> None:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    def bomb(width: int, height: int) -> bytes:
        header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
        rows = chunk(b"IDAT", zlib.compress(bytes(1000)))
        return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + rows + chunk(b"IEND", b"")

    with serving(models, Limits(pixels=100_000)) as url:
        for width, height in ((400, 300), (9_000, 9_000), (60_000, 60_000), (1, 49_000_000), (2**31 - 1, 1)):
            assert error(httpx.post(f"{url}/v1/gaze", content=bomb(width, height))) == (413, "too_many_pixels")
        assert httpx.post(f"{url}/v1/gaze", content=encoded(picture(300, 300))).status_code == 200


def test_work_that_takes_too_long_is_killed_and_gives_its_place_back(models: list[Path]) -> None:
    with serving_app(models, Limits(seconds=2.0, in_flight=1), workers=1) as (url, app):
        (worker,) = app.pool.light.workers
        os.kill(worker.pid, signal.SIGSTOP)
        assert error(httpx.post(f"{url}/v1/gaze", content=SMALL)) == (504, "too_slow")
        wait_for(url, 0)
        again = httpx.post(f"{url}/v1/gaze", content=SMALL)
        assert again.status_code == 200, again.text
        assert app.pool.events["too_slow"] == 1
        with pytest.raises(ProcessLookupError):
            os.kill(worker.pid, 0)


def test_more_requests_than_places_are_told_to_come_back_while_the_server_stays_awake(
    held: tuple[str, Callable[[], None]],
) -> None:
    url, go = held
    with ThreadPoolExecutor(3) as clients:
        waiting = [clients.submit(httpx.post, f"{url}/v1/gaze", content=SMALL, timeout=20) for _ in range(3)]
        wait_for(url, 3)
        times = []
        with httpx.Client(base_url=url) as client:
            for _ in range(20):
                refused = client.post("/v1/gaze", content=SMALL)
                assert error(refused) == (503, "busy")
                assert refused.headers["retry-after"] == "1"
                start = time.perf_counter()
                assert client.get("/livez").status_code == 200
                times.append(time.perf_counter() - start)
        assert sorted(times)[10] < 0.1
        go()
        assert [future.result().status_code for future in waiting] == [200, 200, 200]
        wait_for(url, 0)


def test_a_body_that_comes_too_slowly_is_given_up(models: list[Path]) -> None:
    with serving(models, Limits(upload_seconds=0.3)) as url, raw(url) as connection:
        connection.sendall(head(1000) + b"abc")
        answer = connection.recv(4096)
        assert answer.startswith(b"HTTP/1.1 408 ")
        wait_for(url, 0)


def test_a_head_that_never_ends_is_given_up(models: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "HEAD_SECONDS", 0.3)
    with serving(models) as url, raw(url) as silent, raw(url) as slow:
        slow.sendall(b"POST /v1/gaze HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: ")
        assert silent.recv(100) == b""
        assert slow.recv(100) == b""
        with httpx.Client(base_url=url) as client:
            client.get("/readyz")
            assert client.get("/readyz").status_code == 200


def test_a_client_that_leaves_gives_its_bytes_back(models: list[Path]) -> None:
    limits = Limits(bytes=1000, upload_bytes=1000)
    with serving(models, limits) as url:
        with raw(url) as connection:
            connection.sendall(
                b"POST /v1/gaze HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000\r\n\r\n" + bytes(990)
            )
            wait_for_metric(url, 'fastgaze_held_bytes{what="uploads"}', 990)
        wait_for_metric(url, 'fastgaze_held_bytes{what="uploads"}', 0)
        assert httpx.post(f"{url}/v1/gaze", content=SMALL).status_code == 200


def test_what_is_no_http_is_refused_in_the_api_s_own_words(models: list[Path]) -> None:
    with serving(models) as url, raw(url) as connection:
        connection.sendall(b"no HTTP\r\n\r\n")
        answer = connection.recv(4096)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b'"not_http"' in answer


def test_limits_that_make_no_sense_are_refused() -> None:
    for wrong in ({"bytes": 0}, {"seconds": -1.0}, {"in_flight": 0}, {"pixels": 10**9}):
        with pytest.raises(ArgumentError, match=next(iter(wrong))):
            Limits(**wrong)


def test_a_port_in_use_is_one_clear_error() -> None:
    with run.bind("127.0.0.1", 0) as first, pytest.raises(ArgumentError, match="cannot listen on"):
        run.bind("127.0.0.1", first.getsockname()[1])


def test_the_command_serves_warns_and_ends_on_sigterm_with_the_answer_on_its_way(tmp_path: Path) -> None:
    model = write_model(tmp_path / "bright.onnx", "bright")
    arguments = ["serve", "--model", str(model), "--host", "0.0.0.0", "--port", "0"]
    command = [sys.executable, "-m", "fastgaze", *arguments]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stderr is not None
        try:
            first, second = process.stderr.readline(), process.stderr.readline()
            found = re.search(r":(\d+) \(Ctrl\+C stops it\)", first)
            assert found is not None, first
            port = int(found[1])
            assert "warning: other machines can reach 0.0.0.0" in second
            url = f"http://127.0.0.1:{port}"
            with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
                connection.sendall(head(len(SMALL)) + SMALL[:10])
                wait_for_metric(url, 'fastgaze_held_bytes{what="uploads"}', 10)
                process.send_signal(signal.SIGTERM)
                time.sleep(0.2)
                connection.sendall(SMALL[10:])
                assert connection.recv(4096).startswith(b"HTTP/1.1 200 ")
            assert process.wait(10) in (0, -signal.SIGTERM)
            assert "Traceback" not in process.stderr.read()
        finally:
            process.kill()


def test_the_command_refuses_a_model_that_is_not_there() -> None:
    arguments = [sys.executable, "-m", "fastgaze", "serve", "--model", "no-such-model"]
    ended = subprocess.run(arguments, capture_output=True, text=True, timeout=30, check=False)
    assert ended.returncode == 2
    assert len(ended.stderr.splitlines()) == 1
    assert "no-such-model" in ended.stderr


def test_a_system_that_cannot_fork_is_told_so_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delattr(os, "fork")
    assert run_command("serve", "--port", "0") == 2
    said = capsys.readouterr().err.strip()
    assert "\n" not in said
    assert "cannot fork processes" in said
    assert "fastgaze site" in said
