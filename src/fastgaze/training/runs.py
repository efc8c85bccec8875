"""A run: the processes that take part in it, the folder it owns, its state and its logs.

Whether a folder or a cache was made from the same things is asked here and nowhere else. Folders and caches of older
versions have no record of it; they are used as they are.
"""

import hashlib
import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, distributed, nn

from fastgaze.core.errors import ArgumentError, ModelError
from fastgaze.core.files import remove_leftovers, replacing, write_whole
from fastgaze.core.jsonable import Document, Json

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

Facts = Mapping[str, Json]
"""What something was made from, such as ``{"mixture": {"teacher": 0.5}}``; sections may be nested."""

FILE = "run.json"


# Processes


@contextmanager
def processes() -> Iterator[None]:
    """Join the processes that ``torchrun`` started; alone, do nothing. gloo on CPUs, nccl on GPUs."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1 and not distributed.is_initialized():
        gpu = torch.cuda.is_available()
        if gpu:
            torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        distributed.init_process_group("nccl" if gpu else "gloo")
    try:
        yield
    finally:
        if distributed.is_initialized():
            distributed.destroy_process_group()


def barrier() -> None:
    """Wait for the other processes, if there are any."""
    if distributed.is_initialized():
        distributed.barrier()


def summed(values: Tensor) -> Tensor:
    """The sum over all processes, which each of them gets."""
    if distributed.is_initialized():
        values = values.to("cuda" if torch.cuda.is_available() else "cpu")
        distributed.all_reduce(values)
    return values


def rank() -> int:
    """Number of this process, from 0."""
    return distributed.get_rank() if distributed.is_initialized() else 0


def world_size() -> int:
    """How many processes train together."""
    return distributed.get_world_size() if distributed.is_initialized() else 1


# Is this the same run?


def claim(folder: Path, facts: Facts, defaults: Facts) -> None:
    """Write what the run in ``folder`` is made from to its ``run.json``, or refuse if it holds another run.

    defaults: of settings; a run of an older version, whose record lacks one that came later, had its default.
    """
    file = folder / FILE
    begun = any(folder.glob("*.safetensors")) or any(folder.glob("*/state.safetensors"))
    if begun and not file.is_file():
        return  # a run of a version that kept no record
    known = read_json(file) if begun else {}
    if begun:
        refuse_another(folder, known, facts, defaults)
    if rank() == 0:
        remove_leftovers(folder)
        write_json(file, _flat(known) | _flat(facts))


def refuse_another(folder: Path, then: Facts, now: Facts, defaults: Facts) -> None:
    """Raise ArgumentError if a run that was made from ``then`` cannot be continued with ``now``."""
    if changed := differences(then, now, defaults):
        raise ArgumentError(
            f"{folder} holds another run: {', '.join(changed)}; choose another folder, or delete this one"
        )


def differences(then: Facts, now: Facts, defaults: Facts | None = None, near: Sequence[str] = ()) -> list[str]:
    """What changed between two runs or caches, in words; nothing if one can be continued as the other.

    near: keys of numbers that may differ in their last digits, as those computed on another machine do.
    Pruning may continue to marks below those that it had.
    """
    before, after = _flat(defaults or {}) | _flat(then), _flat(now)
    changed = [key for key in after if before.get(key) != after[key]]
    if _MARKS in changed and _goes_on(before[_MARKS], after[_MARKS]):
        changed.remove(_MARKS)
    changed = [key for key in changed if key not in near or not _alike(before.get(key), after[key])]
    return [f"{key} is {before.get(key)!r} there, {after[key]!r} here" for key in changed]


_MARKS = "prune.marks"


def _flat(facts: Facts) -> Document:
    """``{"prune.marks": [3.0], ...}`` as JSON would give it back."""
    flat: Document = {}
    for key, value in facts.items():
        if isinstance(value, Mapping):
            flat |= {f"{key}.{inner}": leaf for inner, leaf in _flat(value).items()}
        else:
            flat[key] = json.loads(json.dumps(value))
    return flat


def _goes_on(then: Iterable[float], now: Iterable[float]) -> bool:
    """Whether the marks ``now`` are those of ``then`` and lower ones."""
    old, new = sorted(then, reverse=True), sorted(now, reverse=True)
    return bool(old) and new[: len(old)] == old


def _alike(known: Sequence[float] | None, found: Sequence[float]) -> bool:
    return known is not None and len(known) == len(found) and np.allclose(known, found, rtol=1e-3, atol=0)


def names_digest(names: Sequence[str]) -> str:
    """Changes with any name and with their order."""
    return hashlib.sha256("\0".join(names).encode()).hexdigest()[:16]


def weights_digest(model: nn.Module) -> str:
    """Changes with any parameter or buffer."""
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"{name}\0{tuple(tensor.shape)}\0".encode())
        digest.update(np.ascontiguousarray(tensor.detach().cpu().numpy()).tobytes())
    return digest.hexdigest()[:16]


def read_json(path: Path) -> dict[str, Json]:
    """What ``write_json`` wrote."""
    value: dict[str, Json] = json.loads(path.read_text())
    return value


def write_json(path: Path, value: Facts) -> None:
    """Replace a small file in one step."""
    with replacing(path) as part:
        part.write_text(json.dumps(value))


# State: tensors in safetensors, the rest as JSON in its metadata; no pickle


def save_state(path: Path, tensors: dict[str, Tensor], facts: Facts) -> None:
    """Replace the file in one step."""
    content = {name: tensor.detach().contiguous() for name, tensor in tensors.items()}
    write_whole(path, save(content, {"facts": json.dumps(facts)}))


def load_state(path: Path) -> tuple[dict[str, Tensor], Document]:
    """What ``save_state`` wrote."""
    try:
        with safe_open(path, framework="pt") as file:
            facts = json.loads((file.metadata() or {})["facts"])
            return {name: file.get_tensor(name) for name in file.keys()}, facts  # noqa: SIM118 (not a dict)
    except (SafetensorError, OSError, KeyError, ValueError) as error:
        raise ModelError(f"{path}: not the state of a run ({error}); delete its folder to start again") from error


def optimizer_tensors(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Momentum, moments and step counts, keyed by the parameter's name."""
    tensors = {}
    for name, parameter in model.named_parameters():
        for kind, value in optimizer.state.get(parameter, {}).items():
            if value is not None:
                tensors[f"optimizer/{kind}/{name}"] = torch.as_tensor(value)
    return tensors


