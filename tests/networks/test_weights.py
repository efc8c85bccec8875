"""Backbones: real files where they are, files that the test writes elsewhere, refusals in one line."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch.nn import functional as F

from fastgaze.core.errors import BackboneError
from fastgaze.core.files import cache_dir
from fastgaze.core.spec import VGG_BLOCKS, DenseNetSpec, GazeSpec, VGGSpec, spec_for
from fastgaze.networks import create_model
from fastgaze.networks.backbones import find_backbone, load_backbone, read_backbone
from fastgaze.networks.densenet import DenseNet
from fastgaze.networks.vgg import VGG
from tests.small_models import vgg_state

State = dict[str, torch.Tensor]


def _vgg_forward(state: State, image: torch.Tensor, depths: tuple[int, ...]) -> torch.Tensor:
    """An independent forward to the last ReLU, with plain functions."""
    x, position = image, 0
    for b, depth in enumerate(depths):
        for _ in range(depth):
            x = F.conv2d(x, state[f"features.{position}.weight"], state[f"features.{position}.bias"], padding=1).relu()
            position += 2
        if b < len(depths) - 1:
            x = F.max_pool2d(x, 2)
        position += 1
    return x


def _densenet_forward(state: State, x: torch.Tensor) -> torch.Tensor:
    """An independent forward to the end of dense block 3, with plain functions."""

    def norm_relu(x: torch.Tensor, key: str) -> torch.Tensor:
        mean, var, weight, bias = (
            state[f"features.{key}.{n}"] for n in ("running_mean", "running_var", "weight", "bias")
        )
        return F.batch_norm(x, mean, var, weight, bias, eps=1e-5).relu()

    x = F.conv2d(x, state["features.conv0.weight"], stride=2, padding=3)
    x = F.max_pool2d(norm_relu(x, "norm0"), 3, stride=2, padding=1)
    for b, depth in enumerate((6, 12, 24), 1):
        for i in range(1, depth + 1):
            key = f"denseblock{b}.denselayer{i}"
            y = F.conv2d(norm_relu(x, f"{key}.norm1"), state[f"features.{key}.conv1.weight"])
            y = F.conv2d(norm_relu(y, f"{key}.norm2"), state[f"features.{key}.conv2.weight"], padding=1)
            x = torch.cat([x, y], 1)
        if b < 3:
            x = F.conv2d(norm_relu(x, f"transition{b}.norm"), state[f"features.transition{b}.conv.weight"])
            x = F.avg_pool2d(x, 2)
    return x


def _assert_close(ours: torch.Tensor, expected: torch.Tensor) -> None:
    """To 1e-5 of the largest value: the trunks' activations reach the hundreds."""
    assert (ours - expected).abs().max() <= 1e-5 * expected.abs().max()


@pytest.fixture(scope="module")
def backbones() -> Path:
    """A folder with the files of ``get_backbones.py``."""
    if not (cache_dir() / "vgg19.safetensors").is_file():
        pytest.skip(f"no backbones in {cache_dir()}: `make backbones` gets them")
    return cache_dir()


@pytest.mark.parametrize("name", ["vgg16", "vgg19"])
@torch.inference_mode()
def test_real_vgg_files_reproduce_an_independent_forward(name: str, backbones: Path) -> None:
    blocks = VGG_BLOCKS[name]
    trunk = VGG(VGGSpec(blocks, (f"relu5_{len(blocks[4])}",))).eval()
    load_backbone(trunk, backbones / f"{name}.safetensors")
    image = torch.randn(2, 3, 64, 96)
    state = read_backbone(backbones / f"{name}.safetensors")
    _assert_close(trunk(image), _vgg_forward(state, image, trunk.depths))


@torch.inference_mode()
def test_real_densenet_file_reproduces_an_independent_forward(backbones: Path) -> None:
    spec = spec_for("densegaze")
    assert isinstance(spec, GazeSpec)
    assert isinstance(spec.trunk, DenseNetSpec)
    trunk = DenseNet(spec.trunk).eval()
    load_backbone(trunk, backbones / "densenet121.safetensors")
    image = torch.randn(2, 3, 64, 96)
    _assert_close(trunk(image), _densenet_forward(read_backbone(backbones / "densenet121.safetensors"), image))


