"""Start a batch job or continue it, with processes on this machine or with Ray Data."""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from types import ModuleType
from typing import TYPE_CHECKING, Any

from fastgaze.core.errors import ArgumentError, DataError, require
from fastgaze.core.jsonable import Document, Json
from fastgaze.core.progress import Clock, Progress, Seconds
from fastgaze.runtime import zoo
from fastgaze.runtime.batch.job import BatchOptions, Shard, find_images, open_job
from fastgaze.runtime.batch.local import run_local
from fastgaze.runtime.batch.store import Folder
from fastgaze.runtime.batch.work import ShardReport, ShardWorker, WorkerSetup, count_errors
from fastgaze.runtime.engines import DEFAULT_ENGINE, ENGINES, available_cores, no_engine

if TYPE_CHECKING:
    import pyarrow

RUNNERS = ("local", "ray")
"""Processes on this machine, and Ray Data."""
_DEFAULTS = BatchOptions()


@dataclass(frozen=True)
class BatchSummary:
    """How a run went."""

    output: str
    """Folder of the Parquet files, or its URL."""
    runner: str
    workers: int
    images: int
    """Of the whole job."""
    done: int
    """Images of this run, those with errors included."""
    errors: int
    """Images of the whole job that could not be used, those of earlier runs included."""
    seconds: float
    milliseconds: dict[str, float] = field(default_factory=dict)
    """Of one worker, per image: read, decode, prepare, network, tail, describe, write."""

    @property
    def rate(self) -> float:
        """Images per second of this run, starting the workers included."""
        return self.done / self.seconds if self.seconds else 0.0

    def to_json(self) -> dict[str, Json]:
        """Plain values."""
        facts = {name: getattr(self, name) for name in ("output", "runner", "workers", "images", "done", "errors")}
        return facts | {
            "seconds": round(self.seconds, 3),
            "images_per_second": round(self.rate, 2),
            "milliseconds_per_image": {step: round(time, 3) for step, time in self.milliseconds.items()},
        }


def run(
    source: str,
    output: str,
    model: str | None = None,
    options: BatchOptions = _DEFAULTS,
    runner: str = "local",
    workers: int | None = None,
    address: str | None = None,
    progress: Progress | None = None,
    engine: str = DEFAULT_ENGINE,
) -> BatchSummary:
    """Rows of all images in ``source`` as Parquet files in the folder ``output``; both may be URLs of fsspec.

    runner: "local" or "ray". workers: processes or actors, one core each, all cores by default. address: of a Ray
    cluster. progress: counts the images of the job that are done. engine: of the network, as in ``load``.
    """
    require("pyarrow", "batch")
    if engine not in ENGINES:
        raise no_engine(engine)
    workers = _checked(runner, workers, address)
    start = perf_counter()
    _, content, _ = zoo.read_model(zoo.default_name() if model is None else Path(model))
    folder = Folder(output)
    with folder.locked():
        shards = open_job(folder, find_images(source), content, options, engine)
        present = folder.names(filled=True)
        missing = [shard for shard in shards if shard.name not in present]
        total = sum(len(shard.paths) for shard in shards)
        before = total - sum(len(shard.paths) for shard in missing)
        clock, done = Clock(), 0
        errors = _errors_before(folder, sorted(shard.name for shard in shards if shard.name in present))
        for report in _start(runner, missing, WorkerSetup(folder.url, content, options, engine), workers, address):
            done, errors = done + report.images, errors + report.errors
            clock.add(report.steps)
            if progress is not None:
                progress(before + done, total, report.name)
        folder.clean()
    per_image = clock.milliseconds(done) if done else {}
    return BatchSummary(folder.url, runner, workers, total, done, errors, perf_counter() - start, per_image)


def _errors_before(folder: Folder, names: Sequence[str]) -> int:
    """Images with an error in the files that earlier runs have written."""
    arrow = require("pyarrow", "batch")
    errors = 0
    for name in names:
        try:
            with folder.open(name) as file:
                errors += count_errors(file)
        except (arrow.ArrowException, OSError) as error:
            raise DataError(f"{folder.url}/{name} is damaged; remove it and start the job again") from error
    return errors


