"""What does it cost that the server looks at pictures in processes that can be killed, and not in threads?

    python -m experiments.isolation --out results/isolation.json

The same number of pictures is looked at by as many threads of one process, with the models in it and nothing between,
and by the server's own pool of workers, in turns. Half of the rounds begin with the one, half with the other, and the
ratio is that of the whole time. `cpu_ratio` compares the CPU time of all processes, which other work on the machine
hardly changes. HTTP is not part of it: both ways of serving have that in common.
"""

import argparse
import asyncio
import json
import os
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from experiments.load_test import photograph
from fastgaze.app.server import jobs
from fastgaze.app.server.budget import Budget
from fastgaze.app.server.limits import Limits
from fastgaze.app.server.options import Options
from fastgaze.app.server.pool import Answer, Pool, Request
from fastgaze.app.server.turns import Caller
from fastgaze.app.server.wire import Task
from fastgaze.app.server.workers import Nursery
from fastgaze.core.pictures import open_picture
from fastgaze.runtime.predictor import Predictor, load
from fastgaze.runtime.zoo import default_name

SIZES = ((160, 120), (320, 240), (640, 480), (1600, 1200))
PROMISE = 0.85
_AT_ONCE = 4


def in_threads(predictor: Predictor, pictures: list[bytes], workers: int) -> float:
    """Seconds for all pictures."""
    limits = Limits()

    def look(content: bytes) -> str:
        facts = jobs.gaze(predictor, open_picture(content), Options(), limits)
        assert not isinstance(facts, jobs.JobResult)
        return json.dumps(facts)

    with ThreadPoolExecutor(workers) as threads:
        start = time.perf_counter()
        assert all(threads.map(look, pictures))
        return time.perf_counter() - start


def in_processes(pool: Pool, loop: asyncio.AbstractEventLoop, pictures: list[bytes], model: str) -> float:
    """Seconds for all pictures."""
    task = Task("gaze", asdict(Options(model=model)), [])
    room = Budget(Limits().answer_bytes, "answers")
    left = list(pictures)

    async def client() -> None:
        while left:
            request = Request(task, bytearray(left.pop()), Caller("", True), time.monotonic() + 60, lambda: True)
            assert isinstance(await pool.run(request, room.share()), Answer)

    async def clients() -> float:
        start = time.perf_counter()
        await asyncio.gather(*(client() for _ in range(_AT_ONCE)))
        return time.perf_counter() - start

    return loop.run_until_complete(clients())


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    name = arguments.model or default_name()
    predictor = load(name, threads=1)
    nursery = Nursery([name], "onnxruntime", 1, Limits())
    nursery.start()
    loop = asyncio.new_event_loop()
    pool = Pool(nursery, arguments.workers, Limits())
    loop.run_until_complete(pool.open())
    rows = []
    try:
        for size in SIZES:
            pictures = [photograph(*size, seed=n) for n in range(8)] * (arguments.pictures // 8)
            ways: dict[str, Callable[[], float]] = {
                "threads": partial(in_threads, predictor, pictures, arguments.workers),
                "processes": partial(in_processes, pool, loop, pictures, predictor.name),
            }
            found = compare(ways, len(pictures), arguments.rounds, lambda: cpu_seconds(pool))
            rows.append({"size": f"{size[0]}x{size[1]}"} | found)
            print(json.dumps(rows[-1]), file=sys.stderr)
    finally:
        pool.close()
        loop.run_until_complete(asyncio.sleep(0.1))
        loop.close()
    facts = {"model": predictor.name, "workers": arguments.workers, "load_average": os.getloadavg()[0], "sizes": rows}
    return facts | {"least": min(row["ratio"] for row in rows)}


def cpu_seconds(pool: Pool) -> float:
    """Of this process and the light workers so far."""
    ticks = 0
    for worker in pool.light.workers:
        fields = Path(f"/proc/{worker.pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return time.process_time() + ticks / os.sysconf("SC_CLK_TCK")


def compare(
    ways: dict[str, Callable[[], float]], pictures: int, rounds: int, used: Callable[[], float]
) -> dict[str, Any]:
    """Pictures per second of both ways, and the ratios."""
    for look in ways.values():
        look()
    seconds, cpu = dict.fromkeys(ways, 0.0), dict.fromkeys(ways, 0.0)
    for turn in range(rounds):
        for name in sorted(ways, reverse=bool(turn % 2)):
            before = used()
            seconds[name] += ways[name]()
            cpu[name] += used() - before
    rates = {name: round(pictures * rounds / total, 1) for name, total in seconds.items()}
    ratio = round(seconds["threads"] / seconds["processes"], 3)
    return rates | {"ratio": ratio, "cpu_ratio": round(cpu["threads"] / cpu["processes"], 3)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="as for fastgaze serve; the default one without it")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--pictures", type=int, default=64, help="in one turn")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--out", type=Path, help="JSON file to write")
    facts = measure(arguments := parser.parse_args())
    if arguments.out:
        arguments.out.write_text(json.dumps(facts, indent=2) + "\n")
    print(json.dumps(facts, indent=2))
    return 0 if facts["least"] >= PROMISE else 1


if __name__ == "__main__":
    sys.exit(main())
