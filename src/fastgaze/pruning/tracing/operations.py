"""What functions and methods do to maps: one rule for each sort of operation, and a dictionary of names.

A rule gets a :class:`~fastgaze.pruning.tracing.tracer.Call` and labels its result. Pointwise operations tie their
operands element by element, operations that move data are applied to the labels themselves, reductions and products
keep the maps that they add up. :func:`register` adds rules.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map_only

from fastgaze.core.errors import PruningError
from fastgaze.pruning.tracing.labels import NONE, aligned, broadcast, squeezed
from fastgaze.pruning.tracing.tracer import Call, Rule, Tracer, ruled
from fastgaze.pruning.tracing.widths import Width, plain

RULES: dict[object, Rule] = {}  # by function, by name of a function or method, or by class of module


def register(target: str | Callable[..., object] | type[nn.Module], rule: Rule) -> None:
    """Follow ``target`` by ``rule`` from now on.

    target  a class of modules (subclasses included, which become leaves), a function of torch or of yours that is
            seen by ``__torch_function__``, or the name of functions and methods
    rule    such as ``pointwise``, ``moves`` or ``blocks`` of this module, or any function that labels the result
    """
    if not (isinstance(target, str) or callable(target)):
        raise PruningError(f"cannot register {target!r}; give a class of modules, a function, or its name")
    RULES[target] = rule


def function_name(func: Any) -> str:
    """relu for F.relu, torch.relu_, Tensor.relu and aten.relu_; shape for the getter of Tensor.shape."""
    owner = getattr(func, "__self__", None)
    if type(func).__name__ == "OpOverload":
        name = func._schema.name.split("::")[-1]
    elif type(owner).__name__ == "getset_descriptor" or isinstance(owner, property):
        name = getattr(owner, "__name__", "") or getattr(getattr(owner, "fget", None), "__name__", "")
    else:
        name = getattr(func, "__name__", str(func))
    return str(name).strip("_")


def follow_function(tracer: Tracer, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run a function and label what it returns."""
    name = function_name(func)
    with ruled(tracer):
        if name in ("shape", "size") and args and isinstance(args[0], Tensor):
            return _size(tracer, args, kwargs)
        if name == "iter":  # q, k, v = x: the pieces must keep their labels
            return iter(follow_function(tracer, Tensor.unbind, (args[0],), {}))
        values, options = tree_map_only(Width, plain, (list(args), dict(kwargs)))
        call = Call(tracer, func, name, args, kwargs, None)
        sources = call.tensors()
        labels = [tracer.label(tensor) for tensor in sources]  # before an in-place operation changes anything
        result = call.result = func(*values, **options)
        if name in COSTLY or (name in PRODUCTS and any(isinstance(t, nn.Parameter) for t in sources)):
            tracer.uncounted[f"{name} ({tracer.place()})"] = None
        if name not in SIZED and name not in FACTORIES:
            for width in (leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Width)):
                tracer.counted(width, name)
        if any(bool((label.ids != NONE).any()) or label.images.numel() > 1 for label in labels):
            _apply(call, result)
        elif name in FACTORIES:
            created(call)
    return result


