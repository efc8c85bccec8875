"""Does the server keep its promises while 64 hostile clients do their worst? Loopback only, at most ten minutes.

    python -m experiments.soak --out results/soak.json                      # two and a half minutes
    python -m experiments.soak --fresh --out results/soak_fresh.json        # good clients keep no connection
    python -m experiments.soak --seconds 5 --rounds 1 --hostile 16          # a short form

Starts `fastgaze serve` with its default settings and measures good clients in turns: alone, beside the hostile ones,
alone, beside them, alone. So what else the machine does falls on both alike. Hostile clients read slowly, write slowly,
send one-byte chunks, JPEGs of thousands of scans, pictures larger than memory, animations of thousands of frames,
damaged files, forms of many parts, huge heads, thousands of trailers, silent connections and the largest pictures that
are allowed, some of them after a good picture over the same connection, and ask for pages without end; meanwhile
workers are killed with SIGKILL. /livez and the memory of all of the server's processes are watched from outside.

Hostile clients run at a lower priority than the server, good ones and the watch at the same: they share its cores here,
as they would not on a network. Exit code 1 when a promise is broken.
"""

import argparse
import asyncio
import contextlib
import json
import multiprocessing
import multiprocessing.pool
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from experiments.hostile_clients import HOST, MOST_SECONDS, Kit, attack, make_kit
from experiments.load_test import memory_mb, percentiles, photograph, post, tree

GOOD_CLIENTS = 4
PATHS = ("/v1/gaze", "/v1/gaze", "/v1/crop?ratio=16:9&n=3", "/v1/gaze?format=png&size=320x240")
PROMISES = {"throughput": 0.5, "longest_wait": 5.0, "livez_p99_ms": 100.0, "memory_mb": 1024.0, "recovery_seconds": 1.0}


@dataclass(frozen=True)
class Good:
    """What good clients saw in one phase."""

    statuses: dict[str, int]
    per_second: float
    """Answers with status 200."""
    milliseconds: dict[str, float]
    longest_wait: float
    """Seconds from wanting an answer to having it, refusals and new attempts included."""


# -- good clients -----------------------------------------------------------------------------------------------------


async def good_client(
    port: int, bodies: list[bytes], until: float, seed: int, fresh: bool
) -> tuple[Counter[str], list[float]]:
    """One picture after another; what is refused is asked again, as any client would.

    fresh: over a new connection each time, as simple programs do.
    """
    rng, statuses, waits = random.Random(seed), Counter[str](), []
    connection = None
    while time.monotonic() < until:
        start, path, body = time.perf_counter(), rng.choice(PATHS), rng.choice(bodies)
        status = ""
        while status != "200" and time.monotonic() < until + 10:
            try:
                connection = connection or await asyncio.open_connection(HOST, port)
                status, _, alive = await asyncio.wait_for(post(*connection, path, body, "image/jpeg"), 20)
            except (OSError, asyncio.IncompleteReadError, TimeoutError) as error:
                status, alive = type(error).__name__, False
            statuses[status] += 1
            if connection and (fresh or not alive):
                connection[1].close()
                connection = None
            if status != "200":
                await asyncio.sleep(0.1)
        waits.append(time.perf_counter() - start)
    return statuses, waits


def good_phase(port: int, seconds: float, fresh: bool = False) -> Good:
    sizes = ((640, 480), (1024, 768), (800, 1000), (320, 240))
    bodies = [photograph(*size, seed=index) for index, size in enumerate(sizes)]

    async def all_of_them() -> list[tuple[Counter[str], list[float]]]:
        until = time.monotonic() + seconds
        return await asyncio.gather(*(good_client(port, bodies, until, seed, fresh) for seed in range(GOOD_CLIENTS)))

    start = time.monotonic()
    found = asyncio.run(all_of_them())
    statuses = sum((statuses for statuses, _ in found), Counter[str]())
    waits = [wait for _, waits in found for wait in waits]
    rate = round(statuses["200"] / (time.monotonic() - start), 2)
    return Good(dict(statuses), rate, percentiles([1e3 * wait for wait in waits]), round(max(waits), 2))


