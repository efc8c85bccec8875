"""What a network is, as plain integers: the number of maps of every convolution.

A pruned network is the same class with other numbers. Specs are frozen, comparable, and go to JSON
and back; they need no torch.
"""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields, replace
from itertools import accumulate
from math import prod
from operator import mul
from pathlib import Path
from typing import Any, ClassVar

from fastgaze.core.errors import ModelError
from fastgaze.core.jsonable import Document

STRIDE = 16  # input pixels per cell of every gaze network's saliency map


@dataclass(frozen=True)
class VGGSpec:
    """A plain VGG trunk: 3x3 convolutions with ReLU, a 2x2 max-pooling between blocks.

    blocks: maps of every convolution, block by block.
    taps: what the readout sees, as ``conv5_1`` (before ReLU) or ``relu5_1`` (after).
    """

    blocks: tuple[tuple[int, ...], ...]
    taps: tuple[str, ...]
    stride: ClassVar[int] = STRIDE

    def width(self, tap: str) -> int:
        """Maps of the layer that a tap names: ``relu5_2`` is the second of block 5."""
        block, layer = tap[4:].split("_")
        return self.blocks[int(block) - 1][int(layer) - 1]

    @property
    def outputs(self) -> int:
        """Maps that the readout sees."""
        return sum(self.width(tap) for tap in self.taps)

    def check(self) -> None:
        """Refuse taps that are not layers of this trunk."""
        known = {
            f"{kind}{b}_{c}"
            for b, block in enumerate(self.blocks, 1)
            for c in range(1, len(block) + 1)
            for kind in ("conv", "relu")
        }
        if not self.taps or not set(self.taps) <= known:
            raise ModelError(f"taps {list(self.taps)} are not layers of this trunk")


@dataclass(frozen=True)
class DenseNetSpec:
    """A DenseNet trunk up to its last dense block, whose concatenated maps the readout sees.

    stem: maps of the first 7x7 convolution.
    blocks: for every dense layer (maps of its 1x1 convolution, maps of its 3x3 convolution).
    transitions: maps of the 1x1 convolution between blocks, one fewer than blocks.
    """

    stem: int
    blocks: tuple[tuple[tuple[int, int], ...], ...]
    transitions: tuple[int, ...]
    stride: ClassVar[int] = STRIDE

    @property
    def outputs(self) -> int:
        """Maps that the readout sees: all those that enter the last block and all that its layers add."""
        entry = (self.stem, *self.transitions)[-1]
        return entry + sum(growth for _, growth in self.blocks[-1])

    def check(self) -> None:
        """Refuse blocks and transitions that do not alternate."""
        if len(self.transitions) != len(self.blocks) - 1:
            raise ModelError(f"{len(self.blocks)} dense blocks need {len(self.blocks) - 1} transitions")


@dataclass(frozen=True)
class LiteStage:
    """Inverted residual blocks of one width.

    kernel: of the depthwise convolutions, 3 or 5. stride: of the first block, 1 or 2; the others have 1 and add their
    input to their output, which ties the maps of all blocks together.
    expansions: for every block, maps between its first 1x1 convolution and its last.
    """

    kernel: int
    stride: int
    maps: int
    expansions: tuple[int, ...]


@dataclass(frozen=True)
class LiteSpec:
    """A mobile trunk: EfficientNet-lite or MobileNetV2.

    stem: maps of the first 3x3 convolution, of stride 2. first: maps of the block after it, which does not widen.
    padding: at stride 2, ``tensorflow`` (more zeros after than before) or ``symmetric``.
    """

    stem: int
    first: int
    stages: tuple[LiteStage, ...]
    padding: str

    @property
    def stride(self) -> int:
        """Input pixels per cell of the last stage's maps: 16 or 32."""
        return 2 * prod(stage.stride for stage in self.stages)

    @property
    def taps(self) -> tuple[int, ...]:
        """Maps that the readout sees: the last at stride 16, and the last at stride 32 if the trunk goes so far."""
        strides = accumulate((stage.stride for stage in self.stages), mul, initial=2)
        widths = dict(zip(strides, (self.first, *(stage.maps for stage in self.stages)), strict=True))
        return tuple(widths[stride] for stride in (16, 32) if stride in widths)

    @property
    def outputs(self) -> int:
        """Maps that the readout sees at stride 16."""
        return self.taps[0]

    def check(self) -> None:
        """Refuse stages that no mobile trunk has."""
        if self.padding not in ("tensorflow", "symmetric"):
            raise ModelError(f"padding {self.padding!r} is neither tensorflow nor symmetric")
        if any(not stage.expansions or stage.stride > 2 or stage.kernel % 2 == 0 for stage in self.stages):
            raise ModelError("a stage of a mobile trunk has at least one block, stride 1 or 2 and an odd kernel")
        if self.stride not in (16, 32):
            raise ModelError(f"a mobile trunk ends at stride 16 or 32, this one at {self.stride}")