@pytest.mark.parametrize("suffix", [".safetensors", ".pth"])
@torch.inference_mode()
def test_both_file_forms_load_in_torchvisions_layout(suffix: str, tmp_path: Path) -> None:
    state = vgg_state(VGG_BLOCKS["vgg11"])
    path = tmp_path / f"vgg11{suffix}"
    if suffix == ".pth":
        torch.save(state, path)
    else:
        save_file(state, path)
    model = create_model("fastgaze").eval()
    assert load_backbone(model.trunk, path).layers == "all"
    image = torch.randn(1, 3, 32, 48)
    _assert_close(model.trunk(image), _vgg_forward(state, image, (1, 1, 2, 2, 2)))


@torch.inference_mode()
def test_vgg11_takes_matching_layers_of_vgg16_at_unit_spread(tmp_path: Path) -> None:
    state = vgg_state(VGG_BLOCKS["vgg16"])
    save_file(state, tmp_path / "vgg16.safetensors")
    trunk, sample = create_model("fastgaze").trunk, torch.randn(2, 3, 64, 64)
    assert isinstance(trunk, VGG)
    record = load_backbone(trunk, tmp_path / "vgg16.safetensors", sample)
    assert record.layers == "matching"
    # conv3_2 is the second convolution of VGG-16's third block, position 12 of its features.
    expected = state["features.12.weight"] / record.spreads["conv3_2"]
    torch.testing.assert_close(trunk.conv(3, 2).weight, expected)
    x = sample
    for b, depth in enumerate(trunk.depths, 1):
        x = trunk.pool(x) if b > 1 else x
        for c in range(1, depth + 1):
            x = trunk.conv(b, c)(x)
            assert float(x.std()) == pytest.approx(1, abs=1e-3), f"conv{b}_{c}"
            x = x.relu()


@torch.inference_mode()
def test_a_whole_vgg_at_unit_spread_is_the_same_network_up_to_a_factor(tmp_path: Path) -> None:
    save_file(vgg_state(VGG_BLOCKS["vgg11"]), tmp_path / "vgg11.safetensors")
    plain, scaled = create_model("fastgaze").trunk, create_model("fastgaze").trunk
    load_backbone(plain, tmp_path / "vgg11.safetensors")
    record = load_backbone(scaled, tmp_path / "vgg11.safetensors", torch.randn(2, 3, 64, 64))
    image = torch.randn(1, 3, 48, 64)
    factor = math.prod(record.spreads.values())
    _assert_close(factor * scaled(image), plain(image))


def _refused(source: str | Path, trunk: Any = None) -> str:
    with pytest.raises(BackboneError) as caught:
        load_backbone(trunk or create_model("fastgaze").trunk, source)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_matching_layers_without_sample_images_are_refused(tmp_path: Path) -> None:
    save_file(vgg_state(VGG_BLOCKS["vgg13"]), tmp_path / "vgg13.safetensors")
    assert "give sample images" in _refused(tmp_path / "vgg13.safetensors")


def test_damaged_hostile_and_foreign_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "cut.safetensors").write_bytes(b"\x10\0\0")
    _refused(tmp_path / "cut.safetensors")
    torch.save({"features.0.weight": Path("x")}, tmp_path / "code.pth")
    assert "more than weights" in _refused(tmp_path / "code.pth")
    save_file({"weight": torch.zeros(1)}, tmp_path / "other.safetensors")
    assert "torchvision's layout" in _refused(tmp_path / "other.safetensors")
    save_file(vgg_state(VGG_BLOCKS["vgg11"][:3]), tmp_path / "short.safetensors")
    assert "8, 10, 13 and 16" in _refused(tmp_path / "short.safetensors")
    assert "conv0.weight is absent" in _refused(tmp_path / "short.safetensors", create_model("densegaze").trunk)


def test_names_come_from_the_cache_only_with_the_right_sha256(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FASTGAZE_CACHE", str(tmp_path))
    save_file({"features.0.weight": torch.zeros(1)}, tmp_path / "vgg19.safetensors")
    assert "delete the file" in _refused("vgg19")
    assert "names are densenet121, efficientnet-lite0" in _refused("resnet50")


def test_a_name_that_cannot_be_fetched_says_where_to_put_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FASTGAZE_CACHE", str(tmp_path))
    monkeypatch.setattr("fastgaze.networks.backbones._URL", "http://127.0.0.1:9/")
    message = _refused("vgg11")
    assert str(tmp_path) in message
    assert "vgg11-8a719046.pth" in message


def test_real_files_are_found_by_name(backbones: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FASTGAZE_CACHE", str(backbones))
    assert find_backbone("vgg16") == backbones / "vgg16.safetensors"
