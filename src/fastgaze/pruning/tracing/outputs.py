"""What a network returns: every tensor in it must keep its channels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from types import FunctionType, MethodType, ModuleType

from torch import Tensor, nn

from fastgaze.core.errors import PruningError

_CLOSED = (str, bytes, int, float, complex, type, nn.Module, FunctionType, MethodType, ModuleType)


def tensors_of(value: object) -> list[Tensor]:
    """All tensors in a result, in a fixed order: in containers, dataclasses and objects of any class, in any depth."""
    return list(_walk(value, set()))


def _walk(value: object, seen: set[int]) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif value is not None and not isinstance(value, _CLOSED) and id(value) not in seen:
        seen.add(id(value))
        if isinstance(value, Mapping):
            parts = list(value.values())
        elif isinstance(value, Sequence | Set):
            parts = list(value)
        else:
            parts = []
        for part in [*parts, *_attributes(value)]:
            yield from _walk(part, seen)


def _attributes(value: object) -> list[object]:
    """What an object holds under names, in slots too."""
    slots = [slot for cls in type(value).__mro__ for slot in _names(cls.__dict__.get("__slots__", ()))]
    held = [getattr(value, slot, None) for slot in slots if slot not in ("__dict__", "__weakref__")]
    return [*getattr(value, "__dict__", {}).values(), *held]


def _names(slots: object) -> tuple[str, ...]:
    return (slots,) if isinstance(slots, str) else tuple(slots) if isinstance(slots, Sequence | Mapping) else ()


def outputs_of(network: str, result: object) -> list[Tensor]:
    """The same, where there must be one: an output that is not seen could lose its channels."""
    found = tensors_of(result)
    if not found:
        raise PruningError(
            f"{network} returns a {type(result).__name__}, in which there is no tensor that pruning could see; return "
            "tensors, or a tuple, a dict or an object that holds them"
        )
    return found
