"""DenseNet trunks (Huang et al. 2017) up to the last dense block that a gaze network reads."""

import torch
from torch import Tensor, nn

from fastgaze.core.spec import DenseNetSpec


class DenseLayer(nn.Module):
    """BN, ReLU, 1x1 convolution, BN, ReLU, 3x3 convolution; its maps join all earlier ones."""

    def __init__(self, maps_in: int, bottleneck: int, growth: int) -> None:
        super().__init__()
        self.norm1 = nn.BatchNorm2d(maps_in)
        self.relu1 = nn.ReLU()
        self.conv1 = nn.Conv2d(maps_in, bottleneck, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(bottleneck)
        self.relu2 = nn.ReLU()
        self.conv2 = nn.Conv2d(bottleneck, growth, 3, padding=1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """x (N, maps_in, h, w) -> the new maps (N, growth, h, w)."""
        x = self.conv1(self.relu1(self.norm1(x)))
        new: Tensor = self.conv2(self.relu2(self.norm2(x)))
        return new


class Transition(nn.Module):
    """BN, ReLU, 1x1 convolution, then the mean of each 2x2 window."""

    def __init__(self, maps_in: int, maps: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(maps_in)
        self.relu = nn.ReLU()
        self.conv = nn.Conv2d(maps_in, maps, 1, bias=False)
        self.pool = nn.AvgPool2d(2)

    def forward(self, x: Tensor) -> Tensor:
        """x (N, maps_in, h, w) -> (N, maps, h / 2, w / 2)."""
        pooled: Tensor = self.pool(self.conv(self.relu(self.norm(x))))
        return pooled


class DenseNet(nn.Module):
    """Module names are torchvision's, so that its weights load by key."""

    def __init__(self, spec: DenseNetSpec) -> None:
        super().__init__()
        self.depths = tuple(len(block) for block in spec.blocks)
        self.conv0 = nn.Conv2d(3, spec.stem, 7, stride=2, padding=3, bias=False)
        self.norm0 = nn.BatchNorm2d(spec.stem)
        self.relu0 = nn.ReLU()
        self.pool0 = nn.MaxPool2d(3, stride=2, padding=1)
        maps = spec.stem
        for b, block in enumerate(spec.blocks, 1):
            layers = nn.Module()
            for i, (bottleneck, growth) in enumerate(block, 1):
                layers.add_module(f"denselayer{i}", DenseLayer(maps, bottleneck, growth))
                maps += growth
            self.add_module(f"denseblock{b}", layers)
            if b < len(spec.blocks):
                self.add_module(f"transition{b}", Transition(maps, spec.transitions[b - 1]))
                maps = spec.transitions[b - 1]

    def layer(self, block: int, index: int) -> DenseLayer:
        """Dense layer ``index`` of ``block``, both from 1."""
        module = self.get_submodule(f"denseblock{block}.denselayer{index}")
        assert isinstance(module, DenseLayer)
        return module

    def transition(self, block: int) -> Transition:
        """The transition after ``block``, from 1."""
        module = self.get_submodule(f"transition{block}")
        assert isinstance(module, Transition)
        return module

    @property
    def spec(self) -> DenseNetSpec:
        """The widths that the layers have now, after any pruning."""
        blocks = tuple(
            tuple(
                (layer.conv1.out_channels, layer.conv2.out_channels)
                for layer in (self.layer(b, i) for i in range(1, depth + 1))
            )
            for b, depth in enumerate(self.depths, 1)
        )
        transitions = tuple(self.transition(b).conv.out_channels for b in range(1, len(self.depths)))
        return DenseNetSpec(self.conv0.out_channels, blocks, transitions)

    def forward(self, image: Tensor) -> Tensor:
        """image (N, 3, H, W), normalised RGB -> all maps of the last block (N, maps, H / 16, W / 16)."""
        x: Tensor = self.pool0(self.relu0(self.norm0(self.conv0(image))))
        for b, depth in enumerate(self.depths, 1):
            for i in range(1, depth + 1):
                x = torch.cat([x, self.layer(b, i)(x)], dim=1)
            if b < len(self.depths):
                x = self.transition(b)(x)
        return x
