"""Widths that the engine is fast at: maps that are always zero fill the last block of depthwise convolutions.

onnxruntime computes in blocks of 16 maps with AVX-512 and of 8 with AVX2. A depthwise convolution of another width
leaves that layout, and the maps are reordered before and after it: a pruned LiteGaze then takes longer than the
unpruned one. So the stem and the expansions, the widths that depthwise convolutions have, are rounded up.
"""

import copy
from dataclasses import replace

from fastgaze.core.spec import GazeSpec, LiteSpec
from fastgaze.networks import GazeModel
from fastgaze.networks.lite import LiteNet

BLOCK = 16


def padded_spec(spec: GazeSpec) -> GazeSpec:
    """``spec`` with every width of a depthwise convolution rounded up to a multiple of ``BLOCK``."""
    trunk = spec.trunk
    if not isinstance(trunk, LiteSpec):
        return spec
    stages = tuple(replace(stage, expansions=tuple(map(_up, stage.expansions))) for stage in trunk.stages)
    return replace(spec, trunk=replace(trunk, stem=_up(trunk.stem), stages=stages))


def _up(width: int) -> int:
    return -(-width // BLOCK) * BLOCK


def padded(model: GazeModel) -> GazeModel:
    """The network at the widths of ``padded_spec``; itself where it has them already.

    It computes the same: a new map has weights, mean and bias 0 and variance 1, so that it is 0 behind its activation,
    and what reads it has weight 0.
    """
    spec = padded_spec(model.spec).trunk
    if not isinstance(spec, LiteSpec) or spec == model.spec.trunk:
        return model
    model, trunk = copy.deepcopy(model), LiteNet(spec)
    narrow, wide = model.trunk.state_dict(), trunk.state_dict()
    for name, tensor in wide.items():
        tensor.fill_(1.0 if name.endswith("running_var") else 0.0)
        tensor[tuple(slice(length) for length in narrow[name].shape)] = narrow[name]
    trunk.load_state_dict(wide)
    model.network.set_submodule("trunk", trunk.train(model.training))
    return model
