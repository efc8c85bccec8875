"""Equation 1 of the paper: trunk, readout, upsampling and blur as A X B^T, centre bias, softmax.

    Q(x, y | I) ∝ exp( U(R(F(I))) * G_sigma + log Q(x, y) )

The readout R runs before the upsampling U, on the small grid, as in the paper.
"""

from collections import OrderedDict

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fastgaze.core import operators
from fastgaze.core.center_bias import GRID
from fastgaze.core.spec import STRIDE, DenseNetSpec, GazeSpec, LiteSpec, Trunk, VGGSpec
from fastgaze.networks.densenet import DenseNet
from fastgaze.networks.lite import LiteNet
from fastgaze.networks.vgg import VGG

INITIAL_SIGMA = 8.0  # pixels: half a cell of the saliency map


def gaussian_matrix(n: int, sigma: Tensor) -> Tensor:
    """``core.operators.gaussian_matrix`` with a gradient for sigma: (n, n), rows sum to 1."""
    position = torch.arange(n, dtype=sigma.dtype, device=sigma.device)
    offset = position[:, None] - position[None, :]
    return torch.softmax(-0.5 * (offset / sigma) ** 2, dim=1)


def bilinear_matrix(n_in: int, n_out: int, like: Tensor) -> Tensor:
    """``core.operators.bilinear_matrix`` (n_out, n_in) on the device and in the type of ``like``."""
    return torch.from_numpy(operators.bilinear_matrix(n_in, n_out)).to(like)


class Readout(nn.Sequential):
    """1x1 convolutions with an activation between them: a nonlinear function of each position alone."""

    def __init__(self, maps_in: int, maps: tuple[int, ...], activation: str) -> None:
        layers: OrderedDict[str, nn.Module] = OrderedDict()
        for i, width in enumerate(maps, 1):
            layers[f"conv{i}"] = nn.Conv2d(maps_in, width, 1)
            if i < len(maps):
                layers[f"act{i}"] = nn.PReLU(width) if activation == "prelu" else nn.ReLU()
            maps_in = width
        super().__init__(layers)

    @property
    def maps(self) -> tuple[int, ...]:
        """The widths that the layers have now, after any pruning."""
        return tuple(module.out_channels for module in self if isinstance(module, nn.Conv2d))


class TwoScaleReadout(nn.Module):
    """A readout of maps at two strides: the first convolution on each, the deep one's maps upsampled by 2 and added.

    A 1x1 convolution and the upsampling can change places; this order upsamples 32 maps instead of hundreds.
    """

    def __init__(self, taps: tuple[int, int], maps: tuple[int, ...], activation: str) -> None:
        super().__init__()
        self.deep = nn.Conv2d(taps[1], maps[0], 1, bias=False)
        self.upsample = nn.Upsample(scale_factor=2, mode="bilinear", align_corners=False)
        self.layers = Readout(taps[0], maps, activation)

    @property
    def maps(self) -> tuple[int, ...]:
        """The widths that the layers have now, after any pruning."""
        return self.layers.maps

    def forward(self, features: tuple[Tensor, Tensor]) -> Tensor:
        """Maps (N, _, h, w) at stride 16 and (N, _, h / 2, w / 2) at stride 32 -> saliency (N, 1, h, w)."""
        near, deep = features
        first, *rest = self.layers
        x: Tensor = first(near) + self.upsample(self.deep(deep))
        for layer in rest:
            x = layer(x)
        return x


class Tail(nn.Module):
    """From the saliency map at stride 16 to a log density over pixels.

    Bilinear upsampling and the separable Gaussian are linear in each axis; together they are A X B^T.
    """

    log_sigma: nn.Parameter
    center_bias: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.log_sigma = nn.Parameter(torch.tensor(INITIAL_SIGMA).log())
        self.register_buffer("center_bias", torch.full(GRID, -float(torch.tensor(GRID).prod().log())))

    @property
    def sigma(self) -> Tensor:
        """Width of the blur in pixels of the network's input, learned."""
        return self.log_sigma.exp()

    def matrix(self, cells: int, pixels: int, out: int) -> Tensor:
        """(out, cells): upsample by the stride, blur, crop to the image's pixels, resample to ``out`` points."""
        blur = gaussian_matrix(STRIDE * cells, self.sigma)
        rows = (blur @ bilinear_matrix(cells, STRIDE * cells, like=blur))[:pixels]
        return rows if out == pixels else bilinear_matrix(pixels, out, like=rows) @ rows

    def forward(
        self, saliency: Tensor, image_size: tuple[int, int], size: tuple[int, int], center_bias: Tensor | None = None
    ) -> Tensor:
        """saliency (N, 1, h, w) of images of ``image_size`` -> log density (N, *size), natural log."""
        # In reduced precision a probability would be wrong by several per cent.
        with torch.autocast(saliency.device.type, enabled=False):
            x = saliency[:, 0].float()
            A = self.matrix(x.shape[1], image_size[0], size[0])
            B = self.matrix(x.shape[2], image_size[1], size[1])
            logits = A @ x @ B.T + resize_grid(self.center_bias if center_bias is None else center_bias, size)
            # Rows first, then columns: one long float32 sum loses digits that two short ones keep.
            return logits - logits.logsumexp(dim=2, keepdim=True).logsumexp(dim=1, keepdim=True)


