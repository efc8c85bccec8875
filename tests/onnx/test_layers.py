"""What an ONNX graph costs, in FLOPs and in the engine's milliseconds."""

from collections import Counter
from pathlib import Path

import onnx
import pytest

from fastgaze.core.cost import layers
from fastgaze.core.errors import ExportError
from fastgaze.core.spec import GazeSpec
from fastgaze.onnx.layers import graph_layers, layer_milliseconds, measured_widths
from fastgaze.onnx.pad import padded_spec
from fastgaze.onnx.write import Facts, check_cost, export_onnx
from fastgaze.pruning import LayerShape
from tests.small_models import DENSE, LITE, PLAIN, random_model

SIZE = (96, 160)


@pytest.mark.parametrize("spec", [PLAIN, DENSE, LITE], ids=lambda spec: spec.architecture)
@pytest.mark.parametrize("half", [True, False])
def test_the_layers_of_a_graph_are_those_of_the_networks_widths(spec: GazeSpec, half: bool, tmp_path: Path) -> None:
    export_onnx(random_model(spec), tmp_path / "m.onnx", Facts("m"), half)
    found, said = graph_layers(onnx.load(tmp_path / "m.onnx"), SIZE), layers(padded_spec(spec), SIZE)
    shapes = [
        Counter((layer.maps_in, layer.maps, layer.kernel, layer.height, layer.width) for layer in one)
        for one in (found, said)
    ]
    assert shapes[0] == shapes[1]


def test_a_graph_of_other_cost_than_its_network_is_refused(tmp_path: Path) -> None:
    model = random_model(PLAIN)
    export_onnx(model, tmp_path / "m.onnx", Facts("m"))
    check_cost(model, onnx.load(tmp_path / "m.onnx"))
    with pytest.raises(ExportError, match="FLOPs at 640x480"):
        check_cost(random_model(DENSE), onnx.load(tmp_path / "m.onnx"))


def test_a_layer_with_sixteen_times_the_work_takes_longer() -> None:
    small = layer_milliseconds(LayerShape(16, 16, 24, 32, (3, 3)))
    assert layer_milliseconds(LayerShape(64, 64, 24, 32, (3, 3))) > 3 * small


def test_stairs_are_measured_finely_where_layers_end_up() -> None:
    widths = measured_widths(512, 16)
    assert {16, 17, 32, 33, 128, 192, 512} <= set(widths)
    assert {144, 145} & set(widths) == set()
