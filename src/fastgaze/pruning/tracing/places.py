"""Where in the network's own code something happens, for people who want to look there."""

import sys
import traceback
from dataclasses import dataclass
from pathlib import Path

import torch

_HERE = str(Path(__file__).parents[1])
_TORCH = str(Path(torch.__file__).parent)


@dataclass(frozen=True)
class Kept:
    """Maps that stay because of an operation, and where that is.

    reason  what the operation does with them
    where   module and line of the network's own code
    maps    how many maps it holds back
    """

    reason: str
    where: str
    maps: int = 0

    def __str__(self) -> str:
        return f"{self.maps} {'map' if self.maps == 1 else 'maps'}: {self.reason} ({self.where})"


def line_now() -> str:
    """File and line of the network's own code that is running now."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith((_HERE, _TORCH, "<")):
        frame = frame.f_back
    return _place(frame.f_code.co_filename, frame.f_lineno)


def line_of(error: BaseException) -> str:
    """File and line of the network's own code that raised ``error``."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith((_HERE, _TORCH, "<"))]
    return _place(frames[-1].filename, frames[-1].lineno or 0) if frames else "torch"


def _place(file: str, line: int) -> str:
    path = Path(file)
    return f"{path.parent.name}/{path.name}:{line}"
