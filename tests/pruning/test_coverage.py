"""Structures that people use: each is followed, pruned exactly, and scored by the definition of its mask."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fastgaze.core.errors import PruningError
from fastgaze.pruning import ChannelGraph, Fisher, Flops, Pruner, Statistics, compact, masked, probed
from fastgaze.pruning.layers.norms import LayerNorm
from tests.pruning.nets import removable_choice
from tests.pruning.odd_list import ODD, make_odd
from tests.pruning.odd_nets import Branching, Net, between


def losses(net: nn.Module, inputs: tuple[Tensor, ...]) -> Tensor:
    """(N,): a loss for each image that depends on every output."""
    y = net(*inputs).flatten(1)
    out: Tensor = (y - torch.linspace(-1, 1, y.shape[1], dtype=y.dtype)).square().mean(1) + torch.tanh(y).mean(1)
    return out


@pytest.mark.parametrize("name", ODD)
def test_the_masked_network_equals_the_compacted_one(name: str) -> None:
    net, inputs = make_odd(name)
    graph = ChannelGraph.trace(net, inputs)
    assert int(graph.prunable.sum()) >= ODD[name][2], graph.describe()
    assert not any("trial" in kept.where for kept in graph.kept), graph.kept  # rules are right by themselves
    for seed in range(3):
        twin, _ = make_odd(name)
        graph = ChannelGraph.trace(twin, inputs, check=False)
        graph.mark_removed(removable_choice(graph, 0.5, seed))
        with torch.no_grad(), masked(graph):
            expected = twin(*inputs)
        compact(graph)
        with torch.no_grad():
            torch.testing.assert_close(twin(*inputs), expected, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("name", ODD)
def test_signals_are_derivatives_of_the_mask(name: str) -> None:
    """g_nk from one backward pass against the loss with the mask moved a little, map by map and image by image."""
    net, inputs = make_odd(name)
    graph = ChannelGraph.trace(net, inputs, check=False)
    statistics = Statistics(len(graph.maps))
    with probed(graph, statistics):
        losses(net, inputs).mean().backward()  # type: ignore[no-untyped-call]
    fisher = Fisher()(graph, statistics)
    free = torch.nonzero(graph.prunable).flatten().tolist()
    for index in free[:: max(1, len(free) // 5)]:
        g = soft_derivative(net, graph, inputs, index)
        expected = float(g.square().mean() / 2)
        assert float(fisher[index]) == pytest.approx(expected, rel=1e-4, abs=1e-12), graph.maps[index]


def soft_derivative(net: nn.Module, graph: ChannelGraph, inputs: tuple[Tensor, ...], index: int) -> Tensor:
    """(N,): central difference of the losses over the mask of one map, with every mask at its place."""
    sides = []
    for value in (1 + 1e-5, 1 - 1e-5):
        handles: list[Any] = []
        for layer in graph.layers:
            ids = layer.outputs if layer.couples else layer.inputs
            if bool((ids == index).any()):
                mask = torch.ones(len(ids), dtype=torch.float64)
                mask[ids == index] = value
                if layer.couples:
                    assert isinstance(layer, LayerNorm)
                    handles += layer.soft_mask(mask)
                else:
                    handles += layer.probe(soft(mask, layer.axis))
        with torch.no_grad():
            sides.append(losses(net, inputs))
        for handle in reversed(handles):
            handle.remove()
    return (sides[0] - sides[1]) / 2e-5


def soft(mask: Tensor, axis: int) -> Callable[[Tensor], Tensor]:
    return lambda x: x * mask.reshape([-1 if d == axis % x.dim() else 1 for d in range(x.dim())])


@pytest.mark.parametrize("name", ["vit", "encoder", "convnext", "u-net", "siamese", "shuffle", "c2f, split"])
def test_pruned_networks_train_on_and_reload(name: str, tmp_path: Any) -> None:
    from safetensors.torch import load_file, save_file

    from fastgaze.pruning import History

    net, inputs = make_odd(name)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    pruner = Pruner(ChannelGraph.trace(net, inputs), optimizer=optimizer)
    start = pruner.total_cost
    for _ in range(3):
        optimizer.zero_grad()
        with pruner.observe():
            losses(net, inputs).mean().backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        pruner.prune(1)
    assert pruner.total_cost < start
    assert pruner.total_cost == Flops().total(ChannelGraph.trace(net, inputs))
    pruner.history.save(str(tmp_path / "history.json"))
    save_file(net.state_dict(), tmp_path / "weights")
    fresh, _ = make_odd(name, seed=1)
    History.load(str(tmp_path / "history.json")).replay(ChannelGraph.trace(fresh, inputs))
    fresh.load_state_dict(load_file(tmp_path / "weights"))
    torch.testing.assert_close(fresh(*inputs), net(*inputs))


def unknown(x: Tensor) -> Tensor:
    out: Tensor = torch.fft.fft2(x).real
    return out


@pytest.mark.parametrize(
    ("function", "word"),
    [
        (lambda s, x: unknown(x), "fft"),
        (lambda s, x: x.reshape(2, 12, 8, 8), "number 12 written down"),
        (lambda s, x: x[:, :12] + x[:, [3] * 12], "selects single maps"),
        (lambda s, x: x - x.mean(1, keepdim=True), "mixes the maps"),
        (lambda s, x: x - x.topk(2, 1)[0].sum(1, keepdim=True), "topk mixes the maps"),
        (lambda s, x: x / x.shape[1] ** 0.5, "uses how many maps"),
        (lambda s, x: x * x.shape[1], "uses how many maps"),
        (lambda s, x: x * float(x.detach().sum() > 0), "mixes the maps"),
        (lambda s, x: torch.ones(12, 1, 1) * x, "joins them with what cannot be sliced"),
        (lambda s, x: torch.cat((x[:, :5], x[:, 5:]), 1), "number 5 written down"),
    ],
)
def test_what_cannot_be_followed_keeps_its_maps_and_is_listed_with_its_line(function: Any, word: str) -> None:
    net, x = between(function)(), torch.randn(2, 3, 8, 8)
    wide = nn.Sequential(nn.Conv2d(3, 5, 1), nn.Conv2d(5, 3, 1), net)
    graph = ChannelGraph.trace(wide, x)
    assert [str(m) for m in graph.maps if m.prunable][:5] == [f"0[{k}]" for k in range(5)]
    assert any(word in kept.reason and "test_coverage.py:" in kept.where for kept in graph.kept), graph.kept
    assert "stays: " in graph.describe()
    if "how many" in word:  # a number that is read does no harm as long as it stays
        ChannelGraph.trace(wide, x, unknown="refuse")
        return
    with pytest.raises(PruningError, match=f"{word}.*unknown='keep'") as refused:
        ChannelGraph.trace(wide, x, unknown="refuse")
    assert "\n" not in str(refused.value)


def test_a_module_that_does_more_than_its_class_is_found_by_trial() -> None:
    class Centred(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x - x.mean(-1, keepdim=True))  # over all its inputs

    net = nn.Sequential(nn.Linear(3, 8), Centred(8, 6), nn.Linear(6, 2))
    graph = ChannelGraph.trace(net, torch.randn(2, 3))
    assert graph.prunable.tolist() == [False] * 8 + [True] * 6 + [False] * 2
    assert any("changes more than masking" in str(kept) for kept in graph.kept)


def test_a_class_that_only_looks_like_a_linear_layer_is_not_taken_for_one() -> None:
    class Cosine(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(6, 8))

        def forward(self, x: Tensor) -> Tensor:
            return nn.functional.linear(x, nn.functional.normalize(self.weight))  # over all its inputs

    graph = ChannelGraph.trace(nn.Sequential(nn.Linear(3, 8), Cosine(), nn.Linear(6, 2)), torch.randn(2, 3))
    assert not graph.prunable.any()
    assert not any("trial" in kept.where for kept in graph.kept)


def test_a_network_on_a_table_has_no_signals_of_single_images_and_keeps_its_maps() -> None:
    net, inputs = make_odd("a table of coordinates")
    graph = ChannelGraph.trace(net, inputs)
    assert not graph.maps_of("inner")[graph.prunable].any()
    assert any("Linear outer reads what does not depend on the images" in str(kept) for kept in graph.kept)


def test_a_convolution_with_a_mask_of_its_weights_shape_stays_and_is_listed() -> None:
    class Causal(nn.Conv2d):
        mask: Tensor

        def __init__(self) -> None:
            super().__init__(12, 12, 3, padding=1)
            self.register_buffer("mask", torch.ones_like(self.weight).tril())

        def forward(self, x: Tensor) -> Tensor:
            self.weight.data *= self.mask  # as in PixelCNN
            return super().forward(x)

    net = between(lambda s, x: s.conv(x), conv=Causal)()
    graph = ChannelGraph.trace(net, torch.randn(2, 3, 8, 8))
    assert not graph.prunable.any()
    assert "24 maps: Causal conv uses its weight in a way that does not work with fewer" in str(graph.kept[0])
    assert graph.layer("conv").flops(graph.layer("conv").positions)[0] > 0  # it is counted all the same


@pytest.mark.parametrize("reentrant", [False, True])
def test_signals_of_checkpointed_layers_are_those_of_plain_ones(reentrant: bool) -> None:
    from torch.utils.checkpoint import checkpoint

    class Block(nn.Module):
        saving = False

        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Conv2d(3, 6, 1)
            self.body, self.last = nn.Sequential(nn.Conv2d(6, 6, 1), nn.ReLU(), nn.Conv2d(6, 5, 1)), nn.Conv2d(5, 2, 1)

        def forward(self, x: Tensor) -> Any:
            x = self.first(x)
            return self.last(checkpoint(self.body, x, use_reentrant=reentrant) if self.saving else self.body(x))

    net, x = Block(), torch.randn(3, 3, 8, 8)
    graph, found = ChannelGraph.trace(net, x), []
    for net.saving in (False, True):
        statistics = Statistics(len(graph.maps))
        with probed(graph, statistics, activity=True):
            losses(net, (x,)).mean().backward()  # type: ignore[no-untyped-call]
        found.append(statistics)
    torch.testing.assert_close(found[1].squared, found[0].squared)
    torch.testing.assert_close(found[1].activity, found[0].activity)


class Aux(Net):
    def __init__(self) -> None:
        super().__init__()
        self.aux = nn.Conv2d(12, 2, 1)

    def forward(self, x: Tensor) -> Any:
        y = self.first(x)
        return (self.last(y), self.aux(y)) if self.training else self.last(y)


def test_a_head_that_runs_in_training_only_is_pruned_along_and_costs_nothing() -> None:
    net, x = Aux().train(), torch.randn(2, 3, 8, 8)
    graph = ChannelGraph.trace(net, x)
    assert net.training
    assert graph.unreached == []
    assert graph.layer("aux").inputs.tolist() == graph.layer("last").inputs.tolist()
    assert Flops().total(graph) == Flops().total(ChannelGraph.trace(nn.Sequential(net.first, net.last), x))
    assert Flops().total(ChannelGraph.trace(net, x, training=True)) > Flops().total(graph)
    pruner = Pruner(graph)
    for _ in range(4):
        with pruner.observe():
            main, aux = net(x)
            (main.square().mean() + aux.square().mean()).backward()
        pruner.prune(2)
    assert net.aux.in_channels == net.last.in_channels == 4
    assert [tuple(y.shape) for y in net(x)] == [(2, 4, 8, 8), (2, 2, 8, 8)]


def test_layers_that_no_mode_reaches_are_reported() -> None:
    net, x = Branching(), torch.randn(2, 3, 8, 8)
    net.spare = nn.Conv2d(12, 2, 1)
    graph = ChannelGraph.trace(net, x)
    assert graph.unreached == ["spare"]
    assert "not reached by the example input, and unknown: spare" in graph.describe()


class Momentum(Aux):
    """Averages another network's weights, counts and draws numbers in every training pass."""

    seen: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.slow = nn.Conv2d(3, 12, 3, padding=1)
        self.register_buffer("seen", torch.zeros(1))

    def forward(self, x: Tensor) -> Any:
        if self.training:
            self.seen += torch.rand(1)
            with torch.no_grad():
                for fast, slow in zip(self.first.parameters(), self.slow.parameters(), strict=True):
                    slow.data = 0.9 * slow.data + 0.1 * fast.data
        return super().forward(x), self.last(self.slow(x))


