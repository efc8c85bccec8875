"""What hostile clients do to the transport and to the workers, and what the others notice of it."""

import contextlib
import io
import struct
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

import httpx
import numpy as np
import pytest
from PIL import Image

from fastgaze.app.server.api import Outermost
from fastgaze.app.server.limits import Limits
from tests.app.serving import encoded, head, make_models, metric, picture, raw, serving, serving_app, wait_for

SMALL = encoded(picture(64, 48))


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return make_models(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="module")
def served(models: list[Path]) -> Iterator[tuple[str, Outermost]]:
    with serving_app(models) as found:
        yield found


@pytest.fixture(scope="module")
def url(served: tuple[str, Outermost]) -> str:
    return served[0]


def slowest_livez(url: str, n: int) -> float:
    times = []
    with httpx.Client(base_url=url, timeout=20) as client:
        for _ in range(n):
            start = time.perf_counter()
            assert client.get("/livez").status_code == 200
            times.append(time.perf_counter() - start)
            time.sleep(0.01)
    return max(times)


# -- readers and writers ----------------------------------------------------------------------------------------------


def test_readers_that_never_read_keep_their_places_and_give_way_to_others(models: list[Path]) -> None:
    limits = Limits(map_pixels=1_000_000, answer_bytes=10_000_000)
    with serving(models, limits) as url, contextlib.ExitStack() as stack:
        request = head(len(SMALL), "/v1/gaze?format=npy&size=1000x1000") + SMALL
        for _ in range(4):
            stack.enter_context(raw(url, 4096)).sendall(request)
        wait_for(lambda: metric(url, "fastgaze_requests_in_flight") >= 2)
        assert metric(url, 'fastgaze_held_bytes{what="answers"}') <= limits.answer_bytes
        start = time.monotonic()
        assert httpx.post(f"{url}/v1/gaze", content=SMALL, timeout=20).status_code == 200
        large = httpx.post(f"{url}/v1/gaze?format=npy&size=1000x1000", content=SMALL, timeout=20)
        assert np.load(io.BytesIO(large.content)).shape == (1000, 1000)
        assert time.monotonic() - start < 8
        assert metric(url, 'fastgaze_slow_clients_total{what="answers"}') > 0


def test_a_reader_that_never_reads_is_cut_off(models: list[Path]) -> None:
    with serving(models, Limits(write_seconds=0.5)) as url, raw(url, 4096) as connection:
        connection.sendall(head(len(SMALL), "/v1/gaze?format=npy&size=2000x2000") + SMALL)
        wait_for(lambda: metric(url, "fastgaze_requests_in_flight") == 1)
        wait_for(lambda: metric(url, "fastgaze_requests_in_flight") == 0)
        assert metric(url, 'fastgaze_held_bytes{what="answers"}') == 0
        received = 0
        with contextlib.suppress(ConnectionResetError):
            while piece := connection.recv(1 << 20):
                received += len(piece)
        assert received < 16_000_000


def test_slow_bodies_take_no_place(url: str) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(40):
            stack.enter_context(raw(url)).sendall(head(1000) + b"abc")
        wait_for(lambda: metric(url, 'fastgaze_held_bytes{what="uploads"}') == 120)
        assert metric(url, "fastgaze_requests_in_flight") == 0
        assert httpx.post(f"{url}/v1/gaze", content=SMALL, timeout=20).status_code == 200


def test_slow_bodies_give_way_when_memory_is_short(models: list[Path]) -> None:
    with serving(models, Limits(bytes=20_000, upload_bytes=30_000)) as url, contextlib.ExitStack() as stack:
        slow = [stack.enter_context(raw(url)) for _ in range(2)]
        for connection in slow:
            connection.sendall(head(20_000) + bytes(14_000))
        wait_for(lambda: metric(url, 'fastgaze_held_bytes{what="uploads"}') == 28_000)
        time.sleep(1.1)
        large = encoded(picture(64, 48), "BMP")
        assert len(large) > 2_000
        assert httpx.post(f"{url}/v1/gaze", content=large, timeout=20).status_code == 200
        assert metric(url, 'fastgaze_slow_clients_total{what="uploads"}') == 1


