"""Press `fastgaze serve` and measure: clients at once, or hostile uploads one after another.

    python -m experiments.load_test --model MODEL --clients 64 --seconds 60
    python -m experiments.load_test --model MODEL --hostile 10000

Starts a server of its own on loopback, watches /livez and the server's memory throughout, prints a table on stderr
and one JSON document on stdout, and ends with exit code 1 when the server broke a promise: an answer other than 200
and 503 under load (other than 200 and 4xx to hostile uploads), a /livez slower than 100 ms, or growing memory.
A client that is told 503 waits and asks again. Bounded in count and time; memory is read from /proc (Linux).
"""

import argparse
import asyncio
import contextlib
import io
import json
import multiprocessing
import random
import re
import struct
import subprocess
import sys
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.client import HTTPConnection
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

HEALTH_LIMIT_MS = 100.0
GROWTH_LIMIT_MB = 64.0


@dataclass
class Tally:
    """What came back."""

    statuses: Counter[str] = field(default_factory=Counter)
    milliseconds: list[float] = field(default_factory=list)
    """Of answers with status 200."""
    examples: dict[str, str] = field(default_factory=dict)
    """The first answer with each status."""

    def add(self, status: str, seconds: float, body: bytes) -> None:
        self.statuses[status] += 1
        self.examples.setdefault(status, body[:200].decode("ascii", "backslashreplace"))
        if status == "200":
            self.milliseconds.append(1e3 * seconds)


# -- pictures ---------------------------------------------------------------------------------------------------------