def test_a_trace_leaves_parameters_buffers_and_random_numbers_alone() -> None:
    net = Momentum()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    torch.manual_seed(0)
    ChannelGraph.trace(net, torch.ones(2, 3, 8, 8))
    after = torch.rand(1)
    torch.manual_seed(0)
    assert torch.equal(after, torch.rand(1))
    for name, value in net.state_dict().items():
        torch.testing.assert_close(value, before[name], rtol=0, atol=0)


def test_weights_that_are_averaged_in_training_keep_their_maps() -> None:
    graph = ChannelGraph.trace(Momentum(), torch.randn(2, 3, 8, 8))
    assert not graph.prunable.any()
    reasons = [str(kept) for kept in graph.kept]
    assert any("first.weight is used outside of its layer too (pruning/test_coverage.py:" in r for r in reasons), (
        reasons
    )


def test_a_network_that_runs_on_its_whole_example_only_is_tried_on_that() -> None:
    class Edges(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.nodes, self.edges, self.last = nn.Linear(3, 8), nn.Linear(16, 6), nn.Linear(6, 2)

        def forward(self, x: Tensor) -> Any:
            nodes, edges = self.nodes(x), torch.tensor([[0, 1, 2, 3, 0, 2], [1, 0, 3, 2, 3, 3]])
            return self.last(self.edges(torch.cat((nodes[edges[0]], nodes[edges[1]]), 1)))

    graph = ChannelGraph.trace(Edges(), torch.randn(4, 3))
    assert not graph.prunable.any()
    assert any("8 maps: Linear edges reads more of some images than of others" in str(kept) for kept in graph.kept)


def test_a_network_that_does_not_run_is_refused_in_one_line_with_its_place() -> None:
    class Broken(Net):
        def between(self, x: Tensor) -> Tensor:
            raise ValueError("first line\nsecond line")

    with pytest.raises(PruningError, match=r"first line \(pruning/test_coverage.py:\d+\)") as refused:
        ChannelGraph.trace(Broken(), torch.randn(2, 3, 8, 8))
    assert "\n" not in str(refused.value)


def test_batchnorm_without_running_statistics_is_refused() -> None:
    net = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4, track_running_stats=False), nn.Conv2d(4, 2, 1))
    with pytest.raises(PruningError, match=r"BatchNorm2d 1 has no running statistics.*track_running_stats=True"):
        ChannelGraph.trace(net, torch.randn(2, 3, 8, 8))
