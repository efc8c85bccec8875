"""What a network costs, from its spec alone: maps, parameters and FLOPs by the paper's formula."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from fastgaze.core.spec import STRIDE, DenseNetSpec, EnsembleSpec, GazeSpec, LiteSpec, Spec, Trunk, VGGSpec


@dataclass(frozen=True)
class LayerCost:
    """One convolution.

    height, width: of its output. parameters: its own and those of the normalisation and activation that
    belong to it. maps_in: that each of its filters reads, 1 for a depthwise convolution.
    new: whether its maps are its own. Those of a depthwise convolution belong to its input, and those that are added to
    others are theirs: they can only be removed together.
    """

    name: str
    maps_in: int
    maps: int
    kernel: int
    height: int
    width: int
    parameters: int
    new: bool = True

    @property
    def flops(self) -> int:
        """H W Cout (2 Cin K^2 + 1); the + 1 is counted also for convolutions without a bias, as the paper prints it."""
        return self.height * self.width * self.maps * (2 * self.maps_in * self.kernel**2 + 1)


def layers(spec: Spec, size: tuple[int, int]) -> list[LayerCost]:
    """Every convolution of a network for an input of ``size`` (height, width), in order."""
    if isinstance(spec, EnsembleSpec):
        return list(_ensemble(spec, size))
    return [*_trunk(spec.trunk, size), *_readout(spec, size)]


def flops(spec: Spec, size: tuple[int, int]) -> int:
    """Floating point operations for one input of ``size`` (height, width); pooling, BN and the tail are not counted."""
    return sum(layer.flops for layer in layers(spec, size))


def parameters(spec: Spec) -> int:
    """Trained numbers, the blur width of every readout among them."""
    blur_widths = spec.members if isinstance(spec, EnsembleSpec) else 1
    return sum(layer.parameters for layer in layers(spec, _ANY_SIZE)) + blur_widths


def prunable_maps(spec: Spec) -> int:
    """Maps of all convolutions, as the paper counts them: the one output map, which must stay, is among them."""
    return sum(layer.maps for layer in layers(spec, _ANY_SIZE) if layer.new)


_ANY_SIZE = (32, 32)  # where only widths matter


def _conv(
    name: str, maps_in: int, maps: int, kernel: int, size: tuple[int, int], extra: int, new: bool = True
) -> LayerCost:
    return LayerCost(name, maps_in, maps, kernel, *size, parameters=maps_in * maps * kernel**2 + extra, new=new)


def _cells(size: tuple[int, int], stride: int) -> tuple[int, int]:
    return -(-size[0] // stride), -(-size[1] // stride)


def _halve(size: tuple[int, int]) -> tuple[int, int]:
    return (size[0] + 1) // 2, (size[1] + 1) // 2


def _ensemble(spec: EnsembleSpec, size: tuple[int, int]) -> Iterator[LayerCost]:
    yield from _trunk(spec.member.trunk, size)
    for i in range(1, spec.members + 1):
        yield from (replace(layer, name=f"member{i}.{layer.name}") for layer in _readout(spec.member, size))


def _trunk(trunk: Trunk, size: tuple[int, int]) -> Iterator[LayerCost]:
    match trunk:
        case VGGSpec():
            return _vgg(trunk, size)
        case DenseNetSpec():
            return _densenet(trunk, size)
        case LiteSpec():
            return _lite(trunk, size)


def _readout(spec: GazeSpec, size: tuple[int, int]) -> Iterator[LayerCost]:
    maps_in = spec.trunk.outputs
    if isinstance(spec.trunk, LiteSpec) and len(spec.trunk.taps) == 2:
        yield _conv("readout1.deep", spec.trunk.taps[1], spec.readout[0], 1, _cells(size, 32), extra=0, new=False)
    size = _cells(size, STRIDE)
    for i, maps in enumerate(spec.readout, 1):
        slopes = maps if spec.activation == "prelu" and i < len(spec.readout) else 0
        yield _conv(f"readout{i}", maps_in, maps, 1, size, extra=maps + slopes)
        maps_in = maps


def _vgg(trunk: VGGSpec, size: tuple[int, int]) -> Iterator[LayerCost]:
    maps_in = 3
    for b, block in enumerate(trunk.blocks, 1):
        for c, maps in enumerate(block, 1):
            yield _conv(f"conv{b}_{c}", maps_in, maps, 3, size, extra=maps)
            maps_in = maps
        size = _halve(size)


def _densenet(trunk: DenseNetSpec, size: tuple[int, int]) -> Iterator[LayerCost]:
    size = _halve(size)
    yield _conv("conv0", 3, trunk.stem, 7, size, extra=2 * trunk.stem)
    size = _halve(size)
    maps_in = trunk.stem
    for b, block in enumerate(trunk.blocks, 1):
        for i, (bottleneck, growth) in enumerate(block, 1):
            name = f"denseblock{b}.denselayer{i}"
            yield _conv(f"{name}.conv1", maps_in, bottleneck, 1, size, extra=2 * maps_in)
            yield _conv(f"{name}.conv2", bottleneck, growth, 3, size, extra=2 * bottleneck)
            maps_in += growth
        if b < len(trunk.blocks):
            maps = trunk.transitions[b - 1]
            yield _conv(f"transition{b}.conv", maps_in, maps, 1, size, extra=2 * maps_in)
            maps_in, size = maps, _halve(size)


def _lite(trunk: LiteSpec, size: tuple[int, int]) -> Iterator[LayerCost]:
    size = _halve(size)
    yield _conv("stem", 3, trunk.stem, 3, size, extra=2 * trunk.stem)
    yield _conv("first.depthwise", 1, trunk.stem, 3, size, extra=2 * trunk.stem, new=False)
    yield _conv("first.project", trunk.stem, trunk.first, 1, size, extra=2 * trunk.first)
    maps_in = trunk.first
    for s, stage in enumerate(trunk.stages, 1):
        for b, width in enumerate(stage.expansions, 1):
            name = f"stage{s}.block{b}"
            yield _conv(f"{name}.expand", maps_in, width, 1, size, extra=2 * width)
            if b == 1 and stage.stride == 2:
                size = _halve(size)
            yield _conv(f"{name}.depthwise", 1, width, stage.kernel, size, extra=2 * width, new=False)
            yield _conv(f"{name}.project", width, stage.maps, 1, size, extra=2 * stage.maps, new=b == 1)
            maps_in = stage.maps
