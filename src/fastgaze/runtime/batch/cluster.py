"""Ray Data: the same worker as a pool of actors, on this machine or a running cluster."""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from fastgaze.core.errors import DataError, require
from fastgaze.runtime.batch.job import Shard
from fastgaze.runtime.batch.work import Done, Setup, Worker


class _Actor:
    """A worker as Ray Data calls it: a table of shards in, a table of reports out."""

    def __init__(self, setup: Setup) -> None:
        self._worker = Worker(setup)

    def __call__(self, table: Any) -> Any:
        arrow = require("pyarrow", "batch")
        reports = [self._worker(Shard(row["name"], tuple(row["paths"]))) for row in table.to_pylist()]
        return arrow.Table.from_pylist([asdict(report) for report in reports])


def run_ray(shards: Sequence[Shard], setup: Setup, workers: int, address: str | None = None) -> Iterator[Done]:
    """Do ``shards``, as they get done. Ray replaces actors that die and gives their shards to others.

    address: of a running cluster, such as "auto" or "ray://host:10001"; without it Ray starts on this machine.
    """
    ray = require("ray", "cluster")
    data = require("ray.data", "cluster")
    ours = not ray.is_initialized()
    if ours:
        _start(ray, workers, address)
    try:
        _hush(data)
        for row in _pipeline(data, shards, setup, workers).iter_rows():
            yield Done(**row)
    finally:
        if ours:
            ray.shutdown()


def _start(ray: Any, workers: int, address: str | None) -> None:
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


def _hush(data: Any) -> None:
    """Progress is ours to show, and results are on stdout."""
    data.DataContext.get_current().enable_progress_bars = False
    logging.getLogger("ray.data").setLevel(logging.ERROR)


def _pipeline(data: Any, shards: Sequence[Shard], setup: Setup, workers: int) -> Any:
    """One block a shard, so that a lost actor costs one shard; one core an actor."""
    items = [{"name": shard.name, "paths": list(shard.paths)} for shard in shards]
    return data.from_items(items, override_num_blocks=len(items)).map_batches(
        _Actor,
        fn_constructor_args=(setup,),
        batch_size=1,
        batch_format="pyarrow",
        num_cpus=1,
        compute=data.ActorPoolStrategy(min_size=1, max_size=min(workers, len(items))),
    )
