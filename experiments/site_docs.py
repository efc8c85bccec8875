"""Writes what was measured of the page without a server into docs/site.md, between its marks.

    python -m experiments.site_docs

Reads results/site_speed.json.
"""

from statistics import median
from typing import Any

from experiments.common import DOCS, RESULTS, read_record
from experiments.pages import fill

PAGE = DOCS / "site.md"


def size(record: dict[str, Any]) -> str:
    """How large the folder is."""
    found = {name: count / 1e6 for name, count in record["bytes"].items()}
    return (
        f"With the default model a folder has {found['folder']:.0f} MB. A browser without WebGPU loads "
        f"{found['first_visit']:.1f} MB of it, once, of which {found['engine']:.1f} MB are the engine; from a host "
        f"that compresses (gzip) these are {found['first_visit_gzip']:.1f} MB."
    )


def speed(record: dict[str, Any]) -> str:
    """The first map and later ones."""
    waits = [each["seconds"] for each in record["first_map"]]
    used = median(each["cpu_seconds"] for each in record["first_map"])
    machine, settings, ratio = record["machine"], record["settings"], record["ratio"]
    busy = f", with a load of {machine['load']:g} on {machine['cores']} cores" if machine["load"] > 1 else ""
    return (
        f"Measured on {machine['date']} with Chromium {settings['chromium']} ({machine['processor']}{busy}): the first "
        f"map came {median(waits):.2f} s ({min(waits):.2f} to {max(waits):.2f}) after the load event, for {used:.2f} s "
        f"of CPU, the median and range of {len(waits)} fresh visits. Later maps took {ratio['total']:.0f} times as "
        f"long as in Python, the network alone {ratio['network']:.0f} times."
    )


PARTS = {"size": size, "speed": speed}


if __name__ == "__main__":
    measured = read_record(RESULTS / "site_speed.json")
    if measured is None:
        raise SystemExit("results/site_speed.json is not there; run python -m experiments.site_speed first")
    for mark, write in PARTS.items():
        fill(PAGE, mark, write(measured))
