"""Whose turn it is when there is more work than workers."""

import asyncio
import itertools
import os
import random
import signal
import time
from collections import defaultdict
from contextlib import AbstractContextManager
from pathlib import Path

import httpx
import pytest
from PIL import Image

from fastgaze.app.server import turns
from fastgaze.app.server.turns import Caller, Ledger, Rank
from fastgaze.app.server.wire import Task
from tests.app.serving import encoded, make_models, picture, serving_app

KNOWN, STRANGER, LONG = Rank
GOOD = turns.Verdict.GOOD
SMALL = encoded(picture(64, 48))


def shares(seconds_of: dict[Rank, float], workers: int, monkeypatch: pytest.MonkeyPatch) -> dict[Rank, float]:
    """Seconds of work that each rank gets in 200 s while tasks of all of them wait all the time."""
    clock = 0.0
    monkeypatch.setattr(turns, "monotonic", lambda: clock)

    async def simulate() -> dict[Rank, float]:
        nonlocal clock
        queue, got, rng = turns.Turns[int](workers), defaultdict[Rank, float](float), random.Random(0)
        held: list[tuple[float, int, float, Rank]] = []
        waiting = {rank: [queue.add(n, rank) for n in range(3)] for rank in seconds_of}
        numbers = itertools.count()
        while clock < 200:
            while len(held) < workers and (future := queue.next()) is not None:
                rank = next(rank for rank in seconds_of if future in waiting[rank])
                waiting[rank].remove(future)
                waiting[rank].append(queue.add(clock, rank))
                seconds = seconds_of[rank] * rng.uniform(0.5, 1.5)
                held.append((clock + seconds, next(numbers), seconds, rank))
            held.remove(first := min(held))
            clock, _, seconds, rank = first
            queue.ended(rank, seconds, GOOD)
            got[rank] += seconds
        return {rank: seconds / sum(got.values()) for rank, seconds in got.items()}

    return asyncio.run(simulate())


