"""What the measuring recipes left, and what is said of a thing that they have not measured yet."""

import json
import tomllib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from experiments.reporting.document import Block, Missing, Text

Record = dict[str, Any]

COMMANDS = {
    "lenet_mnist": "python -m experiments.lenet_mnist --data ../shared/data/mnist --json results/lenet_mnist.json",
    "figure1": "python -m experiments.pruning_comparison --checkpoint runs/fastgaze/best.safetensors "
    "--data ../shared/data/osie --out results/figure1",
    "figure1-lenet": "python -m experiments.pruning_comparison --checkpoint runs/lenet_mnist/unpruned-seed1.safetensors "
    "--data ../shared/data/mnist --out results/figure1-lenet",
    "front": "python -m experiments.front experiments/configs/front.toml --data ../shared/data",
    "times": "python -m experiments.front experiments/configs/front.toml --times",
    "maps": "python -m experiments.figures_maps experiments/configs/front.toml",
    "sweep": "fastgaze sweep --config experiments/configs/sweep.toml --start runs/varied/fastgaze-l/best.safetensors --out "
    "runs/sweep --trials 8 --json > results/sweep.json",
    "speed": "python -m experiments.speed --score --data ../shared/data",
}
"""How each input is made."""


@dataclass(frozen=True)
class Inputs:
    """The folder of JSON files, and the notes that people wrote on them."""

    folder: Path
    notes_file: Path

    def read(self, name: str) -> Record | None:
        """The file of that name, None if it is not there yet."""
        path = self.folder / f"{name}.json"
        if not path.is_file():
            return None
        record: Record = json.loads(path.read_text())
        return record

    @cached_property
    def notes(self) -> dict[str, str]:
        """Written by hand, by section."""
        if not self.notes_file.is_file():
            return {}
        return {name: " ".join(text.split()) for name, text in tomllib.loads(self.notes_file.read_text()).items()}

    @cached_property
    def front(self) -> Record | None:
        """results/front.json."""
        return self.read("front")

    @property
    def timed(self) -> bool:
        """Whether the models of the front have been timed."""
        return self.front is not None and "timing" in self.front

    def models(self, data: str = "cat2000") -> dict[str, Record]:
        """The models of the front that were scored on ``data``, in the order of the list."""
        found = {} if self.front is None else self.front["models"]
        return {name: facts for name, facts in found.items() if data in facts["scores"]}

    def milliseconds(self, name: str, engine: str = "onnxruntime") -> float | None:
        """CPU milliseconds of a model of the front at 384x512, None if it was not timed."""
        facts = {} if self.front is None else self.front["models"].get(name, {})
        time = facts.get("times", {}).get(engine)
        return None if time is None else float(time["cpu_ms"])

    def difference(self, section: str, found: str = "") -> list[Block]:
        """Where ours differs and why: what follows from the data, then the note."""
        text = " ".join(part for part in (found, self.notes.get(section, "")) if part)
        return [Text(f"**Where and why they differ.** {text}")] if text else []


def missing(name: str, what: str) -> Missing:
    """The line for an input that is not there."""
    return Missing(what, COMMANDS[name])


def machine(facts: Record) -> str:
    """Processor, cores and versions in words."""
    packages = [f"{key} {facts[key]}" for key in ("onnxruntime", "torch", "openvino", "numpy") if key in facts]
    busy = f", load {facts['load']} at the start" if "load" in facts else ""
    return f"{facts['processor']}, {facts['cores']} cores{busy}; {', '.join(packages)}"