Trunk = VGGSpec | DenseNetSpec | LiteSpec
# One class for each family of trunks, distinguished in JSON by their fields. A new family is one more class here, its
# layers in ``core.cost``, its module in ``networks.gaze.make_trunk`` and its weights in ``networks.backbones``; mypy
# names the place that was forgotten.
_TRUNKS: tuple[type[Trunk], ...] = (VGGSpec, DenseNetSpec, LiteSpec)


@dataclass(frozen=True)
class GazeSpec:
    """A gaze network: trunk, readout of 1x1 convolutions, tail.

    readout: maps of every 1x1 convolution; the last is 1. Where a trunk has taps at two strides, the first width is
        that of two convolutions whose maps are added.
    activation: between readout layers, ``prelu`` or ``relu``.
    """

    architecture: str
    trunk: Trunk
    readout: tuple[int, ...]
    activation: str


@dataclass(frozen=True)
class EnsembleSpec:
    """Several readouts, each with its own tail, over one trunk; their densities are averaged."""

    architecture: str
    member: GazeSpec
    members: int


Spec = GazeSpec | EnsembleSpec

VGG_BLOCKS: dict[str, tuple[tuple[int, ...], ...]] = {
    "vgg11": ((64,), (128,), (256, 256), (512, 512), (512, 512)),
    "vgg13": ((64, 64), (128, 128), (256, 256), (512, 512), (512, 512)),
    "vgg16": ((64, 64), (128, 128), (256,) * 3, (512,) * 3, (512,) * 3),
    "vgg19": ((64, 64), (128, 128), (256,) * 4, (512,) * 4, (512,) * 4),
}
_DENSENET121 = DenseNetSpec(
    stem=64,
    blocks=(((128, 32),) * 6, ((128, 32),) * 12, ((128, 32),) * 24),
    transitions=(128, 256),
)


def _lite(maps: tuple[int, ...], depths: tuple[int, ...], kernels: tuple[int, ...], padding: str) -> LiteSpec:
    """A trunk of stem 32 and a first block of 16 maps, whose blocks widen their input six times."""
    stages, maps_in = [], 16
    for width, depth, kernel, stride in zip(maps, depths, kernels, (2, 2, 2, 1, 2, 1), strict=True):
        expansions = (6 * maps_in, *(6 * width,) * (depth - 1))
        stages.append(LiteStage(kernel, stride, width, expansions))
        maps_in = width
    return LiteSpec(32, 16, tuple(stages), padding)


_LITE_KERNELS = (3, 5, 3, 5, 5, 3)
LITE_TRUNKS = {
    "efficientnet-lite0": _lite((24, 40, 80, 112, 192, 320), (2, 2, 3, 3, 4, 1), _LITE_KERNELS, "tensorflow"),
    "efficientnet-lite1": _lite((24, 40, 80, 112, 192, 320), (3, 3, 4, 4, 5, 1), _LITE_KERNELS, "tensorflow"),
    "efficientnet-lite2": _lite((24, 48, 88, 120, 208, 352), (3, 3, 4, 4, 5, 1), _LITE_KERNELS, "tensorflow"),
    "mobilenetv2": _lite((24, 32, 64, 96, 160, 320), (2, 3, 4, 3, 3, 1), (3,) * 6, "symmetric"),
}
_DEEPGAZE_TAPS = ("conv5_1", "relu5_1", "relu5_2", "conv5_3", "relu5_4")

