"""Where people look in an image, on a CPU, in milliseconds.

>>> import fastgaze
>>> gaze = fastgaze.predict("photo.jpg")
>>> gaze.log_density.shape
(480, 640)

The names below are loaded when they are first used, so that ``import fastgaze`` is instant
and imports neither torch nor onnxruntime.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

__all__ = ["FastGazeError", "GazeMap", "Predictor", "__version__", "load", "models", "predict"]

if TYPE_CHECKING:
    from fastgaze.errors import FastGazeError
    from fastgaze.runtime.gazemap import GazeMap
    from fastgaze.runtime.predictor import Predictor, load, predict
    from fastgaze.runtime.zoo import models

_HOME = {
    "FastGazeError": "fastgaze.errors",
    "GazeMap": "fastgaze.runtime.gazemap",
    "Predictor": "fastgaze.runtime.predictor",
    "load": "fastgaze.runtime.predictor",
    "models": "fastgaze.runtime.zoo",
    "predict": "fastgaze.runtime.predictor",
}


def __getattr__(name: str) -> Any:
    if name == "video":
        return import_module("fastgaze.video")
    if name not in _HOME:
        raise AttributeError(f"module 'fastgaze' has no attribute {name!r}")
    if name == "models":  # also a package, which replaces this name once it is imported; it can be called the same way
        return import_module("fastgaze.models")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
