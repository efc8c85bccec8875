"""Whole numbers that remember where they come from.

A network that reshapes writes sizes down: ``x.view(b, groups, c // groups, h, w)``. Whether it still fits after
pruning depends on where each number came from. Numbers read from ``x.shape`` follow the network by themselves,
numbers that a module holds as an attribute (``self.num_heads``) can be changed with it, and written ones cannot. So
while a network is traced, the first two are of the class :class:`Width`, and arithmetic with them stays in it.
"""

from __future__ import annotations

import sys
from typing import Any, Protocol

from torch import Tensor


class Readable(Protocol):
    """Who is told when a number is used for something that pruning cannot follow."""

    def counted(self, width: Width, how: str) -> None:
        """The value itself is used: it must not change."""
        ...

    def compared(self, one: Width, other: Width) -> None:
        """Two numbers were found equal: they must stay so."""
        ...

    def differed(self, one: Width, other: int) -> None:
        """Two numbers were found to differ: they must stay so."""
        ...


class Width(int):
    """A number of channels: that of ``ids``, or an attribute ``owner`` = (module name, attribute), times / divide."""

    reader: Readable
    ids: Tensor | None
    owner: tuple[str, str] | None
    times: int
    divide: int

    @staticmethod
    def make(
        value: int,
        reader: Readable,
        ids: Tensor | None = None,
        owner: tuple[str, str] | None = None,
        ratio: tuple[int, int] = (1, 1),
    ) -> Width:
        """A width with its origin."""
        made = Width(value)
        made.reader, made.ids, made.owner = reader, ids, owner
        made.times, made.divide = ratio
        return made

    def _scaled(self, value: int, times: int, divide: int) -> Width:
        ratio = (self.times * times, self.divide * divide)
        return Width.make(value, self.reader, self.ids, self.owner, ratio)

    def _plain(self, other: int, how: str) -> int:
        """The other operand as a number; an attribute that is mixed with a width must not change."""
        if isinstance(other, Width):
            other.reader.counted(other, how)
        return int.__int__(other)

    def _arithmetic(self, other: Any, how: str) -> Any:
        if not isinstance(other, int):
            self.reader.counted(self, how)
            return getattr(int.__int__(self), how)(other)
        if self.owner is not None and isinstance(other, Width) and other.owner is None:
            self.reader.counted(self, how)  # C // self.groups asks for C; the attribute is a plain number there
            return getattr(int.__int__(self), how)(other)
        return None

    def __mul__(self, other: Any) -> Any:
        if isinstance(other, Width) and self.owner is not None and other.owner is None:
            return other * self
        if not isinstance(other, int):
            return self._arithmetic(other, "__mul__")
        number = self._plain(other, "__mul__")
        return self._scaled(int.__mul__(self, number), number, 1)

    __rmul__ = __mul__

    def __add__(self, other: Any) -> Any:
        alike = isinstance(other, Width) and (self.owner, self.divide) == (other.owner, other.divide)
        if self.owner is None or not alike:
            return _counted_sum(self, other)
        ratio = (self.times + other.times, self.divide)  # 2 h + 2 h is 4 h
        return Width.make(int.__add__(self, other), self.reader, None, self.owner, ratio)

    def __floordiv__(self, other: Any) -> Any:
        if (done := self._arithmetic(other, "__floordiv__")) is not None:
            return done
        number = self._plain(other, "__floordiv__")
        quotient, rest = divmod(int.__int__(self), number)
        if rest:
            self.reader.counted(self, "__floordiv__")
            return quotient
        return self._scaled(quotient, 1, number)

    def __mod__(self, other: Any) -> int:
        return int.__mod__(self, self._plain(other, "__mod__"))  # 0 now and later, where groups are tied

    def __bool__(self) -> bool:
        return int.__int__(self) != 0  # no layer is ever emptied

    def __hash__(self) -> int:
        if sys._getframe(1).f_globals.get("__name__", "").startswith("einops."):
            raise TypeError("a width has no hash")  # einops then computes the sizes, as it does for symbols
        self.reader.counted(self, "__hash__")
        return int.__hash__(self)

    def __eq__(self, other: object) -> bool:
        if other is self:
            return True
        same = int.__eq__(self, other) is True
        if same and isinstance(other, Width):
            self.reader.compared(self, other)
        elif same or not isinstance(other, int):
            self.reader.counted(self, "__eq__")
        else:
            self.reader.differed(self, other)
        return same

    def __ne__(self, other: object) -> bool:
        return not self == other


def plain(value: Any) -> Any:
    """The number without its origin."""
    return int.__int__(value) if isinstance(value, Width) else value


def _counting(name: str) -> Any:
    """A method of int whose result does not follow the width."""

    def method(self: Width, *others: Any) -> Any:
        self.reader.counted(self, name)
        return getattr(int.__int__(self), name)(*(plain(other) for other in others))

    return method


_counted_sum = _counting("__add__")
for _name in (
    "__radd__", "__sub__", "__rsub__", "__truediv__", "__rtruediv__", "__rfloordiv__", "__pow__", "__rpow__",
    "__rmod__", "__divmod__", "__float__", "__int__", "__lt__", "__le__", "__gt__", "__ge__", "__neg__", "__round__",
    "__lshift__", "__rshift__", "__and__", "__or__", "__xor__",
):  # fmt: skip
    setattr(Width, _name, _counting(_name))
