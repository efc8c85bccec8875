"""Widths that the engine is fast at: maps that are always zero fill the last block of its layers.

onnxruntime computes in blocks of 16 maps with AVX-512 and of 8 with AVX2. A depthwise convolution of another width
leaves that layout, and so do the layers that read maps whose number is no multiple of 8: the maps are reordered before
and after them, and a pruned LiteGaze takes longer than the unpruned one. So the stem and the expansions, the widths
that depthwise convolutions have, are rounded up to whole blocks, and what 1x1 convolutions hand on to halves of them.
"""

from dataclasses import replace

from fastgaze.core.spec import GazeSpec, LiteSpec
from fastgaze.networks import GazeModel

BLOCK = 16
HALF = 8


def padded_spec(spec: GazeSpec) -> GazeSpec:
    """``spec`` of a mobile network with its widths rounded up, but for the narrow end of the readout."""
    trunk = spec.trunk
    if not isinstance(trunk, LiteSpec):
        return spec
    stages = tuple(
        replace(stage, maps=_up(stage.maps, HALF), expansions=tuple(_up(width, BLOCK) for width in stage.expansions))
        for stage in trunk.stages
    )
    wide = replace(trunk, stem=_up(trunk.stem, BLOCK), first=_up(trunk.first, HALF), stages=stages)
    first, *rest = spec.readout
    return replace(spec, trunk=wide, readout=(_up(first, HALF), *rest) if rest else spec.readout)


def _up(width: int, multiple: int) -> int:
    return -(-width // multiple) * multiple


def padded(model: GazeModel) -> GazeModel:
    """The network at the widths of ``padded_spec``; itself where it has them already.

    It computes the same: a new map has weights, mean and bias 0 and variance 1, so that it is 0 behind its activation,
    and what reads it has weight 0.
    """
    spec = padded_spec(model.spec)
    if spec == model.spec:
        return model
    wide = GazeModel(spec).train(model.training)
    narrow, state = model.state_dict(), wide.state_dict()
    for name, tensor in state.items():
        tensor.fill_(1.0 if name.endswith("running_var") else 0.0)
        tensor[tuple(slice(length) for length in narrow[name].shape)] = narrow[name]
    wide.load_state_dict(state)
    return wide
