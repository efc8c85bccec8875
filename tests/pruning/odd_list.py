"""All odd networks by name, with the shapes of their inputs and the least number of maps that may go."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.pruning import odd_sequences as sequences
from tests.pruning.odd_nets import (
    LN,
    ActNorm,
    Branching,
    C2f,
    Compared,
    Guarded,
    LinearGate,
    Mixed,
    Norm2d,
    OwnConvolution,
    OwnLinear,
    SamePadding,
    Shuffle,
    Siamese,
    SpatialGate,
    StackSum,
    Standardised,
    TwoInputs,
    UNet,
    Upscaler,
    Video,
    WrittenNorm,
    WrittenRMSNorm,
    between,
    scripted,
)  # fmt: skip
from tests.pruning.odd_transformers import ConvNeXt, Coordinates, Encoder, Named, Queries, Relative, ViT, Windows

IMAGE = (3, 8, 8)
# name -> (build, shapes of the inputs of one image, least number of maps that may go)
ODD: dict[str, tuple[Callable[[], nn.Module], list[tuple[int, ...]], int]] = {
    "linear gate": (LinearGate, [IMAGE], 15),
    "spatial gate": (SpatialGate, [IMAGE], 12),
    "stack and sum": (StackSum, [IMAGE], 24),
    "c2f": (C2f, [IMAGE], 6),
    "c2f, split": (lambda: C2f(split=True), [IMAGE], 6),
    "shuffle": (Shuffle, [IMAGE], 8),
    "u-net": (UNet, [IMAGE], 18),
    "pixel shuffle": (Upscaler, [IMAGE], 14),
    "convnext": (ConvNeXt, [IMAGE], 24),
    "vit": (ViT, [IMAGE], 50),
    "relative positions": (Relative, [IMAGE], 15),
    "encoder": (Encoder, [IMAGE], 32),
    "encoder, batch second": (lambda: Encoder(batch_first=False), [IMAGE], 32),
    "windows": (Windows, [IMAGE], 3),
    "inputs by name": (Named, [IMAGE], 12),
    "learned queries": (Queries, [IMAGE], 14),
    "a table of coordinates": (Coordinates, [IMAGE], 12),
    "affine grid": (
        between(lambda s, x: F.grid_sample(x, F.affine_grid(s.buffer_t.repeat(len(x), 1, 1),
                                                            x.size(),  # type: ignore[arg-type]  # torch's own example
                                                            align_corners=False), align_corners=False),
                buffer_t=lambda: torch.tensor([[[0.9, 0.1, 0.0], [0.0, 1.1, 0.2]]])), [IMAGE], 12,
    ),
    "two inputs": (TwoInputs, [IMAGE, (5,)], 14),
    "siamese": (Siamese, [IMAGE, IMAGE], 14),
    "control flow": (Branching, [IMAGE], 12),
    "split by a list": (Mixed, [IMAGE], 12),
    "compared sizes": (Compared, [IMAGE], 20),
    "guarded residuals": (Guarded, [IMAGE], 20),
    "gated halves": (between(lambda s, x: F.glu(x, 1), last=lambda: nn.Conv2d(6, 4, 1)), [IMAGE], 6),
    "norm of another name": (
        between(lambda s, x: s.norm(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2), norm=lambda: LN(12)), [IMAGE], 12,
    ),
    "three dimensions": (Video, [(1, 4, 6, 6)], 2),
    "one dimension": (
        lambda: nn.Sequential(nn.Conv1d(3, 8, 3), nn.ReLU(), nn.ConvTranspose1d(8, 6, 3), nn.Conv1d(6, 2, 1)),
        [(3, 9)], 14,
    ),
    "norm over channels": (between(lambda s, x: s.norm(x), norm=lambda: Norm2d(12)), [IMAGE], 12),
    "norm written out": (between(lambda s, x: s.norm(x), norm=lambda: WrittenNorm(12)), [IMAGE], 12),
    "root mean square written out": (
        between(lambda s, x: s.norm(x.movedim(1, -1)).movedim(-1, 1), norm=lambda: WrittenRMSNorm(12)), [IMAGE], 12,
    ),
    "one group": (between(lambda s, x: s.norm(x), norm=lambda: nn.GroupNorm(1, 12)), [IMAGE], 12),
    "groups": (between(lambda s, x: s.norm(x), norm=lambda: nn.GroupNorm(6, 12)), [IMAGE], 6),
    "norm with activation": (between(lambda s, x: s.norm(x), norm=lambda: ActNorm(12)), [IMAGE], 12),
    "layer scale": (between(lambda s, x: x * s.g, g=lambda: nn.Parameter(torch.rand(12, 1, 1))), [IMAGE], 12),
    "buffer": (between(lambda s, x: x * s.buffer_a, buffer_a=lambda: torch.rand(1, 12, 1, 1)), [IMAGE], 12),
    "plain tensor": (between(lambda s, x: x + s.plain, plain=lambda: torch.rand(12, 1, 1)), [IMAGE], 12),
    "bounded by a parameter": (
        between(lambda s, x: x.clamp(min=s.low), low=lambda: nn.Parameter(torch.zeros(12, 1, 1))), [IMAGE], 12,
    ),
    "spatial slices": (between(lambda s, x: x[:, :, ::2, 1:] + x[..., 1::2, :-1]), [IMAGE], 12),
    "pointwise": (
        between(lambda s, x: torch.where(x > 0, x.square(), x.detach().clamp_min(-0.5)).log1p()), [IMAGE], 12,
    ),
    "reductions that have another argument before their dimension": (
        between(lambda s, x: x.flatten(2).topk(4, 2)[0].mean(2)[:, :, None, None] + x.kthvalue(2, 3, keepdim=True)[0]
                + x / (1 + torch.linalg.vector_norm(x, 2, (2, 3), keepdim=True)) + torch.sort(x)[0]), [IMAGE], 12,
    ),
    "reduction": (between(lambda s, x: x - x.amax((2, 3), keepdim=True) + x.std(2, keepdim=True)), [IMAGE], 12),
    "by name": (between(lambda s, x: s.conv(input=x), conv=lambda: nn.Conv2d(12, 12, 1)), [IMAGE], 24),
    "scripted": (between(lambda s, x: scripted(x)), [IMAGE], 12),
    "half of the channels": (between(lambda s, x: torch.cat((x[:, : x.shape[1] // 2], x[:, x.shape[1] // 2 :]), 1)),
                             [IMAGE], 6),
    "written reshape": (between(lambda s, x: x.reshape(x.shape[0], -1, 64).reshape(x.shape[0], x.shape[1], 8, 8)),
                        [IMAGE], 12),
    "spread": (between(lambda s, x: x * x.mean((2, 3), keepdim=True).expand_as(x)), [IMAGE], 12),
    "sub-pixel module": (
        between(lambda s, x: s.up(x), up=lambda: nn.PixelShuffle(2), last=lambda: nn.Conv2d(3, 4, 1)), [IMAGE], 3,
    ),
    "unpacked tensor": (between(lambda s, x: sum(y for y in torch.stack((x, x * 2)))), [IMAGE], 12),
    "new zeros": (between(lambda s, x: torch.maximum(x, x.new_zeros(x.shape))), [IMAGE], 12),
    "standardised": (between(lambda s, x: s.conv(x), conv=lambda: Standardised(12, 12, 3)), [IMAGE], 24),
    "standardised in groups": (
        between(lambda s, x: s.conv(x), conv=lambda: Standardised(12, 12, 3, groups=3)), [IMAGE], 8,
    ),
    "a convolution of one's own": (between(lambda s, x: s.own(x), own=lambda: OwnConvolution(12, 12, 3)), [IMAGE], 24),
    "a linear layer of one's own": (
        between(lambda s, x: s.own(x.movedim(1, -1)).movedim(-1, 1), own=lambda: OwnLinear(12, 12)), [IMAGE], 24,
    ),
    "same padding": (between(lambda s, x: s.conv(x), conv=lambda: SamePadding(12, 12, 2)), [IMAGE], 24),
    "blurred": (
        between(lambda s, x: F.conv2d(x, s.buffer_k, padding=1, groups=s.channels),
                buffer_k=lambda: torch.rand(12, 1, 3, 3), channels=12), [IMAGE], 12,
    ),
    "blurred by one kernel": (
        between(lambda s, x: F.conv2d(x, s.buffer_k.expand(x.shape[1], 1, 3, 3), groups=x.shape[1]),
                buffer_k=lambda: torch.rand(1, 1, 3, 3)), [IMAGE], 12,
    ),
    "blurred by a kernel that is repeated": (
        between(lambda s, x: F.conv2d(x, s.buffer_k.repeat(x.size(1), 1, 1, 1), groups=x.size(1)),
                buffer_k=lambda: torch.rand(1, 1, 3, 3)), [IMAGE], 12,
    ),
    "zero padding of space": (between(lambda s, x: F.pad(x, (1, 1, 0, 2))), [IMAGE], 12),
    "the type of another tensor": (
        between(lambda s, x: x * torch.arange(8).to(x) + s.buffer_w.type_as(x),
                buffer_w=lambda: torch.rand(8)), [IMAGE], 12,
    ),
    "instance norm as a function": (
        between(lambda s, x: F.instance_norm(x, weight=s.w, bias=s.b), w=lambda: nn.Parameter(torch.rand(12)),
                b=lambda: nn.Parameter(torch.rand(12))), [IMAGE], 12,
    ),
    "einsum with dots": (between(lambda s, x: torch.einsum("...hw,hv->...vw", x, s.buffer_m),
                                 buffer_m=lambda: torch.rand(8, 8)), [IMAGE], 12),
    "einsum without a result": (between(lambda s, x: torch.einsum("bchw,wv", x, s.buffer_m),
                                        buffer_m=lambda: torch.rand(8, 8)), [IMAGE], 12),
    "sampled at offsets": (sequences.Offsets, [IMAGE], 12),
    "unpooled": (sequences.Unpooled, [IMAGE], 18),
    "unpooled to a shape": (
        between(lambda s, x: F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), (2, 2),
                                            output_size=x.shape)), [IMAGE], 12,
    ),
    "patches": (
        between(lambda s, x: (F.unfold(x, 3, padding=1).view(len(x), x.shape[1], 9, 8, 8) * s.buffer_k).sum(2),
                buffer_k=lambda: torch.rand(9, 1, 1)), [IMAGE], 12,
    ),
    "patches and back": (
        between(lambda s, x: F.fold(s.mix(F.unfold(x, 4, stride=4).mT).mT, x.shape[-2:], 4, stride=4),
                mix=lambda: nn.Linear(192, 192)), [IMAGE], 24,
    ),
    "windows of a tensor": (between(lambda s, x: x.unfold(2, 4, 2).amax(-1)), [IMAGE], 12),
    "latents": (sequences.Latents, [(5, 7)], 10),
    "weight norm, old": (lambda: sequences.Temporal(sequences.old_weight_norm), [(3, 12)], 26),
    "weight norm, new": (lambda: sequences.Temporal(nn.utils.parametrizations.weight_norm), [(3, 12)], 26),
    "lstm behind convolutions": (sequences.Reading, [(1, 8, 12)], 14),
    "gru on frames, one at a time": (sequences.Frames, [(4, 3, 6, 6)], 14),
    "gated waves": (sequences.Waves, [(1, 9), (3,)], 6),
    "cells": (sequences.Cells, [(5, 6)], 17),
    "convolutional lstm": (sequences.Memory, [(3, 3, 6, 6)], 11),
}  # fmt: skip


def make_odd(name: str, seed: int = 0, batch: int = 3, dtype: torch.dtype = torch.float64) -> tuple[nn.Module, Any]:
    """A network in evaluation mode and its inputs, as a tuple."""
    torch.manual_seed(seed)
    build, shapes, _ = ODD[name]
    net = build().to(dtype).eval()
    for key, value in list(net.__dict__.items()):
        if isinstance(value, Tensor):
            setattr(net, key, value.to(dtype))
    return net, tuple(torch.randn(batch, *shape, dtype=dtype) for shape in shapes)
