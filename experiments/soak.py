"""Does the server keep its promises while 64 hostile clients do their worst? Loopback only, at most ten minutes.

    python -m experiments.soak --out results/soak.json            # about three minutes
    python -m experiments.soak --seconds 5 --hostile 16           # a short form

Starts `fastgaze serve` with its default settings and measures good clients three times: alone, beside the hostile ones,
and alone again. Hostile clients read slowly, write slowly, send one-byte chunks, JPEGs of thousands of scans, pictures
larger than memory, damaged files, huge heads, silent connections and the largest pictures that are allowed; meanwhile
workers are killed with SIGKILL. /livez and the memory of all of the server's processes are watched from outside.

Hostile clients run at a lower priority than the server, good ones and the watch at the same: they share its cores here,
as they would not on a network. Exit code 1 when a promise is broken.
"""

import argparse
import asyncio
import contextlib
import io
import json
import multiprocessing
import multiprocessing.pool
import os
import random
import re
import signal
import struct
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from PIL import Image

from experiments.load_test import hostile_uploads, memory_mb, percentiles, photograph, post, tree

MOST_SECONDS = 600.0
GOOD_CLIENTS = 4
HOST = "127.0.0.1"
PATHS = ("/v1/gaze", "/v1/gaze", "/v1/crop?ratio=16:9&n=3", "/v1/gaze?format=png&size=320x240")
PROMISES = {"throughput": 0.5, "longest_wait": 5.0, "livez_p99_ms": 100.0, "memory_mb": 1024.0, "recovery_seconds": 1.0}

Address = tuple[str, int]


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


async def good_client(port: int, bodies: list[bytes], until: float, seed: int) -> tuple[Counter[str], list[float]]:
    """One picture after another; what is refused is asked again, as any client would."""
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
            if not alive and connection:
                connection[1].close()
                connection = None
            if status != "200":
                await asyncio.sleep(0.1)
        waits.append(time.perf_counter() - start)
    return statuses, waits


def good_phase(port: int, seconds: float) -> Good:
    sizes = ((640, 480), (1024, 768), (800, 1000), (320, 240))
    bodies = [photograph(*size, seed=index) for index, size in enumerate(sizes)]

    async def all_of_them() -> list[tuple[Counter[str], list[float]]]:
        until = time.monotonic() + seconds
        return await asyncio.gather(*(good_client(port, bodies, until, seed) for seed in range(GOOD_CLIENTS)))

    start = time.monotonic()
    found = asyncio.run(all_of_them())
    statuses = sum((statuses for statuses, _ in found), Counter[str]())
    waits = [wait for _, waits in found for wait in waits]
    rate = round(statuses["200"] / (time.monotonic() - start), 2)
    return Good(dict(statuses), rate, percentiles([1e3 * wait for wait in waits]), round(max(waits), 2))


# -- hostile clients --------------------------------------------------------------------------------------------------


def head(length: int | str, path: str = "/v1/gaze") -> bytes:
    framing = f"Content-Length: {length}" if isinstance(length, int) else length
    return f"POST {path} HTTP/1.1\r\nHost: {HOST}\r\n{framing}\r\n\r\n".encode()


async def slow_reader(address: Address, rng: random.Random, kit: "Kit") -> None:
    """Ask for 64 MB and read a kilobyte now and then."""
    reader, writer = await asyncio.open_connection(*address, limit=1024)
    writer.write(head(len(kit.small), f"/v1/gaze?format=npy&size={rng.choice(('4000x4000', '2000x2000'))}") + kit.small)
    for _ in range(20):
        await reader.read(1024)
        await asyncio.sleep(rng.uniform(0.1, 1))
    writer.transport.abort()


async def slow_writer(address: Address, rng: random.Random, kit: "Kit") -> None:
    """Announce a megabyte and send a byte now and then."""
    _, writer = await asyncio.open_connection(*address)
    writer.write(head(1 << 20) + kit.small[:10])
    for _ in range(30):
        writer.write(b"x")
        await writer.drain()
        await asyncio.sleep(rng.uniform(0.05, 0.5))
    writer.transport.abort()


async def chunk_storm(address: Address, _: random.Random, kit: "Kit") -> None:
    await send(address, head("Transfer-Encoding: chunked") + kit.chunks)


async def scan_bomb(address: Address, _: random.Random, kit: "Kit") -> None:
    await send(address, head(len(kit.scans)) + kit.scans)


async def memory_bomb(address: Address, rng: random.Random, _: "Kit") -> None:
    content = webp(*rng.choice(((16383, 16383), (7000, 7000), (4000, 4000))))
    await send(address, head(len(content)) + content)


async def largest(address: Address, rng: random.Random, kit: "Kit") -> None:
    content = rng.choice((kit.large_png, kit.large_jpeg))
    await send(address, head(len(content), rng.choice(("/v1/gaze", "/v1/gaze?format=overlay"))) + content)