_SPECS: dict[str, Spec] = {
    "fastgaze": GazeSpec("fastgaze", VGGSpec(VGG_BLOCKS["vgg11"], ("relu5_2",)), (32, 16, 2, 1), "prelu"),
    "densegaze": GazeSpec("densegaze", _DENSENET121, (32, 16, 2, 1), "prelu"),
    "deepgaze2": GazeSpec("deepgaze2", VGGSpec(VGG_BLOCKS["vgg19"], _DEEPGAZE_TAPS), (16, 32, 2, 1), "relu"),
    "litegaze": GazeSpec("litegaze", LITE_TRUNKS["efficientnet-lite0"], (32, 16, 2, 1), "prelu"),
}


def scaled_size(size: tuple[int, int], scale: float, stride: int = STRIDE) -> tuple[int, int]:
    """(height, width) of images whose sides are multiplied by ``scale``: the nearest multiples of ``stride``."""
    height, width = (max(round(side * scale / stride), 1) * stride for side in size)
    return height, width


def architectures() -> list[str]:
    """Names that ``spec_for`` and ``create_model`` know."""
    return sorted(_SPECS)


def spec_for(architecture: str) -> Spec:
    """The paper's unpruned spec of an architecture."""
    if architecture not in _SPECS:
        raise ModelError(f"no architecture {architecture!r}; choose from {', '.join(architectures())}")
    return _SPECS[architecture]


def spec_on(architecture: str, backbone: str | Path) -> Spec:
    """The unpruned spec of an architecture on a backbone, a name or a file; only LiteGaze has several."""
    spec = spec_for(architecture)
    if not isinstance(spec, GazeSpec) or not isinstance(spec.trunk, LiteSpec):
        return spec
    if (name := Path(backbone).stem) not in LITE_TRUNKS:
        raise ModelError(f"no mobile trunk {name!r}; choose from {', '.join(LITE_TRUNKS)}")
    return replace(spec, trunk=LITE_TRUNKS[name])


def spec_to_json(spec: Spec) -> str:
    """One line of JSON, keys sorted, so that equal specs give equal text."""
    return json.dumps(asdict(spec), sort_keys=True)


def spec_from_json(text: str) -> Spec:
    """The inverse of ``spec_to_json``; anything else is refused in one line."""
    try:
        spec = _build(json.loads(text))
        _check(spec)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ModelError(f"not a model spec: {text[:80]!r} ({error})") from error
    return spec


def _build(values: Document) -> Spec:
    if "member" in values:
        member = _build(values["member"])
        if not isinstance(member, GazeSpec):
            raise TypeError(f"an ensemble of {type(member).__name__}")
        return EnsembleSpec(values["architecture"], member, values["members"])
    frozen = {key: _freeze(value) for key, value in values.items() if key != "trunk"}
    return GazeSpec(trunk=_build_trunk(values["trunk"]), **frozen)


def _build_trunk(values: Document) -> Trunk:
    for kind in _TRUNKS:
        if {field.name for field in fields(kind)} == values.keys():
            frozen = {key: _freeze(value) for key, value in values.items()}
            if kind is LiteSpec:
                frozen["stages"] = tuple(
                    LiteStage(**{key: _freeze(value) for key, value in stage.items()}) for stage in values["stages"]
                )
            return kind(**frozen)
    raise ValueError(f"no trunk has the fields {', '.join(values)}")


def _freeze(value: Any) -> Any:
    return tuple(_freeze(item) for item in value) if isinstance(value, list) else value


def _check(spec: Spec) -> None:
    """Refuse widths below 1 and shapes that no network here has."""
    widths = list(_leaves(asdict(spec)))
    if not widths or any(type(width) is not int or width < 1 for width in widths):
        raise ModelError(f"a spec's widths must be integers of at least 1: {spec_to_json(spec)[:200]}")
    spec = spec.member if isinstance(spec, EnsembleSpec) else spec
    if spec.activation not in ("prelu", "relu"):
        raise ModelError(f"readout activation {spec.activation!r} is neither prelu nor relu")
    if not spec.readout or spec.readout[-1] != 1:
        raise ModelError(f"a readout ends in 1 map, this spec's is {list(spec.readout)}")
    spec.trunk.check()


def _leaves(value: object) -> Iterator[object]:
    """Every leaf of nested containers that is not a string."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for item in value:
            yield from _leaves(item)
    elif not isinstance(value, str):
        yield value
