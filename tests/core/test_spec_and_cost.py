"""The numbers that the paper fixes, and specs that go to JSON and back."""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fastgaze.core import cost
from fastgaze.core.errors import ModelError
from fastgaze.core.spec import DenseNetSpec, GazeSpec, VGGSpec, spec_for, spec_from_json, spec_to_json
from fastgaze.networks import create_model, list_models

PAPER_SIZE = (480, 640)


@pytest.mark.parametrize(("architecture", "maps"), [("fastgaze", 2803), ("densegaze", 7219)])
def test_prunable_maps_are_the_papers(architecture: str, maps: int) -> None:
    assert cost.prunable_maps(spec_for(architecture)) == maps


@pytest.mark.parametrize(("architecture", "gflop"), [("deepgaze2", 239.07), ("fastgaze", 91.75), ("densegaze", 32.28)])
def test_gflop_at_640x480_counting_the_bias_term_everywhere(architecture: str, gflop: float) -> None:
    assert cost.flops(spec_for(architecture), PAPER_SIZE) / 1e9 == pytest.approx(gflop, abs=0.006)


@pytest.mark.parametrize("architecture", list_models())
def test_parameters_from_the_spec_equal_those_of_the_network(architecture: str) -> None:
    model = create_model(architecture)
    assert cost.parameters(model.spec) == sum(p.numel() for p in model.parameters())


def test_a_layers_flops_follow_the_papers_formula() -> None:
    layer = cost.layers(spec_for("fastgaze"), (64, 96))[1]
    assert (layer.name, layer.maps_in, layer.maps) == ("conv2_1", 64, 128)
    assert layer.flops == 32 * 48 * 128 * (2 * 64 * 9 + 1)


widths = st.integers(1, 40)


@st.composite
def gaze_specs(draw: st.DrawFn) -> GazeSpec:
    readout = (*draw(st.lists(widths, max_size=3)), 1)
    activation = draw(st.sampled_from(["prelu", "relu"]))
    if draw(st.booleans()):
        blocks = tuple(tuple(draw(st.lists(widths, min_size=1, max_size=2))) for _ in range(5))
        return GazeSpec("fastgaze", VGGSpec(blocks, ("relu5_1",)), readout, activation)
    layers = st.lists(st.tuples(widths, widths), min_size=1, max_size=3).map(tuple)
    trunk = DenseNetSpec(draw(widths), tuple(draw(layers) for _ in range(3)), (draw(widths), draw(widths)))
    return GazeSpec("densegaze", trunk, readout, activation)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # other work may hold up this process
@given(gaze_specs())
def test_specs_of_any_widths_survive_json(spec: GazeSpec) -> None:
    assert spec_from_json(spec_to_json(spec)) == spec


def _vgg_json(tap: str = "relu1_1", last: float = 1, activation: str = "relu", width: float = 4) -> str:
    trunk = {"blocks": [[width]], "taps": [tap]}
    return json.dumps({"architecture": "fastgaze", "trunk": trunk, "readout": [last], "activation": activation})


def _ensemble_json(members: int = 2) -> str:
    return json.dumps({"architecture": "e", "member": json.loads(_vgg_json()), "members": members})


def test_the_json_that_the_next_test_spoils_is_a_spec() -> None:
    assert spec_from_json(_vgg_json()).architecture == "fastgaze"
    assert spec_from_json(_ensemble_json()).architecture == "e"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"architecture": "lenet5"}',
        '{"architecture": "lenet5", "maps": [20, 50, 500, 10]}',
        _vgg_json(last=1.5),
        _vgg_json(width=0),
        _vgg_json(width=4.5),
        json.dumps({"architecture": "e", "member": json.loads(_ensemble_json()), "members": 2}),
        _ensemble_json(members=0),
        '{"architecture": "f", "activation": "relu", "readout": [1], "trunk": {"blocks": [8, 8], "taps": ["relu1_1"]}}',
        _vgg_json(tap="relu2_1"),
        _vgg_json(last=2),
        _vgg_json(activation="gelu"),
    ],
)
def test_what_is_not_a_spec_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(ModelError) as caught:
        spec_from_json(text)
    assert "\n" not in str(caught.value)


def test_an_unknown_architecture_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ModelError, match="deepgaze2, densegaze, fastgaze"):
        spec_for("resnet")
    with pytest.raises(ModelError, match="densegaze"):
        create_model("fastgaze", spec_for("densegaze"))
