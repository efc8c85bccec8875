"""A stand-in for torchvision, which has no build for the CPU version of torch that is used here.

timm only imports names from it; none of them does anything in a network that is built without its data pipeline.
"""

import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from torch import nn


class _Anything(ModuleType):
    """A module in which every name is a class of its own."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        made = type(
            name, (nn.Module,), {"BILINEAR": 2, "BICUBIC": 3, "NEAREST": 0, "LANCZOS": 1, "BOX": 4, "HAMMING": 5}
        )
        setattr(self, name, made)
        return made


class _Finder(MetaPathFinder, Loader):
    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:  # noqa: ARG002
        return ModuleSpec(name, self, is_package=True) if name.split(".")[0] == "torchvision" else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        made = _Anything(spec.name)
        made.__path__ = []  # a package, so that submodules are looked for
        return made

    def exec_module(self, module: ModuleType) -> None:
        """Nothing to run."""


def install() -> None:
    """From now on ``import torchvision`` finds the stand-in, unless the real one was imported before."""
    if "torchvision" not in sys.modules:
        sys.meta_path.insert(0, _Finder())
