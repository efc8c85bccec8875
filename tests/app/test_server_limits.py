"""Every limit has its own answer, and the server stays awake while it works."""

import os
import re
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import numpy as np
import numpy.typing as npt
import pytest

from fastgaze.app.server import run
from fastgaze.app.server.limits import Limits
from fastgaze.core.errors import ArgumentError
from fastgaze.runtime.predictor import Predictor
from tests.app.serving import encoded, make_models, picture, serving, write_model

SMALL = encoded(picture(64, 48))


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[Predictor]:
    return make_models(tmp_path_factory.mktemp("models"))


class HeldEngine:
    """An engine that waits until it is let go, as a slow network would."""

    def __init__(self) -> None:
        self.go = threading.Event()

    def __call__(self, images: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        assert self.go.wait(30)
        n, _, height, width = images.shape
        return np.zeros((n, 1, height // 16, width // 16), np.float32)


@pytest.fixture
def held(models: list[Predictor]) -> Iterator[tuple[Predictor, threading.Event]]:
    engine = HeldEngine()
    yield Predictor(models[0].card, engine), engine.go
    engine.go.set()


def error(response: httpx.Response) -> tuple[int, str]:
    return response.status_code, response.json()["error"]["code"]


def wait_for(url: str, in_flight: int) -> None:
    deadline = time.monotonic() + 10
    with httpx.Client(base_url=url, verify=False) as client:
        while client.get("/healthz").json()["in_flight"] != in_flight:
            assert time.monotonic() < deadline
            time.sleep(0.02)


def raw(url: str) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", int(url.rsplit(":", 1)[1])), timeout=10)
    connection.settimeout(10)
    return connection


def test_too_many_bytes_are_refused_before_they_are_sent(models: list[Predictor]) -> None:
    with serving(models, Limits(bytes=10_000)) as url, raw(url) as connection:
        head = b"POST /v1/gaze HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\nExpect: 100-continue\r\n\r\n"
        connection.sendall(head)
        answer = connection.recv(4096)
        assert answer.startswith(b"HTTP/1.1 413 ")
        assert b"too_many_bytes" in answer or b"too_many_bytes" in connection.recv(4096)


def test_too_many_bytes_of_unknown_number_are_refused_on_the_way(models: list[Predictor]) -> None:
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


def test_a_picture_of_too_many_pixels_is_refused_by_its_header(models: list[Predictor]) -> None:
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


def test_work_that_takes_too_long_is_given_up_and_keeps_its_place_until_it_ends(
    held: tuple[Predictor, threading.Event],
) -> None:
    predictor, go = held
    with serving([predictor], Limits(seconds=0.2, in_flight=1), workers=1) as url:
        assert error(httpx.post(f"{url}/v1/gaze", content=SMALL)) == (504, "too_slow")
        assert error(httpx.post(f"{url}/v1/gaze", content=SMALL)) == (503, "busy")
        go.set()
        wait_for(url, 0)
        assert httpx.post(f"{url}/v1/gaze", content=SMALL).status_code in (200, 504)


def test_more_requests_than_places_are_told_to_come_back_while_the_server_stays_awake(
    held: tuple[Predictor, threading.Event],
) -> None:
    predictor, go = held
    with serving([predictor], Limits(in_flight=3), workers=1) as url, ThreadPoolExecutor(3) as clients:
        waiting = [clients.submit(httpx.post, f"{url}/v1/gaze", content=SMALL, timeout=20) for _ in range(3)]
        wait_for(url, 3)
        times = []
        with httpx.Client(base_url=url) as client:
            for _ in range(20):
                refused = client.post("/v1/gaze", content=SMALL)
                assert error(refused) == (503, "busy")
                assert refused.headers["retry-after"] == "1"
                start = time.perf_counter()
                assert client.get("/healthz").status_code == 200
                times.append(time.perf_counter() - start)
        assert sorted(times)[10] < 0.1
        go.set()
        assert [future.result().status_code for future in waiting] == [200, 200, 200]
        wait_for(url, 0)


def test_a_body_that_comes_too_slowly_is_given_up(models: list[Predictor]) -> None:
    with serving(models, Limits(upload_seconds=0.3)) as url, raw(url) as connection:
        connection.sendall(b"POST /v1/gaze HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nabc")
        answer = connection.recv(4096)
        assert answer.startswith(b"HTTP/1.1 408 ")
        wait_for(url, 0)


def test_a_head_that_never_ends_is_given_up(models: list[Predictor], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "HEAD_SECONDS", 0.3)
    with serving(models) as url, raw(url) as silent, raw(url) as slow:
        slow.sendall(b"POST /v1/gaze HTTP/1.1\r\nHost: x\r\nX-Slow: ")
        assert silent.recv(100) == b""
        assert slow.recv(100) == b""
        with httpx.Client(base_url=url) as client:
            client.get("/healthz")
            assert client.get("/healthz").status_code == 200


def test_a_client_that_leaves_gives_its_place_back(models: list[Predictor]) -> None:
    with serving(models, Limits(in_flight=1)) as url:
        with raw(url) as connection:
            connection.sendall(b"POST /v1/gaze HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nabc")
            wait_for(url, 1)
        wait_for(url, 0)
        assert httpx.post(f"{url}/v1/gaze", content=SMALL).status_code == 200


def test_what_uvicorn_refuses_itself_is_plain_text(models: list[Predictor]) -> None:
    with serving(models, Limits(connections=1)) as url, raw(url):
        full = httpx.get(f"{url}/healthz")
    with serving(models) as url, raw(url) as connection:
        connection.sendall(b"no HTTP\r\n\r\n")
        answer = connection.recv(4096)
    assert (full.status_code, full.headers["content-type"]) == (503, "text/plain; charset=utf-8")
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"text/plain" in answer


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
            port = int(re.search(r":(\d+) \(Ctrl\+C stops\)", first)[1])
            assert "warning: 0.0.0.0 can be reached from other machines" in second
            url = f"http://127.0.0.1:{port}"
            with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
                head = f"POST /v1/gaze HTTP/1.1\r\nHost: x\r\nContent-Length: {len(SMALL)}\r\n\r\n".encode()
                connection.sendall(head + SMALL[:10])
                wait_for(url, 1)
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
