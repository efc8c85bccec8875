"""Rules for products: matmul, attention and einsum, all in Einstein's notation."""

from __future__ import annotations

from collections.abc import Sequence
from string import ascii_letters

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from fastgaze.pruning.tracing.operations import RULES, blocks
from fastgaze.pruning.tracing.tracer import Call


def products(call: Call, operands: Sequence[Tensor], letters: Sequence[str], out: str) -> None:
    """A product in Einstein's notation: maps of dimensions that are added up stay, shared ones are tied."""
    maps: dict[str, Tensor] = {}
    images: tuple[str, Tensor] | None = None
    for tensor, names in zip(operands, letters, strict=True):
        label = call.label(tensor)
        if len(label.axes()) > 1:
            call.keep(label.ids, "multiplies maps of several dimensions")
            continue
        for axis in label.axes():
            ids, letter = label.along(axis, tensor.shape[axis]), names[axis]
            if letter in maps:
                call.tie(maps[letter], ids)
            maps.setdefault(letter, ids)
            for other, others in zip(operands, letters, strict=True):
                if other is not tensor and letter in others and _whole(call, other, others.index(letter)):
                    call.keep(ids, "multiplies maps with what cannot be sliced")
        found = [d for d, n in enumerate(label.images.shape) if n > 1]
        if images is None and len(found) == 1 and names[found[0]] in out:
            images = names[found[0]], label.images.flatten()
    _put_product(call, maps, images, out)


def _whole(call: Call, tensor: Tensor, axis: int) -> bool:
    """Whether a dimension is neither broadcast nor made of maps."""
    return call.label(tensor).ids.shape[axis] == 1 < tensor.shape[axis]


def _put_product(call: Call, maps: dict[str, Tensor], images: tuple[str, Tensor] | None, out: str) -> None:
    for letter in [letter for letter in maps if letter not in out]:
        call.keep(maps.pop(letter), "adds up products over its maps")
    if len(maps) > 1:
        for ids in maps.values():
            call.keep(ids, "multiplies maps of different dimensions")
        maps = {}
    rank = len(out)
    blank = torch.zeros((1,) * rank, dtype=torch.int64)

    def placed(letter: str, values: Tensor) -> Tensor:
        return values.reshape([-1 if d == out.index(letter) else 1 for d in range(rank)])

    ids = placed(*next(iter(maps.items()))) if maps else blank
    call.set_label(call.result, ids, blank if images is None else placed(*images))


def matmul(call: Call) -> None:
    """torch.matmul, bmm and mm."""
    a, b = call.args[0], call.argument(1, "other", call.kwargs.get("mat2"))
    if call.name in ("rmatmul",):
        a, b = b, a
    if not (isinstance(a, Tensor) and isinstance(b, Tensor)) or min(a.dim(), b.dim()) < 2:
        blocks(call)
        return
    batch = "abcdefgh"[: max(a.dim(), b.dim()) - 2]
    first, second = batch[len(batch) - a.dim() + 2 :] + "xy", batch[len(batch) - b.dim() + 2 :] + "yz"
    products(call, (a, b), (first, second), batch + "xz")


def attention(call: Call) -> None:
    """F.scaled_dot_product_attention: heads are maps, what is added up inside a head stays."""
    q, k, v = (call.argument(n, name) for n, name in enumerate(("query", "key", "value")))
    mask = call.argument(3, "attn_mask")
    if q.dim() < 3 or not q.dim() == k.dim() == v.dim():
        blocks(call)
        return
    batch = "abcdefgh"[: q.dim() - 2]
    operands, letters = [q, k, v], [batch + "lx", batch + "sx", batch + "sy"]
    if isinstance(mask, Tensor) and mask.dim() >= 2:
        operands.append(mask)
        letters.append((batch + "ls")[-mask.dim() :])
    products(call, operands, letters, batch + "ly")


def einsum(call: Call) -> None:
    """torch.einsum."""
    operands = [t for t in tree_leaves(call.args[1:]) if isinstance(t, Tensor)]
    terms, out = _spelled(str(call.args[0]).replace(" ", ""), operands)
    if any(len(set(term)) < len(term) for term in terms):
        blocks(call, "takes a diagonal")
        return
    products(call, operands, terms, out)


def _spelled(equation: str, operands: Sequence[Tensor]) -> tuple[list[str], str]:
    """The letters of every operand and of the result, those that an ellipsis stands for and those left out too."""
    left, arrow, out = equation.partition("->")
    terms = left.split(",")
    if not arrow:
        single = sorted({letter for letter in left if left.count(letter) == 1} - set(".,"))
        out = ("..." if "..." in left else "") + "".join(single)
    spare = [letter for letter in ascii_letters if letter not in equation]
    ranks = [tensor.dim() - len(term.replace("...", "")) for term, tensor in zip(terms, operands, strict=True)]
    most = max((n for n, term in zip(ranks, terms, strict=True) if "..." in term), default=0)
    dots = "".join(spare[:most])
    spelled = [term.replace("...", dots[most - n :]) for term, n in zip(terms, ranks, strict=True)]
    return spelled, out.replace("...", dots)


RULES.update(dict.fromkeys(("matmul", "rmatmul", "bmm", "mm"), matmul))
RULES.update({"scaled_dot_product_attention": attention, "einsum": einsum})
