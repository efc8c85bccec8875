"""`fastgaze batch` on a Ray cluster of several nodes that reads from and writes to an object store.

    python -m experiments.cluster [--nodes 1 2 3] [--images 120]

The cluster runs on this machine: a head without cores, and nodes (raylets) with one core each. The store is moto's
S3 server on loopback, so all pictures and rows travel by HTTP. For every number of nodes it notes images per second, as
the command reports them with the start of the workers. In a last run with the most nodes, one raylet is killed as soon
as the first file has appeared. Every run must have every image exactly once. The numbers go to results/cluster.json.

Needs `pip install 'moto[server]' s3fs` besides 'fastgaze[cluster]'.
"""

import argparse
import json
import logging
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import fsspec
import pyarrow.parquet
from ray.cluster_utils import Cluster

from experiments import common
from experiments.common import EXAMPLES, RESULTS, about, parse, write_record

# Made up: moto takes any.
STORE = {"AWS_ACCESS_KEY_ID": "moto", "AWS_SECRET_ACCESS_KEY": "moto", "AWS_DEFAULT_REGION": "us-east-1"}
PHOTOS, ROWS = "s3://fastgaze-photos", "s3://fastgaze-rows"
# Ray gives its workers the lowest claim on the cores; here they are all the work there is.
HEAD = {"num_cpus": 0, "include_dashboard": False, "_system_config": {"worker_niceness": 0}}
PATIENCE = 600
"""Seconds that a run may take to write its first file."""


@contextmanager
def object_store() -> Iterator[Any]:
    """The file system of an S3 server on loopback, which processes started from here find in their environment."""
    from moto.server import ThreadedMotoServer  # experiments.cluster_speed needs no store

    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # it notes every request
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    os.environ.update(STORE, FSSPEC_S3_ENDPOINT_URL=f"http://{host}:{port}")
    try:
        yield fsspec.filesystem("s3", endpoint_url=os.environ["FSSPEC_S3_ENDPOINT_URL"], use_listings_cache=False)
    finally:
        server.stop()


def put_photos(store: Any, count: int) -> list[str]:
    """Upload the examples, over and over under different names; their addresses."""
    contents = [path.read_bytes() for path in sorted(EXAMPLES.glob("*.jpg"))]
    for bucket in (PHOTOS, ROWS):
        store.mkdir(bucket)
    names = [f"{PHOTOS}/{index % 7}/{index:05d}.jpg" for index in range(count)]
    for index, name in enumerate(names):
        store.pipe_file(name, contents[index % len(contents)])
    return names


@contextmanager
def cluster(nodes: int) -> Iterator[tuple[Cluster, list[Any]]]:
    """A head without cores, and ``nodes`` raylets with one core each."""
    started = Cluster(initialize_head=True, head_node_args=HEAD)
    try:
        yield started, [started.add_node(num_cpus=1, include_dashboard=False) for _ in range(nodes)]
    finally:
        started.shutdown()  # type: ignore[no-untyped-call]


def files(store: Any, output: str) -> list[str]:
    """The Parquet files that are there."""
    return [str(path) for path in store.glob(f"{output}/part-*.parquet")]


def paths_in(store: Any, output: str) -> Counter[str]:
    """How often every picture has a row."""
    counted: Counter[str] = Counter()
    for name in files(store, output):
        with store.open(name) as file:
            counted.update(pyarrow.parquet.read_table(file, columns=["path"])["path"].to_pylist())
    return counted


def run(store: Any, names: Sequence[str], nodes: int, shard: int, output: str, kill: bool) -> dict[str, Any]:
    """One job; what the command reports, and whether every image has exactly one row."""
    with cluster(nodes) as (started, raylets):
        command = [sys.executable, "-m", "fastgaze", "batch", f"{PHOTOS}/**/*.jpg", output, "--runner", "ray"]
        command += ["--address", started.address, "--workers", str(nodes), "--shard", str(shard), "--json"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as job:
            before = None
            if kill:
                deadline = time.monotonic() + PATIENCE
                while not (before := len(files(store, output))):
                    assert job.poll() is None, "the job ended before a node could be killed"
                    assert time.monotonic() < deadline, "the job makes no progress"
                    time.sleep(0.05)
                started.remove_node(raylets[0], allow_graceful=False)
            said = job.communicate()[0]
        if job.returncode:
            raise SystemExit(
                f"the job on {nodes} nodes{', one killed,' * kill} ended with status {job.returncode}: {said}"
            )
    report: dict[str, Any] = json.loads(said)
    found = paths_in(store, output)
    exactly_once = Counter(name.removeprefix("s3://") for name in names) == Counter(
        {path.removeprefix("s3://"): count for path, count in found.items()}
    )
    kept: dict[str, Any] = {key: report[key] for key in ("done", "errors", "seconds") if key in report}
    row: dict[str, Any] = {
        "nodes": nodes,
        "killed": int(kill),
        "files_when_killed": before,
        **kept,
        "exactly_once": exactly_once,
    }
    row["images_per_second"] = round(len(names) / report["seconds"], 2)
    print(json.dumps(row), flush=True)
    return row


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = common.make_parser(__doc__, __file__, data=False, out=RESULTS / "cluster.json")
    parser.add_argument("--nodes", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--images", type=int, default=120)
    parser.add_argument("--shard", type=int, default=5)
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    """Every number of nodes, and a run in which one is lost."""
    options = parse(make_parser(), arguments)
    record = about(options, images=options.images, shard=options.shard, store="moto, S3 on loopback")
    with object_store() as store:
        names = put_photos(store, options.images)
        rows = [run(store, names, nodes, options.shard, f"{ROWS}/{nodes}", kill=False) for nodes in options.nodes]
        rows.append(run(store, names, max(options.nodes), options.shard, f"{ROWS}/killed", kill=True))
    write_record(options.out, {**record, "runs": rows})
    assert all(row["exactly_once"] for row in rows), "an image is missing or has two rows"


if __name__ == "__main__":
    main()
