"""Widths of a network's layers as one list of integers, and by the names that pruning knows the layers by."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice

from fastgaze.errors import ArgumentError
from fastgaze.models.spec import GazeSpec, LiteSpec, LiteStage, Trunk, VGGSpec


def trunk_widths(trunk: Trunk) -> list[int]:
    """In order: of VGG every convolution; of a mobile trunk stem, first block, and each stage's maps and expansions."""
    if isinstance(trunk, VGGSpec):
        return [width for block in trunk.blocks for width in block]
    if isinstance(trunk, LiteSpec):
        stages = (width for stage in trunk.stages for width in (stage.maps, *stage.expansions))
        return [trunk.stem, trunk.first, *stages]
    raise ArgumentError("widths layer by layer are for VGG and mobile trunks, not for a DenseNet")


def with_widths(spec: GazeSpec, widths: Sequence[int], readout: Sequence[int]) -> GazeSpec:
    """The same network with other widths: of the trunk as ``trunk_widths`` gives them, of the hidden readout layers."""
    wanted = len(trunk_widths(spec.trunk)), len(spec.readout) - 1
    if (len(widths), len(readout)) != wanted:
        raise ArgumentError(f"give {wanted[0]} widths and {wanted[1]} readout widths for this network")
    numbers = iter(widths)
    return replace(spec, trunk=_filled(spec.trunk, numbers), readout=(*readout, 1))


def _filled(trunk: Trunk, numbers: Iterator[int]) -> Trunk:
    if isinstance(trunk, VGGSpec):
        return replace(trunk, blocks=tuple(tuple(islice(numbers, len(block))) for block in trunk.blocks))
    assert isinstance(trunk, LiteSpec)
    stem, first = islice(numbers, 2)
    stages = (
        LiteStage(stage.kernel, stage.stride, next(numbers), tuple(islice(numbers, len(stage.expansions))))
        for stage in trunk.stages
    )
    return LiteSpec(stem, first, tuple(stages), trunk.padding)


def layer_widths(spec: GazeSpec) -> dict[str, int]:
    """Width of every layer that makes maps of its own, by its name in the traced network, but for the output map."""
    trunk, names = spec.trunk, dict[str, int]()
    if isinstance(trunk, VGGSpec):
        names |= {f"trunk.conv{b}_{c}": w for b, ws in enumerate(trunk.blocks, 1) for c, w in enumerate(ws, 1)}
    if isinstance(trunk, LiteSpec):
        names |= {"trunk.stem.conv": trunk.stem, "trunk.first.project.conv": trunk.first}
        for s, stage in enumerate(trunk.stages):
            names[f"trunk.stages.{s}.0.project.conv"] = stage.maps
            names |= {f"trunk.stages.{s}.{b}.expand.conv": width for b, width in enumerate(stage.expansions)}
    two_scales = isinstance(trunk, LiteSpec) and len(trunk.taps) == 2
    readout = "readout.layers" if two_scales else "readout"
    return names | {f"{readout}.conv{i}": width for i, width in enumerate(spec.readout[:-1], 1)}
