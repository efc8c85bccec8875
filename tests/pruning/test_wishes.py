"""Limits, rounding, relative targets, histories that survive, and training as people do it."""

from pathlib import Path

import pytest
import torch
from torch import nn

from fastgaze.core.errors import PruningError
from fastgaze.pruning import (
    ChannelGraph,
    Flops,
    History,
    NoCost,
    Pruner,
    Random,
    Target,
    Until,
    recalibrate,
    register,
    run,
)
from fastgaze.pruning.tracing.operations import pointwise
from tests.pruning.nets import image_losses, make, observed

X = torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(0))


def plain(*widths: int, groups: int = 1) -> nn.Sequential:
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for k, (inside, out) in enumerate(zip((3, *widths[:-1]), widths, strict=True)):
        layers += [nn.Conv2d(inside, out, 1, groups=groups if k == 1 else 1), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def scored(net: nn.Module, x: torch.Tensor = X, **options: object) -> Pruner:
    pruner = Pruner(ChannelGraph.trace(net, x), **options)  # type: ignore[arg-type]
    with pruner.observe():
        net(x).square().mean().backward()
    return pruner


def test_alignment_reaches_multiples_on_grouped_layers() -> None:
    net = plain(36, 36, 4, groups=2)  # maps leave two channels at a time
    scored(net).align(16)
    assert [m.out_channels for m in net if isinstance(m, nn.Conv2d)] == [32, 32, 4]


class Tied(nn.Module):
    """Two layers concatenated and added to a third: its maps are tied to both."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c, self.last = (
            nn.Conv2d(3, 20, 1), nn.Conv2d(3, 22, 1), nn.Conv2d(3, 42, 1), nn.Conv2d(42, 2, 1),
        )  # fmt: skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.last(torch.cat((self.a(x), self.b(x)), 1) + self.c(x))
        return out


def test_alignment_of_concatenated_and_tied_layers() -> None:
    torch.manual_seed(0)
    net = Tied()
    scored(net).align(16)
    assert (net.a.out_channels, net.b.out_channels, net.c.out_channels) == (16, 16, 32)


def test_widths_stay_on_multiples_while_pruning() -> None:
    net = plain(32, 24, 4)
    pruner = scored(net, round_to=8, objective=NoCost())
    pruner.prune(1)
    assert sorted(m.out_channels % 8 for m in net if isinstance(m, nn.Conv2d))[:2] == [0, 0]
    assert pruner.maps_left == 32 + 24 + 4 - 8


def test_the_bunch_that_leaves_has_the_lowest_mean_not_the_lowest_map() -> None:
    class Given:
        needs = frozenset({"gradient"})

        def __call__(self, graph: ChannelGraph, statistics: object) -> torch.Tensor:
            del graph, statistics
            return torch.tensor([0.0] + [9.0] * 15 + [1.0] * 16 + [0.0] * 4, dtype=torch.float64)

    net = plain(16, 16, 4)
    scored(net, signal=Given(), objective=NoCost(), round_to=8).prune(1)
    assert [m.out_channels for m in net if isinstance(m, nn.Conv2d)] == [16, 8, 4]


def test_layers_keep_their_least_widths() -> None:
    net = plain(16, 16, 4)
    pruner = scored(net, signal=Random(0), objective=NoCost(), limits={"0": 10, "2": 0.25})
    pruner.prune(1000)
    assert [m.out_channels for m in net if isinstance(m, nn.Conv2d)] == [10, 4, 4]
    with pytest.raises(PruningError, match=r"limit 2\.5 for 0 is not valid"):
        Pruner(pruner.graph, limits={"0": 2.5})


def test_keep_takes_prefixes_classes_and_predicates() -> None:
    net, x = make("resnet")
    graph = ChannelGraph.trace(net, x)
    for keep in ("stages.0", nn.Conv2d, lambda layer: layer.name == "stem.0"):
        assert Pruner(graph, keep=keep).protected.any()
    assert Pruner(graph, keep=nn.Conv2d).protected[:-5].all()


def test_targets_relative_to_the_start() -> None:
    _, pruner, _ = observed("lenet")
    assert pruner.prune_to(Target(share=0.5)).cost <= 0.5 * pruner.history.cost
    _, pruner, _ = observed("lenet")
    removal = pruner.prune(1000, to_share=0.8)
    assert removal.cost <= 0.8 * pruner.history.cost < removal.cost + 70_000
    assert Until(share=0.9).reached(pruner)
    with pytest.raises(PruningError, match="not a share"):
        pruner.part(1.5)


def test_a_history_of_another_network_with_as_many_maps_is_refused() -> None:
    pruner = scored(plain(12, 8, 4))
    pruner.prune(2)
    with pytest.raises(PruningError, match="its layer 0 is 12 wide, here it is 8 wide"):
        pruner.history.replay(ChannelGraph.trace(plain(8, 12, 4), X))


def test_removals_by_hand_and_by_a_second_pruner_replay(tmp_path: Path) -> None:
    net = plain(12, 8, 4)
    first = scored(net)
    first.remove([3])
    second = Pruner(first.graph)
    second.remove([5, 14])
    with first.observe():
        net(X).square().mean().backward()
    first.prune(2)
    for history in (first.history, Pruner(first.graph).history):
        history.save(str(tmp_path / "history.json"))
        fresh = plain(12, 8, 4)
        History.load(tmp_path / "history.json").replay(ChannelGraph.trace(fresh, X))
        assert [p.shape for p in fresh.parameters()] == [p.shape for p in net.parameters()]


def test_a_run_with_a_tensor_as_learning_rate_resumes_from_a_string_path(tmp_path: Path) -> None:
    def start() -> tuple[nn.Module, Pruner]:
        net = plain(12, 8, 4)
        optimizer = torch.optim.Adam(net.parameters(), lr=torch.tensor(1e-3))
        return net, Pruner(ChannelGraph.trace(net, X), optimizer=optimizer)

    def trained(net: nn.Module, pruner: Pruner) -> float:
        pruner.optimizers[0].zero_grad()
        with pruner.observe():
            loss = net(X).square().mean()
            loss.backward()
        pruner.optimizers[0].step()
        return float(loss.detach())

    for maps_left in (20, 18):
        net, pruner = start()

        def step(_number: int, net: nn.Module = net, pruner: Pruner = pruner) -> float:
            return trained(net, pruner)

        run(pruner, step, Until(maps_left=maps_left), steps=1, checkpoint=str(tmp_path / "r"))
        assert pruner.maps_left == maps_left
    assert isinstance(pruner.optimizers[0].param_groups[0]["lr"], torch.Tensor)


def test_loss_scaling_is_undone_and_overflowed_batches_do_not_count() -> None:
    """The loop of mixed precision: scale, step, update, with a removal between two steps."""
    net, x = make("prelu", dtype=torch.float64)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    pruner = Pruner(ChannelGraph.trace(net, x), optimizer=optimizer)
    with pruner.observe():
        image_losses(net, x).mean().backward()  # type: ignore[no-untyped-call]
    expected = pruner.delta_loss()
    pruner.statistics.clear()
    for factor, images, scale in ((1.0, len(x), 1024.0), (float("inf"), len(x), 512.0), (1.0, 2 * len(x), 512.0)):
        optimizer.zero_grad()
        before = net.get_parameter("0.weight").detach().clone()
        with pruner.observe(loss_scale=scaler):
            scaler.scale(image_losses(net, x).mean() * factor).backward()  # type: ignore[no-untyped-call]
        if pruner.statistics.images == len(x) and factor == 1.0:
            torch.testing.assert_close(pruner.delta_loss(), expected)
        scaler.step(optimizer)
        scaler.update()
        assert pruner.statistics.images == images
        assert scaler.get_scale() == scale
        assert torch.equal(net.get_parameter("0.weight"), before) == (factor != 1.0)
    pruner.prune(3)
    optimizer.zero_grad()
    narrow = net.get_parameter("0.weight").detach().clone()
    scaler.scale(image_losses(net, x).mean()).backward()  # type: ignore[no-untyped-call]
    scaler.step(optimizer)
    assert not torch.equal(net.get_parameter("0.weight"), narrow)


def test_recalibration_gives_the_statistics_of_the_batches() -> None:
    net = nn.Sequential(nn.Conv2d(3, 6, 1), nn.BatchNorm2d(6), nn.Conv2d(6, 2, 1)).train()
    assert recalibrate(net, [X, (X + 1, "labels")]) == 2
    both = torch.cat((net[0](X), net[0](X + 1))).detach()
    torch.testing.assert_close(net[1].running_mean, both.mean((0, 2, 3)))
    assert net[1].training
    assert net[1].momentum == 0.1
    with pytest.raises(PruningError, match="got no batch"):
        recalibrate(net, [])


def test_a_registered_rule_is_used() -> None:
    class Wave(torch.autograd.Function):
        @staticmethod
        def forward(ctx: object, x: torch.Tensor) -> torch.Tensor:
            out: torch.Tensor = torch.special.bessel_j0(x)
            return out

    class Odd(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            out: torch.Tensor = Wave.apply(x)  # type: ignore[no-untyped-call]
            return out

    net = nn.Sequential(nn.Conv2d(3, 6, 1), Odd(), nn.Conv2d(6, 2, 1))
    assert not ChannelGraph.trace(net, X).prunable.any()
    register(Odd, pointwise)
    assert int(ChannelGraph.trace(net, X).prunable.sum()) == 6
    with pytest.raises(PruningError, match="cannot register 3"):
        register(3, pointwise)  # type: ignore[arg-type]


def test_compiled_and_parallel_wrappers_are_looked_through() -> None:
    net = plain(6, 4)
    graph = ChannelGraph.trace(nn.DataParallel(net), X)
    assert graph.root is net
    assert ChannelGraph.trace(torch.compile(net, backend="eager"), X).root is net  # type: ignore[arg-type]


def test_a_compiled_network_is_trained_between_removals() -> None:
    """Observed steps run the plain network, the others the compiled one, which follows every removal."""
    net = plain(6, 4)
    compiled = torch.compile(net, backend="eager")
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    pruner = Pruner(ChannelGraph.trace(compiled, X), optimizer=optimizer)  # type: ignore[arg-type]
    for _ in range(2):
        with pruner.observe():
            pruner.graph.root(X).square().mean().backward()
        pruner.prune(1)
        optimizer.zero_grad()
        compiled(X).square().mean().backward()
        assert all(p.grad is not None and p.grad.shape == p.shape for p in net.parameters())
        optimizer.step()
        torch.testing.assert_close(compiled(X), net(X))
    assert pruner.maps_left == 8


def test_flops_of_transposed_convolutions_count_what_is_read() -> None:
    net = nn.Sequential(nn.Conv2d(3, 4, 1), nn.ConvTranspose2d(4, 5, 2, 2), nn.Conv2d(5, 1, 1))
    graph = ChannelGraph.trace(net, torch.zeros(1, 3, 6, 6))
    assert Flops().by_layer(graph).tolist() == [36 * 4 * 7, 5 * (36 * 2 * 4 * 4 + 144), 144 * 11]


def test_a_residual_block_that_adds_nothing_goes_as_a_whole(tmp_path: Path) -> None:
    net, x = make("resnet", batch=3)
    nn.init.zeros_(net.get_parameter("stages.1.bn2.weight"))
    nn.init.zeros_(net.get_parameter("stages.1.bn2.bias"))
    expected = net(x).detach()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    graph = ChannelGraph.trace(net, x)
    assert graph.blocks == ["stages.0", "stages.1", "stages.3"]
    pruner = Pruner(graph, optimizer=optimizer, blocks=True)
    with pruner.observe():
        image_losses(net, x).mean().backward()  # type: ignore[no-untyped-call]
    assert pruner.block_scores()["stages.1"] == 0
    assert pruner.block_scores()["stages.0"] > 0
    before = pruner.total_cost
    removal = pruner.remove_block("stages.1")
    assert removal.block == "stages.1"
    assert isinstance(net.get_submodule("stages.1"), nn.Identity)
    torch.testing.assert_close(net(x).detach(), expected)
    assert pruner.total_cost == Flops().total(ChannelGraph.trace(net, x)) < before
    assert sum(len(group["params"]) for group in optimizer.param_groups) == len(list(net.parameters()))
    with pruner.observe():
        image_losses(net, x).mean().backward()  # type: ignore[no-untyped-call]
    pruner.prune(3)
    pruner.history.save(tmp_path / "h.json")
    fresh, _ = make("resnet")
    History.load(tmp_path / "h.json").replay(ChannelGraph.trace(fresh, x))
    assert [p.shape for p in fresh.parameters()] == [p.shape for p in net.parameters()]
