"""Rules for operations that give a tensor another shape: reshape, split, index, join.

Moving the labels along is the easy half. The other half is whether the operation still does the same after pruning,
which depends on the sizes that the network wrote (see ``widths.py``).
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from fastgaze.pruning.tracing.labels import blank
from fastgaze.pruning.tracing.operations import RULES, blocks, moves, squeezed_roots
from fastgaze.pruning.tracing.tracer import Call
from fastgaze.pruning.tracing.widths import Width, plain


def reshape(call: Call) -> None:
    """view, reshape, flatten, unflatten: one dimension of the result may shrink, all others are tied."""
    x, result = call.args[0], call.result
    if not isinstance(result, Tensor) or result.numel() != x.numel():
        blocks(call)
        return
    label = call.label(x)
    ids = squeezed_roots(call, label.ids.expand(x.shape).reshape(result.shape))
    images = label.images.expand(x.shape).reshape(result.shape)
    sizes = _written_sizes(call)
    axes = [d for d, n in enumerate(ids.shape) if n > 1]
    if len(axes) > 1:
        ids, axes = _one_axis(call, ids, axes, sizes)
    for axis, size in enumerate(sizes):
        if axis in axes and size is not None:
            call.tracer.fit(ids.flatten(), size, call.name)
        elif axis not in axes and isinstance(size, Width):
            call.tracer.counted(size, call.name)
    call.set_label(result, ids, images)


def _one_axis(call: Call, ids: Tensor, axes: list[int], sizes: list[Any]) -> tuple[Tensor, list[int]]:
    """Choose the dimension that may shrink and tie the maps along the others."""
    follows = [d for d in axes if sizes[d] is None or (isinstance(sizes[d], Width) and sizes[d].owner is None)]
    numbers = [d for d in axes if isinstance(sizes[d], Width) and sizes[d].owner is not None]
    options = [*sorted(follows, key=lambda d: -ids.shape[d]), *sorted(numbers, key=lambda d: -ids.shape[d])]
    if not options:
        call.keep(ids, "has its sizes written down")
        return torch.zeros((1,) * ids.dim(), dtype=torch.int64), []
    chosen = call.tracer.choose(options, ids.flatten())
    one = ids
    for axis in axes:
        if axis != chosen:
            one = one.narrow(axis, 0, 1)
    call.tie(ids, one)
    return squeezed_roots(call, one), [chosen]


def _written_sizes(call: Call) -> list[int | None]:
    """What the network says about each dimension of the result; None where the size follows by itself."""
    rank = call.result.dim()
    if call.name in ("view_as", "reshape_as"):
        return list(call.tracer.sizes(call.args[1]))
    if call.name == "unflatten":
        dim, sizes = call.args[1] % call.args[0].dim(), list(call.argument(2, "sizes"))
        return [None] * dim + [_free(s) for s in sizes] + [None] * (rank - dim - len(sizes))
    if call.name in ("view", "reshape", "unsafe_view"):
        given = call.argument(1, "shape", call.kwargs.get("size"))
        sizes = list(given) if isinstance(given, list | tuple) else list(call.args[1:])
        return [_free(s) for s in sizes]
    return [None] * rank


def _free(size: int) -> int | None:
    return None if not isinstance(size, Width) and size == -1 else size


def expand(call: Call) -> None:
    """expand and expand_as: a dimension of size 1 that is spread over maps belongs to these maps."""
    x, result = call.args[0], call.result
    if call.name == "expand_as":
        sizes = list(call.tracer.sizes(call.args[1]))
    else:
        given = call.argument(1, "size")
        sizes = list(given) if isinstance(given, list | tuple) else list(call.args[1:])
    label = call.label(x)
    rank, front = result.dim(), result.dim() - x.dim()
    ids, images = (value.reshape((1,) * front + tuple(value.shape)) for value in (label.ids, label.images))
    for axis, size in enumerate(sizes):
        spread = axis < front or x.shape[axis - front] == 1
        whole = ids.numel() == 1 or not call.tracer.ties.any_made(ids)
        if spread and isinstance(size, Width) and size.ids is not None and whole:
            call.keep(ids, "spreads one map over many")
            ids = size.ids.reshape([-1 if d == axis else 1 for d in range(rank)])
        elif ids.shape[axis] > 1 and _free(size) is not None:
            call.tracer.fit(ids.flatten(), size, call.name)
    call.set_label(result, ids, images)


def joins(call: Call) -> None:
    """cat and stack: along the maps' dimension they follow each other, along any other they are tied."""
    tensors = call.argument(0, "tensors")
    dim = call.argument(1, "dim", call.kwargs.get("axis", 0))
    tensors = [t for t in tensors if t.numel()]
    if not tensors or not all(isinstance(t, Tensor) for t in tensors):
        blocks(call)
        return
    stacked = call.name == "stack"
    axis = dim % (tensors[0].dim() + stacked)
    labels = [call.label(t) for t in tensors]
    if stacked or not any(axis in label.axes() or _single(label.ids) for label in labels):
        for other in labels[1:]:
            call.tie(labels[0].ids, other.ids)
    moves(call)


