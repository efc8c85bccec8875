"""How does the throughput of `fastgaze batch --runner ray` grow with the nodes of a cluster?

    python -m experiments.cluster_speed [--nodes 1 2] [--images 1200] [--rounds 3]

Every node is a raylet with one core on this machine, so more nodes than cores tell nothing. Pictures and rows lie in
folders, and the workers count as warm once each has written two files: from then on, pictures per second by the times
at which the files appeared. Numbers of nodes take turns, a ratio is formed within each round, and the median counts.
The numbers go to results/cluster_speed.json, and with them a sentence to docs/batch.md, between its marks;
`python -m experiments.report` shows them in docs/results.md.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments import common
from experiments.common import DOCS, EXAMPLES, RESULTS, about, parse, write_record
from experiments.pages import fill
from experiments.reporting.cluster_section import USED, node_rates

PAGE = DOCS / "batch.md"
WARM = 2  # files of each worker


def warm_rate(times: Sequence[float], shard: int, nodes: int) -> float:
    """Pictures per second after the first files. times: when each file of ``shard`` pictures was written, s."""
    later = sorted(times)[WARM * nodes - 1 :]
    if len(later) < 2:
        raise SystemExit(f"{len(times)} files are too few for {nodes} nodes; give more --images")
    return shard * (len(later) - 1) / (later[-1] - later[0])


def run(photos: Path, rows: Path, nodes: int, shard: int) -> float:
    """One job on a new cluster; warm pictures per second."""
    from experiments.cluster import cluster  # which needs packages that the rest of this module does not

    with cluster(nodes) as (started, _):
        command = [sys.executable, "-m", "fastgaze", "batch", str(photos), str(rows), "--runner", "ray", "--json"]
        command += ["--address", started.address, "--workers", str(nodes), "--shard", str(shard)]
        report = json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)
    assert (report["done"], report["errors"]) == (len(list(photos.iterdir())), 0), report
    return warm_rate([path.stat().st_mtime for path in rows.glob("part-*.parquet")], shard, nodes)


def sentence(record: dict[str, Any]) -> str:
    """What docs/batch.md says."""
    machine, (first, *more) = record["machine"], node_rates(record)
    parts = [f"{each.nodes} nodes on {each.gain.shown(2)} times as many" for each in more]
    return (
        f"With nodes of one core each on {machine['cores']} cores of a machine ({machine['processor']}), {first.nodes} "
        f"node worked on {first.rate.shown(1)} pictures per second, and {', '.join(parts)}; [results.md](results.md) "
        "has the table and how it was measured."
    )


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = common.make_parser(__doc__, __file__, data=False, out=RESULTS / "cluster_speed.json", rounds=3)
    parser.add_argument("--nodes", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--images", type=int, default=1200)
    parser.add_argument("--shard", type=int, default=20)
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, write."""
    options = parse(make_parser(), arguments)
    record = about(options, nodes=options.nodes, images=options.images, shard=options.shard, **USED) | {"rounds": []}
    contents = [path.read_bytes() for path in sorted(EXAMPLES.glob("*.jpg"))]
    with tempfile.TemporaryDirectory() as folder:
        photos = Path(folder) / "photos"
        photos.mkdir()
        for index in range(options.images):
            (photos / f"{index:05d}.jpg").write_bytes(contents[index % len(contents)])
        for number in range(options.rounds):
            rates = {str(n): run(photos, Path(folder) / f"{number}-{n}", n, options.shard) for n in options.nodes}
            record["rounds"].append({nodes: round(rate, 3) for nodes, rate in rates.items()})
            print(json.dumps(record["rounds"][-1]), flush=True)
    write_record(options.out, record)
    if options.out.resolve() == (RESULTS / "cluster_speed.json").resolve():
        fill(PAGE, "nodes", sentence(record))


if __name__ == "__main__":
    main()
