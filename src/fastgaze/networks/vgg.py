"""Plain VGG trunks (Simonyan and Zisserman 2014): an architecture is a list of widths."""

import torch
from torch import Tensor, nn

from fastgaze.core.spec import VGGSpec


class VGG(nn.Module):
    """3x3 convolutions with ReLU, a 2x2 max-pooling between blocks, taps concatenated.

    Layers are named as in the literature, ``conv3_2``: block 3, second convolution.
    """

    def __init__(self, spec: VGGSpec) -> None:
        super().__init__()
        self.depths = tuple(len(block) for block in spec.blocks)
        self.taps = spec.taps
        maps_in = 3
        for b, block in enumerate(spec.blocks, 1):
            for c, maps in enumerate(block, 1):
                self.add_module(f"conv{b}_{c}", nn.Conv2d(maps_in, maps, 3, padding=1))
                maps_in = maps
        self.relu = nn.ReLU()
        self.pool = nn.MaxPool2d(2)

    def conv(self, block: int, index: int) -> nn.Conv2d:
        """Convolution ``index`` of ``block``, both from 1."""
        module = self.get_submodule(f"conv{block}_{index}")
        assert isinstance(module, nn.Conv2d)
        return module

    @property
    def spec(self) -> VGGSpec:
        """The widths that the layers have now, after any pruning."""
        blocks = tuple(
            tuple(self.conv(b, c).out_channels for c in range(1, depth + 1)) for b, depth in enumerate(self.depths, 1)
        )
        return VGGSpec(blocks, self.taps)

    def forward(self, image: Tensor) -> Tensor:
        """image (N, 3, H, W), normalised RGB -> taps (N, maps, H / 16, W / 16)."""
        features = []
        x = image
        for b, depth in enumerate(self.depths, 1):
            if b > 1:
                x = self.pool(x)
            for c in range(1, depth + 1):
                linear = self.conv(b, c)(x)
                x = self.relu(linear)
                if f"conv{b}_{c}" in self.taps:
                    features.append(linear)
                if f"relu{b}_{c}" in self.taps:
                    features.append(x)
        return torch.cat(features, dim=1) if len(features) > 1 else features[0]
