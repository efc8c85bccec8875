from pathlib import Path

import pytest
import torch
from torch import nn

from fastgaze.core.errors import PruningError
from fastgaze.pruning import Beta, BetaStar, ChannelGraph, Fisher, Flops, History, NoCost, Pruner, Random, Target
from tests.pruning.nets import image_losses, make, observed


@pytest.mark.parametrize("name", ["lenet", "densenet", "resnet", "mobile"])
def test_beta_star_picks_what_brute_force_picks(name: str) -> None:
    _, pruner, _ = observed(name)
    graph, flops, delta_loss = pruner.graph, Flops(), pruner.delta_loss()
    total = flops.total(graph)
    best, lowest = -1, float("inf")
    for index in torch.nonzero(graph.candidates()).flatten().tolist():
        alive = graph.alive.clone()
        alive[index] = False
        beta_i = -float(delta_loss[index]) / (flops.total(graph, alive) - total)
        if beta_i < lowest:
            best, lowest = index, beta_i
    assert pruner.prune(1).indices == (best,)


def test_a_fixed_beta_moves_from_the_loss_to_the_cost() -> None:
    delta_loss, delta_cost = torch.tensor([1.0, 2.0, 4.0]), torch.tensor([-1, -10, -100])
    assert NoCost()(delta_loss, delta_cost).argmin() == 0
    assert Beta(0.0, unit=1)(delta_loss, delta_cost).tolist() == [1.0, 2.0, 4.0]
    assert Beta(0.2, unit=1)(delta_loss, delta_cost).argmin() == 2
    assert Beta(0.2e9)(delta_loss, delta_cost).tolist() == pytest.approx(
        Beta(0.2, unit=1)(delta_loss, delta_cost).tolist()
    )
    assert BetaStar()(delta_loss, delta_cost).tolist() == pytest.approx([1.0, 0.2, 0.04])
    assert BetaStar()(delta_loss, torch.tensor([0, -1, -1]))[0] == torch.inf


def test_costs_are_live_within_a_round() -> None:
    _, pruner, _ = observed("lenet")
    _, twin, _ = observed("lenet")
    delta_loss = pruner.delta_loss()
    chosen = pruner.prune(30).indices
    alive = twin.graph.alive
    for index in chosen:  # each is the best for the widths that the ones before it left
        scores = BetaStar()(delta_loss, Flops().delta_cost(twin.graph, alive))
        allowed = twin.allowed & alive[:-1]
        assert float(scores[index]) == float(scores[allowed].min())
        alive = alive.clone()
        alive[index] = False


def test_pruning_forgets_signals_and_counts_down() -> None:
    net, pruner, _ = observed("lenet")
    total, images = pruner.total_cost, pruner.statistics.images
    removal = pruner.prune(7)
    assert (len(removal.indices), removal.left, removal.images) == (7, 573, images)
    assert removal.cost == pruner.total_cost < total
    assert pruner.statistics.images == 0
    with pytest.raises(PruningError, match="no image was observed"):
        pruner.prune()
    hidden = net.get_submodule("5")
    assert isinstance(hidden, nn.Linear)
    assert sum(m.out_channels for m in net.children() if isinstance(m, nn.Conv2d)) + hidden.out_features == 563


def test_no_layer_is_ever_emptied() -> None:
    net, pruner, x = observed("resnet", signal=Random(0), objective=NoCost())
    pruner.prune(10_000)
    assert all(len(layer.outputs) >= 1 for layer in pruner.graph.readers)
    assert net(x).shape == (3, 5)
    with pytest.raises(PruningError, match="no map can be removed"):
        pruner.prune()


def test_kept_layers_keep_their_maps() -> None:
    net, pruner, _ = observed("vgg11", keep={"3", "8"})
    pruner.prune(100)
    assert net.get_submodule("3").out_channels == 16
    assert net.get_submodule("8").out_channels == 32
    with pytest.raises(PruningError, match="no layer 'readout'"):
        Pruner(pruner.graph, keep={"readout"})


