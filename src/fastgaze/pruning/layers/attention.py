"""nn.MultiheadAttention: whole heads are maps.

The class computes the width of a head from that of its input, so a narrower one cannot be expressed in it. When the
first head goes, the module becomes a :class:`NarrowAttention`, the same parameters with a forward pass that reads the
number of heads from the module. Saving and loading work as before, since names and shapes are the parameters' own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fastgaze.pruning.layers.layer import Handle, Layer, Position, Slicer, norms_of_rows, zeroed
from fastgaze.pruning.layers.norms import Replaced

SOURCES = ("query", "key", "value")  # arguments of attention that maps enter by


def attend(
    module: nn.MultiheadAttention,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
    inner: Callable[[Tensor], Tensor] | None = None,
) -> tuple[Tensor, Tensor | None]:
    """What nn.MultiheadAttention computes, with ``inner`` at the input of its output projection."""
    del is_causal  # the mask says it
    if not module.batch_first:
        query, key, value = (t.transpose(0, 1) for t in (query, key, value))
    weights = module.in_proj_weight.chunk(3)
    biases = (None,) * 3 if module.in_proj_bias is None else module.in_proj_bias.chunk(3)
    q, k, v = (
        F.linear(t, w, b).reshape(*t.shape[:2], module.num_heads, module.head_dim).transpose(1, 2)
        for t, w, b in zip((query, key, value), weights, biases, strict=True)
    )  # (images, heads, tokens, width of a head)
    scores = q @ k.transpose(-2, -1) / module.head_dim**0.5
    for mask in (_spread(attn_mask, len(query)), None if key_padding_mask is None else key_padding_mask[:, None, None]):
        if mask is not None:
            scores = scores.masked_fill(mask, -torch.inf) if mask.dtype == torch.bool else scores + mask
    share = F.dropout(scores.softmax(-1), module.dropout, module.training)
    heads = (share @ v).transpose(1, 2).flatten(2)
    out = module.out_proj(heads if inner is None else inner(heads))
    out = out if module.batch_first else out.transpose(0, 1)
    return out, (share.mean(1) if average_attn_weights else share) if need_weights else None


def _spread(mask: Tensor | None, images: int) -> Tensor | None:
    """(tokens, tokens) or (images * heads, tokens, tokens) for scores of four dimensions."""
    if mask is None or mask.dim() == 2:
        return mask
    return mask.reshape(images, -1, *mask.shape[1:])


class NarrowAttention(nn.MultiheadAttention):
    """Multi-head attention whose heads together are narrower than its input."""

    def forward(self, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor | None]:
        """As nn.MultiheadAttention."""
        return attend(self, *args, **kwargs)


def _on_sources(change: Callable[[Tensor], Tensor]) -> Callable[..., object]:
    """A hook that changes queries, keys and values, given by position or by name; each tensor once."""

    def before(_module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[object, object]:
        given = {**dict(zip(SOURCES, args, strict=False)), **{name: kwargs[name] for name in SOURCES if name in kwargs}}
        changed = {id(t): change(t) for t in {id(t): t for t in given.values()}.values()}
        first = tuple(changed[id(t)] for t in args[:3])
        return (*first, *args[3:]), {n: changed[id(t)] if n in SOURCES else t for n, t in kwargs.items()}

    return before


class AttentionIn(Layer):
    """Queries, keys and values from what the module reads; in_proj_weight (3 * heads * width, in)."""

    kind = "attention in"
    reads = makes = must_stay = engine = True
    sources = 3
    module: nn.MultiheadAttention

    def flops(self, positions: list[Position]) -> tuple[int, int]:
        """As three linear layers."""
        written = sum(p.read for p in positions)
        return 2 * written, written

    def weights(self) -> tuple[int, int]:
        """As three linear layers."""
        return 1, int(self.module.in_proj_bias is not None)

    def magnitudes(self) -> Tensor:
        """float64: L1 norms of the rows."""
        return norms_of_rows(self.module.in_proj_weight)

    def slice(self, cut: Slicer, keep_out: Tensor, keep_in: Tensor) -> None:
        """Rows of whole heads, columns of the input."""
        cut(self.module, "in_proj_weight", {0: keep_out, 1: keep_in})
        cut(self.module, "in_proj_bias", {0: keep_out})
        self.module.embed_dim = self.module.kdim = self.module.vdim = len(keep_in)
        self.module.num_heads = len(keep_out) // (3 * self.module.head_dim)
        self.module.__class__ = NarrowAttention
        self.module._qkv_same_embed_dim = False  # keeps nn.TransformerEncoder off its fused path

    def mask(self, keep: Callable[[], Tensor]) -> list[Handle]:
        """Zeros in queries, keys and values."""

        def zero(t: Tensor) -> Tensor:
            mask = keep()
            return t if bool(mask.all()) else zeroed(t, mask, -1)

        return [self.module.register_forward_pre_hook(_on_sources(zero), prepend=True, with_kwargs=True)]

    def probe(self, watch: Callable[[Tensor], Tensor]) -> list[Handle]:
        """Each tensor once, also where it is query, key and value at the same time."""
        return [self.module.register_forward_pre_hook(_on_sources(watch), with_kwargs=True)]


class AttentionOut(Layer):
    """The projection behind the heads; out_proj.weight (out, heads * width)."""

    kind = "attention out"
    reads = makes = must_stay = engine = True
    module: nn.MultiheadAttention

    def flops(self, positions: list[Position]) -> tuple[int, int]:
        """As a linear layer."""
        written = sum(p.read for p in positions)
        return 2 * written, written

    def weights(self) -> tuple[int, int]:
        """As a linear layer."""
        return 1, int(self.module.out_proj.bias is not None)

    def magnitudes(self) -> Tensor:
        """float64: L1 norms of the rows."""
        return norms_of_rows(self.module.out_proj.weight)

    def slice(self, cut: Slicer, keep_out: Tensor, keep_in: Tensor) -> None:
        """Rows and columns of the projection."""
        inner = self.module.out_proj
        cut(inner, "weight", {0: keep_out, 1: keep_in})
        cut(inner, "bias", {0: keep_out})
        inner.out_features, inner.in_features = len(keep_out), len(keep_in)

    def mask(self, keep: Callable[[], Tensor]) -> list[Handle]:
        """Zeros behind the heads."""
        return self._inside(lambda heads: zeroed(heads, keep(), -1))

    def probe(self, watch: Callable[[Tensor], Tensor]) -> list[Handle]:
        """Behind the heads."""
        return self._inside(watch)

    def _inside(self, inner: Callable[[Tensor], Tensor]) -> list[Handle]:
        before = self.module.__dict__.get("forward")
        outer = getattr(before, "inner", None)  # masks and probes may both be at work

        def both(heads: Tensor) -> Tensor:
            return inner(heads if outer is None else outer(heads))

        def forward(*args: Any, **kwargs: Any) -> tuple[Tensor, Tensor | None]:
            return attend(self.module, *args, **{**kwargs, "inner": both})

        forward.inner = both  # type: ignore[attr-defined]
        # The hook does nothing: nn.TransformerEncoder leaves its fused path when a module has one.
        return [Replaced(self.module, forward), self.module.register_forward_pre_hook(lambda _module, _args: None)]
