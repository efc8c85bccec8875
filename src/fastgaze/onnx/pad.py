"""Widths that the engine is fast at: maps that are always zero fill the last block.

onnxruntime computes in blocks of 16 maps with AVX-512 and of 8 with AVX2. A depthwise convolution of another width
leaves that layout, and so does a 1x1 convolution that reads fewer than 16 maps or a number that 4 does not divide: the
maps are reordered before and after it, and what is added to them is added in a pass of its own. A pruned LiteGaze then
takes longer than the unpruned one. So all widths of its trunk are rounded up.
"""

import copy
from dataclasses import replace

from fastgaze.core.spec import GazeSpec, LiteSpec, LiteStage
from fastgaze.networks import GazeModel

BLOCK = 16
QUARTER = 4
"""What the width of maps that only 1x1 convolutions read is a multiple of, if it is above ``BLOCK``."""


def padded_spec(spec: GazeSpec) -> GazeSpec:
    """``spec`` with every width of a mobile trunk rounded up to one that the engine is fast at."""
    trunk = spec.trunk
    if not isinstance(trunk, LiteSpec):
        return spec
    stages = tuple(_stage(stage) for stage in trunk.stages)
    return replace(spec, trunk=replace(trunk, stem=_up(trunk.stem, BLOCK), first=_between(trunk.first), stages=stages))


def _stage(stage: LiteStage) -> LiteStage:
    return replace(stage, maps=_between(stage.maps), expansions=tuple(_up(width, BLOCK) for width in stage.expansions))


def _between(width: int) -> int:
    """Of the maps between two blocks."""
    return _up(width, QUARTER if width > BLOCK else BLOCK)


def _up(width: int, step: int) -> int:
    return -(-width // step) * step


def padded(model: GazeModel) -> GazeModel:
    """The network at the widths of ``padded_spec``; itself where it has them already.

    It computes the same: a new map has weights, mean and bias 0 and variance 1, so that it is 0 behind its activation,
    and what reads it has weight 0.
    """
    spec = padded_spec(model.spec)
    if spec == model.spec:
        return model
    wide = GazeModel(spec)
    narrow, tensors = model.network.state_dict(), wide.network.state_dict()
    for name, tensor in tensors.items():
        tensor.fill_(1.0 if name.endswith("running_var") else 0.0)
        tensor[tuple(slice(length) for length in narrow[name].shape)] = narrow[name]
    wide.network.load_state_dict(tensors)
    wide.tail = copy.deepcopy(model.tail)
    return wide.train(model.training)
