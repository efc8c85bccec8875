"""Exported networks have the widths that the engine is fast at, and compute the same."""

from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from PIL import Image

from fastgaze.core.spec import GazeSpec, LiteSpec, spec_for
from fastgaze.networks import GazeModel
from fastgaze.networks.lite import LiteNet
from fastgaze.onnx.layers import graph_layers
from fastgaze.onnx.pad import BLOCK, QUARTER, padded, padded_spec
from fastgaze.onnx.read import reopen
from fastgaze.onnx.write import Facts, check_parity, export_int8, export_onnx
from fastgaze.runtime.card import read_card
from fastgaze.runtime.predictor import load
from tests.small_models import DENSE, LITE, PLAIN, random_model


def output(model: GazeModel, image: torch.Tensor) -> torch.Tensor:
    with torch.inference_mode():
        saliency: torch.Tensor = model.network(image)
    return saliency


def depthwise_widths(path: Path) -> set[int]:
    """Widths of the convolutions of a file that read one map each; the first convolution reads three."""
    graph = onnx.load(path)
    groups = {a.i for node in graph.graph.node for a in node.attribute if node.op_type == "Conv" and a.name == "group"}
    return groups - {1}


def test_a_padded_network_computes_the_same() -> None:
    model, image = random_model(LITE), torch.randn(2, 3, 64, 96)
    wide = padded(model)
    assert wide.spec == padded_spec(LITE) != LITE
    torch.testing.assert_close(output(wide, image), output(model, image), atol=1e-6, rtol=1e-6)
    assert model.spec == LITE


def test_new_maps_are_zero_for_any_image() -> None:
    wide, seen = padded(random_model(LITE)), list[torch.Tensor]()
    assert isinstance(wide.trunk, LiteNet)
    wide.trunk.stem.register_forward_hook(lambda _module, _inputs, maps: seen.append(maps))
    output(wide, torch.randn(1, 3, 64, 96))
    assert isinstance(LITE.trunk, LiteSpec)
    assert seen[0][:, : LITE.trunk.stem].abs().sum() > 0
    assert seen[0][:, LITE.trunk.stem :].abs().sum() == 0


def test_no_convolution_leaves_the_layout_of_the_engine() -> None:
    trunk = padded_spec(LITE).trunk
    assert isinstance(trunk, LiteSpec)
    between = [trunk.first, *(stage.maps for stage in trunk.stages)]
    assert all(width >= BLOCK and width % QUARTER == 0 for width in between)
    assert all(width % BLOCK == 0 for stage in trunk.stages for width in (trunk.stem, *stage.expansions))


@pytest.mark.parametrize("spec", [PLAIN, DENSE, spec_for("litegaze")], ids=["vgg", "densenet", "lite0"])
def test_a_network_that_needs_no_padding_is_left_alone(spec: GazeSpec) -> None:
    assert padded_spec(spec) == spec


@pytest.fixture
def photos(tmp_path: Path) -> list[Path]:
    generator, paths = np.random.default_rng(0), [tmp_path / f"{i}.png" for i in range(4)]
    for path in paths:
        coarse = generator.integers(0, 256, (6, 8, 3), dtype=np.uint8)
        Image.fromarray(coarse).resize((320, 240), Image.Resampling.BICUBIC).save(path)
    return paths


def test_every_depthwise_width_of_a_file_is_a_multiple(photos: list[Path], tmp_path: Path) -> None:
    model, fp32, int8 = random_model(LITE), tmp_path / "m.onnx", tmp_path / "m.int8.onnx"
    export_onnx(model, fp32, Facts("m"), half=False)
    export_int8(model, int8, Facts("m"), photos)
    for path in (fp32, int8):
        widths = depthwise_widths(path)
        assert widths
        assert all(width % BLOCK == 0 for width in widths)
    assert check_parity(model, load(fp32, threads=1)) < 1e-4


def test_no_layer_of_the_trunk_has_a_width_that_the_engine_is_slow_at(tmp_path: Path) -> None:
    export_onnx(random_model(LITE), tmp_path / "m.onnx", Facts("m"))
    layers = graph_layers(onnx.load(tmp_path / "m.onnx"), (480, 640))
    assert {layer.maps % QUARTER for layer in layers[: -len(LITE.readout) - 1]} == {0}


def test_the_card_describes_what_the_file_computes(tmp_path: Path) -> None:
    export_onnx(random_model(LITE), tmp_path / "m.onnx", Facts("m"))
    card = read_card(tmp_path / "m.onnx")
    assert card.gflop_640x480 * 1e9 == sum(
        layer.flops for layer in graph_layers(onnx.load(tmp_path / "m.onnx"), (480, 640))
    )
    again, _ = reopen(tmp_path / "m.onnx")
    assert again.spec == padded_spec(LITE)