def _checked(runner: str, workers: int | None, address: str | None) -> int:
    if runner not in RUNNERS:
        raise ArgumentError(f"no runner {runner!r}; choose from {', '.join(RUNNERS)}")
    if address is not None and runner != "ray":
        raise ArgumentError("an address is that of a Ray cluster; it needs the runner ray")
    workers = available_cores() if workers is None else workers
    if not 1 <= workers <= 10_000:
        raise ArgumentError(f"workers={workers} is not between 1 and 10000")
    return workers


def _start(
    runner: str, shards: Sequence[Shard], setup: WorkerSetup, workers: int, address: str | None
) -> Iterator[ShardReport]:
    if not shards:
        return iter(())
    return run_ray(shards, setup, workers, address) if runner == "ray" else run_local(shards, setup, workers)


class _Actor:
    """A worker as Ray Data calls it: a table of shards in, a table of reports out."""

    def __init__(self, setup: WorkerSetup) -> None:
        self._worker = ShardWorker(setup)

    def __call__(self, table: "pyarrow.Table") -> "pyarrow.Table":
        arrow = require("pyarrow", "batch")
        reports = [self._worker(Shard(row["name"], tuple(row["paths"]))) for row in table.to_pylist()]
        return arrow.Table.from_pylist([_packed(report) for report in reports])


def _packed(report: ShardReport) -> Document:
    """A report as a row of an Arrow table."""
    steps = [{"step": step, "wall": time.wall, "cpu": time.cpu} for step, time in report.steps.items()]
    return {"name": report.name, "images": report.images, "errors": report.errors, "steps": steps}


def _unpacked(row: Document) -> ShardReport:
    steps = {step["step"]: Seconds(step["wall"], step["cpu"]) for step in row["steps"]}
    return ShardReport(row["name"], row["images"], row["errors"], steps)


def run_ray(
    shards: Sequence[Shard], setup: WorkerSetup, workers: int, address: str | None = None
) -> Iterator[ShardReport]:
    """Do ``shards``, as they get done. Ray replaces actors that die and gives their shards to others.

    address: of a running cluster, such as "auto" or "ray://host:10001"; without it Ray starts on this machine.
    """
    ray = require("ray", "cluster")
    data = require("ray.data", "cluster")
    ours = not ray.is_initialized()
    if ours:
        _start_ray(ray, workers, address)
    try:
        _hush(data)
        for row in _pipeline(data, shards, setup, workers).iter_rows():
            yield _unpacked(row)
    finally:
        if ours:
            ray.shutdown()


def _start_ray(ray: ModuleType, workers: int, address: str | None) -> None:
    try:
        if address is None:
            ray.init(
                num_cpus=workers,
                include_dashboard=False,
                log_to_driver=False,
                logging_level=logging.ERROR,
                # Ray gives its workers the lowest claim on the cores; here they are all the work there is.
                _system_config={"worker_niceness": 0},
            )
        else:
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise DataError(f"cannot reach Ray at {address or 'this machine'}: {error}") from error


def _hush(data: ModuleType) -> None:
    """Progress is ours to show, and results are on stdout."""
    data.DataContext.get_current().enable_progress_bars = False
    logging.getLogger("ray.data").setLevel(logging.ERROR)


def _pipeline(data: ModuleType, shards: Sequence[Shard], setup: WorkerSetup, workers: int) -> Any:
    """One block per shard, so that a lost actor costs one shard; one core per actor."""
    items = [{"name": shard.name, "paths": list(shard.paths)} for shard in shards]
    return data.from_items(items, override_num_blocks=len(items)).map_batches(
        _Actor,
        fn_constructor_args=(setup,),
        batch_size=1,
        batch_format="pyarrow",
        num_cpus=1,
        compute=data.ActorPoolStrategy(min_size=1, max_size=min(workers, len(items))),
    )
