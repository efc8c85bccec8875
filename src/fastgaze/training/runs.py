"""What a run or a cache was made from, so that another one is not gone on with by mistake.

Folders and caches of older versions have no such record; they are taken as they are.
"""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from fastgaze.core.errors import ArgumentError
from fastgaze.training.datasets import write_json
from fastgaze.training.distributed import rank
from fastgaze.training.workshop import Workshop

Facts = dict[str, dict[str, Any]]

FILE = "run.json"


def claim(folder: Path, facts: Facts, defaults: Facts) -> None:
    """Write what the run in ``folder`` is of to its ``run.json``, or refuse if it holds another run.

    facts: by section, such as ``{"mixture": {"teacher": 0.5}}``.
    defaults: of settings; a run of an older version, whose record lacks one that came later, had its default.
    Pruning may go on to marks below those that it had.
    """
    now, file = _flat(facts), folder / FILE
    begun = any(folder.glob("*.safetensors")) or any(folder.glob("*/state.safetensors"))
    if begun and not file.is_file():
        return  # a run of a version that kept no record
    known: dict[str, Any] = json.loads(file.read_text()) if begun else {}
    if begun and (changed := _differences(_flat(defaults) | known, now)):
        raise ArgumentError(
            f"{folder} holds another run: {', '.join(changed)}; give another --out or delete the folder"
        )
    if rank() == 0:
        write_json(file, known | now)


def workshop_facts(workshop: Workshop) -> dict[str, Any]:
    """The data of a run; where it lies may change."""
    return {key: value for key, value in asdict(workshop).items() if key not in ("data", "runs", "format")}


def weights_digest(model: nn.Module) -> str:
    """Changes with any parameter or buffer."""
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"{name}\0{tuple(tensor.shape)}\0".encode())
        digest.update(np.ascontiguousarray(tensor.detach().cpu().numpy()).tobytes())
    return digest.hexdigest()[:16]


def _flat(facts: Facts) -> dict[str, Any]:
    """``{"prune.marks": [3.0], ...}`` as JSON would give it back."""
    made = {f"{section}.{key}": value for section, values in facts.items() for key, value in values.items()}
    flat: dict[str, Any] = json.loads(json.dumps(made))
    return flat


def _differences(then: dict[str, Any], now: dict[str, Any]) -> list[str]:
    changed = [key for key in now if then.get(key) != now[key]]
    if "prune.marks" in changed and _goes_on(then["prune.marks"], now["prune.marks"]):
        changed.remove("prune.marks")
    return [f"{key} is {then.get(key)!r} there, {now[key]!r} here" for key in changed]


def _goes_on(then: Iterable[float], now: Iterable[float]) -> bool:
    """Whether the marks ``now`` are those of ``then`` and lower ones."""
    old, new = sorted(then, reverse=True), sorted(now, reverse=True)
    return bool(old) and new[: len(old)] == old
