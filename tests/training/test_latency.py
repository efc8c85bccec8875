"""Pruning by the engine's own milliseconds."""

from dataclasses import replace
from pathlib import Path

from fastgaze.models.gaze import GazeModel
from fastgaze.models.spec import VGGSpec
from fastgaze.pruning import LayerShape
from fastgaze.training.latency import latency_cost, layer_milliseconds, measured_widths
from fastgaze.training.prune import PruneSettings, prune_while_training, trace
from tests.training.helpers import TINY, source


def test_a_layer_with_sixteen_times_the_work_takes_longer() -> None:
    small = layer_milliseconds(LayerShape(16, 16, 24, 32, (3, 3)))
    assert layer_milliseconds(LayerShape(64, 64, 24, 32, (3, 3))) > 3 * small


def test_stairs_are_measured_finely_where_layers_end_up() -> None:
    widths = measured_widths(512, 16)
    assert {16, 17, 32, 33, 128, 192, 512} <= set(widths)
    assert {144, 145} & set(widths) == set()


def test_a_network_is_pruned_to_a_number_of_milliseconds(tmp_path: Path) -> None:
    # Wide enough to have stairs to go down.
    model = GazeModel(replace(TINY, trunk=VGGSpec(((40,), (40,), (40,), (40,), (40,)), ("relu5_1",))))
    cost = latency_cost(trace(model), (64, 96), tmp_path / "latency.json")
    before = cost.total(trace(model))
    settings = PruneSettings(marks=(0.6 * before,), steps=1, maps=8, cost="latency")
    (snapshot,) = prune_while_training(model, [source()], settings, tmp_path / "run", {}, cost)
    assert snapshot.is_file()
    assert cost.total(trace(model)) <= 0.6 * before
