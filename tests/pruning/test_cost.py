from collections.abc import Iterator

import pytest
import torch

from fastgaze.pruning import ChannelGraph, Flops, Memory, Parameters, compact
from tests.pruning.nets import NETS, make
from tests.pruning.odd_nets import OwnConvolution, OwnLinear


def whole_then_compacted(net: torch.nn.Module, x: torch.Tensor) -> Iterator[ChannelGraph]:
    """The graph of a network as it is, and after two of its maps were removed."""
    graph = ChannelGraph.trace(net, x)
    yield graph
    graph.mark_removed([0, 2])
    compact(graph)
    yield graph


def test_lenet_flops_by_hand() -> None:
    net, x = make("lenet")
    conv1, conv2 = 24 * 24 * 20 * (2 * 25 + 1), 8 * 8 * 50 * (2 * 20 * 25 + 1)
    assert Flops().total(ChannelGraph.trace(net, x)) == conv1 + conv2 + 500 * (1600 + 1) + 10 * (1000 + 1)


def test_layers_of_classes_of_ones_own_cost_what_those_of_torch_cost() -> None:
    own = torch.nn.Sequential(OwnConvolution(3, 8, 3), OwnConvolution(8, 6, 1), torch.nn.Flatten(), OwnLinear(96, 5))
    torchs = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.Conv2d(8, 6, 1), torch.nn.Flatten(), torch.nn.Linear(96, 5)
    )
    x = torch.randn(2, 3, 4, 4)
    for cost in (Flops, Parameters):
        assert cost().total(ChannelGraph.trace(own, x)) == cost().total(ChannelGraph.trace(torchs, x))


def test_what_no_cost_counts_is_said_with_its_line() -> None:
    class Noisy(torch.nn.Module):
        noise: torch.Tensor

        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.randn(6, 8))
            self.register_buffer("noise", torch.zeros(6, 8))  # in the weight's shape: not a layer that can be narrowed

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.linear(x, self.weight + self.noise)

    net = torch.nn.Sequential(torch.nn.Linear(3, 8), Noisy(), torch.nn.Linear(6, 2))
    graph = ChannelGraph.trace(net, torch.randn(2, 3))
    assert len(graph.uncounted) == 1
    assert graph.uncounted[0].startswith("linear (pruning/test_cost.py:")
    assert f"not counted in any cost: {graph.uncounted[0]}" in graph.describe()
    assert ChannelGraph.trace(net[0], torch.randn(2, 3)).uncounted == []


def test_a_product_with_a_parameter_outside_of_a_layer_is_named_and_attention_is_not() -> None:
    class Graph(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight, self.last = torch.nn.Parameter(torch.randn(3, 8)), torch.nn.Linear(8, 2)

        def forward(self, x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
            out: torch.Tensor = self.last(edges @ (x @ self.weight))
            return out

    graph = ChannelGraph.trace(Graph(), (torch.randn(2, 5, 3), torch.randn(2, 5, 5)))
    assert [place.split(" ")[0] for place in graph.uncounted] == ["matmul"]


def test_vgg11_convolutions_cost_what_the_paper_fixes() -> None:
    torch.manual_seed(0)
    from tests.pruning.nets import vgg11

    net = vgg11(divide=1)
    graph = ChannelGraph.trace(net, torch.zeros(1, 3, 32, 32))
    flops = Flops((480, 640)).by_layer(graph)
    assert float(flops[:-1].sum()) / 1e9 == pytest.approx(91.70, abs=0.005)
    assert int(graph.prunable.sum()) == 2752


@pytest.mark.parametrize("name", NETS)
def test_delta_cost_of_every_map_is_the_total_after_minus_before(name: str) -> None:
    flops = Flops()
    for graph in whole_then_compacted(*make(name)):
        before, delta = flops.total(graph), flops.delta_cost(graph)
        assert delta.dtype == torch.int64
        for index in torch.nonzero(graph.candidates()).flatten().tolist():
            alive = graph.alive.clone()
            alive[index] = False
            assert flops.total(graph, alive) - before == int(delta[index])


@pytest.mark.parametrize("name", NETS)
def test_the_total_after_compaction_is_that_of_a_fresh_trace(name: str) -> None:
    net, x = make(name)
    graph = ChannelGraph.trace(net, x)
    graph.mark_removed([1, 3])
    compact(graph)
    assert Flops().total(graph) == Flops().total(ChannelGraph.trace(net, x))


def test_depthwise_and_grouped_layers_count_channels_of_one_group() -> None:
    net, x = make("mobile")
    graph = ChannelGraph.trace(net, x)
    by_name = dict(zip((layer.name for layer in graph.layers), Flops().by_layer(graph).tolist(), strict=True))
    assert by_name["depthwise.0"] == 11 * 8 * 32 * (2 * 9 + 1)
    net, x = make("grouped")
    graph = ChannelGraph.trace(net, x)
    by_name = dict(zip((layer.name for layer in graph.layers), Flops().by_layer(graph).tolist(), strict=True))
    assert by_name["grouped"] == 9 * 14 * 18 * (2 * 4 * 9 + 1)
    assert by_name["twice"] == 2 * 4 * 7 * 18 * (2 * 18 * 9 + 1)


def test_frozen_costs_do_not_follow_the_network() -> None:
    net, x = make("prelu")
    graph, live, frozen = ChannelGraph.trace(net, x), Flops(), Flops(update=False)
    first = frozen.delta_cost(graph).clone()
    assert torch.equal(first, live.delta_cost(graph))
    graph.mark_removed([0, 1, 12])
    compact(graph)
    assert torch.equal(frozen.delta_cost(graph), first * graph.alive[:-1])
    assert frozen.delta_cost(graph)[[0, 1, 12]].tolist() == [0, 0, 0]
    assert not torch.equal(live.delta_cost(graph), first)
    assert frozen.total(graph) == live.total(graph)


@pytest.mark.parametrize("name", NETS)
def test_parameters_are_counted_exactly_before_and_after(name: str) -> None:
    net, x = make(name)
    for graph in whole_then_compacted(net, x):
        shared = [m for m in net.modules() if isinstance(m, torch.nn.PReLU) and m.num_parameters == 1]
        assert Parameters().total(graph) == sum(p.numel() for p in net.parameters()) - len(shared)


def test_memory_counts_what_layers_write() -> None:
    net = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.BatchNorm2d(8), torch.nn.Conv2d(8, 2, 1))
    graph = ChannelGraph.trace(net, torch.zeros(1, 3, 10, 10))
    written = 100 * (8 + 8 + 2)
    parameters = sum(p.numel() for p in net.parameters())
    assert Memory().total(graph) == 4 * (written + parameters)
    assert Memory((20, 10), element_size=2).total(graph) == 2 * (2 * written + parameters)