# -- what is watched from outside -------------------------------------------------------------------------------------


def watch(port: int, pid: int, results: Connection) -> None:
    """In a process of its own: /livez over a new connection ten times a second, memory twice, until told to stop."""
    times, memory, failures, turn = [], [memory_mb(pid)], 0, 0
    while not results.poll(0.1):
        start = time.perf_counter()
        connection = HTTPConnection(HOST, port, timeout=10)
        try:
            connection.request("GET", "/livez")
            failures += connection.getresponse().status != 200
        except (OSError, HTTPException):
            failures += 1
        finally:
            connection.close()
        times.append(1e3 * (time.perf_counter() - start))
        turn += 1
        if turn % 5 == 0:
            memory.append(memory_mb(pid))
    results.send((times, memory, failures))


def kill_workers(port: int, pid: int, seconds: float, kills: int) -> list[float]:
    """Kill a worker now and then; seconds until the server answered a picture again, for each.

    Asked by a good client, over a connection that it keeps as the others do.
    """
    body, recoveries = photograph(320, 240, 7), []
    connection = HTTPConnection(HOST, port, timeout=10)
    while answer(connection, body) != 200:
        time.sleep(0.1)
    for turn in range(kills):
        time.sleep(seconds / (kills + 1))
        workers = [worker for nursery in tree(pid)[1:2] for worker in tree(nursery)[1:]]
        if not workers:
            continue
        with contextlib.suppress(ProcessLookupError):
            os.kill(workers[turn % len(workers)], signal.SIGKILL)
        start = time.perf_counter()
        while answer(connection, body) != 200 and time.perf_counter() - start < 20:
            time.sleep(0.02)
        recoveries.append(round(time.perf_counter() - start, 3))
    return recoveries


def answer(connection: HTTPConnection, body: bytes) -> int:
    try:
        connection.request("POST", "/v1/gaze", body)
        found = connection.getresponse()
        found.read()
        return found.status
    except (OSError, HTTPException):
        connection.close()
        return 0


# -- the run ----------------------------------------------------------------------------------------------------------


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    command = [sys.executable, "-m", "fastgaze", "serve", "--port", "0", "--quiet", *arguments.serve]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        try:
            line = server.stderr.readline()
            found = re.search(r":(\d+) \(Ctrl", line)
            if found is None:
                sys.exit(line.strip())
            facts = measure(int(found[1]), server.pid, arguments)
            start = time.monotonic()
            server.send_signal(signal.SIGTERM)
            server.wait(30)
            return facts | {"drain_seconds": round(time.monotonic() - start, 2)}
        finally:
            server.kill()


@dataclass(frozen=True)
class Attacked:
    """What good clients saw beside hostile ones, and what those did."""

    good: Good
    attacks: dict[str, int]
    recoveries: list[float]


def measure(port: int, pid: int, arguments: argparse.Namespace) -> dict[str, Any]:
    seconds = min(arguments.seconds, MOST_SECONDS / (2 * arguments.rounds + 2))
    kit, load = make_kit(arguments.side), os.getloadavg()[0]
    good_phase(port, 2.0, arguments.fresh)
    ours, theirs = multiprocessing.Pipe()
    watcher = multiprocessing.Process(target=watch, args=(port, pid, theirs), daemon=True)
    watcher.start()
    alone, attacked = [good_phase(port, seconds, arguments.fresh)], []
    for _ in range(arguments.rounds):
        attacked.append(attacked_phase(port, pid, seconds, kit, arguments))
        alone.append(good_phase(port, seconds, arguments.fresh))
    ours.send("stop")
    times, memory, failures = ours.recv()
    recoveries = [recovery for phase in attacked for recovery in phase.recoveries]
    return {
        "hostile": arguments.hostile,
        "fresh": arguments.fresh,
        "seconds": seconds,
        "load_average": {"before": load, "after": os.getloadavg()[0]},
        "alone": [good.__dict__ for good in alone],
        "attacked": [phase.good.__dict__ for phase in attacked],
        "throughput": round(mean_rate([phase.good for phase in attacked]) / mean_rate(alone), 3),
        "longest_wait": max(phase.good.longest_wait for phase in attacked),
        "livez_ms": percentiles(times) | {"probes": len(times), "failures": failures},
        "livez_p99_ms": percentiles(times)["p99"],
        "memory_mb": round(max(memory), 1),
        "attacks": dict(sum((Counter(phase.attacks) for phase in attacked), Counter[str]())),
        "kills": len(recoveries),
        "recovery_seconds": max(recoveries, default=0.0),
    }