def _single(ids: Tensor) -> bool:
    return ids.numel() == 1 and bool((ids != 0).all())


def chunks(call: Call) -> None:
    """chunk: equal pieces stay equal if the j-th maps of all pieces go together."""
    x, dim = call.args[0], call.argument(2, "dim", 0)
    label, axis = call.label(x), dim % x.dim()
    if axis in label.axes():
        pieces, width = len(call.result), call.result[0].shape[axis]
        if pieces * width != x.shape[axis] or len(label.axes()) > 1:
            call.keep(label.ids, "cuts maps into unequal pieces")
        else:
            ids = label.along(axis, x.shape[axis]).reshape(pieces, width)
            call.tie(ids, ids[:1])
    moves(call)


def halves(call: Call) -> None:
    """glu: the first half of the maps, gated by the second: they go in pairs."""
    x = call.args[0]
    axis = call.argument(1, "dim", -1) % x.dim()
    label = call.label(x)
    if label.axes() not in ([], [axis]):
        call.keep(label.ids, "gates maps along another dimension than theirs")
        label = blank(x.dim())
    ids = label.ids
    if label.axes():
        ids = label.along(axis, x.shape[axis]).reshape(2, -1)
        call.tie(ids, ids[:1])
        ids = ids[0].reshape([-1 if d == axis else 1 for d in range(x.dim())])
    call.set_label(call.result, ids, label.images)


def splits(call: Call) -> None:
    """split: the written size of each piece must follow its maps."""
    x, sizes = call.args[0], call.argument(1, "split_size_or_sections", call.kwargs.get("split_size"))
    axis = call.argument(2, "dim", 0) % x.dim()
    label = call.label(x)
    if axis in label.axes() and len(call.result) > 1:
        ids = label.along(axis, x.shape[axis]) if len(label.axes()) == 1 else label.ids
        each = list(sizes) if isinstance(sizes, list | tuple) else [sizes] * len(call.result)
        if isinstance(sizes, Width) and len({piece.shape[axis] for piece in call.result}) == 1:
            equal = ids.reshape(len(call.result), -1)
            call.tie(equal, equal[:1])
        start = 0
        for piece, size in zip(call.result, each, strict=True):
            call.tracer.fit(ids[start : start + piece.shape[axis]], size, call.name)
            start += piece.shape[axis]
    moves(call)


def indexes(call: Call) -> None:
    """x[...]: where maps are selected, all those before the bounds stay unless the bounds follow them."""
    x, index = call.args[0], call.args[1]
    label = call.label(x)
    if label.axes():
        entries = _entries(index, x.dim())
        for axis in label.axes():
            if not call.tracer.ties.any_made(label.ids):
                _collapse(call, label.ids, axis, None if entries is None else entries[axis])
            elif entries is None:
                call.keep(label.ids, "selects maps by an index")
            else:
                _bound(call, label.ids, axis, x.shape[axis], entries[axis])
    moves(call)