def test_a_body_in_one_byte_chunks_is_refused_and_nobody_else_waits(url: str) -> None:
    storm = b"1\r\nx\r\n" * 60_000
    with contextlib.ExitStack() as stack:
        connections = [stack.enter_context(raw(url)) for _ in range(4)]
        for connection in connections:
            connection.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                connection.send(head("Transfer-Encoding: chunked") + storm)
        assert slowest_livez(url, 20) < 1.0
        for connection in connections:
            connection.settimeout(10)
            with contextlib.suppress(ConnectionResetError):
                assert connection.recv(4096).startswith(b"HTTP/1.1 400 ")


def test_a_body_in_ordinary_chunks_is_taken(url: str) -> None:
    def pieces() -> Iterator[bytes]:
        for start in range(0, len(content), 500):
            yield content[start : start + 500]

    content = encoded(Image.effect_noise((400, 300), 60).convert("RGB"))
    assert len(content) / 500 > 256
    assert httpx.post(f"{url}/v1/gaze", content=pieces(), timeout=20).status_code == 200


@pytest.mark.parametrize(
    "more", ["X: " + "y" * 20_000 + "\r\n", "".join(f"X{n}: y\r\n" for n in range(200))], ids=["long", "many"]
)
def test_a_head_that_is_too_large_is_refused_in_one_write_and_in_many(url: str, more: str) -> None:
    request = f"GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\n{more}\r\n".encode()
    for size in (len(request), 1000):
        with raw(url) as connection:
            with contextlib.suppress(ConnectionResetError, BrokenPipeError):
                for start in range(0, len(request), size):
                    connection.sendall(request[start : start + size])
            with contextlib.suppress(ConnectionResetError):
                assert connection.recv(4096).startswith(b"HTTP/1.1 431 ")


def test_a_second_request_before_the_first_answer_is_not_looked_at(url: str) -> None:
    with raw(url) as connection:
        connection.sendall(b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" * 3)
        received = b""
        while piece := connection.recv(65536):
            received += piece
    assert received.count(b"HTTP/1.1 200 ") == 1


@pytest.mark.parametrize(
    "request_head",
    [
        "POST /v1/gaze HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
        "POST /v1/gaze HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\ncontent-length: 0\r\n\r\n",
        "POST /v1/gaze HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
        "POST /v1/gaze HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\n",
        "POST /v1/gaze HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 5, 5\r\n\r\n",
        "POST /v1/gaze HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: +5\r\n\r\n",
        "POST /v1/gaze HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding : chunked\r\n\r\n",
        "POST /v1/gaze HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: xchunked\r\n\r\n",
        "POST /v1/gaze HTTP/1.1\r\nHost: 127.0.0.1\r\nX: a\r\n Transfer-Encoding: chunked\r\n\r\n",
        "GET /livez HTTP/1.1\nHost: 127.0.0.1\n\n",
        "GET /livez HTTP/1.1\r\nHost: 127.0.0.1\nX: y\r\n\r\n",
        "GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\nHost: example.org\r\n\r\n",
        "GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\nX: a\rb\r\n\r\n",
        "GET /livez HTTP/1.1\r\n\r\n",
    ],
)
def test_a_head_that_a_proxy_could_read_otherwise_is_refused(url: str, request_head: str) -> None:
    with raw(url) as connection:
        connection.sendall(request_head.encode() + b"0\r\n\r\n")
        received = b""
        with contextlib.suppress(ConnectionResetError):
            while piece := connection.recv(65536):
                received += piece
    assert received.startswith(b"HTTP/1.1 400 ")
    assert received.count(b"HTTP/1.1 ") == 1


def test_no_path_is_sent_elsewhere(url: str) -> None:
    for path in ("/page/main.js/", "/v1/gaze/", "/docs/"):
        answer = httpx.get(f"{url}{path}", headers={"host": "127.0.0.1:1"}, timeout=20)
        assert answer.status_code == 404
        assert "location" not in answer.headers


def test_an_origin_that_is_none_is_another_origin(url: str) -> None:
    for origin in ("http://[::1", "null", "", "http://", "://", "http://127.0.0.1.example.org"):
        answer = httpx.get(f"{url}/v1/models", headers={"origin": origin}, timeout=20)
        assert (answer.status_code, answer.json()["error"]["code"]) == (403, "cross_origin")


def test_silent_connections_make_room_for_others(models: list[Path]) -> None:
    with serving(models, Limits(connections=40)) as url, contextlib.ExitStack() as stack:
        kept = stack.enter_context(httpx.Client(base_url=url, timeout=20))
        assert kept.get("/livez").status_code == 200
        for _ in range(60):
            stack.enter_context(raw(url))
        for _ in range(5):
            assert httpx.get(f"{url}/livez", timeout=20).status_code == 200
            assert httpx.post(f"{url}/v1/gaze", content=SMALL, timeout=20).status_code == 200
        assert kept.get("/livez").status_code == 200


# -- what is inside pictures ------------------------------------------------------------------------------------------


def scan_bomb(scans: int, side: int = 1200) -> bytes:
    """A progressive JPEG whose last scan is repeated; each costs a pass over the whole picture."""
    buffer = io.BytesIO()
    Image.effect_noise((side, side), 20).convert("RGB").save(buffer, "JPEG", progressive=True, quality=10)
    content = buffer.getvalue()
    last = content.rindex(b"\xff\xda")
    return content[:last] + content[last:-2] * scans + content[-2:]


def test_a_jpeg_of_thousands_of_scans_is_refused_before_it_is_decoded(url: str) -> None:
    bomb = scan_bomb(2000, 400)
    start = time.monotonic()
    answer = httpx.post(f"{url}/v1/gaze", content=bomb, timeout=30)
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "too_many_pixels")
    assert time.monotonic() - start < 3
    assert httpx.post(f"{url}/v1/gaze", content=scan_bomb(1, 400), timeout=30).status_code == 200


