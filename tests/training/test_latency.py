"""Pruning by the engine's own milliseconds."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from fastgaze.core.errors import ArgumentError
from fastgaze.core.spec import VGGSpec
from fastgaze.networks.checkpoint import untrained
from fastgaze.networks.gaze import GazeModel
from fastgaze.onnx.layers import latency_cost
from fastgaze.pruning import Latency, LatencyTable, LayerShape
from fastgaze.training.config import PruneSettings
from fastgaze.training.prune import make_objective, prune_while_training, trace
from tests.training.helpers import TINY, source, tiny_model


def test_a_network_is_pruned_to_a_number_of_milliseconds(tmp_path: Path) -> None:
    # Wide enough to have stairs to go down.
    model = GazeModel(replace(TINY, trunk=VGGSpec(((40,), (40,), (40,), (40,), (40,)), ("relu5_1",))))
    cost = latency_cost(trace(model), (64, 96), tmp_path / "latency.json")
    before = cost.total(trace(model))
    settings = PruneSettings(marks=(0.6 * before,), steps=1, maps=8, cost="latency")
    (snapshot,) = prune_while_training(model, [source()], settings, tmp_path / "run", untrained(model.spec), cost)
    assert snapshot.is_file()
    assert cost.total(trace(model)) <= 0.6 * before


def test_maps_leave_in_the_blocks_of_the_engine(tmp_path: Path) -> None:
    model = GazeModel(replace(TINY, trunk=VGGSpec(((40,), (40,), (40,), (40,), (40,)), ("relu5_1",))))
    settings = PruneSettings(remove=60, steps=1, maps=20, round_to=16)
    prune_while_training(model, [source()], settings, tmp_path, untrained(model.spec))
    assert isinstance(model.spec.trunk, VGGSpec)
    widths = [width for block in model.spec.trunk.blocks for width in block]
    assert sum(widths) <= 5 * 40 - 60
    assert all(width in (16, 32, 40) for width in widths)


def test_beta_is_per_millisecond_and_decides_the_order() -> None:
    delta_loss, delta_cost = torch.tensor([0.1, 0.2], dtype=torch.float64), torch.tensor([-1.0, -3.0])
    settings = PruneSettings(objective="beta", beta=0.2, cost="latency")
    scores = make_objective(settings, unit=1)(delta_loss, delta_cost)
    torch.testing.assert_close(scores, torch.tensor([-0.1, -0.4], dtype=torch.float64))


def test_a_large_beta_removes_the_slowest_maps_first(tmp_path: Path) -> None:
    widths = {}
    for beta in (0.0, 1e6):
        model = tiny_model()
        table = LatencyTable.measure(trace(model), (64, 96), _first_layer_only, engine="none")
        settings = PruneSettings(remove=3, steps=1, objective="beta", beta=beta, cost="latency")
        prune_while_training(
            model, [source()], settings, tmp_path / f"{beta}", untrained(model.spec), Latency(table, (64, 96))
        )
        assert isinstance(model.spec.trunk, VGGSpec)
        widths[beta] = model.spec.trunk.blocks[0][0]
    assert widths[1e6] == 1 < widths[0.0]


def _first_layer_only(shape: LayerShape) -> float:
    """Milliseconds of an engine in which nothing but the maps of the first layer takes time."""
    return float(shape.channels_out) * 1e-3 if shape.channels_in == 3 else 1e-9


def test_frozen_costs_are_for_flops_only(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="frozen_cost is for cost = 'flops'"):
        PruneSettings(cost="latency", frozen_cost=True)
    model = tiny_model()
    cost = Latency(LatencyTable.measure(trace(model), (64, 96), _first_layer_only, engine="none"), (64, 96))
    with pytest.raises(ArgumentError, match="frozen_cost"):
        prune_while_training(
            model, [source()], PruneSettings(remove=1, frozen_cost=True), tmp_path, untrained(model.spec), cost
        )


def test_a_network_is_traced_where_it_is() -> None:
    elsewhere = trace(tiny_model().to("meta"))
    assert [str(m) for m in elsewhere.maps] == [str(m) for m in trace(tiny_model()).maps]
