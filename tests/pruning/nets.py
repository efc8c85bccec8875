"""Small networks, one for each structure that pruning must handle; weights and BN statistics are random."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fastgaze.pruning import ChannelGraph, Pruner


def lenet() -> nn.Module:
    """The Caffe MNIST net: no ReLU behind the convolutions."""
    return nn.Sequential(
        nn.Conv2d(1, 20, 5), nn.MaxPool2d(2), nn.Conv2d(20, 50, 5), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(800, 500), nn.ReLU(), nn.Linear(500, 10),
    )  # fmt: skip


def vgg11(divide: int = 8) -> nn.Module:
    layers: list[nn.Module] = []
    width = 3
    for entry in (64, "M", 128, "M", 256, 256, "M", 512, 512, "M", 512, 512):
        if isinstance(entry, str):
            layers.append(nn.MaxPool2d(2))
        else:
            layers += [nn.Conv2d(width, entry // divide, 3, padding=1), nn.ReLU(inplace=True)]
            width = entry // divide
    return nn.Sequential(*layers, nn.Conv2d(width, 1, 1))


class _DenseLayer(nn.Module):
    def __init__(self, width: int, growth: int) -> None:
        super().__init__()
        self.norm1, self.conv1 = nn.BatchNorm2d(width), nn.Conv2d(width, 4 * growth, 1, bias=False)
        self.norm2, self.conv2 = nn.BatchNorm2d(4 * growth), nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv1(F.relu(self.norm1(x), inplace=True))
        out: Tensor = self.conv2(F.relu(self.norm2(x), inplace=True))
        return out


class DenseNet(nn.Module):
    """DenseNet-121's plan up to dense block 3 and a readout."""

    def __init__(self, growth: int = 8, blocks: tuple[int, ...] = (6, 12, 24)) -> None:
        super().__init__()
        width = 2 * growth
        self.stem = nn.Sequential(nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU())
        self.pool = nn.MaxPool2d(3, 2, 1)
        self.blocks, self.transitions = nn.ModuleList(), nn.ModuleList()
        for number, count in enumerate(blocks):
            self.blocks.append(nn.ModuleList(_DenseLayer(width + k * growth, growth) for k in range(count)))
            width += count * growth
            if number < len(blocks) - 1:
                halve = [nn.BatchNorm2d(width), nn.ReLU(), nn.Conv2d(width, width // 2, 1, bias=False), nn.AvgPool2d(2)]
                self.transitions.append(nn.Sequential(*halve))
                width //= 2
        self.readout = nn.Sequential(nn.Conv2d(width, 4, 1), nn.PReLU(4), nn.Conv2d(4, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        x = self.pool(self.stem(x))
        for number, block in enumerate(self.blocks):
            assert isinstance(block, nn.ModuleList)
            for layer in block:
                x = torch.cat([x, layer(x)], 1)
            if number < len(self.transitions):
                x = self.transitions[number](x)
        out: Tensor = self.readout(x)
        return out


class _Residual(nn.Module):
    def __init__(self, width: int, out: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(width, out, 3, stride, 1, bias=False), nn.BatchNorm2d(out)
        self.conv2, self.bn2 = nn.Conv2d(out, out, 3, 1, 1, bias=False), nn.BatchNorm2d(out)
        self.relu = nn.ReLU(inplace=True)
        self.short: nn.Module = nn.Identity()
        if stride > 1 or width != out:
            self.short = nn.Sequential(nn.Conv2d(width, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x: Tensor) -> Tensor:
        y = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        y += self.short(x)
        out: Tensor = self.relu(y)
        return out


class ResNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())
        self.stages = nn.Sequential(_Residual(8, 8, 1), _Residual(8, 8, 1), _Residual(8, 12, 2), _Residual(12, 12, 1))
        self.head = nn.Linear(12, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stages(self.stem(x))
        x = F.adaptive_avg_pool2d(x, 1)
        out: Tensor = self.head(x.view(x.size(0), -1))
        return out


def prelu_readout() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 12, 3, padding=1), nn.ReLU(), nn.Conv2d(12, 8, 1), nn.PReLU(8), nn.Conv2d(8, 4, 1), nn.PReLU(),
        nn.Conv2d(4, 1, 1),
    )  # fmt: skip


class Mobile(nn.Module):
    """Inverted residuals with a depthwise multiplier, a squeeze-excite gate, and a hard swish."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8), nn.Hardswish())
        self.expand = nn.Sequential(nn.Conv2d(8, 16, 1), nn.BatchNorm2d(16), nn.ReLU6())
        self.depthwise = nn.Sequential(nn.Conv2d(16, 32, 3, padding=1, groups=16), nn.BatchNorm2d(32), nn.ReLU6())
        self.squeeze, self.excite = nn.Conv2d(32, 4, 1), nn.Conv2d(4, 32, 1)
        self.project = nn.Sequential(nn.Conv2d(32, 8, 1), nn.BatchNorm2d(8))
        self.head = nn.Conv2d(8, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        y = self.depthwise(self.expand(x))
        y = y * torch.sigmoid(self.excite(F.relu(self.squeeze(y.mean((2, 3), keepdim=True)))))
        out: Tensor = self.head(x + self.project(y))
        return out


class Grouped(nn.Module):
    """A grouped convolution, one layer called twice, concatenation, interpolation."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 12, 3, padding=1)
        self.grouped = nn.Conv2d(12, 18, 3, padding=1, groups=3)
        self.twice = nn.Conv2d(18, 18, 3, padding=1)
        self.norm = nn.InstanceNorm2d(18, affine=True, track_running_stats=True)
        self.last = nn.Conv2d(30, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = F.leaky_relu(self.first(x))
        y = self.norm(F.relu(self.grouped(x)))
        y = F.relu(self.twice(F.relu(self.twice(F.max_pool2d(y, 2)))))
        y = F.interpolate(y, size=x.shape[2:], mode="bilinear", align_corners=False)
        out: Tensor = self.last(torch.cat((x, y), dim=1))
        return out


NETS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "lenet": (lenet, (1, 28, 28)),
    "vgg11": (vgg11, (3, 37, 45)),
    "densenet": (DenseNet, (3, 61, 43)),
    "resnet": (ResNet, (3, 17, 19)),
    "prelu": (prelu_readout, (3, 11, 7)),
    "mobile": (Mobile, (3, 21, 15)),
    "grouped": (Grouped, (3, 9, 14)),
}


def randomize(net: nn.Module) -> None:
    """Statistics and slopes as different from channel to channel as in a trained network."""
    for module in net.modules():
        if isinstance(module, nn.BatchNorm2d | nn.InstanceNorm2d):
            assert module.running_mean is not None
            assert module.running_var is not None
            nn.init.normal_(module.running_mean, std=0.3)
            nn.init.uniform_(module.running_var, 0.5, 2.0)
            nn.init.normal_(module.weight, 1.0, 0.3)
            nn.init.normal_(module.bias, std=0.3)
        if isinstance(module, nn.PReLU):
            nn.init.uniform_(module.weight, 0.1, 0.4)


def make(name: str, seed: int = 0, batch: int = 2, dtype: torch.dtype = torch.float32) -> tuple[nn.Module, Tensor]:
    """A network in evaluation mode and a batch for it."""
    torch.manual_seed(seed)
    build, shape = NETS[name]
    net = build().to(dtype).eval()
    randomize(net)
    return net, torch.randn(batch, *shape, dtype=dtype)


def image_losses(net: nn.Module, x: Tensor) -> Tensor:
    """(N,): a loss for each image that depends on every output."""
    y = net(x).flatten(1)
    out: Tensor = (y - torch.linspace(-1, 1, y.shape[1], dtype=y.dtype)).square().mean(1) + torch.tanh(y).mean(1)
    return out


def removable_choice(graph: ChannelGraph, share: float, seed: int) -> list[int]:
    """A random set of maps that empties no layer."""
    order = torch.randperm(len(graph.maps), generator=torch.Generator().manual_seed(seed)).tolist()
    alive = graph.alive.clone()
    chosen: list[int] = []
    for index in order:
        if len(chosen) < share * len(graph.maps) and graph.prunable[index] and graph.removable(index, alive):
            alive[index] = False
            chosen.append(index)
    return chosen


def observed(
    name: str, dtype: torch.dtype = torch.float64, **options: object
) -> tuple[nn.Module, Pruner, torch.Tensor]:
    """A network, its pruner after one observed batch, and that batch."""
    net, x = make(name, batch=3, dtype=dtype)
    pruner = Pruner(ChannelGraph.trace(net, x), **options)  # type: ignore[arg-type]
    with pruner.observe():
        image_losses(net, x).mean().backward()  # type: ignore[no-untyped-call]
    return net, pruner, x
