"""Tiny networks with one structure each that people use: what pruning must follow through Python as it is written."""

import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Net(nn.Module):
    """A convolution of twelve maps, and one that reads them; subclasses do something in between."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Conv2d(3, 12, 3, padding=1), nn.Conv2d(12, 4, 1)

    function: Any = None

    def between(self, x: Tensor) -> Tensor:
        return x if self.function is None else self.function(self, x)

    def forward(self, x: Tensor) -> Any:
        return self.last(self.between(self.first(x)))


def between(function: Callable[[Any, Tensor], Tensor], **parts: Any) -> Callable[[], nn.Module]:
    """A network with ``function`` between its convolutions, which finds ``parts`` on the network."""

    def build() -> nn.Module:
        net = Net()
        for name, part in parts.items():
            value = part() if callable(part) and not isinstance(part, nn.Module) else part
            if isinstance(value, Tensor) and not isinstance(value, nn.Parameter) and name.startswith("buffer"):
                net.register_buffer(name, value)
            else:
                setattr(net, name, value)
        net.function = function
        return net

    return build


class LinearGate(Net):
    """Squeeze and excitation with linear layers."""

    def __init__(self) -> None:
        super().__init__()
        self.squeeze, self.excite = nn.Linear(12, 3), nn.Linear(3, 12)

    def between(self, x: Tensor) -> Tensor:
        gate = F.adaptive_avg_pool2d(x, 1).squeeze(-1).squeeze(-1)
        gate = torch.sigmoid(self.excite(F.relu(self.squeeze(gate))))
        return x * gate.unsqueeze(-1).unsqueeze(-1)


class SpatialGate(Net):
    """One channel that multiplies all."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Conv2d(12, 1, 1)

    def between(self, x: Tensor) -> Tensor:
        out: Tensor = x * self.gate(x).sigmoid()
        return out


class StackSum(Net):
    """Branches stacked, weighed by a softmax over branches, and added (selective kernels)."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2d(12, 12, 1), nn.Conv2d(12, 12, 3, padding=1)
        self.branches, self.width = 2, 12
        self.weigh = nn.Linear(12, 24)

    def between(self, x: Tensor) -> Tensor:
        both = torch.stack([self.a(x), self.b(x)], 1)
        weight = self.weigh(both.sum(1).mean((2, 3)))
        weight = weight.view(len(x), self.branches, self.width).softmax(1)
        out: Tensor = (both * weight[..., None, None]).sum(1)
        return out


class C2f(Net):
    """Chunk, a chain of bottlenecks, and everything concatenated, as in YOLO."""

    def __init__(self, split: bool = False) -> None:
        super().__init__()
        self.c, self.split = 6, split
        self.m = nn.ModuleList(nn.Conv2d(6, 6, 3, padding=1) for _ in range(2))
        self.last = nn.Conv2d(24, 4, 1)

    def between(self, x: Tensor) -> Tensor:
        parts = list(x.split((self.c, self.c), 1) if self.split else x.chunk(2, 1))  # type: ignore[no-untyped-call]
        for m in self.m:
            parts.append(parts[-1] + m(parts[-1]).relu())
        return torch.cat(parts, 1)


class Shuffle(Net):
    """Grouped convolutions with a channel shuffle between them."""

    def __init__(self) -> None:
        super().__init__()
        self.groups = 3
        self.g1, self.g2 = nn.Conv2d(12, 12, 1, groups=3), nn.Conv2d(12, 12, 1, groups=3)

    def between(self, x: Tensor) -> Tensor:
        b, c, h, w = self.g1(x).shape
        y = self.g1(x).view(b, self.groups, c // self.groups, h, w).transpose(1, 2).contiguous()
        out: Tensor = self.g2(y.view(b, c, h, w))
        return out


class UNet(nn.Module):
    """Down, up by a transposed convolution, skip by concatenation, with group normalisation."""

    def __init__(self) -> None:
        super().__init__()
        self.down1, self.down2 = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 12, 3, 2, 1)
        self.norm = nn.GroupNorm(4, 12)
        self.up, self.last = nn.ConvTranspose2d(12, 6, 2, 2), nn.Conv2d(14, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        skip = self.down1(x).relu()
        deep = self.norm(self.down2(skip)).relu()
        out: Tensor = self.last(torch.cat((skip, self.up(deep)), 1))
        return out


class Upscaler(nn.Module):
    """Sub-pixel convolution in the middle and at the end, with a global skip."""

    def __init__(self) -> None:
        super().__init__()
        self.head, self.mid, self.tail = (
            nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 24, 3, padding=1), nn.Conv2d(6, 12, 3, padding=1),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        y = F.pixel_shuffle(self.mid(self.head(x)), 2)
        return F.pixel_shuffle(self.tail(y), 2) + F.interpolate(x, scale_factor=4.0)


class TwoInputs(nn.Module):
    """An image and a vector."""

    def __init__(self) -> None:
        super().__init__()
        self.image, self.vector, self.last = nn.Conv2d(3, 8, 3), nn.Linear(5, 6), nn.Linear(14, 3)

    def forward(self, image: Tensor, vector: Tensor) -> Tensor:
        out: Tensor = self.last(torch.cat((self.image(image).relu().mean((2, 3)), self.vector(vector).relu()), 1))
        return out


class Siamese(nn.Module):
    """Two images through one trunk."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 6, 3))
        self.last = nn.Linear(6, 2)

    def forward(self, one: Tensor, other: Tensor) -> Tensor:
        out: Tensor = self.last((self.trunk(one) - self.trunk(other)).abs().mean((2, 3)))
        return out


