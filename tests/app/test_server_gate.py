"""Whose bytes are looked at next: no crowd holds the event loop, and /livez is answered whatever the others do."""

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

from fastgaze.app.server.gate import REQUEST_SECONDS, SLICE_SECONDS, Gate, Standing
from fastgaze.app.server.limits import Limits
from tests.app.serving import encoded, head, make_models, picture, raw, serving


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return make_models(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="module")
def url(models: list[Path]) -> Iterator[str]:
    with serving(models) as found:
        yield found


class Clock:
    """Time that passes only when something is looked at."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Client:
    """A connection whose bytes take ``cost`` seconds; it is back as soon as it was looked at."""

    gate: Gate
    clock: Clock
    standing: Standing
    cost: float = 0.0005
    used: float = 0.0
    looks: list[float] = field(default_factory=list)

    def look(self) -> int:
        self.clock.now += self.cost
        self.looks.append(self.clock.now)
        if len(self.looks) < 10_000:
            self.gate.enter(self, self.standing)
        return 1


async def turns(clock: Clock, clients: list[Client], count: int) -> None:
    for client in clients:
        client.gate.enter(client, client.standing)
    for _ in range(count):
        await asyncio.sleep(0)
        clock.now += 0.001  # whatever else the loop does


def test_one_turn_of_the_loop_looks_at_no_more_than_its_slice() -> None:
    async def crowd() -> None:
        clock = Clock()
        gate = Gate(clock, clock)
        clients = [Client(gate, clock, Standing.KNOWN) for _ in range(500)]
        for client in clients:
            gate.enter(client, client.standing)
        gate.let_through()
        looked = sum(len(client.looks) for client in clients)
        assert looked == 1 + int(SLICE_SECONDS / (REQUEST_SECONDS + clients[0].cost))

    asyncio.run(crowd())


def test_known_clients_go_first_and_a_crowd_of_others_has_a_quarter_of_the_time() -> None:
    async def crowd() -> tuple[float, float, float]:
        clock = Clock()
        gate = Gate(clock, clock)
        known = Client(gate, clock, Standing.KNOWN)
        others = [Client(gate, clock, Standing.OTHER) for _ in range(64)]
        await turns(clock, [known, *others], 2000)
        return known.used, sum(client.used for client in others), clock.now

    known, others, seconds = asyncio.run(crowd())
    assert known > 2 * others
    assert 0 < others < 0.3 * seconds


def test_a_picture_overtakes_those_who_have_used_much() -> None:
    async def order() -> list[str]:
        clock = Clock()
        gate = Gate(clock, clock)
        seen: list[str] = []

        class Named(Client):
            def look(self) -> int:
                seen.append("small" if self.used < 0.1 else "large")
                return 0

        for used in (1.0, 1.0, 0.0):
            gate.enter(Named(gate, clock, Standing.NEW, used=used), Standing.NEW)
            clock.now += 0.1
        gate.let_through()
        return seen

    assert asyncio.run(order()) == ["small", "large", "large"]


def test_live_is_answered_while_sixty_clients_ask_for_pages(url: str) -> None:
    until = time.monotonic() + 2.0
    asked = [0]

    def ask() -> None:
        with httpx.Client(base_url=url, timeout=20) as client:
            while time.monotonic() < until:
                asked[0] += client.get("/docs").status_code == 200

    threads = [threading.Thread(target=ask) for _ in range(24)]
    for thread in threads:
        thread.start()
    with raw(url) as connection:
        waits = []
        while time.monotonic() < until:
            start = time.perf_counter()
            connection.sendall(b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            assert connection.recv(4096).endswith(b"}")
            waits.append(time.perf_counter() - start)
            time.sleep(0.02)
    for thread in threads:
        thread.join()
    assert asked[0] > 0
    assert sorted(waits)[len(waits) // 2] < 0.2


def test_live_says_the_same_whichever_way_it_is_asked(url: str) -> None:
    quick = httpx.get(f"{url}/livez")
    slow = httpx.get(f"{url}/livez", headers={"connection": "close"})
    assert quick.json() == slow.json()
    names = set(quick.headers) | {"date"}
    assert names - {"date"} == set(slow.headers) - {"date", "connection"}
    assert all(quick.headers[name] == slow.headers[name] for name in set(quick.headers) - {"date"})
    counted = httpx.get(f"{url}/metrics").text
    assert 'path="/livez",status="200"' in counted


@pytest.mark.parametrize(
    "more",
    [
        "Content-Length: 3\r\n",
        "X: y\r\n" * 60,
        "X:" + " " * 1500 + "\r\n",
        "Host: other\r\n",
        "Expect: 100-continue\r\n",
    ],
)
def test_a_head_for_live_with_more_in_it_takes_the_ordinary_way(url: str, more: str) -> None:
    with raw(url) as connection:
        connection.sendall(f"GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\n{more}\r\n".encode())
        assert connection.recv(4096)[9:12] in (b"200", b"400")


def ask_for_ever(connection: socket.socket) -> None:
    for _ in range(200_000):
        connection.sendall(b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")


def test_who_asks_for_live_and_never_reads_is_cut_off(url: str) -> None:
    with raw(url, receive_buffer=4096) as connection, pytest.raises(ConnectionError):
        ask_for_ever(connection)


@pytest.mark.parametrize("split", [False, True])
def test_headers_that_follow_a_body_are_refused(url: str, split: bool) -> None:
    with raw(url) as connection:
        connection.sendall(head("Transfer-Encoding: chunked") + b"3\r\nabc\r\n0;x=y\r\n")
        if split:
            time.sleep(0.1)
        connection.sendall(b"a:b\r\n" * 12_000 + b"\r\n")
        answer = connection.recv(4096)
    assert b"not_http" in answer


def test_a_body_that_ends_in_pieces_is_taken(url: str) -> None:
    content = encoded(picture(64, 48))
    with raw(url) as connection:
        connection.sendall(head("Transfer-Encoding: chunked") + b"%x\r\n" % len(content) + content + b"\r\n0")
        for piece in (b"\r", b"\n", b"\r", b"\n"):
            time.sleep(0.05)
            connection.sendall(piece)
        assert connection.recv(4096)[9:12] == b"200"


def test_too_many_options_are_refused_before_they_are_read(url: str) -> None:
    answer = httpx.post(f"{url}/v1/gaze?{'&'.join(['ratio=16:9'] * 1000)}", content=encoded(picture()))
    assert answer.status_code == 400
    assert "options" in answer.json()["error"]["message"]


def test_idle_connections_that_were_answered_shut_nobody_out(models: list[Path]) -> None:
    with serving(models, Limits(connections=20)) as url:
        idle = [raw(url) for _ in range(20)]
        for connection in idle:
            connection.sendall(b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            assert connection.recv(4096)
        with httpx.Client(base_url=url, timeout=20) as good:
            assert good.post("/v1/gaze", content=encoded(picture())).status_code == 200
            more = [raw(url) for _ in range(30)]
            time.sleep(0.2)
            pool = good._transport._pool.connections  # type: ignore[attr-defined]
            assert good.post("/v1/gaze", content=encoded(picture())).status_code == 200
            assert good._transport._pool.connections == pool  # type: ignore[attr-defined]
        for connection in idle + more:
            connection.close()


def test_bad_pictures_after_the_first_are_refused_after_a_moment(url: str) -> None:
    with httpx.Client(base_url=url, timeout=20) as client:
        assert client.post("/v1/gaze", content=b"no picture").status_code == 415
        start = time.monotonic()
        assert client.post("/v1/gaze", content=b"no picture").status_code == 415
        assert time.monotonic() - start > 0.35
        assert client.post("/v1/gaze", content=encoded(picture())).status_code == 200
        start = time.monotonic()
        assert client.post("/v1/gaze", content=b"no picture").status_code == 415


def test_a_flood_of_connections_that_are_reset_leaves_the_server_answering(url: str) -> None:
    for _ in range(500):
        connection = socket.create_connection(("127.0.0.1", int(url.rsplit(":", 1)[1])))
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        connection.close()
    assert httpx.get(f"{url}/livez", timeout=5).status_code == 200
