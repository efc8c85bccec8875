"""Weights that a module computes from other parameters in every pass.

Weight normalisation, w = g v / |v|, can be narrowed exactly: where v loses channels, its norm falls, and g falls with
it, so that what is left of w stays as it was. Other computations (spectral norm, the masks of torch.nn.utils.prune)
have no parameter that could make up for that, and their maps stay.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import _WeightNorm
from torch.nn.utils.weight_norm import WeightNorm

from fastgaze.pruning.layers.layer import Slicer


class Normalised(NamedTuple):
    """Where a weight-normalised module has its parameters.

    holder     the module that has them
    gain       name of g
    direction  name of v
    dim        the dimension of v that g has, -1 if one gain is for all
    """

    holder: Any
    gain: str
    direction: str
    dim: int

    def norms(self) -> Tensor:
        """|v| in the shape of g."""
        found: Tensor = torch.norm_except_dim(getattr(self.holder, self.direction).detach(), 2, self.dim)
        return found


def normalised(module: nn.Module) -> Normalised | None:
    """The parameters of weight_norm, old (a hook) or new (a parametrization); None if the module has none."""
    for hook in module._forward_pre_hooks.values():
        if isinstance(hook, WeightNorm) and hook.name == "weight":
            return Normalised(module, "weight_g", "weight_v", hook.dim)
    steps: Any = getattr(getattr(module, "parametrizations", None), "weight", ())
    if len(steps) == 1 and isinstance(steps[0], _WeightNorm):
        return Normalised(steps, "original0", "original1", steps[0].dim)
    return None


def is_computed(module: nn.Module) -> bool:
    """Whether the weight is computed in a way that cannot be narrowed."""
    own = type(module).forward.__module__.startswith("torch.nn")  # a class of somebody's own may do anything
    return "weight" not in module._parameters and not (own and normalised(module))


def cut_weight(cut: Slicer, module: nn.Module, index: Mapping[int, Tensor]) -> None:
    """Keep ``index[axis]`` along each given axis of the weight, however it is stored."""
    found = normalised(module)
    if found is None:
        cut(module, "weight", index)
        return
    before = found.norms()
    cut(found.holder, found.direction, index)
    if found.dim in index:
        cut(found.holder, found.gain, {found.dim: index[found.dim]})
        before = before.index_select(found.dim, index[found.dim].to(before.device))
    after = found.norms()
    empty = after == 0  # what is left of v gives no direction: w is 0 there, and any direction will do
    getattr(found.holder, found.direction).data.add_(empty)
    getattr(found.holder, found.gain).data.mul_(torch.where(empty, 0, after / before))
    if found.holder is module:  # the hook computes this one in the next pass
        module.weight = torch._weight_norm(module.weight_v, module.weight_g, found.dim).detach()
