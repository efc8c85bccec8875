"""Beyond the paper: batch jobs on a Ray cluster, pictures per second against nodes, and every picture exactly once."""

from typing import NamedTuple

from experiments.common import Record
from experiments.reporting.document import Block, Command, Heading, Table, Text
from experiments.reporting.inputs import COMMANDS, Inputs, command, machine, missing
from experiments.reporting.speeds import Range, over

USED = {"model": "default", "engine": "onnxruntime", "threads": 1}
"""What `fastgaze batch` uses unless it is told otherwise, for records that do not name it."""


class NodeRate(NamedTuple):
    """Pictures per second of a cluster; gain: times as many as the smallest cluster, formed within a round."""

    nodes: int
    rate: Range
    gain: Range


def node_rates(record: Record) -> list[NodeRate]:
    """results/cluster_speed.json -> one row for each number of nodes, over all rounds."""
    rounds, counts = record["rounds"], record["settings"]["nodes"]
    first = str(counts[0])
    return [
        NodeRate(
            nodes,
            over([each[str(nodes)] for each in rounds]),
            over([each[str(nodes)] / each[first] for each in rounds]),
        )
        for nodes in counts
    ]


def ray_cluster(inputs: Inputs) -> list[Block]:
    """Throughput against nodes, and what became of the pictures when a node was killed."""
    blocks: list[Block] = [Heading("Batch jobs on a Ray cluster, which the paper does not have")]
    record, jobs = inputs.read("cluster_speed"), inputs.read("cluster")
    if record is None:
        blocks.append(missing("cluster_speed", "pictures per second against the nodes of a cluster"))
    else:
        blocks += [Text(_words(node_rates(record))), _table(record), Command(command("cluster_speed", record))]
    if jobs is None:
        return [*blocks, missing("cluster", "a job on a cluster that loses a node")]
    return [*blocks, Text(_exactly_once(jobs)), Command(COMMANDS["cluster"])]


def _words(rates: list[NodeRate]) -> str:
    first, *more = rates
    parts = [f"{each.nodes} nodes work on {each.gain.shown(2)} times as many pictures" for each in more]
    return f"{'; '.join(parts)} as {first.nodes}." if parts else "Only one number of nodes was measured."


def _table(record: Record) -> Table:
    settings = USED | record["settings"]
    about = (
        f"`fastgaze batch --runner ray`, model `{settings['model']}`, {settings['engine']}, one worker with "
        f"{settings['threads']} thread per node. All nodes are on one machine and have one core each, so more nodes "
        f"than cores would tell nothing. Pictures per second of workers that are warm, medians and ranges of "
        f"{len(record['rounds'])} rounds of {settings['images']} pictures (the examples of the package, copied), in "
        f"folders of that machine; ratios formed within a round. {machine(record['machine'])}."
    )
    rows = tuple(
        (str(each.nodes), each.rate.shown(1), each.gain.shown(2), f"{each.gain.median / each.nodes:.2f}")
        for each in node_rates(record)
    )
    first = record["settings"]["nodes"][0]
    return Table(("nodes", "pictures per second", f"x {first} node", "per node"), rows, about)


def _exactly_once(record: Record) -> str:
    """From every run of results/cluster.json, by its own count."""
    kept = [run for run in record["runs"] if run["exactly_once"]]
    shown = [f"with {run['nodes']} {'node' if run['nodes'] == 1 else 'nodes'}{_killed(run)}" for run in record["runs"]]
    every = "in all of them" if len(kept) == len(record["runs"]) else f"in {len(kept)} of them"
    return (
        f"Jobs of {record['settings']['images']} pictures from bucket to bucket ({record['settings']['store']}), "
        f"{', '.join(shown)}: {every} every picture has exactly one row."
    )


def _killed(run: Record) -> str:
    return f", of which {run['killed']} was killed while the job ran" if run["killed"] else ""