def restore_optimizer(model: nn.Module, optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    """The inverse of ``optimizer_tensors``."""
    parameters = dict(model.named_parameters())
    for key, value in tensors.items():
        if key.startswith("optimizer/"):
            _, kind, name = key.split("/", 2)
            optimizer.state[parameters[name]][kind] = value.to(parameters[name].device) if kind != "step" else value


# Logs


class RunLog:
    """Appends to a run's CSV files (log, validation, watched) and to TensorBoard; only the main process writes."""

    def __init__(self, folder: Path, main: bool = True, every: int = 10) -> None:
        self._every, self._sum, self._count = every, 0.0, 0
        self._started = time.monotonic()
        self._files: dict[str, TextIO] = {}
        self._board: SummaryWriter | None = None
        if main:
            folder.mkdir(parents=True, exist_ok=True)
            self._files["log"] = _append(folder / "log.csv", "step,loss,learning_rate,seconds")
            self._files["validation"] = _append(folder / "validation.csv", "step,loss,seconds")
            self._files["watched"] = _append(folder / "watched.csv", "step,set,loss")
            self._board = _board(folder)

    def training(self, step: int, loss: float, rate: float) -> None:
        """Mean loss over the last few steps."""
        self._sum, self._count = self._sum + loss, self._count + 1
        if step % self._every == 0:
            mean, seconds = self._sum / self._count, time.monotonic() - self._started
            self._write("log", f"{step},{mean:.6f},{rate:.3e},{seconds:.1f}")
            self._draw("loss/training", mean, step)
            self._sum, self._count = 0.0, 0

    def validation(self, step: int, loss: float, watched: Mapping[str, float]) -> None:
        """Loss on the validation images, and by name on sets that are only watched."""
        self._write("validation", f"{step},{loss:.6f},{time.monotonic() - self._started:.1f}")
        self._draw("loss/validation", loss, step)
        for name, value in watched.items():
            self._write("watched", f"{step},{name},{value:.6f}")

    def close(self) -> None:
        """Flush and close all files."""
        for file in self._files.values():
            file.close()
        if self._board:
            self._board.close()

    def _write(self, name: str, line: str) -> None:
        if name in self._files:
            self._files[name].write(line + "\n")
            self._files[name].flush()

    def _draw(self, name: str, value: float, step: int) -> None:
        if self._board:
            self._board.add_scalar(name, value, step)


def _append(path: Path, header: str) -> TextIO:
    new = not path.exists()
    file = path.open("a")
    if new:
        file.write(header + "\n")
    return file


def _board(folder: Path) -> "SummaryWriter | None":
    """A TensorBoard writer, or None where TensorBoard is not installed."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return None
    return SummaryWriter(str(folder / "events"))