def attacked_phase(port: int, pid: int, seconds: float, kit: Kit, arguments: argparse.Namespace) -> Attacked:
    hostile, at_their_end = multiprocessing.Pipe()
    job = (port, kit, arguments.hostile, seconds + 2, arguments.hostile_niceness, at_their_end)
    multiprocessing.Process(target=attack, args=job, daemon=True).start()
    hostile.recv()
    with multiprocessing.pool.ThreadPool(1) as killer:
        recoveries = killer.apply_async(kill_workers, (port, pid, seconds, arguments.kills))
        good = good_phase(port, seconds, arguments.fresh)
        attacks = hostile.recv() if hostile.poll(60) else {}
        return Attacked(good, attacks, recoveries.get(60))


def mean_rate(phases: list[Good]) -> float:
    return sum(good.per_second for good in phases) / len(phases)


def broken(facts: dict[str, Any]) -> list[str]:
    """Promises that were not kept."""
    found = [f"{name} {facts[name]:g}, promised {most:g}" for name, most in PROMISES.items()
             if (facts[name] < most if name == "throughput" else facts[name] > most)]  # fmt: skip
    return found + [f"{facts['livez_ms']['failures']} /livez failed"] * bool(facts["livez_ms"]["failures"])


def rows(facts: dict[str, Any]) -> list[tuple[str, str]]:
    """What was measured, for the documents."""
    return [
        ("good clients, answers per second: alone and attacked in turns",
         ", ".join(f"{facts[kind][n]['per_second']:g}" for n in range(len(facts["alone"]))
                   for kind in ("alone", "attacked") if n < len(facts[kind]))),
        ("share of their throughput that they keep", f"{facts['throughput']:.2f}"),
        ("longest wait of a good client", f"{facts['longest_wait']:.1f} s"),
        ("/livez, median, 99%, longest",
         ", ".join(f"{facts['livez_ms'][name]:.0f} ms" for name in ("p50", "p99", "max"))),
        ("memory of all processes at most", f"{facts['memory_mb']:.0f} MB"),
        ("workers killed; longest until an answer", f"{facts['kills']}; {facts['recovery_seconds']:.2f} s"),
        ("from SIGTERM to the end", f"{facts['drain_seconds']:.1f} s"),
    ]  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=25.0, help="of each phase")
    parser.add_argument("--rounds", type=int, default=2, help="phases with hostile clients, each between two without")
    parser.add_argument("--hostile", type=int, default=64, help="hostile clients")
    parser.add_argument("--hostile-niceness", type=int, default=10, help="0: as much of the cores as the rest")
    parser.add_argument("--fresh", action="store_true", help="good clients open a connection for every picture")
    parser.add_argument("--side", type=int, default=7000, help="of their largest pictures, in pixels")
    parser.add_argument("--kills", type=int, default=6, help="workers to kill in each phase with hostile clients")
    parser.add_argument("--out", type=Path, help="JSON file to write")
    parser.add_argument("serve", nargs="*", help="more arguments for fastgaze serve, after --")
    facts = run(arguments := parser.parse_args())
    facts["broken"] = broken(facts)
    print("\n".join(f"{name}: {value}" for name, value in rows(facts)))
    if arguments.out:
        arguments.out.write_text(json.dumps(facts, indent=2) + "\n")
    print("\n".join(facts["broken"]) or "every promise was kept", file=sys.stderr)
    return 1 if facts["broken"] else 0


if __name__ == "__main__":
    sys.exit(main())