@pytest.mark.parametrize("strangers_seconds", [0.01, 0.1, 0.9])
@pytest.mark.parametrize("workers", [1, 2, 4])
def test_strangers_get_their_share_of_the_time_and_no_more_whatever_they_send(
    strangers_seconds: float, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    got = shares({KNOWN: 0.1, STRANGER: strangers_seconds}, workers, monkeypatch)
    assert got[STRANGER] == pytest.approx(0.2, abs=0.05)


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_pictures_that_take_long_leave_more_than_half_of_the_time_to_known_clients(
    workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    got = shares({KNOWN: 0.05, STRANGER: 0.05, LONG: 0.3}, workers, monkeypatch)
    assert got[KNOWN] > 0.62
    assert got[LONG] == pytest.approx(0.1, abs=0.05)


@pytest.mark.parametrize("rank", Rank)
def test_who_waits_alone_gets_every_worker(rank: Rank) -> None:
    async def taken() -> int:
        queue = turns.Turns[int](4)
        for n in range(6):
            queue.add(n, rank)
        return sum(queue.next() is not None for _ in range(4))

    assert asyncio.run(taken()) == 4


async def beside_known_clients(workers: int = 4) -> turns.Turns[int]:
    """A queue in which a known client has just been answered."""
    queue = turns.Turns[int](workers)
    queue.add(0, KNOWN)
    assert queue.next() is not None
    queue.ended(KNOWN, 0.05, GOOD)
    return queue


@pytest.mark.parametrize(
    ("rank", "verdict", "most"), [(STRANGER, GOOD, 3), (STRANGER, turns.Verdict.BAD, 2), (LONG, GOOD, 2)]
)
def test_others_hold_more_than_half_beside_known_clients_only_with_good_and_quick_pictures(
    rank: Rank, verdict: turns.Verdict, most: int
) -> None:
    async def taken() -> list[bool]:
        queue = await beside_known_clients()
        queue.add(0, rank)
        assert queue.next() is not None
        queue.ended(rank, 0.4, verdict)
        others = [queue.add(n, rank) for n in range(6)]
        known = queue.add(0, KNOWN)
        order = [queue.next() for _ in range(4)]
        assert known in order
        return [future in others for future in order]

    assert sum(asyncio.run(taken())) == most


def test_a_picture_that_takes_long_lets_others_pass_whoever_sent_it(tmp_path: Path) -> None:
    """Its file is tiny, so that only its header says so."""
    long = encoded(Image.new("RGB", (2600, 2600)))
    with serving_app(make_models(tmp_path)) as (url, app), httpx.Client(base_url=url, timeout=20) as known:
        for content in (SMALL, long, long):
            assert known.post("/v1/gaze", content=content).status_code == 200
        assert app.pool.heavy.tasks == 0
        assert app.pool.light.tasks == 5, "looked at twice: once to see that it takes long"
        assert app.pool.light.cpu_seconds["long"] > app.pool.light.cpu_seconds["known"]


def test_who_takes_long_waits_for_those_who_do_not() -> None:
    assert turns.later(10.0, 0.0) == 10.0
    assert 13 < turns.later(10.0, 0.12) < turns.later(10.0, 0.25) < turns.later(10.0, 9.0) == 18.0


@pytest.mark.parametrize(("rank", "many"), [(STRANGER, 64), (LONG, 12)])
def test_others_are_told_to_come_again_when_too_many_wait_while_known_clients_are_about(rank: Rank, many: int) -> None:
    async def refused() -> list[bool]:
        alone, beside = turns.Turns[int](2), await beside_known_clients(2)
        found = [beside.full(rank)]
        for n in range(many):
            alone.add(n, rank)
            beside.add(n, rank)
        return [*found, alone.full(rank), beside.full(rank), beside.full(KNOWN)]

    assert asyncio.run(refused()) == [False, False, True, False]


def test_a_worker_that_waits_for_known_clients_is_given_to_a_stranger_in_time(tmp_path: Path) -> None:
    """With one worker and one known client, strangers come one after another, each within a second or two."""
    with serving_app(make_models(tmp_path), workers=1) as (url, _), httpx.Client(base_url=url, timeout=20) as known:
        for _ in range(12):
            assert known.post("/v1/gaze", content=SMALL).status_code == 200
            assert httpx.post(f"{url}/v1/gaze", content=SMALL, timeout=5).status_code == 200


def test_small_pictures_and_those_who_used_little_go_first() -> None:
    ledger, task = Ledger(), Task("gaze", None, [])
    large_map = Task("gaze", {"size": [4000, 4000]}, [])
    modest, greedy = Caller("192.0.2.1"), Caller("192.0.2.2")
    ledger.charge(greedy.address, 2.0)
    assert ledger.turn(task, 1_000, modest) < ledger.turn(task, 500_000, modest)
    assert ledger.turn(task, 1_000, modest) < ledger.turn(large_map, 1_000, modest)
    assert ledger.turn(task, 100_000, modest) < ledger.turn(task, 1_000, greedy)
    ledger.charge(greedy.address, 1e6)
    assert ledger.turn(task, 0, greedy) < time.monotonic() + 6
    assert ledger.turn(task, 1_000, greedy) < ledger.turn(task, 500_000, greedy)


def test_the_ledger_forgets_and_stays_small() -> None:
    ledger = Ledger()
    for n in range(12_000):
        ledger.charge(str(n), 1.0)
    assert ledger.used("0") == 0
    assert ledger.used("11999") == pytest.approx(1.0, abs=0.05)
    assert len(ledger._used) == 10_000


def test_a_worker_that_stands_by_takes_over_at_once(tmp_path: Path) -> None:
    with serving_app(make_models(tmp_path), workers=1) as (url, app):
        deadline = time.monotonic() + 20
        while not (app.pool.light.complete and app.pool.heavy.complete):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        nursery = app.pool._nursery._process
        assert nursery is not None
        os.kill(nursery.pid, signal.SIGSTOP)  # nothing can be forked now
        try:
            (worker,) = app.pool.light.workers
            os.kill(worker.pid, signal.SIGKILL)
            assert httpx.post(f"{url}/v1/gaze", content=SMALL, timeout=4).status_code == 200
        finally:
            os.kill(nursery.pid, signal.SIGCONT)


def test_a_connection_is_known_after_a_good_picture_and_a_stranger_again_after_a_bad_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving_app(make_models(tmp_path)) as (url, app), httpx.Client(base_url=url, timeout=20) as client:
        seen: list[bool] = []
        place = app.pool.place

        def noted(caller: Caller) -> AbstractContextManager[None]:
            seen.append(caller.known)
            return place(caller)

        monkeypatch.setattr(app.pool, "place", noted)
        for content in (SMALL, SMALL, SMALL[:50], SMALL):
            client.post("/v1/gaze", content=content)
        assert seen == [False, True, True, False]
