"""Predict where people look in a picture, on a CPU, in milliseconds.

>>> import fastgaze
>>> gaze = fastgaze.predict("photo.jpg")
>>> gaze.log_density.shape
(480, 640)

The names below are loaded when they are first used, so that ``import fastgaze`` is instant
and imports neither torch nor onnxruntime.
"""

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0"

__all__ = [
    "BundledModel",
    "Comparison",
    "Crop",
    "Cut",
    "FastGazeError",
    "GazeMap",
    "Peak",
    "Predictor",
    "RegionAttention",
    "RegionChange",
    "Scale",
    "View",
    "__version__",
    "batch",
    "compare",
    "errors",
    "load",
    "models",
    "predict",
    "video",
]

if TYPE_CHECKING:
    from fastgaze.core import errors
    from fastgaze.core.errors import FastGazeError
    from fastgaze.evaluation.checkpoints import load
    from fastgaze.runtime import batch, video
    from fastgaze.runtime.compare import Comparison, RegionChange, compare
    from fastgaze.runtime.crop import Crop
    from fastgaze.runtime.cutting import Cut
    from fastgaze.runtime.gazemap import GazeMap
    from fastgaze.runtime.peaks import Peak
    from fastgaze.runtime.predictor import Predictor, View, predict
    from fastgaze.runtime.regions import RegionAttention
    from fastgaze.runtime.render import Scale
    from fastgaze.runtime.zoo import BundledModel, models

_MODULES = {
    "batch": "fastgaze.runtime.batch",
    "errors": "fastgaze.core.errors",
    "video": "fastgaze.runtime.video",
}
_HOME = {
    "BundledModel": "fastgaze.runtime.zoo",
    "Comparison": "fastgaze.runtime.compare",
    "Crop": "fastgaze.runtime.crop",
    "Cut": "fastgaze.runtime.cutting",
    "FastGazeError": "fastgaze.core.errors",
    "GazeMap": "fastgaze.runtime.gazemap",
    "Peak": "fastgaze.runtime.peaks",
    "Predictor": "fastgaze.runtime.predictor",
    "RegionAttention": "fastgaze.runtime.regions",
    "RegionChange": "fastgaze.runtime.compare",
    "Scale": "fastgaze.runtime.render",
    "View": "fastgaze.runtime.predictor",
    "compare": "fastgaze.runtime.compare",
    "load": "fastgaze.evaluation.checkpoints",
    "models": "fastgaze.runtime.zoo",
    "predict": "fastgaze.runtime.predictor",
}


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return import_module(_MODULES[name])
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'fastgaze' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