async def damaged(address: Address, rng: random.Random, kit: "Kit") -> None:
    _, content, content_type = rng.choice(kit.damaged)
    request = head(len(content)).replace(b"\r\n\r\n", f"\r\nContent-Type: {content_type}\r\n\r\n".encode())
    await send(address, request + content)


async def huge_head(address: Address, rng: random.Random, _: "Kit") -> None:
    more = rng.choice((b"X: " + b"y" * 60_000 + b"\r\n", b"X: y\r\n" * 5_000, b"X: y\r\n" * 90))
    await send(address, b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\n" + more + b"\r\n")


async def pipeline(address: Address, _: random.Random, __: "Kit") -> None:
    await send(address, b"GET /v1/models HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" * 500)


async def silent(address: Address, rng: random.Random, _: "Kit") -> None:
    """Thirty connections that say nothing."""
    writers = [(await asyncio.open_connection(*address))[1] for _ in range(30)]
    await asyncio.sleep(rng.uniform(1, 5))
    for writer in writers:
        writer.transport.abort()


async def leaver(address: Address, rng: random.Random, kit: "Kit") -> None:
    """Ask and leave at once."""
    for _ in range(10):
        _, writer = await asyncio.open_connection(*address)
        writer.write(head(len(kit.small)) + kit.small)
        await writer.drain()
        writer.transport.abort()
        await asyncio.sleep(rng.uniform(0, 0.05))


ATTACKS: tuple[Callable[[Address, random.Random, "Kit"], Awaitable[None]], ...] = (
    slow_reader, slow_writer, chunk_storm, scan_bomb, memory_bomb, largest, damaged, huge_head, pipeline, silent,
    leaver,
)  # fmt: skip


async def send(address: Address, request: bytes) -> None:
    """Send and read what comes, for five seconds at most."""
    reader, writer = await asyncio.open_connection(*address)
    try:
        async with asyncio.timeout(5):
            writer.write(request)
            await writer.drain()
            await reader.read(4096)
    finally:
        writer.transport.abort()


@dataclass(frozen=True)
class Kit:
    """What hostile clients send, made once."""

    small: bytes
    chunks: bytes
    scans: bytes
    large_png: bytes
    large_jpeg: bytes
    damaged: list[tuple[str, bytes, str]]


def make_kit(side: int) -> Kit:
    plain = Image.new("RGB", (side, side), (90, 120, 60))
    png, jpeg, progressive = io.BytesIO(), io.BytesIO(), io.BytesIO()
    plain.save(png, "PNG", compress_level=1)
    plain.save(jpeg, "JPEG", progressive=True, subsampling=0, quality=30)
    Image.effect_noise((2000, 2000), 20).convert("RGB").save(progressive, "JPEG", progressive=True, quality=5)
    content = progressive.getvalue()
    last = content.rindex(b"\xff\xda")
    scans = content[:last] + content[last:-2] * 50 + content[last : last + 14] * 3000 + content[-2:]
    chunks = b"1\r\nx\r\n" * 100_000
    uploads = list(hostile_uploads(200))
    return Kit(photograph(48, 48, 1, "PNG"), chunks, scans, png.getvalue(), jpeg.getvalue(), uploads)


def webp(width: int, height: int) -> bytes:
    """34 bytes that announce a picture of this size."""
    frame = b"VP8L" + struct.pack("<I", 9) + b"\x2f" + struct.pack("<I", (width - 1) | (height - 1) << 14) + bytes(5)
    return b"RIFF" + struct.pack("<I", 4 + len(frame)) + b"WEBP" + frame


def attack(port: int, clients: int, seconds: float, side: int, niceness: int, results: Connection) -> None:
    """In a process of its own."""
    kit, counts = make_kit(side), Counter[str]()
    until = time.monotonic() + min(seconds, MOST_SECONDS)
    os.nice(niceness)
    results.send("ready")

    async def client(seed: int) -> None:
        rng = random.Random(seed)
        while time.monotonic() < until:
            kind = rng.choice(ATTACKS)
            counts[kind.__name__] += 1
            with contextlib.suppress(OSError, asyncio.IncompleteReadError, TimeoutError):
                await asyncio.wait_for(kind((HOST, port), rng, kit), max(until - time.monotonic(), 0.1))

    async def everybody() -> None:
        await asyncio.gather(*(client(seed) for seed in range(clients)))

    asyncio.run(everybody())
    results.send(dict(counts))


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
    """Kill a worker now and then; seconds until the server answered a picture again, for each."""
    body, recoveries = photograph(320, 240, 7), []
    for turn in range(kills):
        time.sleep(seconds / (kills + 1))
        workers = [worker for nursery in tree(pid)[1:2] for worker in tree(nursery)[1:]]
        if not workers:
            continue
        with contextlib.suppress(ProcessLookupError):
            os.kill(workers[turn % len(workers)], signal.SIGKILL)
        start = time.perf_counter()
        while answer(port, body) != 200 and time.perf_counter() - start < 20:
            time.sleep(0.02)
        recoveries.append(round(time.perf_counter() - start, 3))
    return recoveries


def answer(port: int, body: bytes) -> int:
    connection = HTTPConnection(HOST, port, timeout=10)
    try:
        connection.request("POST", "/v1/gaze", body)
        return connection.getresponse().status
    except (OSError, HTTPException):
        return 0
    finally:
        connection.close()


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


def measure(port: int, pid: int, arguments: argparse.Namespace) -> dict[str, Any]:
    seconds = min(arguments.seconds, MOST_SECONDS / 4)
    good_phase(port, 2.0)
    ours, theirs = multiprocessing.Pipe()
    watcher = multiprocessing.Process(target=watch, args=(port, pid, theirs), daemon=True)
    watcher.start()
    hostile, at_their_end = multiprocessing.Pipe()
    before = good_phase(port, seconds)
    job = (port, arguments.hostile, seconds + 2, arguments.side, arguments.hostile_niceness, at_their_end)
    attacker = multiprocessing.Process(target=attack, args=job, daemon=True)
    attacker.start()
    hostile.recv()
    killer = multiprocessing.pool.ThreadPool(1)
    recoveries = killer.apply_async(kill_workers, (port, pid, seconds, arguments.kills))
    during = good_phase(port, seconds)
    attacks = hostile.recv() if hostile.poll(60) else {}
    after = good_phase(port, seconds)
    ours.send("stop")
    times, memory, failures = ours.recv()
    phases = {"before": before, "during": during, "after": after}
    return {
        "hostile": arguments.hostile,
        "seconds": seconds,
        "load_average": os.getloadavg()[0],
        "phases": {name: good.__dict__ for name, good in phases.items()},
        "throughput": round(during.per_second / ((before.per_second + after.per_second) / 2), 3),
        "longest_wait": during.longest_wait,
        "livez_ms": percentiles(times) | {"probes": len(times), "failures": failures},
        "livez_p99_ms": percentiles(times)["p99"],
        "memory_mb": round(max(memory), 1),
        "attacks": attacks,
        "kills": len(recoveries.get(60)),
        "recovery_seconds": max(recoveries.get(60), default=0.0),
    }


def broken(facts: dict[str, Any]) -> list[str]:
    """Promises that were not kept."""
    found = [f"{name} {facts[name]:g}, promised {most:g}" for name, most in PROMISES.items()
             if (facts[name] < most if name == "throughput" else facts[name] > most)]  # fmt: skip
    return found + [f"{facts['livez_ms']['failures']} /livez failed"] * bool(facts["livez_ms"]["failures"])


def table(facts: dict[str, Any]) -> str:
    """For the documents."""
    rows = [
        ("good clients, answers per second: alone, attacked, alone",
         ", ".join(f"{phase['per_second']:g}" for phase in facts["phases"].values())),
        ("share of their throughput that they keep", f"{facts['throughput']:.2f}"),
        ("longest wait of a good client", f"{facts['longest_wait']:.1f} s"),
        ("/livez, median, 99%, longest",
         ", ".join(f"{facts['livez_ms'][name]:g} ms" for name in ("p50", "p99", "max"))),
        ("memory of all processes at most", f"{facts['memory_mb']:.0f} MB"),
        ("workers killed; longest until an answer", f"{facts['kills']}; {facts['recovery_seconds']:.2f} s"),
        ("from SIGTERM to the end", f"{facts['drain_seconds']:.1f} s"),
    ]  # fmt: skip
    return "\n".join(["| measured | |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows)])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=45.0, help="of each of the three phases")
    parser.add_argument("--hostile", type=int, default=64, help="hostile clients")
    parser.add_argument("--hostile-niceness", type=int, default=10, help="0: as much of the cores as the rest")
    parser.add_argument("--side", type=int, default=7000, help="of their largest pictures, in pixels")
    parser.add_argument("--kills", type=int, default=10, help="workers to kill in the middle phase")
    parser.add_argument("--out", type=Path, help="JSON file to write")
    parser.add_argument("serve", nargs="*", help="more arguments for fastgaze serve, after --")
    facts = run(arguments := parser.parse_args())
    facts["broken"] = broken(facts)
    print(table(facts))
    if arguments.out:
        arguments.out.write_text(json.dumps(facts, indent=2) + "\n")
    print("\n".join(facts["broken"]) or "every promise was kept", file=sys.stderr)
    return 1 if facts["broken"] else 0


if __name__ == "__main__":
    sys.exit(main())
