"""The networks of the paper: a model is a spec (integers) and weights (safetensors).

Specs and costs need no torch; the networks do. Names are loaded when they are first used.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fastgaze.models.checkpoint import load_checkpoint, save_checkpoint
    from fastgaze.models.cost import flops, layers, prunable_maps
    from fastgaze.models.factory import create_model, list_models
    from fastgaze.models.gaze import GazeModel
    from fastgaze.models.spec import Spec, spec_for, spec_from_json
    from fastgaze.models.weights import load_backbone

_HOME = {
    "GazeModel": "gaze",
    "Spec": "spec",
    "create_model": "factory",
    "flops": "cost",
    "layers": "cost",
    "list_models": "factory",
    "load_backbone": "weights",
    "load_checkpoint": "checkpoint",
    "prunable_maps": "cost",
    "save_checkpoint": "checkpoint",
    "spec_for": "spec",
    "spec_from_json": "spec",
}

__all__ = [
    "GazeModel",
    "Spec",
    "create_model",
    "flops",
    "layers",
    "list_models",
    "load_backbone",
    "load_checkpoint",
    "prunable_maps",
    "save_checkpoint",
    "spec_for",
    "spec_from_json",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'fastgaze.models' has no attribute {name!r}")
    return getattr(import_module(f"fastgaze.models.{_HOME[name]}"), name)


class _Callable(ModuleType):
    """``fastgaze.models()`` lists the bundled models and ``fastgaze.models`` is this package: one name, both uses."""

    def __call__(self) -> Any:
        return import_module("fastgaze.runtime.zoo").models()


sys.modules[__name__].__class__ = _Callable