def _collapse(call: Call, ids: Tensor, axis: int, entry: object) -> None:
    """A dimension of a parameter that is indexed (a table of position codes) holds positions, not maps."""
    if entry != slice(None) and len([n for n in ids.shape if n > 1]) > 1:
        call.tie(ids, ids.narrow(axis, 0, 1))


def _entries(index: object, rank: int) -> list[object] | None:
    """What an index says about each dimension; None if a tensor of more than one dimension hides that."""
    entries = list(index) if isinstance(index, tuple) else [index]
    if any(isinstance(e, Tensor) and e.dtype == torch.bool and e.dim() > 1 for e in entries):
        return None
    entries = [e for e in entries if e is not None]
    if any(e is Ellipsis for e in entries):
        at = next(k for k, e in enumerate(entries) if e is Ellipsis)
        entries[at : at + 1] = [slice(None)] * (rank - len(entries) + 1)
    return entries + [slice(None)] * (rank - len(entries))


def _bound(call: Call, ids: Tensor, axis: int, size: int, entry: object) -> None:
    along = ids.movedim(axis, 0).flatten(1) if ids.dim() > 1 else ids[:, None]
    if not isinstance(entry, slice) or entry.step not in (None, 1):
        call.keep(ids, "selects single maps")
        return
    start, stop = entry.start, entry.stop
    for bound in (start, stop):
        if isinstance(bound, Width) and bound.ids is not None and bound.times == 1 and len(bound.ids) == size:
            pieces = along.reshape(bound.divide, -1)  # x[:, : c // 2]: equal pieces stay equal
            call.tie(pieces, pieces[:1])
    if start is not None and int.__ne__(int.__int__(start), 0):
        before = along[: int.__int__(start)] if int.__int__(start) > 0 else along[int.__int__(start) :]
        call.tracer.fit(before.flatten(), start, call.name)
    if stop is not None and not int.__ge__(int.__int__(stop), size):
        before = along[: int.__int__(stop)] if int.__int__(stop) > 0 else along[int.__int__(stop) :]
        call.tracer.fit(before.flatten(), stop, call.name)


def selects(call: Call) -> None:
    """select, unbind, narrow, index_select, gather, roll, unfold: maps along the dimension stay."""
    x = call.args[0]
    default = 0 if call.name == "unbind" else None
    name = {"roll": "dims", "unfold": "dimension"}.get(call.name, "dim")
    dim = call.argument(2 if call.name == "roll" else 1, name, default)
    label = call.label(x)
    dims = list(dim) if isinstance(dim, list | tuple) else [dim]
    if any(d is None or d % x.dim() in label.axes() for d in dims) and call.tracer.ties.any_made(label.ids):
        call.keep(label.ids, "selects or moves maps by their number")
    moves(call)


def assigns(call: Call) -> None:
    """x[...] = y: both keep their maps."""
    for tensor in call.tensors():
        call.keep(call.label(tensor).ids, "assigns to a part of a tensor")


def repeats(call: Call) -> None:
    """repeat and tile: each copy of a map belongs to it; a kernel that is repeated for every map belongs to these."""
    x, result = call.args[0], call.result
    given = call.argument(1, "repeats")
    sizes = list(given) if isinstance(given, list | tuple) else list(call.args[1:])
    widths = [(axis, size) for axis, size in enumerate(sizes) if isinstance(size, Width)]
    axis, size = widths[0] if len(widths) == 1 else (0, None)
    front = result.dim() - x.dim()
    once = axis < front or x.shape[axis - front] == 1
    if size is None or size.ids is None or not once or call.tracer.ties.any_made(call.label(x).ids):
        for _, other in widths:
            call.tracer.counted(other, call.name)
        moves(call)
        return
    call.keep(call.label(x).ids, "spreads one map over many")
    shape = [-1 if d == axis else 1 for d in range(result.dim())]
    call.set_label(result, size.ids.reshape(shape), torch.zeros((1,) * result.dim(), dtype=torch.int64))