def test_a_share_of_the_remaining_maps_goes() -> None:
    _, pruner, _ = observed("lenet")
    assert len(pruner.prune(share=0.1).indices) == 57


def test_a_round_ends_when_the_cost_is_reached() -> None:
    _, pruner, _ = observed("lenet")
    goal = 0.8 * pruner.total_cost
    removal = pruner.prune(1000, to_cost=goal)
    assert removal.cost <= goal < removal.cost + 70_000
    assert len(removal.indices) < 570


def test_the_smallest_beta_that_reaches_a_cost_is_found() -> None:
    _, pruner, _ = observed("lenet")
    graph, cost = pruner.graph, pruner.cost
    beta_i = pruner.scores()
    goal = 0.5 * pruner.total_cost
    removal = pruner.prune_to(Target(cost=goal))
    assert removal.cost <= goal
    assert removal.beta == max(float(beta_i[k]) for k in removal.indices)
    condemned = {k for k in range(570) if float(beta_i[k]) <= removal.beta}
    assert set(removal.indices) == condemned
    alive = torch.ones_like(graph.alive)
    alive[[k for k in condemned if float(beta_i[k]) < removal.beta]] = False
    assert cost.total(graph, alive) > goal


def test_a_target_may_be_a_number_of_maps() -> None:
    _, pruner, _ = observed("lenet")
    dead = int((pruner.delta_loss()[:570] == 0).sum())  # all go at beta = 0
    assert 0 < dead < 300
    assert pruner.prune_to(Target(remove=300)).left == 280
    with pytest.raises(PruningError, match="exactly one"):
        Target(cost=1.0, remove=2)


def test_an_unreachable_target_is_refused_before_anything_is_removed() -> None:
    _, pruner, _ = observed("lenet")
    with pytest.raises(PruningError, match="out of reach"):
        pruner.prune_to(Target(cost=10.0))
    assert pruner.maps_left == 580


def test_alignment_rounds_widths_down_and_spares_narrow_layers() -> None:
    net, pruner, x = observed("vgg11")  # widths 8 16 32 32 64 64 64 64
    pruner.prune(40)
    with pruner.observe():
        image_losses(net, x).mean().backward()  # type: ignore[no-untyped-call]
    before = [m.out_channels for m in net.children() if isinstance(m, nn.Conv2d)]
    scores = pruner.scores()
    removal = pruner.align(8)
    after = [m.out_channels for m in net.children() if isinstance(m, nn.Conv2d)]
    assert after[:-1] == [w - w % 8 if w > 8 else w for w in before[:-1]]
    assert before != after
    for layer in pruner.graph.readers[:-1]:
        gone = [k for k in removal.indices if str(pruner.graph.maps[k]).startswith(f"{layer.name}[")]
        assert all(scores[k] <= scores[layer.outputs].min() for k in gone)
    assert net(x).shape[1] == 1


def test_named_layers_are_narrowed_to_given_widths_and_no_others() -> None:
    net, pruner, _ = observed("vgg11")  # widths 8 16 32 32 64 64 64 64
    names = [layer.name for layer in pruner.graph.readers]
    pruner.narrow({names[1]: 5, names[3]: 32, names[4]: 17})
    assert [m.out_channels for m in net.children() if isinstance(m, nn.Conv2d)][:5] == [8, 5, 32, 32, 17]


@pytest.mark.parametrize("width", [0, 17])
def test_a_width_that_a_layer_cannot_have_is_refused(width: int) -> None:
    _, pruner, _ = observed("vgg11")
    with pytest.raises(PruningError, match="has 16 maps and cannot be narrowed"):
        pruner.narrow({pruner.graph.readers[1].name: width})


def test_masks_until_compaction_give_the_same_network() -> None:
    net, pruner, x = observed("densenet", compacting=False)
    twin, other, _ = observed("densenet")
    for p, n in ((pruner, net), (other, twin)):
        for _ in range(3):
            p.prune(20)
            with p.observe():
                image_losses(n, x).mean().backward()  # type: ignore[no-untyped-call]
    assert pruner.history.removed == other.history.removed
    assert torch.allclose(net(x), twin(x))
    width = net.get_submodule("stem.0").out_channels
    pruner.compact()
    assert width == 16
    assert torch.allclose(net(x), twin(x))
    assert [p.shape for p in net.parameters()] == [p.shape for p in twin.parameters()]
    assert not any(module._forward_pre_hooks for module in net.modules())


