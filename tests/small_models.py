"""Small networks for tests: one that looks at bright things, and one with random weights of every kind of layer."""

import torch
from torch import nn

from fastgaze.core.spec import DenseNetSpec, GazeSpec, LiteSpec, LiteStage, VGGSpec
from fastgaze.networks import GazeModel
from fastgaze.networks.vgg import VGG

PLAIN = GazeSpec("fastgaze", VGGSpec(((8,), (16,), (16, 16), (16, 24), (24, 16)), ("relu5_2",)), (8, 4, 2, 1), "prelu")
DENSE = GazeSpec(
    "densegaze", DenseNetSpec(8, (((8, 4),) * 2, ((8, 4),) * 2, ((8, 4),) * 2), (8, 8)), (8, 4, 2, 1), "prelu"
)
LITE = GazeSpec(
    "litegaze",
    LiteSpec(
        6,
        4,
        (
            LiteStage(3, 2, 5, (8, 9)),
            LiteStage(5, 2, 6, (10,)),
            LiteStage(3, 2, 7, (12, 11, 10)),
            LiteStage(5, 1, 7, (9, 8)),  # as wide as the stage before it, but not added to it
            LiteStage(5, 2, 9, (12, 13)),
        ),
        "tensorflow",
    ),
    (6, 4, 2, 1),
    "prelu",
)
_BRIGHT = GazeSpec("fastgaze", VGGSpec(((1,), (1,), (1,), (1,), (1,)), ("relu5_1",)), (1,), "relu")
SMALL = {
    "fastgaze": GazeSpec("fastgaze", VGGSpec(((4,), (5,), (6, 7), (8, 9), (10, 11)), ("relu5_2",)), (6, 3, 1), "prelu"),
    "deepgaze2": GazeSpec(
        "deepgaze2", VGGSpec(((4,), (5,), (6,), (8,), (9, 9)), ("conv5_1", "relu5_1", "relu5_2")), (4, 1), "relu"
    ),
    "densegaze": GazeSpec(
        "densegaze", DenseNetSpec(6, (((5, 3), (4, 2)), ((6, 4),), ((3, 2),)), (7, 5)), (4, 2, 1), "prelu"
    ),
}


def bright_model(gain: float = 2.0, sigma: float = 8.0) -> GazeModel:
    """Saliency grows with brightness: every convolution passes its input on, the first averages the channels."""
    model = GazeModel(_BRIGHT).eval()
    with torch.no_grad():
        for module in model.network.modules():
            if isinstance(module, nn.Conv2d):
                middle = module.kernel_size[0] // 2
                module.weight.zero_()
                module.weight[:, :, middle, middle] = 1 / module.in_channels
                assert module.bias is not None
                nn.init.zeros_(module.bias)
        assert isinstance(model.trunk, VGG)
        first, last = model.trunk.conv(1, 1), model.readout.get_submodule("conv1")
        assert first.bias is not None
        assert isinstance(last, nn.Conv2d)
        first.bias.fill_(2.5)  # normalised values reach down to -2.1; ReLU must not cut them
        last.weight.fill_(gain)
        model.tail.log_sigma.fill_(sigma).log_()
        y, x = torch.linspace(-1, 1, 48)[:, None], torch.linspace(-1, 1, 64)[None, :]
        model.tail.center_bias.copy_(torch.log_softmax((-0.3 * (x**2 + y**2)).flatten(), 0).reshape(48, 64))
    return model


def random_model(spec: GazeSpec, seed: int = 0) -> GazeModel:
    """Random weights that keep the signal's size through all layers; BatchNorm statistics away from 0 and 1."""
    torch.manual_seed(seed)
    model = GazeModel(spec).eval()
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight)
        if isinstance(module, nn.BatchNorm2d):
            assert module.running_mean is not None
            assert module.running_var is not None
            module.running_mean.normal_()
            module.running_var.uniform_(0.5, 2)
            nn.init.normal_(module.weight, 1, 0.2)
            nn.init.normal_(module.bias)
    model.tail.center_bias.copy_(bright_model().tail.center_bias)
    return model


def vgg_state(blocks: tuple[tuple[int, ...], ...]) -> dict[str, torch.Tensor]:
    """Random weights in torchvision's layout: conv, relu, conv, relu, pool, ..."""
    torch.manual_seed(0)
    state, position, maps_in = {}, 0, 3
    for block in blocks:
        for maps in block:
            state[f"features.{position}.weight"] = torch.randn(maps, maps_in, 3, 3) * (2 / (9 * maps_in)) ** 0.5
            state[f"features.{position}.bias"] = torch.randn(maps) * 0.1
            maps_in, position = maps, position + 2
        position += 1
    return state
