"""Which layer a module is, and which maps it ties: rules by class, subclasses included; convolutions as functions."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from fastgaze.core.errors import PruningError
from fastgaze.pruning.layers import kinds, norms
from fastgaze.pruning.layers.attention import SOURCES, AttentionIn, AttentionOut, NarrowAttention
from fastgaze.pruning.layers.handmade import Handmade, Weight, weight_of
from fastgaze.pruning.layers.layer import Images, Layer
from fastgaze.pruning.layers.weights import is_computed
from fastgaze.pruning.tracing.operations import RULES, blocks, follow, pointwise
from fastgaze.pruning.tracing.tracer import NOTHING, Call, Rule
from fastgaze.pruning.tracing.widths import Width, plain


def module_rule(module: nn.Module, args: tuple[object, ...] = ()) -> Rule | None:
    """The rule of the first class in the order of inheritance that has one, or of what the module does to ``args``."""
    for cls in type(module).__mro__:
        if cls in RULES:
            return partial(follow, RULES[cls])
    if len(args) == 1 and isinstance(args[0], Tensor):
        if norms.handmade(module, args[0]):
            return partial(follow, layer_norm)
        if (weight := weight_of(module, args[0])) is not None:
            return partial(follow, partial(handmade, weight))
    return None


def images_of(call: Call, x: Tensor, axis: int = 1, *ids: Tensor) -> Images:
    """Where the batch is in what a layer reads along ``axis``; the first dimension where the trace cannot tell.

    What comes from parameters alone has a batch only if it was spread over one (the queries of a decoder). Without
    one there is no signal of single images, and the maps ``ids`` that are read there stay.
    """
    images = call.label(x).images.amax(axis % x.dim(), keepdim=True)  # beside a state that begins with zeros
    axes = [d for d, n in enumerate(images.shape) if n > 1]
    if not axes and call.tracer.batch > 1:
        axes = [d for d, n in enumerate(x.shape) if n == call.tracer.batch and d != axis % x.dim()]
        if len(axes) != 1:
            reason = call.tracer.note(call.name, "reads what does not depend on the images")
            call.tracer.ties.keep(torch.cat([NOTHING, *ids]), reason)
        return Images(axes[0]) if len(axes) == 1 else Images()
    if len(axes) != 1:
        return Images()
    values = images.flatten()
    rows = torch.bincount(values)
    if int(rows.min()) != int(rows.max()):  # edges of a graph, or images that were chosen by their values
        reason = call.tracer.note(call.name, "reads more of some images than of others")
        call.tracer.ties.keep(torch.cat([NOTHING, *ids]), reason)
        return Images(axes[0])
    if len(values) == call.tracer.batch:
        return Images(axes[0])
    count = len(rows)
    inner = bool((values[:count] == torch.arange(count)).all()) and count < len(values)
    return Images(axes[0], inner, len(values) // count)


def source(call: Call) -> Tensor:
    """What a module reads, given by position or by name."""
    x = call.args[0] if call.args else next(iter(call.kwargs.values()))
    assert isinstance(x, Tensor)
    return x


def keep_computed(call: Call, *ids: Tensor) -> None:
    """A weight that is computed in every pass can rarely be sliced: what the layer reads and makes stays."""
    if is_computed(call.target):
        call.keep(torch.cat(ids), "computes its weight (spectral_norm and such); make it a plain parameter first")


def makes(call: Call, kind: Callable[..., Layer], inputs: Tensor, width: int, axis: int = 1) -> None:
    """A layer that reads maps and makes new ones."""
    x = source(call)
    outputs = call.new_maps(width)
    made = kind(call.path, call.target, inputs, outputs, axis=axis, images=images_of(call, x, axis, inputs))
    call.put_channels(call.layer(made).outputs, axis, like=x)


def carries(call: Call, kind: type[Layer], ids: Tensor, axis: int = 1) -> None:
    """A layer whose outputs belong to the maps that it reads."""
    call.layer(kind(call.path, call.target, NOTHING, ids, axis=axis))
    call.put_channels(ids, axis, like=source(call))


def tie_groups(call: Call, ids: Tensor, groups: int) -> None:
    """Groups keep equal widths: the j-th channels of all groups go together."""
    grouped = ids.reshape(groups, -1)
    call.tie(grouped, grouped[:1])


def convolution(call: Call) -> None:
    """Dense, grouped and depthwise convolutions, transposed ones too."""
    module: Any = call.target
    x = source(call)
    if x.dim() != len(module.kernel_size) + 2:
        blocks(call, "reads a single image without a batch")
        return
    transposed = isinstance(module, nn.modules.conv._ConvTransposeNd)
    ids, groups = call.channels(x), module.groups
    if 1 < groups == module.in_channels:
        spread = ids.repeat_interleave(module.out_channels // groups)
        carries(call, kinds.DepthwiseTransposed if transposed else kinds.Depthwise, spread)
        keep_computed(call, ids)
        return
    tie_groups(call, ids, groups)
    kind: type[Layer] | None = kinds.Transposed if transposed else _plain_or_standardised(call, ids)
    makes(call, kind or kinds.Convolution, ids, module.out_channels)
    outputs = call.channels(call.result)
    tie_groups(call, outputs, groups)
    keep_computed(call, ids, outputs)
    if kind is None:
        call.keep(torch.cat((ids, outputs)), "uses its weight in a way that does not work with fewer channels")


def _plain_or_standardised(call: Call, ids: Tensor) -> type[Layer] | None:
    """How a convolution computes its weight; None if it cannot be narrowed, as with a mask of the weight's shape."""
    if "weight" not in call.target._parameters:
        return kinds.Convolution  # weight_norm, or kept by keep_computed
    try:
        standardised = kinds.Standardised(call.path, call.target, ids, NOTHING).needed(source(call), call.result)
    except Exception:
        return None
    return kinds.Standardised if standardised else kinds.Convolution


