"""Mobile trunks: EfficientNet-lite (Tan and Le 2019, the variants without squeeze-excitation) and MobileNetV2.

Both are inverted residual blocks: a 1x1 convolution widens, a depthwise one looks around, a 1x1 convolution narrows
again without an activation, and the input is added where the shape allows it. What differs is in the spec: kernels,
widths and how a convolution of stride 2 is padded.
"""

import torch
from torch import Tensor, nn

from fastgaze.core.spec import LiteSpec, LiteStage


def padding(kernel: int, stride: int, tensorflow: bool) -> tuple[int, int]:
    """Zeros (before, after) each axis; TensorFlow's "same" has one more after than before at stride 2."""
    total = kernel - stride if tensorflow and stride == 2 else 2 * (kernel // 2)
    return total // 2, total - total // 2


class ConvNorm(nn.Module):
    """Convolution without bias, BatchNorm, and ReLU6 unless it is left out; padding that is asymmetric comes first.

    The statistics of the normalisation are those of the pretraining throughout.
    """

    def __init__(
        self,
        maps_in: int,
        maps: int,
        kernel: int = 1,
        stride: int = 1,
        *,
        depthwise: bool = False,
        tensorflow: bool = False,
        activation: bool = True,
    ) -> None:
        super().__init__()
        before, after = padding(kernel, stride, tensorflow)
        inside = before if before == after else 0
        groups = maps if depthwise else 1
        self.pad = None if before == after else nn.ZeroPad2d((before, after, before, after))
        self.conv = nn.Conv2d(maps_in, maps, kernel, stride, inside, groups=groups, bias=False)
        self.norm = nn.BatchNorm2d(maps)
        self.act = nn.ReLU6() if activation else None

    @property
    def maps(self) -> int:
        """Output maps, after any pruning."""
        return self.conv.out_channels

    def forward(self, x: Tensor) -> Tensor:
        """x (N, maps_in, h, w) -> (N, maps, h / stride, w / stride)."""
        x = self.norm(self.conv(x if self.pad is None else self.pad(x)))
        return x if self.act is None else self.act(x)


class Block(nn.Module):
    """An inverted residual block; the first of a trunk does not widen."""

    def __init__(
        self,
        maps_in: int,
        expansion: int | None,
        maps: int,
        kernel: int,
        stride: int,
        *,
        residual: bool,
        tensorflow: bool,
    ) -> None:
        super().__init__()
        width = maps_in if expansion is None else expansion
        self.expand = None if expansion is None else ConvNorm(maps_in, width)
        self.depthwise = ConvNorm(width, width, kernel, stride, depthwise=True, tensorflow=tensorflow)
        self.project = ConvNorm(width, maps, activation=False)
        self.residual = residual

    def forward(self, x: Tensor) -> Tensor:
        """x (N, maps_in, h, w) -> (N, maps, h / stride, w / stride)."""
        wide = x if self.expand is None else self.expand(x)
        new: Tensor = self.project(self.depthwise(wide))
        return x + new if self.residual else new


class LiteNet(nn.Module):
    """Stem, a block that does not widen, then stages; the readout sees the last maps at stride 16 and at stride 32."""

    def __init__(self, spec: LiteSpec) -> None:
        super().__init__()
        self.padding = spec.padding
        self.shapes = tuple((stage.kernel, stage.stride) for stage in spec.stages)
        tensorflow = spec.padding == "tensorflow"
        self.stem = ConvNorm(3, spec.stem, 3, 2, tensorflow=tensorflow)
        self.first = Block(spec.stem, None, spec.first, 3, 1, residual=False, tensorflow=tensorflow)
        self.stages = nn.ModuleList()
        maps_in = spec.first
        for stage in spec.stages:
            self.stages.append(_stage(maps_in, stage, tensorflow))
            maps_in = stage.maps

    def blocks(self, stage: int) -> list[Block]:
        """The blocks of a stage, from 0."""
        return [block for block in self.stages[stage].children() if isinstance(block, Block)]

    @property
    def spec(self) -> LiteSpec:
        """The widths that the layers have now, after any pruning."""
        stages = []
        for number, (kernel, stride) in enumerate(self.shapes):
            blocks = self.blocks(number)
            expansions = tuple(block.depthwise.maps for block in blocks)
            stages.append(LiteStage(kernel, stride, blocks[0].project.maps, expansions))
        return LiteSpec(self.stem.maps, self.first.project.maps, tuple(stages), self.padding)

    def forward(self, image: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        """image (N, 3, H, W), normalised RGB, sides multiples of the spec's stride.

        Returns the last maps at stride 16, (N, maps, H / 16, W / 16), with those at stride 32 if the trunk has any.
        """
        return self.late(self.first(self.stem(image)), 0)

    def late(self, x: Tensor, done: int) -> Tensor | tuple[Tensor, Tensor]:
        """What ``forward`` returns, from the maps of stem, first block and the first ``done`` stages."""
        near: Tensor | None = None
        stride = 2
        for number, ((_, step), stage) in enumerate(zip(self.shapes, self.stages, strict=True)):
            if step == 2 and stride == 16:
                near = x
            stride *= step
            x = stage(x) if number >= done else x
        return x if near is None else (near, x)


def _stage(maps_in: int, stage: LiteStage, tensorflow: bool) -> nn.Sequential:
    blocks = []
    for number, expansion in enumerate(stage.expansions):
        stride = stage.stride if number == 0 else 1
        blocks.append(
            Block(maps_in, expansion, stage.maps, stage.kernel, stride, residual=number > 0, tensorflow=tensorflow)
        )
        maps_in = stage.maps
    return nn.Sequential(*blocks)


State = dict[str, Tensor]


@torch.no_grad()
def load_efficientnet_lite(trunk: LiteNet, state: State, mean: Tensor, std: Tensor) -> list[str]:
    """Fill a trunk with TensorFlow's weights; returns the names of tensors that are missing or have another shape.

    The network was trained on (x - 127) / 128 of RGB 0..255. The stem is refolded to the normalisation of all models
    here, so that one pipeline serves them all; its zero padding, one row and one column, then means the mean colour
    instead of grey 127, a difference of 0.03 to 0.18 of the input's unit there and nowhere else.
    """
    faults = _copy_units(state, _efficientnet_keys(trunk), epsilon=1e-3)
    if not faults:
        scale, shift = 255 * std / 128, (255 * mean - 127) / 128
        weight = trunk.stem.conv.weight
        mean_shift = (weight * shift.view(1, 3, 1, 1)).sum((1, 2, 3))
        assert trunk.stem.norm.running_mean is not None
        trunk.stem.norm.running_mean.sub_(mean_shift)
        weight.mul_(scale.view(1, 3, 1, 1))
    return faults


def load_mobilenetv2(trunk: LiteNet, state: State) -> list[str]:
    """Fill a trunk with torchvision's weights; returns the names of tensors that are missing or have another shape."""
    return _copy_units(state, _mobilenet_keys(trunk), epsilon=1e-5)


def _units(trunk: LiteNet) -> list[tuple[int, str, ConvNorm]]:
    """(block, role, unit) of every convolution but the stem, blocks counted from 0 through all stages."""
    blocks = [trunk.first, *(block for stage in range(len(trunk.shapes)) for block in trunk.blocks(stage))]
    units = (
        (number, role, getattr(block, role))
        for number, block in enumerate(blocks)
        for role in ("expand", "depthwise", "project")
    )
    return [(number, role, unit) for number, role, unit in units if unit is not None]


def _efficientnet_keys(trunk: LiteNet) -> list[tuple[str, str, ConvNorm]]:
    """(key of the convolution, key of its normalisation, unit)."""
    norms = {"expand": "_bn0", "depthwise": "_bn1", "project": "_bn2"}
    keys = [("_conv_stem", "_bn0", trunk.stem)]
    for number, role, unit in _units(trunk):
        keys.append((f"_blocks.{number}._{role}_conv", f"_blocks.{number}.{norms[role]}", unit))
    return keys


def _mobilenet_keys(trunk: LiteNet) -> list[tuple[str, str, ConvNorm]]:
    """torchvision's: features.0 is the stem; in a block, ``conv.0`` and ``conv.1`` are pairs, the projection is not."""
    keys = [("features.0.0", "features.0.1", trunk.stem)]
    for number, role, unit in _units(trunk):
        widens = int(number > 0)
        place = {"expand": 0, "depthwise": widens, "project": 1 + widens}[role]
        stem = f"features.{number + 1}.conv.{place}"
        ends = (stem, f"features.{number + 1}.conv.{place + 1}") if role == "project" else (f"{stem}.0", f"{stem}.1")
        keys.append((*ends, unit))
    return keys


@torch.no_grad()
def _copy_units(state: State, keys: list[tuple[str, str, ConvNorm]], epsilon: float) -> list[str]:
    faults: list[str] = []
    for conv_key, norm_key, unit in keys:
        pairs = [(f"{conv_key}.weight", unit.conv.weight)]
        pairs += [
            (f"{norm_key}.{name}", getattr(unit.norm, name))
            for name in ("weight", "bias", "running_mean", "running_var")
        ]
        for key, target in pairs:
            if key not in state or state[key].shape != target.shape:
                faults.append(key)
            else:
                target.copy_(state[key])
        # Statistics never change here, so another epsilon is a shift of the variance.
        assert unit.norm.running_var is not None
        unit.norm.running_var.add_(epsilon - unit.norm.eps)
    return faults