def pads(call: Call) -> None:
    """F.pad: new positions belong to the maps around them, new channels to none."""
    x, amounts = call.args[0], [plain(amount) for amount in call.argument(1, "pad")]
    label = call.label(x)
    ids = label.ids
    for axis in label.axes():
        last = 2 * (x.dim() - 1 - axis)
        before, after = [*amounts[last : last + 2], 0, 0][:2] if last < len(amounts) else (0, 0)
        if before < 0 or after < 0:
            call.keep(ids, "cuts maps off")
        shape = [1] * x.dim()
        for count, front in ((before, True), (after, False)):
            if count > 0:
                shape[axis] = count
                new = torch.zeros(shape, dtype=torch.int64).expand(
                    [count if d == axis else ids.shape[d] for d in range(x.dim())]
                )
                ids = torch.cat((new, ids) if front else (ids, new), axis)
    call.set_label(call.result, ids, label.images)


def pixel_shuffle(call: Call) -> None:
    """r * r channels become one: they go together."""
    x, r = call.args[0], plain(call.argument(1, "upscale_factor"))
    ids = call.channels(x, -3)
    grouped = ids.reshape(-1, r * r)
    call.tie(grouped, grouped[:, :1])
    call.put_channels(grouped[:, 0], -3)


def patches(call: Call) -> None:
    """F.unfold: each channel becomes one for each place of the window, which go together."""
    x, result = call.args[0], call.result
    if x.dim() != 4:
        blocks(call, "reads a single image without a batch")
        return
    ids = call.channels(x).repeat_interleave(result.shape[1] // x.shape[1])
    images = call.label(x).images.amax((1, 2, 3))
    call.set_label(result, ids.reshape(1, -1, 1), images.reshape(-1, 1, 1))


def from_patches(call: Call) -> None:
    """F.fold: the inverse of F.unfold."""
    x, result = call.args[0], call.result
    if x.dim() != 3:
        blocks(call, "reads a single image without a batch")
        return
    grouped = call.channels(x).reshape(result.shape[1], -1)
    call.tie(grouped, grouped[:, :1])
    images = call.label(x).images.amax((1, 2))
    call.set_label(result, grouped[:, 0].reshape(1, -1, 1, 1), images.reshape(-1, 1, 1, 1))


def channel_shuffle(call: Call) -> None:
    """Groups are interleaved: the j-th channels of all groups go together."""
    groups = plain(call.argument(1, "groups"))
    ids = call.channels(call.args[0])
    grouped = ids.reshape(groups, -1)
    call.tie(grouped, grouped[:1])
    call.put_channels(grouped.T.flatten())


for _name in ("view", "reshape", "flatten", "unflatten", "view_as", "reshape_as", "unsafe_view", "ravel"):
    RULES[_name] = reshape
for _name in ("expand", "expand_as"):
    RULES[_name] = expand
for _name in ("cat", "concat", "concatenate", "stack"):
    RULES[_name] = joins
for _name in ("select", "unbind", "narrow", "index_select", "gather", "roll", "unfold"):
    RULES[_name] = selects
for _name in ("repeat", "tile", "repeat_interleave"):
    RULES[_name] = repeats
RULES.update({
    "chunk": chunks, "tensor_split": chunks, "split": splits, "split_with_sizes": splits, "getitem": indexes,
    "setitem": assigns, "pad": pads, "pixel_shuffle": pixel_shuffle, "channel_shuffle": channel_shuffle,
    "glu": halves, F.unfold: patches, F.fold: from_patches,
})  # fmt: skip
