import itertools
import math
from pathlib import Path

import pytest
import torch
from torch import nn

from fastgaze.core.errors import PruningError
from fastgaze.pruning import ChannelGraph, Latency, LatencyTable, LayerShape, Pruner, compact
from fastgaze.pruning.latency import stair_widths
from tests.pruning.nets import image_losses, make


def blocks_of_16(shape: LayerShape) -> float:
    """An engine that computes whole blocks of 16 output channels."""
    inside = 1 if shape.depthwise else shape.channels_in
    taps = shape.kernel[0] * shape.kernel[1]
    return 1e-6 * shape.height * shape.width * taps * inside * 16 * math.ceil(shape.channels_out / 16)


def traced() -> tuple[nn.Module, ChannelGraph, torch.Tensor]:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 40, 3, padding=1), nn.ReLU(), nn.Conv2d(40, 24, 3), nn.ReLU(), nn.Conv2d(24, 1, 1))
    x = torch.randn(2, 3, 12, 16)
    return net, ChannelGraph.trace(net, x), x


def test_widths_to_measure_are_the_edges_of_the_stairs() -> None:
    assert stair_widths(40) == [1, 16, 17, 32, 33, 40]
    assert stair_widths(5) == [1, 5]


def test_the_staircase_is_read_back_at_every_width() -> None:
    _, graph, _ = traced()
    table = LatencyTable.measure(graph, (12, 16), blocks_of_16, engine="toy")
    for inside in (1, 7, 16, 23, 40):
        for out in range(1, 25):
            shape = LayerShape(inside, out, 10, 14, (3, 3), (1, 1))
            assert table.milliseconds(shape) == pytest.approx(blocks_of_16(shape))


def test_the_table_is_monotone_even_if_the_engine_is_not() -> None:
    def odd_widths_are_slow(shape: LayerShape) -> float:
        return blocks_of_16(shape) * (1.12 if shape.channels_out % 4 == 1 else 1.0)

    _, graph, _ = traced()
    table = LatencyTable.measure(graph, (12, 16), odd_widths_are_slow, engine="toy")
    for direction in (0, 1):
        times = [
            table.milliseconds(LayerShape(k if direction else 20, 20 if direction else k, 10, 14, (3, 3), (1, 1)))
            for k in range(1, 25)
        ]
        assert all(a <= b + 1e-15 for a, b in itertools.pairwise(times))


def test_a_table_survives_json(tmp_path: Path) -> None:
    _, graph, _ = traced()
    table = LatencyTable.measure(graph, (12, 16), blocks_of_16, engine="toy")
    table.save(tmp_path / "table.json")
    again = LatencyTable.load(tmp_path / "table.json")
    assert (again.engine, again.points) == ("toy", table.points)
    assert Latency(again, (12, 16)).total(graph) == Latency(table, (12, 16)).total(graph)


def test_plain_differences_equal_totals_after_minus_before() -> None:
    for name in ("mobile", "vgg11", "lenet"):
        net, x = make(name)
        graph = ChannelGraph.trace(net, x)
        size = tuple(x.shape[2:])
        latency = Latency(LatencyTable.measure(graph, size, blocks_of_16, engine="toy", step=8), size, ahead=1)
        delta, before = latency.delta_cost(graph), latency.total(graph)
        for index in torch.nonzero(graph.candidates()).flatten().tolist()[::7]:
            alive = graph.alive.clone()
            alive[index] = False
            assert latency.total(graph, alive) - before == pytest.approx(float(delta[index]), abs=1e-12)


def test_looking_ahead_sees_the_next_stair() -> None:
    _, graph, _ = traced()
    table = LatencyTable.measure(graph, (12, 16), blocks_of_16, engine="toy")
    near, far = Latency(table, (12, 16), ahead=1), Latency(table, (12, 16), ahead=16)
    own = 1e-6 * 12 * 16 * 9 * 3 * 16  # the third block of the first layer, gone after 8 maps
    reader = 1e-6 * 10 * 14 * 9 * 32  # each input channel of the second layer
    assert float(near.delta_cost(graph)[0]) == pytest.approx(-reader)
    assert float(far.delta_cost(graph)[0]) == pytest.approx(-(reader + own / 8))


def test_pruning_by_latency_ends_on_stairs() -> None:
    net, graph, x = traced()
    table = LatencyTable.measure(graph, (12, 16), blocks_of_16, engine="toy")
    pruner = Pruner(graph, cost=Latency(table, (12, 16)))
    with pruner.observe():
        image_losses(net, x).mean().backward()  # type: ignore[no-untyped-call]
    pruner.prune(100, to_cost=0.5 * pruner.total_cost)
    assert pruner.total_cost <= 0.5 * pruner.history.cost
    widths = [m.out_channels for m in net.children() if isinstance(m, nn.Conv2d)]
    assert widths[0] % 16 == 0 or widths[1] % 16 == 0


def test_a_network_that_was_not_measured_is_refused() -> None:
    _, graph, _ = traced()
    table = LatencyTable.measure(graph, (12, 16), blocks_of_16, engine="toy")
    with pytest.raises(PruningError, match="another network or size"):
        Latency(table, (24, 16)).total(graph)
    graph.mark_removed([0])
    compact(graph)
    narrow = LatencyTable.measure(graph, (12, 16), blocks_of_16, engine="toy")
    with pytest.raises(PruningError, match="more than the 39"):
        narrow.milliseconds(LayerShape(3, 40, 12, 16, (3, 3), (1, 1)))


def test_the_narrowest_width_is_read_where_the_widest_corner_was_not_measured() -> None:
    net = nn.Sequential(nn.Conv2d(64, 32, 1), nn.Conv2d(32, 128, 1), nn.Conv2d(128, 4, 1))
    graph = ChannelGraph.trace(net, torch.zeros(1, 64, 12, 16))
    table = LatencyTable.measure(graph, (12, 16), blocks_of_16, engine="toy")
    for inside, out in ((1, 100), (32, 1), (1, 1)):
        milliseconds = table.milliseconds(LayerShape(inside, out, 12, 16, (1, 1), (1, 1)))
        assert 0 < milliseconds < float("inf"), (inside, out)


def test_groups_dilation_and_depth_belong_to_a_shape() -> None:
    net = nn.Sequential(
        nn.Conv2d(3, 32, 1), nn.Conv2d(32, 32, 3, padding=2, dilation=2, groups=4), nn.Conv2d(32, 64, 3, groups=32),
        nn.Conv2d(64, 2, 1),
    )  # fmt: skip
    seen: list[LayerShape] = []

    def record(shape: LayerShape) -> float:
        seen.append(shape)
        return 1.0

    graph = ChannelGraph.trace(net, torch.zeros(1, 3, 8, 8))
    LatencyTable.measure(graph, (8, 8), record, engine="toy")
    grouped = [shape for shape in seen if shape.groups == 4]
    assert LayerShape(32, 32, 8, 8, (3, 3), (1, 1), groups=4, dilation=(2, 2)) in grouped
    assert all(shape.channels_in % 4 == 0 == shape.channels_out % 4 for shape in grouped)
    assert LayerShape(32, 64, 6, 6, (3, 3), (1, 1), depthwise=True) in seen
    video = nn.Sequential(nn.Conv3d(1, 8, 3), nn.Conv3d(8, 2, 1))
    graph = ChannelGraph.trace(video, torch.zeros(1, 1, 5, 6, 7))
    LatencyTable.measure(graph, (5, 6, 7), record, engine="toy")
    assert LayerShape(1, 8, 4, 5, (3, 3, 3), (1, 1, 1), dilation=(1, 1, 1), depth=3) in seen
