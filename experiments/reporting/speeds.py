"""Speed over all runs of `experiments.speed`: medians and ranges, never the best run."""

import statistics
from collections.abc import Sequence
from typing import NamedTuple

from experiments.common import Record
from fastgaze.runtime.card import identity
from fastgaze.runtime.zoo import find, models

TEACHER = "deepgaze2"


class Range(NamedTuple):
    """Median and extremes over runs."""

    median: float
    low: float
    high: float
    runs: int = 1

    def shown(self, digits: int = 1, unit: str = "") -> str:
        """Such as ``8.7 (8.4 to 9.1)``; one run has no range."""
        value = f"{self.median:.{digits}f}{unit}"
        return value if self.low == self.high else f"{value} ({self.low:.{digits}f} to {self.high:.{digits}f})"


class Key(NamedTuple):
    """What is timed: model, engine, precision, and whether its network works at the size at which it is scored."""

    name: str
    engine: str
    precision: str
    own_size: bool


class Speed(NamedTuple):
    """One row over all runs; sizes are (height, width)."""

    key: Key
    network_size: tuple[int, int]
    cpu_ms: Range
    to_eager: Range | None
    same_engine: Range | None
    to_peer: Range | None
    scores: dict[str, float]
    identity: str = ""


def speeds(record: Record) -> dict[Key, Speed]:
    """results/speed.json -> one row for everything that was timed, in the order of the first run.

    If a name has become that of another file, only the newest file's times count.
    """
    found: dict[Key, list[Record]] = {}
    for run in record["runs"]:
        for row in run["rows"]:
            if row["engine"] != "numpy":
                key = Key(row["name"], row["engine"], row["precision"], row["own_size"])
                found.setdefault(key, []).append(row)
    return {key: _speed(key, rows) for key, rows in found.items()}


def _speed(key: Key, rows: list[Record]) -> Speed:
    computes = rows[-1].get("identity", "")
    rows = [row for row in rows if row.get("identity", computes) == computes]
    height, width = rows[-1]["network_size"]
    scores: dict[str, float] = next((row["scores"] for row in reversed(rows) if "scores" in row), {})
    cpu = _range(rows, "cpu_ms")
    assert cpu is not None
    to_eager, same_engine = _range(rows, "ratio_to_deepgaze2"), _range(rows, "ratio_same_engine")
    return Speed(key, (height, width), cpu, to_eager, same_engine, _range(rows, "ratio_to_peer"), scores, computes)


def bundled_speeds(record: Record) -> dict[str, Speed]:
    """The bundled files, as they are now, by name: onnxruntime, each at its own working size."""
    found = {speed.key.name: speed for speed in speeds(record).values() if _is_own(speed.key)}
    names = [name for name in (model.name for model in models()) if name in found]
    return {name: found[name] for name in names if found[name].identity == _identity(name)}


def _is_own(key: Key) -> bool:
    return key.engine == "onnxruntime" and key.own_size


def _identity(name: str) -> str:
    return identity(find(name).read_bytes())


def _range(rows: list[Record], key: str) -> Range | None:
    values = [row[key] for row in rows if key in row]
    return over(values) if values else None


def over(values: Sequence[float]) -> Range:
    """Median and extremes of at least one value."""
    return Range(statistics.median(values), min(values), max(values), len(values))


def run_words(record: Record) -> str:
    """Each run by its own recorded load."""
    runs = record["runs"]
    loads = [f"{run['machine']['load']:.2f}" for run in runs]
    rounds = [str(run["settings"]["rounds"]) for run in runs]
    many = "runs" if len(runs) > 1 else "run"
    return f"{len(runs)} {many} of {', '.join(rounds)} rounds, load of the machine at the start {', '.join(loads)}"
