"""Evaluation mode, in which networks are traced, and the branches that they take in training mode only."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode


@contextmanager
def evaluation_mode(modules: Iterable[nn.Module]) -> Iterator[None]:
    """Exactly these modules in evaluation mode inside the block; each one's own mode comes back."""
    before = [(m, m.training) for m in modules]
    try:
        for m, _ in before:
            m.training = False
        yield
    finally:
        for m, training in before:
            m.training = training


@contextmanager
def branches_of_training(root: nn.Module) -> Iterator[None]:
    """Modules with parts are in training mode inside the block, leaves are not; afterwards all is as before.

    Leaves stay in evaluation mode because of BatchNorm and dropout, which do the same to maps in both. What the
    network does to its parameters and buffers in a training pass (averages of weights, queues) is undone.
    """
    before = {name: value.detach().clone() for name, value in _state(root)}
    with evaluation_mode(root.modules()), torch.random.fork_rng(devices=[]):
        for module in root.modules():
            module.training = any(True for _ in module.children())
        try:
            yield
        finally:
            for name, value in _state(root):
                if name in before and value.shape == before[name].shape:
                    value.data.copy_(before[name])  # in place: others may look at the same memory
                elif name in before:
                    value.data = before[name]


def _state(root: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    yield from root.named_parameters()
    yield from root.named_buffers()


def trains_otherwise(root: nn.Module, args: tuple[object, ...], kwargs: dict[str, object]) -> bool:
    """Whether the network calls other functions in training mode: auxiliary heads and losses read maps too.

    False if it does not run so, because it wants targets, say.
    """
    called = list[list[str]]()
    for mode in (evaluation_mode(root.modules()), branches_of_training(root)):
        with mode, torch.no_grad(), _Names() as names:
            try:
                root(*args, **kwargs)
            except Exception:
                return False
            called.append(names.found)
    return called[0] != called[1]


class _Names(TorchFunctionMode):
    """The names of all functions that are called, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        del types
        self.found.append(getattr(func, "__name__", str(func)))
        return func(*args, **(kwargs or {}))