def test_the_network_may_be_part_of_a_larger_model() -> None:
    class Larger(nn.Module):
        def __init__(self, network: nn.Module) -> None:
            super().__init__()
            self.network = network

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y: torch.Tensor = self.network(x)
            if y.numel() > 1:  # control flow that torch.fx cannot trace
                y = y.flatten(1).log_softmax(1)
            return y

    net, x = make("prelu", batch=4)
    model = Larger(net)
    pruner = Pruner(ChannelGraph.trace(net, x), optimizer=torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))
    for _ in range(3):
        with pruner.observe():
            model(x)[:, 5].neg().mean().backward()
        pruner.optimizers[0].step()
        pruner.optimizers[0].zero_grad()
        pruner.prune(2)
    assert pruner.maps_left == len(pruner.graph.maps) - 6
    assert torch.isfinite(model(x)).all()


def test_a_history_replays_on_a_fresh_network(tmp_path: Path) -> None:
    net, pruner, x = observed("densenet")
    for _ in range(3):
        pruner.prune(15)
        with pruner.observe():
            image_losses(net, x).mean().backward()  # type: ignore[no-untyped-call]
    path = tmp_path / "history.json"
    pruner.history.save(path)
    loaded = History.load(path)
    assert loaded == pruner.history
    fresh, x = make("densenet", batch=3, dtype=torch.float64)
    graph = ChannelGraph.trace(fresh, x)
    loaded.replay(graph)
    for a, b in zip(fresh.parameters(), net.parameters(), strict=True):
        assert torch.equal(a, b)
    with pytest.raises(PruningError, match="all alive"):
        loaded.replay(graph)


def test_a_signal_that_is_not_a_number_is_refused() -> None:
    net, x = make("prelu")
    pruner = Pruner(ChannelGraph.trace(net, x), signal=Fisher())
    with pruner.observe():
        (image_losses(net, x).mean() * float("nan")).backward()  # type: ignore[no-untyped-call]
    with pytest.raises(PruningError, match="not a number"):
        pruner.prune()


def test_a_width_that_grouped_maps_cannot_give_is_refused_before_anything_is_removed() -> None:
    net = nn.Sequential(nn.Conv2d(3, 8, 1), nn.Conv2d(8, 8, 1, groups=4), nn.Conv2d(8, 2, 1))
    x = torch.randn(2, 3, 6, 6)
    pruner = Pruner(ChannelGraph.trace(net, x))
    with pruner.observe():
        net(x).square().mean().backward()
    for widths in ({"0": 5}, {"2": 1}):
        with pytest.raises(PruningError, match="cannot be narrowed"):
            pruner.narrow(widths)
    assert pruner.maps_left == len(pruner.graph.maps)


def test_a_network_without_prunable_maps_is_told_apart_from_a_missing_backward_pass() -> None:
    net = nn.Sequential(nn.Conv2d(3, 2, 1))
    pruner = Pruner(ChannelGraph.trace(net, torch.randn(1, 3, 4, 4)))
    with pytest.raises(PruningError, match="no map that can be pruned"), pruner.observe():
        net(torch.randn(1, 3, 4, 4)).square().mean().backward()


def test_an_optimizer_of_another_network_is_refused() -> None:
    net, x = make("lenet")
    other, _ = make("lenet")
    graph = ChannelGraph.trace(net, x)
    with pytest.raises(PruningError, match="the optimizer holds no parameter of this network"):
        Pruner(graph, optimizer=torch.optim.Adam(other.parameters()))
    net.requires_grad_(False)  # another part of a larger model is trained
    assert Pruner(graph, optimizer=torch.optim.Adam(other.parameters())).maps_left == len(graph.maps)