class Mixed(Net):
    """Pieces of unequal widths, which a list of the module holds, through kernels of different sizes (MixNet)."""

    def __init__(self) -> None:
        super().__init__()
        self.splits = [8, 4]
        self.parts = nn.ModuleList(nn.Conv2d(n, n, k, padding=k // 2, groups=n) for n, k in ((8, 3), (4, 5)))

    def between(self, x: Tensor) -> Tensor:
        pieces = torch.split(x, self.splits, 1)
        return torch.cat([part(piece) for part, piece in zip(self.parts, pieces, strict=True)], 1)


class Compared(nn.Module):
    """A U-Net that asks whether the sizes fit, and a block that checks its width."""

    def __init__(self) -> None:
        super().__init__()
        self.down, self.mid = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 12, 3, 2, 1)
        self.up, self.last, self.width = nn.ConvTranspose2d(12, 8, 2, 2), nn.Conv2d(16, 2, 1), 12

    def forward(self, x: Tensor) -> Tensor:
        skip = self.down(x).relu()
        deep = self.mid(skip).relu()
        assert deep.shape[1] == self.width
        up = self.up(deep)
        if up.shape != skip.shape:
            up = F.interpolate(up, size=skip.shape[2:]) * 2
        out: Tensor = self.last(torch.cat((skip, up), 1))
        return out


class Guarded(nn.Module):
    """Adds what a layer read to what it made wherever the shapes allow it, and asks for that as it runs."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Conv2d(a, b, 3, padding=1) for a, b in ((3, 8), (8, 8), (8, 12), (12, 12)))
        self.last = nn.Conv2d(12, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            y = layer(x).relu()
            x = x + y if x.shape == y.shape else y
        out: Tensor = self.last(x)
        return out


class Branching(Net):
    """Python decides by the values and by the mode."""

    def forward(self, x: Tensor) -> Any:
        bright = float(x.sum()) > -1e9 and bool(x.mean() < 1e9)
        x = self.first(x) * 2 if self.training else self.first(x)
        for _ in range(2):
            x = x.relu() if bright else -x
        return self.last(x)


def _swish(x: Tensor) -> Tensor:
    return x * torch.sigmoid(x)


with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # deprecated, and still in many networks
    scripted = torch.jit.script(_swish)


class Norm2d(nn.LayerNorm):
    """LayerNorm over dimension 1, as timm has it."""

    def forward(self, x: Tensor) -> Tensor:
        return F.layer_norm(x.permute(0, 2, 3, 1), self.normalized_shape, self.weight, self.bias, self.eps).permute(
            0, 3, 1, 2
        )


class WrittenNorm(nn.Module):
    """The same written out, as in ConvNeXt."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight, self.bias, self.eps = nn.Parameter(torch.rand(width)), nn.Parameter(torch.rand(width)), 1e-6

    def forward(self, x: Tensor) -> Tensor:
        mean = x.mean(1, keepdim=True)
        variance = (x - mean).pow(2).mean(1, keepdim=True)
        return self.weight[:, None, None] * (x - mean) / torch.sqrt(variance + self.eps) + self.bias[:, None, None]


class LN(nn.Module):
    """Both layouts in one class, as in ConvNeXt's own code; the class's name does not say what it is."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight, self.bias, self.eps = nn.Parameter(torch.rand(width)), nn.Parameter(torch.rand(width)), 1e-6
        self.normalized_shape = (width,)

    def forward(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, self.normalized_shape, self.weight, self.bias, self.eps)


class WrittenRMSNorm(nn.Module):
    """Without the mean and on the last dimension, as in language models."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight, self.variance_epsilon = nn.Parameter(torch.rand(width)), 1e-5

    def forward(self, x: Tensor) -> Tensor:
        return self.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.variance_epsilon)


