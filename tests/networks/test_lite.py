"""Mobile trunks against plain functional code on the real files, and the parts that make them prunable."""

from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor
from torch.nn import functional as F

from fastgaze.core.cost import flops, parameters, prunable_maps
from fastgaze.core.files import cache_dir
from fastgaze.core.spec import LITE_TRUNKS, LiteSpec, spec_from_json, spec_to_json
from fastgaze.networks import create_model
from fastgaze.networks.backbones import load_backbone
from fastgaze.networks.gaze import GazeModel
from fastgaze.networks.lite import LiteNet
from fastgaze.pruning import ChannelGraph, Flops, compact, masked
from fastgaze.runtime.card import IMAGENET_MEAN, IMAGENET_STD
from fastgaze.training.prune import layer_widths, trunk_widths, with_widths
from tests.pruning.nets import removable_choice
from tests.small_models import LITE, random_model

State = dict[str, Tensor]


def _same(x: Tensor, kernel: int, stride: int) -> Tensor:
    """TensorFlow's "same" padding of an even-sized input."""
    total = max(kernel - stride, 0)
    return F.pad(x, (total // 2, total - total // 2) * 2)


def _batch_norm(state: State, name: str, x: Tensor, eps: float) -> Tensor:
    mean, variance, weight, bias = (state[f"{name}.{n}"] for n in ("running_mean", "running_var", "weight", "bias"))
    return F.batch_norm(x, mean, variance, weight, bias, eps=eps)


def _efficientnet_forward(state: State, image: Tensor) -> tuple[Tensor, Tensor]:
    """Maps before the last stride and at the end, from normalised RGB, by plain functions over the file's keys."""
    mean, std = (torch.tensor(v).view(1, 3, 1, 1) for v in (IMAGENET_MEAN, IMAGENET_STD))

    def conv_norm(x: Tensor, conv: str, norm: str, stride: int = 1, groups: int = 1) -> Tensor:
        weight = state[f"{conv}.weight"]
        x = F.conv2d(_same(x, weight.shape[-1], stride), weight, stride=stride, groups=groups)
        return _batch_norm(state, norm, x, eps=1e-3)

    # The trunk here is padded with the mean colour, so the pixels are padded before they are brought to 0..255.
    pixels = 255 * (F.pad(image, (0, 1, 0, 1)) * std + mean)
    x = F.conv2d((pixels - 127) / 128, state["_conv_stem.weight"], stride=2)
    x = _batch_norm(state, "_bn0", x, eps=1e-3).clamp(0, 6)
    count = 1 + max(int(key.split(".")[1]) for key in state if key.startswith("_blocks"))
    strided = _starts(state, count, (2, 3, 4, 6))
    near = x
    for number in range(count):
        name, old = f"_blocks.{number}", x
        stride = 2 if number in strided else 1
        if number == strided[-1]:
            near = x
        if f"{name}._expand_conv.weight" in state:
            x = conv_norm(x, f"{name}._expand_conv", f"{name}._bn0").clamp(0, 6)
        x = conv_norm(x, f"{name}._depthwise_conv", f"{name}._bn1", stride, groups=x.shape[1]).clamp(0, 6)
        x = conv_norm(x, f"{name}._project_conv", f"{name}._bn2")
        x = x + old if x.shape == old.shape else x
    return near, x


def _starts(state: State, count: int, stages: tuple[int, ...]) -> list[int]:
    """First block of the given stages, counted from 1: a stage ends where the number of maps changes."""
    widths = [len(state[f"_blocks.{number}._project_conv.weight"]) for number in range(count)]
    firsts = [number for number in range(count) if number == 0 or widths[number] != widths[number - 1]]
    return [firsts[stage - 1] for stage in stages]


def _mobilenet_forward(state: State, x: Tensor) -> tuple[Tensor, Tensor]:
    def conv_norm(x: Tensor, conv: str, norm: str, stride: int = 1, groups: int = 1) -> Tensor:
        weight = state[f"{conv}.weight"]
        x = F.conv2d(x, weight, stride=stride, padding=weight.shape[-1] // 2, groups=groups)
        return _batch_norm(state, norm, x, eps=1e-5)

    x = conv_norm(x, "features.0.0", "features.0.1", 2).clamp(0, 6)
    near = x
    for number in range(1, 18):
        name, old = f"features.{number}.conv", x
        if number == 14:
            near = x
        if number > 1:
            x = conv_norm(x, f"{name}.0.0", f"{name}.0.1").clamp(0, 6)
        place = int(number > 1)
        stride = 2 if number in (2, 4, 7, 14) else 1
        x = conv_norm(x, f"{name}.{place}.0", f"{name}.{place}.1", stride, groups=x.shape[1]).clamp(0, 6)
        x = conv_norm(x, f"{name}.{place + 1}", f"{name}.{place + 2}")
        x = x + old if x.shape == old.shape else x
    return near, x


@pytest.mark.parametrize("name", LITE_TRUNKS)
def test_trunk_reproduces_an_independent_forward_with_the_real_file(name: str) -> None:
    file = cache_dir() / f"{name}.safetensors"
    if not file.is_file():
        pytest.skip(f"{file} is not there; `make backbones` gets it")
    trunk = LiteNet(LITE_TRUNKS[name]).eval()
    load_backbone(trunk, file)
    image = torch.randn(2, 3, 64, 96, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        ours = trunk(image)
        forward = _mobilenet_forward if name == "mobilenetv2" else _efficientnet_forward
        for found, expected in zip(ours, forward(load_file(file), image), strict=True):
            assert found.shape == expected.shape
            assert float((found - expected).abs().max()) < 1e-5 * float(expected.abs().max())


SMALL = LITE.trunk
assert isinstance(SMALL, LiteSpec)
SHORT = LiteSpec(6, 4, SMALL.stages[:4], "symmetric")


def small_model(trunk: LiteSpec = SMALL) -> GazeModel:
    return random_model(replace(LITE, trunk=trunk))


def test_spec_survives_json_and_the_network() -> None:
    spec = small_model().spec
    assert spec.trunk == SMALL
    assert spec_from_json(spec_to_json(spec)) == spec


@pytest.mark.parametrize("trunk", [SMALL, SHORT], ids=["stride 32", "stride 16"])
def test_masked_network_equals_the_compacted_one_and_costs_what_its_spec_says(trunk: LiteSpec) -> None:
    model = small_model(trunk)
    graph = ChannelGraph.trace(model.network, torch.zeros(1, 3, 64, 96))
    assert len(graph.maps) == prunable_maps(model.spec)
    assert Flops((96, 64)).total(graph) == flops(model.spec, (96, 64))
    graph.mark_removed(removable_choice(graph, 0.5, 3))
    image = torch.randn(2, 3, 50, 70)
    with torch.no_grad(), masked(graph):
        expected = model(image)
    compact(graph)
    with torch.no_grad():
        assert torch.allclose(model(image), expected, atol=1e-5)
    assert Flops((96, 64)).total(graph) == flops(model.spec, (96, 64))
    again = create_model("litegaze", spec_from_json(spec_to_json(model.spec)))
    again.load_state_dict(model.state_dict())


def test_parameters_of_the_spec_are_those_of_the_network() -> None:
    model = create_model("litegaze")
    assert parameters(model.spec) == sum(p.numel() for p in model.parameters())


def test_an_image_of_any_size_has_a_density_of_its_own_size() -> None:
    with torch.no_grad():
        log_density = small_model()(torch.randn(1, 3, 45, 77))
    assert log_density.shape == (1, 45, 77)
    assert float(log_density.exp().sum()) == pytest.approx(1, abs=1e-4)


@pytest.mark.parametrize("trunk", [SMALL, SHORT], ids=["stride 32", "stride 16"])
def test_widths_go_through_a_list_and_name_every_layer_that_makes_maps(trunk: LiteSpec) -> None:
    model = small_model(trunk)
    widths = trunk_widths(trunk)
    assert with_widths(model.spec, widths, (6, 4, 2)) == model.spec
    graph = ChannelGraph.trace(model.network, torch.zeros(1, 3, 64, 96))
    named = layer_widths(model.spec)
    assert {name: len(graph.layer(name).outputs) for name in named} == named
    assert sum(named.values()) == len(graph.maps) - 1  # the output map stays