def linear(call: Call) -> None:
    """A linear layer, on features or on tokens."""
    ids = call.channels(source(call), -1)
    makes(call, kinds.Linear, ids, call.target.out_features, -1)
    keep_computed(call, ids, call.channels(call.result, -1))


def handmade(weight: Weight, call: Call) -> None:
    """A layer of somebody's own class."""
    ids = call.channels(source(call), weight.axis)
    width = call.target.get_parameter(weight.name).shape[weight.rows]
    makes(call, partial(Handmade, weight=weight), ids, width, weight.axis)


def embedding(call: Call) -> None:
    """Vectors of words: features are maps."""
    made = kinds.Embedding(call.path, call.target, NOTHING, call.new_maps(call.target.embedding_dim), axis=-1)
    call.put_channels(call.layer(made).outputs, -1)


def channel_norm(call: Call) -> None:
    """Batch and instance normalisation."""
    module: Any = call.target
    if isinstance(module, nn.modules.batchnorm._BatchNorm) and module.running_mean is None:
        raise PruningError(
            f"{call.name} has no running statistics, so that the images of a batch depend on each other and have no "
            "signals of their own; use track_running_stats=True"
        )
    carries(call, kinds.ChannelNorm, call.channels(source(call), 1 if source(call).dim() > 1 else 0))


def group_norm(call: Call) -> None:
    """Whole groups go together; with one group, the norm over channels."""
    groups = call.target.num_groups
    if groups == 1:
        layer_norm(call)
        return
    ids = call.channels(source(call))
    grouped = ids.reshape(groups, -1)
    call.tie(grouped, grouped[:, :1])
    carries(call, kinds.GroupNorm, ids)


def layer_norm(call: Call) -> None:
    """Normalisation over channels."""
    x = source(call)
    found = norms.recognised(call.target, x, call.result)
    if found is None:
        blocks(call, "normalises over more than its channels, or does more than its class")
        return
    axis, centered, whole = found
    ids = call.channels(x, axis)
    images = images_of(call, x, axis, ids)
    call.layer(norms.LayerNorm(
        call.path, call.target, NOTHING, ids, axis=axis, images=images, centered=centered, whole=whole
    ))  # fmt: skip
    call.put_channels(ids, axis, like=x)