class ActNorm(nn.BatchNorm2d):
    """BatchNorm with its activation inside, as timm has it."""

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(super().forward(x))


class Standardised(nn.Conv2d):
    """Weight standardisation over the inputs, with a gain for each output, as in NF-nets."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.gain = nn.Parameter(torch.rand(self.out_channels, 1, 1, 1) + 0.5)

    def forward(self, x: Tensor) -> Tensor:
        mean, std = self.weight.mean((1, 2, 3), keepdim=True), self.weight.std((1, 2, 3), keepdim=True)
        return F.conv2d(x, self.gain * (self.weight - mean) / std, self.bias, 1, 1, 1, self.groups)


class OwnConvolution(nn.Module):
    """Scales its weight as it runs (equalised learning rates), and writes its width down."""

    def __init__(self, inputs: int, outputs: int, kernel: int) -> None:
        super().__init__()
        self.out_channels, self.scale = outputs, 1 / (inputs * kernel**2) ** 0.5
        self.kernel, self.shift = (
            nn.Parameter(torch.randn(outputs, inputs, kernel, kernel)),
            nn.Parameter(torch.rand(outputs)),
        )

    def forward(self, x: Tensor) -> Tensor:
        y = F.conv2d(x, self.kernel * self.scale, self.shift, padding=self.kernel.shape[-1] // 2)
        return y.reshape(len(x), self.out_channels, *x.shape[2:])


class OwnLinear(nn.Module):
    """x W + b for the channels of an image; W has its inputs first."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.w, self.b = nn.Parameter(torch.randn(inputs, outputs) / inputs**0.5), nn.Parameter(torch.rand(outputs))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = x @ self.w + self.b
        return out


class SamePadding(nn.Conv2d):
    """Pads by itself, as networks that came from TensorFlow do."""

    def forward(self, x: Tensor) -> Tensor:
        return F.conv2d(F.pad(x, (0, 1, 0, 1)), self.weight, self.bias)


class Video(nn.Module):
    """Three dimensions, grouped and dilated."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Conv3d(1, 8, 3, padding=1), nn.Conv3d(8, 8, 3, padding=2, dilation=2, groups=4)
        self.last = nn.Conv3d(8, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.last(self.b(self.a(x).relu()).relu())
        return out
