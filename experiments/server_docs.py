"""Write what was measured of the server into docs/server.md and docs/deploy.md.

python -m experiments.server_docs    from results/soak.json, soak_fresh.json, isolation.json and kills.json
"""

import json
from typing import Any

from experiments.common import DOCS, RESULTS, Record, read_record
from experiments.kills import Outcome
from experiments.kills import shown as kills_table
from experiments.pages import fill, table
from experiments.soak import PROMISES, rows


def soak_table(runs: dict[str, dict[str, Any]]) -> str:
    """One column for each way in which good clients connect."""
    columns = [dict(rows(facts)) for facts in runs.values()]
    return table(["measured", *runs], [[name, *(column[name] for column in columns)] for name in columns[0]])


def soak_words(runs: dict[str, dict[str, Any]]) -> str:
    """How it was measured, and which promises were not kept."""
    one = next(iter(runs.values()))
    loads = [facts["load_average"][when] for facts in runs.values() for when in ("before", "after")]
    kept = "Every promise was kept in these runs."
    if broken := [f"{promise} ({way})" for way, facts in runs.items() for promise in facts["broken"]]:
        kept = f"Not kept in these runs: {'; '.join(broken)}."
    return (
        f"{one['hostile']} hostile clients, phases of {one['seconds']:g} s, two cores, load average {min(loads):.0f} "
        f"to {max(loads):.0f} (above 2, other work ran at the same time). The server promises a share of at least "
        f"{PROMISES['throughput']:g}, waits of at most {PROMISES['longest_wait']:g} s, `/livez` within "
        f"{PROMISES['livez_p99_ms']:g} ms in 99% of cases, {PROMISES['memory_mb'] / 1024:g} GB of memory and an answer "
        f"within {PROMISES['recovery_seconds']:g} s of a killed worker. {kept}"
    )


def isolation_words(facts: dict[str, Any]) -> str:
    ratios = [row["ratio"] for row in facts["sizes"]]
    return (
        f"What the separate processes cost is measured by `python -m experiments.isolation`: {facts['workers']} "
        f"workers look at {min(ratios):.2f} to {max(ratios):.2f} times as many JPEG pictures per second as "
        f"{facts['workers']} threads of one process do, from {facts['sizes'][0]['size']} to "
        f"{facts['sizes'][-1]['size']} pixels ({facts['model']}, load average {facts['load_average']:.0f})."
    )


def soak_part() -> str:
    """The table of the soak test, how it was measured, and what separate processes cost."""
    ways = {"over one connection": "soak", "a connection for every picture": "soak_fresh"}
    found = {way: read_record(RESULTS / f"{name}.json") for way, name in ways.items()}
    runs = {way: record for way, record in found.items() if record is not None}
    isolation = json.loads((RESULTS / "isolation.json").read_text())
    return "\n\n".join((soak_table(runs), soak_words(runs), isolation_words(isolation)))


def kills_part(record: Record) -> str:
    """The table of kills with its conditions."""
    rows = [Outcome(**row) for row in record["programs"]]
    loads = [row.load_average for row in rows]
    words = f"Measured with load averages of {min(loads):.0f} to {max(loads):.0f} on two cores."
    return f"{kills_table(rows)}\n\n{words}"


if __name__ == "__main__":
    fill(DOCS / "server.md", "soak", soak_part())
    fill(DOCS / "deploy.md", "kills", kills_part(json.loads((RESULTS / "kills.json").read_text())))
