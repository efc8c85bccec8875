"""What a network costs, from its spec alone: maps, parameters and FLOPs by the paper's formula."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from fastgaze.core.spec import STRIDE, DenseNetSpec, EnsembleSpec, GazeSpec, Spec, Trunk, VGGSpec


@dataclass(frozen=True)
class Layer:
    """One convolution.

    height, width: of its output. parameters: its own and those of the normalisation and activation that
    belong to it.
    """

    name: str
    maps_in: int
    maps: int
    kernel: int
    height: int
    width: int
    parameters: int

    @property
    def flops(self) -> int:
        """H W Cout (2 Cin K^2 + 1); the + 1 is counted also for convolutions without a bias, as the paper prints it."""
        return self.height * self.width * self.maps * (2 * self.maps_in * self.kernel**2 + 1)


def layers(spec: Spec, size: tuple[int, int]) -> list[Layer]:
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
    """Outputs of all convolutions, as the paper counts them: the one output map, which must stay, is among them."""
    return sum(layer.maps for layer in layers(spec, _ANY_SIZE))


_ANY_SIZE = (32, 32)  # where only widths matter


def _conv(name: str, maps_in: int, maps: int, kernel: int, size: tuple[int, int], extra: int) -> Layer:
    return Layer(name, maps_in, maps, kernel, *size, parameters=maps_in * maps * kernel**2 + extra)


def _halve(size: tuple[int, int]) -> tuple[int, int]:
    return (size[0] + 1) // 2, (size[1] + 1) // 2


def _ensemble(spec: EnsembleSpec, size: tuple[int, int]) -> Iterator[Layer]:
    yield from _trunk(spec.member.trunk, size)
    for i in range(1, spec.members + 1):
        yield from (replace(layer, name=f"member{i}.{layer.name}") for layer in _readout(spec.member, size))


def _trunk(trunk: Trunk, size: tuple[int, int]) -> Iterator[Layer]:
    match trunk:
        case VGGSpec():
            return _vgg(trunk, size)
        case DenseNetSpec():
            return _densenet(trunk, size)


def _readout(spec: GazeSpec, size: tuple[int, int]) -> Iterator[Layer]:
    maps_in = spec.trunk.outputs
    size = (-(-size[0] // STRIDE), -(-size[1] // STRIDE))
    for i, maps in enumerate(spec.readout, 1):
        slopes = maps if spec.activation == "prelu" and i < len(spec.readout) else 0
        yield _conv(f"readout{i}", maps_in, maps, 1, size, extra=maps + slopes)
        maps_in = maps


def _vgg(trunk: VGGSpec, size: tuple[int, int]) -> Iterator[Layer]:
    maps_in = 3
    for b, block in enumerate(trunk.blocks, 1):
        for c, maps in enumerate(block, 1):
            yield _conv(f"conv{b}_{c}", maps_in, maps, 3, size, extra=maps)
            maps_in = maps
        size = _halve(size)


def _densenet(trunk: DenseNetSpec, size: tuple[int, int]) -> Iterator[Layer]:
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