def resize_grid(grid: Tensor, size: tuple[int, int]) -> Tensor:
    """A log density (h, w) on any grid, interpolated to ``size``; the softmax that follows normalises it."""
    rows, columns = (bilinear_matrix(n_in, n_out, like=grid) for n_in, n_out in zip(grid.shape[-2:], size, strict=True))
    return rows @ grid @ columns.T


class GazeModel(nn.Module):
    """An image in, a log density over its pixels out.

    ``network`` is the convolutional part: what is pruned and exported. ``tail`` is the rest.
    """

    def __init__(self, spec: GazeSpec) -> None:
        super().__init__()
        self.architecture = spec.architecture
        self.activation = spec.activation
        trunk = make_trunk(spec.trunk)
        readout = make_readout(spec)
        self.network = nn.Sequential(OrderedDict(trunk=trunk, readout=readout))
        self.tail = Tail()

    @property
    def trunk(self) -> VGG | DenseNet | LiteNet:
        """F of equation 1."""
        trunk = self.network.get_submodule("trunk")
        assert isinstance(trunk, VGG | DenseNet | LiteNet)
        return trunk

    @property
    def readout(self) -> Readout | TwoScaleReadout:
        """R of equation 1."""
        readout = self.network.get_submodule("readout")
        assert isinstance(readout, Readout | TwoScaleReadout)
        return readout

    @property
    def stride(self) -> int:
        """What both sides of an input must be multiples of; others are padded."""
        return self.trunk.spec.stride

    @property
    def spec(self) -> GazeSpec:
        """The widths that the layers have now, after any pruning."""
        return GazeSpec(self.architecture, self.trunk.spec, self.readout.maps, self.activation)

    def forward(self, image: Tensor, size: tuple[int, int] | None = None, center_bias: Tensor | None = None) -> Tensor:
        """image (N, 3, H, W), RGB normalised with ImageNet's mean and spread -> log density (N, H, W).

        size: of the returned map, the image's own if not given; training scores on a coarser grid.
        center_bias: log density (h, w) or (N, h, w) on any grid, in place of the model's own; zeros leave it out.
        """
        image_size = (image.shape[-2], image.shape[-1])
        saliency = self.network(pad_to_stride(image, self.stride))  # (N, 1, ceil(H / 16), ceil(W / 16)) or one more
        log_density: Tensor = self.tail(saliency, image_size, size or image_size, center_bias)
        return log_density


def make_trunk(spec: Trunk) -> VGG | DenseNet | LiteNet:
    """F of equation 1, with fresh weights."""
    match spec:
        case VGGSpec():
            return VGG(spec)
        case DenseNetSpec():
            return DenseNet(spec)
        case LiteSpec():
            return LiteNet(spec)


def make_readout(spec: GazeSpec) -> Readout | TwoScaleReadout:
    """R of equation 1, with fresh weights."""
    if isinstance(spec.trunk, LiteSpec) and len(spec.trunk.taps) == 2:
        near, deep = spec.trunk.taps
        return TwoScaleReadout((near, deep), spec.readout, spec.activation)
    return Readout(spec.trunk.outputs, spec.readout, spec.activation)


def pad_to_stride(image: Tensor, stride: int = STRIDE) -> Tensor:
    """Repeat the last row and column until both sides are multiples of ``stride``."""
    down, right = -image.shape[-2] % stride, -image.shape[-1] % stride
    return F.pad(image, (0, right, 0, down), mode="replicate") if down or right else image