def photograph(width: int, height: int, seed: int, format: str = "JPEG") -> bytes:
    """A picture with large shapes and fine texture, as a file."""
    generator = np.random.default_rng(seed)
    coarse = generator.integers(0, 256, (max(height // 80, 1), max(width // 80, 1), 3), dtype=np.uint8)
    image = Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC)
    noise = generator.integers(0, 24, (height, width, 1), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray((np.asarray(image) // 2 + noise + 40).astype(np.uint8)).save(buffer, format)
    return buffer.getvalue()


def hostile_uploads(count: int, seed: int = 0) -> Iterator[tuple[str, bytes, str]]:
    """(kind, body, content type): damaged files of every format, bombs, other files and broken forms."""
    rng = random.Random(seed)
    formats = ("JPEG", "PNG", "GIF", "WEBP", "BMP", "TIFF", "PPM", "ICO", "JPEG2000")
    whole = [photograph(160, 120, index, format) for index, format in enumerate(formats)]
    kinds = (truncated, flipped, spliced, bomb, other_file, broken_form, grown)
    for index in range(count):
        kind = kinds[index % len(kinds)]
        body, content_type = kind(rng, rng.choice(whole))
        yield kind.__name__, body, content_type


def truncated(rng: random.Random, whole: bytes) -> tuple[bytes, str]:
    return whole[: rng.randrange(len(whole))], "image/jpeg"


def flipped(rng: random.Random, whole: bytes) -> tuple[bytes, str]:
    damaged = bytearray(whole)
    for _ in range(rng.choice((1, 4, 64))):
        place = rng.randrange(rng.choice((64, len(damaged))))
        damaged[place % len(damaged)] ^= 1 << rng.randrange(8)
    return bytes(damaged), "image/png"


def spliced(rng: random.Random, whole: bytes) -> tuple[bytes, str]:
    start = rng.randrange(len(whole))
    return whole[:start] + rng.randbytes(rng.randrange(2000)) + whole[start + rng.randrange(500) :], "text/html"


def grown(rng: random.Random, whole: bytes) -> tuple[bytes, str]:
    return whole + rng.randbytes(rng.randrange(100_000)), "application/octet-stream"


def bomb(rng: random.Random, _: bytes) -> tuple[bytes, str]:
    """A PNG of a few kilobytes that claims to be huge, or is."""
    width, height = rng.choice(
        ((1, 2**31 - 1), (100_000, 100_000), (7000, 7000), (40_000_000, 1), (1, 49_000_000), (1, 65_535))
    )
    rows = zlib.compress(bytes(rng.choice((10, 100_000, 1_000_000))), 9)
    header = struct.pack(">IIBBBBB", width, height, rng.choice((1, 8, 16)), rng.choice((0, 2, 3, 6)), 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", rows), (b"IEND", b""))
    packed = [struct.pack(">I", len(d)) + k + d + struct.pack(">I", zlib.crc32(k + d)) for k, d in chunks]
    return b"\x89PNG\r\n\x1a\n" + b"".join(packed), "image/png"


def other_file(rng: random.Random, _: bytes) -> tuple[bytes, str]:
    starts = (b"", b"%PDF-1.7\n", b"\x80\x04\x95", b"PK\x03\x04", b"%!PS-Adobe\n", b"<svg>", b"\x7fELF", b"RIFF", b"\n")
    return rng.choice(starts) + rng.randbytes(rng.choice((0, 1, 10, 1000))), "image/svg+xml"


def broken_form(rng: random.Random, whole: bytes) -> tuple[bytes, str]:
    name = rng.choice(("image", "model", "../../etc/passwd", "a" * 3000, "x\x00y", '";"', "ratio"))
    head = f'--b\r\nContent-Disposition: form-data; name="{name}"; filename="../../{name}.php"\r\n\r\n'.encode()
    body = head * rng.choice((1, 1, 2, 50)) + whole + rng.choice((b"\r\n--b--\r\n", b"\r\n--b", b"", b"\r\n" * 20_000))
    return body, "multipart/form-data; boundary=" + rng.choice(("b", "b", "c", '"', ""))


# -- clients ----------------------------------------------------------------------------------------------------------


async def post(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, path: str, body: bytes, content_type: str
) -> tuple[str, bytes, bool]:
    """Status, body, and whether the connection may be used again."""
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: {content_type}\r\n"
    writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    await writer.drain()
    answer = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
    length = re.search(r"content-length: (\d+)", answer)
    content = await reader.readexactly(int(length[1])) if length else b""
    return answer.split(" ", 2)[1], content, "connection: close" not in answer


async def one_client(port: int, bodies: list[bytes], until: float, tally: Tally, seed: int) -> None:
    """Send pictures, one after another over one connection, until the time is over."""
    rng = random.Random(seed)
    paths = ("/v1/gaze", "/v1/gaze", "/v1/crop?ratio=16:9&n=3", "/v1/gaze?format=png")
    connection = None
    while time.monotonic() < until:
        start = time.perf_counter()
        try:
            connection = connection or await asyncio.open_connection("127.0.0.1", port)
            sent = post(*connection, rng.choice(paths), rng.choice(bodies), "image/jpeg")
            status, body, alive = await asyncio.wait_for(sent, 60)
        except (OSError, asyncio.IncompleteReadError, TimeoutError) as error:
            status, body, alive = type(error).__name__, str(error).encode(), False
        tally.add(status, time.perf_counter() - start, body)
        if not alive and connection:
            connection[1].close()
            connection = None
        if status != "200":  # Retry-After is 1
            await asyncio.sleep(rng.uniform(0.5, 1.5))


async def press(port: int, clients: int, seconds: float) -> Tally:
    sizes = ((640, 480), (1024, 768), (1600, 1200), (320, 240))
    bodies = [photograph(*size, seed=index) for index, size in enumerate(sizes)]
    tally, until = Tally(), time.monotonic() + seconds
    await asyncio.gather(*(one_client(port, bodies, until, tally, seed) for seed in range(clients)))
    await asyncio.sleep(until - time.monotonic())
    return tally


async def attack(port: int, count: int, seconds: float) -> Tally:
    tally, until = Tally(), time.monotonic() + seconds
    uploads = hostile_uploads(count)

    async def attacker() -> None:
        for kind, body, content_type in uploads:
            if time.monotonic() > until:
                tally.add("out of time", 0, b"")
                return
            start = time.perf_counter()
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                answered = await asyncio.wait_for(post(reader, writer, "/v1/gaze", body, content_type), 60)
                writer.close()
                status, answer = answered[:2]
            except (OSError, asyncio.IncompleteReadError, TimeoutError) as error:
                status, answer = type(error).__name__, f"{kind}: {error}".encode()
            tally.add(status, time.perf_counter() - start, answer)

    await asyncio.gather(*(attacker() for _ in range(4)))
    return tally


# -- the server and what is watched from outside ----------------------------------------------------------------------


def watch(port: int, pid: int, results: Connection) -> None:
    """In a process of its own: time /livez ten times a second and read the server's memory, until told to stop."""
    health: list[float] = []
    memory: list[float] = []
    connection = HTTPConnection("127.0.0.1", port, timeout=10)
    while not results.poll(0.1):
        start = time.perf_counter()
        try:
            connection.request("GET", "/livez")
            connection.getresponse().read()
        except OSError:  # counts as slow, with the time it took
            connection.close()
        health.append(1e3 * (time.perf_counter() - start))
        memory.append(memory_mb(pid))
    results.send((health, memory))


def memory_mb(pid: int) -> float:
    """Of a process and all that come from it; pages that they share count once."""
    kilobytes = 0
    for process in tree(pid):
        try:
            found = re.search(r"^Pss:\s+(\d+) kB", Path(f"/proc/{process}/smaps_rollup").read_text(), re.MULTILINE)
        except OSError:  # it has ended
            continue
        kilobytes += int(found[1]) if found else 0
    return kilobytes / 1024


def tree(pid: int) -> list[int]:
    """A process and all that come from it."""
    parents: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
    found = [pid]
    for process in found:
        found += [child for child, parent in parents.items() if parent == process]
    return found


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    command = [sys.executable, "-m", "fastgaze", "serve", "--port", "0", "--quiet", *arguments.serve]
    command += [part for model in arguments.model for part in ("--model", model)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        try:
            found = re.search(r":(\d+) \(Ctrl", line := server.stderr.readline())
            if found is None:
                sys.exit(line.strip())
            port = int(found[1])
            asyncio.run(press(port, 4, 2.0))  # caches fill, arenas grow
            idle = run_watched(port, server.pid, lambda: asyncio.run(press(port, 0, 3.0)))
            facts = run_watched(port, server.pid, lambda: run(port, arguments))
            return facts | {"livez_idle_ms": idle["livez_ms"], "hostile": arguments.hostile}
        finally:
            server.terminate()
            server.wait(30)


def run(port: int, arguments: argparse.Namespace) -> Tally:
    if arguments.hostile:
        return asyncio.run(attack(port, arguments.hostile, arguments.seconds))
    return asyncio.run(press(port, arguments.clients, arguments.seconds))


def run_watched(port: int, pid: int, job: Callable[[], Tally]) -> dict[str, Any]:
    ours, theirs = multiprocessing.Pipe()
    watcher = multiprocessing.Process(target=watch, args=(port, pid, theirs))
    watcher.start()
    start = time.monotonic()
    tally = job()
    seconds = time.monotonic() - start
    ours.send("stop")
    if not ours.poll(30):
        sys.exit("the watching process does not answer")
    health, memory = ours.recv()
    watcher.join(30)
    return summary(tally, health, memory, seconds)


# -- what it comes to -------------------------------------------------------------------------------------------------


def percentiles(values: list[float]) -> dict[str, float]:
    if not values:
        return {}
    named = {"p50": 50, "p90": 90, "p99": 99, "max": 100}
    return {name: round(float(np.percentile(values, share)), 2) for name, share in named.items()}


def summary(tally: Tally, health: list[float], memory: list[float], seconds: float) -> dict[str, Any]:
    third = max(len(memory) // 3, 1)
    start, middle, end = memory[0], float(np.median(memory[third : 2 * third + 1])), float(np.median(memory[-third:]))
    return {
        "seconds": round(seconds, 1),
        "statuses": dict(sorted(tally.statuses.items())),
        "answers_per_second": round(sum(tally.statuses.values()) / seconds, 1),
        "pictures_per_second": round(tally.statuses["200"] / seconds, 1),
        "latency_ms": percentiles(tally.milliseconds),
        "livez_ms": percentiles(health) | {"probes": len(health), "slow": sum(ms > HEALTH_LIMIT_MS for ms in health)},
        "memory_mb": {"start": start, "middle": middle, "end": end, "highest": max(memory)},
        "examples": tally.examples,
    }


def broken_promises(facts: dict[str, Any]) -> list[str]:
    allowed = r"200|4\d\d" if facts["hostile"] else "200|503"
    broken = [f"{n} x {status}" for status, n in facts["statuses"].items() if not re.fullmatch(allowed, status)]
    if facts["livez_ms"]["slow"]:
        broken.append(f"{facts['livez_ms']['slow']} of {facts['livez_ms']['probes']} /livez above 100 ms")
    if facts["memory_mb"]["end"] - facts["memory_mb"]["middle"] > GROWTH_LIMIT_MB:
        broken.append("memory grows")
    return broken


def print_table(facts: dict[str, Any]) -> None:
    for name, value in facts.items():
        if name == "examples":
            continue
        text = "  ".join(f"{key} {number:g}" for key, number in value.items()) if isinstance(value, dict) else value
        print(f"{name:<20} {text}", file=sys.stderr)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", action="append", default=[], help="as for fastgaze serve")
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, help="default 60; with --hostile the most it may take, default 3600")
    parser.add_argument(
        "--hostile", type=int, default=0, metavar="N", help="send N damaged and hostile uploads instead"
    )
    parser.add_argument("serve", nargs="*", help="more arguments for fastgaze serve, after --")
    arguments = parser.parse_args()
    arguments.seconds = arguments.seconds or (3600.0 if arguments.hostile else 60.0)
    facts = measure(arguments)
    facts["broken"] = broken_promises(facts)
    print_table(facts)
    print(json.dumps(facts, indent=2))
    return 1 if facts["broken"] else 0


if __name__ == "__main__":
    sys.exit(main())