def prelu(call: Call) -> None:
    """One slope for each channel, or one for all."""
    x = source(call)
    if x.dim() > 1 and call.target.num_parameters == x.shape[1]:
        carries(call, kinds.PReLU, call.channels(x))
    else:
        pointwise(call)


def attention(call: Call) -> None:
    """nn.MultiheadAttention: heads are maps."""
    module: Any = call.target
    odd = module.in_proj_weight is None or module.bias_k is not None or module.add_zero_attn
    q, k, v = (call.argument(n, name) for n, name in enumerate(SOURCES))
    if type(module).forward not in (nn.MultiheadAttention.forward, NarrowAttention.forward):
        blocks(call, "has a forward pass of its own, which fewer heads would replace")
        return
    if odd or q.dim() != 3:
        blocks(call, "has keys or values of another width, extra tokens, or no batch")
        return
    ids = call.channels(q, -1)
    for other in (k, v):
        call.tie(ids, call.channels(other, -1))
    heads = call.new_maps(module.num_heads).repeat_interleave(module.head_dim)
    where = images_of(call, q, -1, ids)
    inside = AttentionIn(f"{call.path}.in_proj", module, ids, heads.repeat(3), axis=-1, images=where)
    heads = call.layer(inside).outputs[: len(heads)]
    # Behind the heads the batch comes first, whatever the module's layout.
    out = AttentionOut(f"{call.path}.out_proj", module, heads, call.new_maps(module.embed_dim), axis=-1)
    recorded = call.layer(out)
    recorded.positions[-1] = inside.measure(q, None, call.tracer.batch)
    outputs = recorded.outputs
    if call.result[1] is not None:
        call.tracer.hold_if_used(call.result[1], heads, call.name, "hands out what all heads look at")
    images = call.label(q).images  # queries that are parameters get theirs from what they look at
    call.set_label(call.result[0], outputs.reshape(1, 1, -1), images if images.numel() > 1 else call.label(k).images)


def filters(call: Call) -> None:
    """F.conv1d to F.conv3d with one filter for each channel (blurring, computed kernels); maps of others stay."""
    x, weight, groups = call.args[0], call.argument(1, "weight"), call.argument(6, "groups", 1)
    channels = x.shape[1] if x.dim() == weight.dim() else 0
    if not 1 < channels == plain(groups) == len(weight):
        if isinstance(groups, Width):
            call.tracer.counted(groups, call.name)
        blocks(call, "reads maps with a weight that is not a layer's")
        return
    ids = call.channels(x)
    for tensor in (weight, call.argument(2, "bias")):
        if isinstance(tensor, Tensor):
            call.tie(ids, _rows(call, tensor))
    call.tracer.fit(ids, groups, call.name)
    call.put_channels(ids)


def _rows(call: Call, tensor: Tensor) -> Tensor:
    """int64 (size of dimension 0,): the map of every row; what varies inside of a row is tied."""
    ids = call.label(tensor).ids
    inside = ids.flatten(1) if ids.dim() > 1 else ids[:, None]
    call.tie(inside, inside[:, :1])
    return inside[:, 0].expand(len(tensor))


RULES.update({
    nn.modules.conv._ConvNd: convolution, nn.Linear: linear, nn.Embedding: embedding,
    nn.modules.batchnorm._BatchNorm: channel_norm, nn.modules.instancenorm._InstanceNorm: channel_norm,
    nn.GroupNorm: group_norm, nn.LayerNorm: layer_norm, nn.PReLU: prelu, nn.MultiheadAttention: attention,
})  # fmt: skip
RULES.update(dict.fromkeys(("conv1d", "conv2d", "conv3d"), filters))
if hasattr(nn, "RMSNorm"):
    RULES[nn.RMSNorm] = layer_norm
