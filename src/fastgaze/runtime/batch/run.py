"""Do a batch job, or go on with it."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

from fastgaze.core.errors import ArgumentError, require
from fastgaze.runtime import zoo
from fastgaze.runtime.batch.cluster import run_ray
from fastgaze.runtime.batch.inputs import find_images
from fastgaze.runtime.batch.job import Options, Shard, open_job
from fastgaze.runtime.batch.local import run_local
from fastgaze.runtime.batch.store import Folder
from fastgaze.runtime.batch.work import Done, Setup
from fastgaze.runtime.clock import Clock
from fastgaze.runtime.engines import available_cores

ENGINES = ("local", "ray")
_DEFAULTS = Options()


@dataclass(frozen=True)
class Summary:
    """How a run went; ``images`` counts the whole job, ``done`` and ``errors`` this run."""

    output: str
    engine: str
    workers: int
    images: int
    done: int
    errors: int
    seconds: float
    split: dict[str, float] = field(default_factory=dict)
    """Milliseconds of one worker an image: read, decode, prepare, network, tail, describe, write."""

    @property
    def rate(self) -> float:
        """Images per second of this run, starting the workers included."""
        return self.done / self.seconds if self.seconds else 0.0

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        facts = {name: getattr(self, name) for name in ("output", "engine", "workers", "images", "done", "errors")}
        return facts | {
            "seconds": round(self.seconds, 3),
            "images_per_second": round(self.rate, 2),
            "milliseconds_per_image": {step: round(time, 3) for step, time in self.split.items()},
        }


def run(
    source: str,
    output: str,
    model: str | None = None,
    options: Options = _DEFAULTS,
    engine: str = "local",
    workers: int | None = None,
    address: str | None = None,
    on_done: Callable[[int, int], None] | None = None,
) -> Summary:
    """Rows of all images in ``source`` as Parquet files in the folder ``output``; both may be URLs of fsspec.

    engine: "local" or "ray". workers: processes or actors, one core each, all cores by default. address: of a Ray
    cluster. on_done: told (images done of the job, images of the job).
    """
    require("pyarrow", "batch")
    workers = _checked(engine, workers, address)
    start = perf_counter()
    _, content, _ = zoo.read_model(zoo.default_name() if model is None else Path(model))
    folder = Folder(output)
    shards = open_job(folder, find_images(source), content, options)
    present = folder.names()
    missing = [shard for shard in shards if shard.name not in present]
    total = sum(len(shard.paths) for shard in shards)
    before = total - sum(len(shard.paths) for shard in missing)
    clock, done, errors = Clock(), 0, 0
    for report in _start(engine, missing, Setup(folder.url, content, options), workers, address):
        done, errors = done + report.images, errors + report.errors
        clock.add(report.split)
        if on_done is not None:
            on_done(before + done, total)
    folder.clean()
    split = {step: 1e3 * seconds / done for step, seconds in clock.seconds.items()} if done else {}
    return Summary(folder.url, engine, workers, total, done, errors, perf_counter() - start, split)


def _checked(engine: str, workers: int | None, address: str | None) -> int:
    if engine not in ENGINES:
        raise ArgumentError(f"no engine {engine!r}; there are {', '.join(ENGINES)}")
    if address is not None and engine != "ray":
        raise ArgumentError("an address is one of a Ray cluster; it needs engine ray")
    workers = available_cores() if workers is None else workers
    if not 1 <= workers <= 10_000:
        raise ArgumentError(f"workers={workers} is not between 1 and 10000")
    return workers


def _start(engine: str, shards: Sequence[Shard], setup: Setup, workers: int, address: str | None) -> Iterator[Done]:
    if not shards:
        return iter(())
    return run_ray(shards, setup, workers, address) if engine == "ray" else run_local(shards, setup, workers)