def _size(tracer: Tracer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    sizes = tracer.sizes(args[0])
    dim = args[1] if len(args) > 1 else kwargs.get("dim")
    return torch.Size(sizes) if dim is None else sizes[dim]


def _apply(call: Call, result: object) -> None:
    rule = RULES.get(call.target) or RULES.get(call.name)
    if any(isinstance(leaf, Tensor) for leaf in tree_leaves(result)) or call.name == "setitem":
        blocks(call) if rule is None else follow(rule, call)
    elif call.name in VALUES:
        blocks(call, "takes values out of the network")
    elif call.name in COUNTS:
        for tensor in [t for t in call.tensors() if call.name != "len" or 0 in call.label(t).axes()]:
            call.tracer.ties.keep(call.label(tensor).ids, call.tracer.note(call.name, "counts elements"))


def follow(rule: Rule, call: Call) -> None:
    """Apply a rule; a call that it does not fit is a barrier, as if there were none."""
    try:
        rule(call)
    except PruningError:
        raise
    except Exception as error:
        said = ": ".join([type(error).__name__, *str(error).splitlines()[:1]])
        blocks(call, f"does not fit the rule for it ({said})")


# rules that a user may register


def pointwise(call: Call) -> None:
    """Every element of the result comes from the elements at its place: operands are tied."""
    result = call.result
    if not isinstance(result, Tensor):
        blocks(call)
        return
    ids, images, shape = torch.zeros((1,) * result.dim(), dtype=torch.int64), None, (1,) * result.dim()
    for tensor in call.tensors():
        label = call.label(tensor)
        other, size = aligned(label.ids, result.dim()), (1,) * (result.dim() - tensor.dim()) + tuple(tensor.shape)
        ids = _joined(call, ids, shape, other, size)
        shape = tuple(max(a, b) for a, b in zip(shape, size, strict=True))
        if images is None or images.numel() == 1:
            images = aligned(label.images, result.dim())
    call.set_label(result, ids, torch.zeros_like(ids) if images is None else images)


def _joined(call: Call, ids: Tensor, shape: tuple[int, ...], other: Tensor, size: tuple[int, ...]) -> Tensor:
    """The maps of an operation on two tensors: tied, unless one is broadcast along the other's channels."""
    rank = range(len(shape))
    over_first = any(other.shape[d] > 1 and shape[d] == 1 for d in rank)
    over_second = any(ids.shape[d] > 1 and size[d] == 1 for d in rank)
    if over_first and over_second:
        call.keep(torch.cat((ids.flatten(), other.flatten())), "combines maps of different dimensions")
        return torch.zeros_like(ids.flatten()[:1]).reshape((1,) * len(shape))
    if over_first or over_second:
        single, wide = (ids, other) if over_first else (other, ids)
        if bool((single != NONE).any()):
            call.keep(single, "spreads one map over many")
        return wide
    if max((1, *shape)) == 1 or max((1, *size)) == 1:
        return torch.maximum(ids, other)
    call.tie(ids, other)
    return torch.maximum(*broadcast(ids, other))


def converts(call: Call) -> None:
    """x.to(y) and x.type_as(y): of y, only type and device matter."""
    label = call.label(call.args[0])
    call.set_label(call.result, label.ids, label.images)


def moves(call: Call) -> None:
    """The result holds elements of the arguments at other places: the operation is applied to the labels."""
    args, kwargs = tree_map_only(Width, plain, (list(call.args), dict(call.kwargs)))
    first = {id(leaf) for leaf in tree_leaves(call.args[:1])}
    moved = []
    for part in ("ids", "images"):

        def numbers(tensor: Tensor, part: str = part) -> Tensor:
            if id(tensor) not in first and not tensor.is_floating_point():
                return tensor  # an index
            value: Tensor = getattr(call.label(tensor), part)
            return value.expand(tensor.shape).to(tensor.device).contiguous()

        moved.append(call.target(*tree_map_only(Tensor, numbers, args), **tree_map_only(Tensor, numbers, kwargs)))
    _put(call.result, moved[0], moved[1], call)


def _put(result: Any, ids: Any, images: Any, call: Call) -> None:
    if isinstance(result, Tensor):
        call.set_label(result, ids.cpu(), images.cpu())
    elif isinstance(result, list | tuple):
        for parts in zip(result, ids, images, strict=True):
            _put(*parts, call)


def blocks(call: Call, why: str = "is an operation that pruning does not know") -> None:
    """A barrier: all maps that enter stay."""
    sources = call.tensors()
    call.keep(torch.cat([torch.zeros(1, dtype=torch.int64), *(call.label(t).ids.flatten() for t in sources)]), why)
    for tensor in [leaf for leaf in tree_leaves(call.result) if isinstance(leaf, Tensor)]:
        images = _batch_like(call, sources, tensor)
        call.set_label(tensor, torch.zeros((1,) * tensor.dim(), dtype=torch.int64), images)


def _batch_like(call: Call, sources: Sequence[Tensor], result: Tensor) -> Tensor:
    """Images along the first dimension, if an argument has them there and as many."""
    for source in sources:
        images = call.label(source).images
        first = images.shape[:1].numel() if images.dim() else 1
        if result.dim() and images.numel() == first > 1 and result.shape[0] == first:
            return images.flatten().reshape((-1,) + (1,) * (result.dim() - 1))
    return torch.zeros((1,) * result.dim(), dtype=torch.int64)


# reductions


def reduces(call: Call) -> None:
    """Adds up or compares along dimensions: maps along these stay."""
    x = call.args[0]
    others = [t for t in call.tensors() if t is not x]
    if others and call.name in ("max", "min"):
        pointwise(call)
        return
    if not isinstance(x, Tensor) or others:
        blocks(call)
        return
    dim = call.argument(2 if call.name in LATE_DIMS else 1, "dim", call.kwargs.get("axis", DIMS.get(call.name)))
    dims = {d % x.dim() for d in (dim if isinstance(dim, list | tuple) else [dim])} if dim is not None else None
    axes = set(range(x.dim())) if dims is None or not dims else dims
    label = call.label(x)
    if any(d in axes for d in label.axes()):
        call.keep(label.ids, "mixes the maps of a tensor")
        label = type(label)(torch.zeros_like(label.ids.flatten()[:1]).reshape((1,) * x.dim()), label.images)
    for result in (leaf for leaf in tree_leaves(call.result) if isinstance(leaf, Tensor)):
        ids, images = label.ids, label.images
        if result.dim() < x.dim():
            left = [d for d in range(x.dim()) if d not in axes]
            ids, images = (v[tuple(slice(None) if d in left else 0 for d in range(x.dim()))] for v in (ids, images))
        call.set_label(result, ids, images)


def per_channel(call: Call) -> None:
    """F.batch_norm and F.prelu: vectors with one entry for each channel of dimension 1."""
    x, *vectors = call.tensors()
    ids = call.channels(x)
    for vector in vectors:
        if vector.numel() == len(ids):
            call.tie(ids, call.label(vector).along(vector.dim() - 1, len(ids)))
    call.put_channels(ids)


def over_space(call: Call) -> None:
    """Pooling and resizing: each channel of dimension 1 by itself; a grid of places keeps its maps."""
    x = call.args[0] if call.args else call.kwargs["input"]
    ids = call.channels(x, 1 if x.dim() > 2 else 0)
    for other in [t for t in call.tensors() if t is not x]:
        if call.name == "grid_sample":
            call.keep(call.label(other).ids, "takes them for places")
        elif call.name.startswith("max_unpool"):  # the indices that pooling left
            call.tie(ids, call.channels(other, 1 if x.dim() > 2 else 0))
    for result in (leaf for leaf in tree_leaves(call.result) if isinstance(leaf, Tensor)):
        shape = [1] * result.dim()
        shape[1 if x.dim() > 2 else 0] = len(ids)
        call.set_label(result, ids.reshape(shape), call.label(x).images)


def created(call: Call) -> None:
    """zeros(b, c, h, w) with a width that was read from maps belongs to them."""
    result = call.result
    given = [leaf for arg in call.args for leaf in (arg if isinstance(arg, list | tuple) else [arg])]
    sizes = [leaf for leaf in given if isinstance(leaf, int) and not isinstance(leaf, bool)]
    if not isinstance(result, Tensor) or len(sizes) != result.dim():
        return
    widths = {d: size for d, size in enumerate(sizes) if isinstance(size, Width)}
    follows = {d: size.ids for d, size in widths.items() if size.ids is not None and len(size.ids) == result.shape[d]}
    if not follows and len(widths) == 1:  # a state that begins with zeros(b, self.hidden, h, w)
        ((axis, size),) = widths.items()
        follows[axis] = call.tracer.ties.new((result.shape[axis],), made=False)
        call.tracer.fit(follows[axis], size, call.name)
    for axis, ids in list(follows.items())[:1]:
        shape = [-1 if d == axis else 1 for d in range(result.dim())]
        call.set_label(result, ids.reshape(shape), torch.zeros((1,) * result.dim(), dtype=torch.int64))


def squeezed_roots(call: Call, ids: Tensor) -> Tensor:
    """``ids`` as they are tied now, with size 1 where they do not vary."""
    return squeezed(call.tracer.ties.roots(ids))


DIMS = dict.fromkeys(("softmax", "log_softmax", "softmin", "cumsum", "sort", "argsort", "topk", "kthvalue"), -1)
DIMS["normalize"] = 1
LATE_DIMS = {"norm", "normalize", "linalg_vector_norm", "topk", "kthvalue", "quantile"}  # another argument comes before
COUNTS = {"numel", "nelement", "len"}
VALUES = {"item", "tolist", "numpy", "array", "float", "int", "bool", "index", "equal", "allclose", "is_nonzero"}
FACTORIES = {"zeros", "ones", "empty", "full", "rand", "randn", "new_zeros", "new_ones", "new_empty", "new_full"}
COSTLY = {"linear", "bilinear", *(f"{kind}{n}d" for kind in ("conv", "conv_transpose") for n in (1, 2, 3))}
PRODUCTS = {"matmul", "rmatmul", "mm", "bmm", "einsum", "addmm", "baddbmm"}
SIZED = {  # functions whose rules look at the sizes themselves
    "view", "reshape", "unsafe_view", "unflatten", "expand", "split", "split_with_sizes", "getitem", "conv1d", "conv2d",
    "conv3d", "affine_grid", "repeat", "max_unpool1d", "max_unpool2d", "max_unpool3d",
}  # fmt: skip
_POINTWISE = """
    relu relu6 leaky_relu elu selu celu gelu silu mish sigmoid logsigmoid log_sigmoid tanh hardtanh hardswish
    hardsigmoid softplus softsign tanhshrink softshrink hardshrink threshold rrelu dropout dropout1d dropout2d
    dropout3d alpha_dropout feature_alpha_dropout feature_dropout native_dropout bernoulli
    exp exp2 expm1 log log2 log10 log1p sqrt rsqrt square abs absolute neg negative sign sgn floor ceil round trunc frac
    reciprocal sin cos tan asin acos atan sinh cosh erf erfc erfinv sinc logit xlogy nan_to_num isnan isinf isfinite
    clamp clamp_min clamp_max clip pow rpow float_power add radd iadd sub rsub isub subtract mul rmul imul multiply div
    rdiv truediv rtruediv itruediv divide true_divide floor_divide floordiv remainder fmod mod maximum minimum fmax fmin
    lerp addcmul addcdiv where atan2 hypot bitwise_and bitwise_or bitwise_xor bitwise_not logical_and logical_or
    logical_not and or xor invert eq ne lt le gt ge isclose masked_fill copysign ipow
    contiguous clone detach type float double half bfloat16 int long bool cpu cuda alias lift_fresh
    requires_grad zeros_like ones_like empty_like rand_like randn_like full_like copy to_copy data fill zero positive
    special_expit fake_quantize_per_tensor_affine real conj
""".split()  # noqa: SIM905 (one name per line would take pages)
_MOVES = """
    permute transpose swapaxes swapdims movedim moveaxis t T mT adjoint squeeze unsqueeze flip fliplr flipud rot90
    pixel_unshuffle broadcast_to atleast_2d atleast_3d meshgrid
""".split()  # noqa: SIM905 (one name per line would take pages)
_REDUCES = """
    sum mean amax amin max min var std prod norm logsumexp argmax argmin any all nansum nanmean median std_mean
    var_mean aminmax softmax log_softmax softmin normalize cumsum sort topk argsort linalg_vector_norm count_nonzero
    kthvalue quantile
""".split()  # noqa: SIM905 (one name per line would take pages)
_OVER_SPACE = """
    max_pool1d max_pool2d max_pool3d avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool1d adaptive_avg_pool2d
    adaptive_avg_pool3d adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d lp_pool1d lp_pool2d lp_pool3d
    max_pool2d_with_indices max_pool1d_with_indices interpolate upsample grid_sample upsample_nearest
    upsample_bilinear upsample_nearest2d upsample_bilinear2d max_pool2d_with_indices_backward max_unpool1d max_unpool2d
    max_unpool3d
""".split()  # noqa: SIM905 (one name per line would take pages)
for _names, _rule in ((_POINTWISE, pointwise), (_MOVES, moves), (_REDUCES, reduces), (_OVER_SPACE, over_space)):
    RULES.update(dict.fromkeys(_names, _rule))
RULES.update(dict.fromkeys(("batch_norm", "instance_norm", "prelu"), per_channel))
RULES.update(dict.fromkeys(("to", "type_as"), converts))
RULES["affine_grid"] = blocks
RULES.update(dict.fromkeys(("new_zeros", "new_ones", "new_empty", "new_full"), created))