def webp(width: int, height: int) -> bytes:
    """34 bytes that announce a picture of this size."""
    frame = b"VP8L" + struct.pack("<I", 9) + b"\x2f" + struct.pack("<I", (width - 1) | (height - 1) << 14) + bytes(4)
    body = b"WEBP" + frame + b"\0"
    return b"RIFF" + struct.pack("<I", len(body)) + body


def test_pictures_that_take_more_memory_than_there_is_are_refused(url: str) -> None:
    for content in (webp(16383, 16383), webp(7000, 7000), webp(4096, 4096)):
        answer = httpx.post(f"{url}/v1/gaze", content=content, timeout=30)
        assert answer.status_code in (400, 413, 415), answer.text
    answer = httpx.post(f"{url}/v1/gaze", content=webp(4500, 4500), timeout=30)
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "too_many_pixels")
    assert "megapixels" in answer.json()["error"]["message"]


def test_a_picture_for_the_heavy_workers_is_answered_by_one(models: list[Path]) -> None:
    with serving_app(models, Limits(seconds=60)) as (url, app):
        answer = httpx.post(f"{url}/v1/gaze", content=encoded(Image.new("RGB", (4000, 3000))), timeout=60)
        assert answer.status_code == 200, answer.text
        assert app.pool.heavy.tasks == 1


def test_a_bomb_that_no_header_tells_of_is_killed_by_its_time(models: list[Path]) -> None:
    rows = zlib.compress(bytes((30_000 + 1) * 1500), 1)
    chunks = ((b"IHDR", struct.pack(">IIBBBBB", 30_000, 1500, 8, 0, 0, 0, 0)), (b"IDAT", rows), (b"IEND", b""))
    packed = [struct.pack(">I", len(d)) + k + d + struct.pack(">I", zlib.crc32(k + d)) for k, d in chunks]
    with serving_app(models, Limits(seconds=0.05), workers=1) as (url, app):
        answer = httpx.post(f"{url}/v1/gaze", content=b"\x89PNG\r\n\x1a\n" + b"".join(packed), timeout=30)
        assert answer.status_code in (503, 504), answer.text
        wait_for(lambda: app.pool.ready)


# -- processes that die -----------------------------------------------------------------------------------------------
