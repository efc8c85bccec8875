"""What the measuring scripts left, and what is said of a thing that they have not measured yet."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from experiments.common import Record, read_record
from experiments.reporting.document import Missing
from fastgaze.runtime import zoo
from fastgaze.runtime.card import identity

COMMANDS = {
    "lenet_mnist": "python -m experiments.lenet_mnist",
    "figure1": "python -m experiments.pruning_comparison experiments/configs/figure1.toml",
    "figure1-lenet": "python -m experiments.pruning_comparison experiments/configs/figure1-lenet.toml",
    "front": "python -m experiments.front",
    "times": "python -m experiments.front --times",
    "deepgaze2": "python -m experiments.teacher_scores",
    "maps": "python -m experiments.saliency_maps",
    "search": "python -m experiments.random_search",
    "equal_cost": "python -m experiments.equal_cost experiments/configs/equal_cost.toml",
    "equal_cost-densegaze": "python -m experiments.equal_cost experiments/configs/equal_cost-densegaze.toml",
    "equal_cost-litegaze": "python -m experiments.equal_cost experiments/configs/equal_cost-litegaze.toml",
    "choices": "python -m experiments.equal_cost experiments/configs/choices.toml",
    "peers": "python -m experiments.peers",
    "readings": "python -m experiments.peers --readings",
    "speed": "python -m experiments.speed --score",
    "cluster_speed": "python -m experiments.cluster_speed",
    "cluster": "python -m experiments.cluster",
}
"""How each input is made; a record that keeps its own command is believed instead."""


@dataclass(frozen=True)
class Inputs:
    """The folder of result files."""

    folder: Path

    def read(self, name: str) -> Record | None:
        """The file of that name, None if it is not there yet."""
        return read_record(self.folder / f"{name}.json")

    def rows(self, model: str, data: str) -> Record | None:
        """Scores of every image of a set by a model of the front, None if they were not kept."""
        return read_record(self.folder / "rows" / f"{model}.{data}.json")

    @cached_property
    def front(self) -> Record | None:
        """results/front.json."""
        return self.read("front")

    @cached_property
    def betas(self) -> dict[str, float]:
        """The weight of every trial of the random search, by its name in the front."""
        points = (self.read("sweep") or {"points": []})["points"]
        return {f"sweep-{point['number']}-{point['objective']}": point["beta"] for point in points}

    @property
    def timed(self) -> bool:
        """Whether the models of the front have been timed."""
        return self.front is not None and "timing" in self.front

    @property
    def times_command(self) -> str:
        """The line that timed the models of the front."""
        timing = {} if self.front is None else self.front.get("timing", {})
        return command("times", timing)

    def models(self, data: str = "cat2000") -> dict[str, Record]:
        """The models of the paper that were scored on ``data``: teacher, unpruned, finished, peer, then experiments."""
        found = self._scored(data).items()
        return {name: facts for name, facts in found if facts["kind"] != "bundled" and facts.get("source") != "pace"}

    def schedules(self, data: str = "cat2000") -> dict[str, Record]:
        """The networks of the run at the paper's pace and of the fast schedule beside it, which see smaller images."""
        return {name: facts for name, facts in self._scored(data).items() if facts.get("source") == "pace"}

    def bundled(self, data: str = "cat2000") -> dict[str, Record]:
        """The bundled models that were scored on ``data``, if they are still the same files."""
        found = {name: facts for name, facts in self._scored(data).items() if facts["kind"] == "bundled"}
        return {name: facts for name, facts in found.items() if facts["sha256"] == bundled_identity(name)}

    def _scored(self, data: str) -> dict[str, Record]:
        found = {} if self.front is None else self.front["models"]
        order = sorted(found, key=lambda name: (*_place(found[name]), name))
        return {name: found[name] for name in order if data in found[name]["scores"]}

    def in_session(self, name: str) -> bool:
        """Whether a model was timed together with the others; milliseconds of two sessions cannot be compared."""
        timing = {} if self.front is None else self.front.get("timing", {})
        return name in timing.get("models", [name])

    def milliseconds(self, name: str, engine: str = "onnxruntime") -> float | None:
        """CPU milliseconds of a model of the front at 512x384, None if it was not timed, or not with the others."""
        facts = {} if self.front is None or not self.in_session(name) else self.front["models"].get(name, {})
        time = facts.get("times", {}).get(engine)
        return None if time is None else float(time["cpu_ms"])


def bundled_identity(name: str) -> str:
    """Of what the bundled file computes now; empty if there is none of that name."""
    return identity(zoo.find(name).read_bytes()) if name in [model.name for model in zoo.models()] else ""


def _place(facts: Record) -> tuple[int, float]:
    """Where a model stands in a table, larger ones first."""
    kinds = (
        "teacher",
        "unpruned",
        "finished",
        "bundled",
        "peer",
        "regularised",
        "unregularised",
        "frozen",
        "paced",
        "fast",
    )
    return (len(kinds) if facts.get("source") else 0) + kinds.index(facts["kind"]), -facts["gflop_640x480"]


def command(name: str, record: Record | None = None) -> str:
    """The line that makes a result, as its record has it."""
    return str((record or {}).get("command", COMMANDS[name]))


def missing(name: str, what: str) -> Missing:
    """The line for an input that is not there."""
    return Missing(what, COMMANDS[name])


def machine(facts: Record) -> str:
    """Processor, cores, load and versions in words."""
    packages = [f"{key} {facts[key]}" for key in ("onnxruntime", "torch", "openvino", "numpy") if key in facts]
    busy = f", load {facts['load']} at the start" if "load" in facts else ""
    return f"{facts['processor']}, {facts['cores']} cores{busy}; {', '.join(packages)}"


def size_words(size: list[int] | tuple[int, int]) -> str:
    """(height, width) as people read it."""
    return f"{size[1]}x{size[0]}"
