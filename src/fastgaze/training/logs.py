"""A run's logs: CSV to read anywhere, TensorBoard to watch."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO


class RunLog:
    """Appends to ``log.csv`` and ``validation.csv`` of a run's folder; only the main process writes."""

    def __init__(self, folder: Path, main: bool = True, every: int = 10) -> None:
        self._every, self._sum, self._count = every, 0.0, 0
        self._started = time.monotonic()
        self._files: dict[str, TextIO] = {}
        self._board: Any = None
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
            self._write(
                "log", f"{step},{self._sum / self._count:.6f},{rate:.3e},{time.monotonic() - self._started:.1f}"
            )
            if self._board:
                self._board.add_scalar("loss/training", self._sum / self._count, step)
            self._sum, self._count = 0.0, 0

    def validation(self, step: int, loss: float, others: Mapping[str, float] | None = None) -> None:
        """Loss on the validation images, and by name on sets that are only watched (``watched.csv``)."""
        self._write("validation", f"{step},{loss:.6f},{time.monotonic() - self._started:.1f}")
        for name, value in (others or {}).items():
            self._write("watched", f"{step},{name},{value:.6f}")
        if self._board:
            self._board.add_scalar("loss/validation", loss, step)

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


def _append(path: Path, header: str) -> TextIO:
    new = not path.exists()
    file = path.open("a")
    if new:
        file.write(header + "\n")
    return file


def _board(folder: Path) -> Any:
    """A TensorBoard writer, or None where TensorBoard is not installed."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return None
    return SummaryWriter(str(folder / "events"))
