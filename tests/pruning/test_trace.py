"""What a network may do besides layers: what pruning follows, what it leaves alone, and what it refuses by name."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.parametrizations import spectral_norm

from fastgaze.core.errors import PruningError
from fastgaze.pruning import ChannelGraph, Flops, Pruner, Random, compact, masked
from fastgaze.pruning.tracing.operations import RULES
from tests.pruning.odd_nets import Guarded

X = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))


class Net(nn.Module):
    """A convolution of six maps, and one that reads them; subclasses do something in between or at the end."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Conv2d(3, 6, 3, padding=1), nn.Conv2d(6, 4, 1)
        self.bound = nn.Parameter(torch.zeros(6, 1, 1))
        self.lstm = nn.LSTM(8, 5)


def prunable(net: nn.Module) -> list[str]:
    """Names of the maps that may go."""
    return [str(found) for found in ChannelGraph.trace(net, X).maps if found.prunable]


class InPieces(Net):
    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        out: tuple[Tensor, ...] = self.last(self.first(x)).chunk(2, 1)
        return out


class Recurrent(Net):
    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.lstm(self.first(x).mean(3))[0]
        return out


class Joined(Net):
    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.last(torch.cat(torch.split(self.first(x), 3, 1), 1))
        return out


class ByName(Net):
    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.last(input=self.first(x))
        return out


class Bounded(Net):
    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.last(torch.clamp(self.first(x), min=self.bound))
        return out


class Normed(Net):
    def __init__(self) -> None:
        super().__init__()
        spectral_norm(self.first)  # in place

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.last(self.first(x))
        return out


@pytest.mark.parametrize(
    ("net", "message"),
    [
        (Recurrent(), "LSTM lstm reads maps along another dimension"),
        (Joined(), "split has the number 3 written down"),
        (Normed(), "ParametrizedConv2d first computes its weight"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else "",
)
def test_what_pruning_would_break_stays_or_is_refused_by_name(net: nn.Module, message: str) -> None:
    graph = ChannelGraph.trace(net, X)
    assert not graph.prunable.any()
    assert any(message in kept.reason for kept in graph.kept)
    with pytest.raises(PruningError, match=message):
        ChannelGraph.trace(net, X, unknown="refuse")


@pytest.mark.parametrize("net", [ByName(), Bounded()], ids=lambda net: type(net).__name__)
def test_what_was_refused_once_is_followed(net: nn.Module) -> None:
    assert len(prunable(net)) == 6


def test_outputs_in_pieces_stay() -> None:
    assert prunable(InPieces()) == [f"first[{k}]" for k in range(6)]


def test_another_word_for_unknown_operations_is_refused() -> None:
    with pytest.raises(PruningError, match="give 'keep' or 'refuse'"):
        ChannelGraph.trace(ByName(), X, unknown="skip")  # type: ignore[arg-type]


class Counted(Net):
    """Divides by the root of the number of maps, as attention does."""

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x)
        out: Tensor = self.last(y / y.shape[1] ** 0.5)
        return out


class Unpacked(Net):
    """Reads the number of maps in passing and does not use it."""

    def forward(self, x: Tensor, scale: float | None = None) -> Tensor:
        y = self.first(x)
        _, _, height, width = y.shape
        y = F.interpolate(y, size=(2 * height, 2 * width))
        return F.interpolate(self.last(y), size=x.shape[-2:])


def test_maps_that_the_network_counts_stay() -> None:
    assert prunable(Counted()) == []


def test_maps_whose_height_and_width_are_read_may_go() -> None:
    assert len(prunable(Unpacked())) == 6


class OneSlope(Net):
    """One PReLU with a single slope behind layers of different widths."""

    def __init__(self) -> None:
        super().__init__()
        self.act, self.middle = nn.PReLU(), nn.Conv2d(6, 5, 1)
        self.last = nn.Conv2d(5, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.last(self.act(self.middle(self.act(self.first(x)))))
        return out


def test_layers_that_share_one_slope_are_pruned_apart() -> None:
    net = OneSlope()
    graph = ChannelGraph.trace(net, X)
    assert sum(found.prunable for found in graph.maps) == 11
    graph.mark_removed([1, 4, 8])
    with masked(graph):
        expected = net(X)
    compact(graph)
    assert (net.first.out_channels, net.middle.out_channels) == (4, 4)
    torch.testing.assert_close(net(X), expected)


def changes(hook: Callable[..., object], *, before: bool = False) -> Net:
    """A network with a hook of its own at its last layer: behind it, or in front of it."""

    class Hooked(Net):
        def __init__(self) -> None:
            super().__init__()
            self.middle = nn.Conv2d(6, 6, 1)
            self.seen: Tensor | None = None

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor | None]:
            y = self.last(self.middle(self.first(x)))
            seen, self.seen = self.seen, None
            return y, seen

    net = Hooked()
    place = net.middle.register_forward_pre_hook if before else net.middle.register_forward_hook
    place(hook)
    return net


def test_what_a_hook_does_is_followed_like_the_networks_own_code() -> None:
    net = changes(lambda _module, args, output: output + args[0])  # a residual connection
    graph = ChannelGraph.trace(net, X)
    assert [str(found) for found in graph.maps if found.prunable] == [f"first[{k}]+middle[{k}]" for k in range(6)]
    graph.mark_removed([0, 4])
    with masked(graph):
        expected, _ = net(X)
    compact(graph)
    torch.testing.assert_close(net(X)[0], expected)


def test_maps_that_a_hook_changes_on_their_way_into_a_layer_stay() -> None:
    graph = ChannelGraph.trace(changes(lambda _module, args: (args[0] + 1,), before=True), X)
    assert [str(found) for found in graph.maps if found.prunable] == [f"middle[{k}]" for k in range(6)]
    assert any("Conv2d middle reads what a hook has changed" in kept.reason for kept in graph.kept)


def test_a_hook_that_only_looks_holds_no_maps_and_one_that_mixes_them_does() -> None:
    looked: list[Tensor] = []
    assert len(prunable(changes(lambda _module, _args, output: looked.append(output)))) == 12
    net = changes(lambda _module, _args, output: setattr(net, "seen", output.mean(1)))
    assert prunable(net) == [f"first[{k}]" for k in range(6)]


def test_maps_that_must_be_tied_and_are_not_are_found_by_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    class Added(Net):
        def __init__(self) -> None:
            super().__init__()
            self.other, self.side = nn.Conv2d(3, 6, 1), nn.Conv2d(6, 2, 1)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            y = self.other(x)
            return self.last(self.first(x) + y), self.side(y)

    monkeypatch.setitem(RULES, "add", lambda call: call.put_channels(call.channels(call.args[0])))  # a wrong rule
    assert len([found for found in ChannelGraph.trace(Added(), X, check=False).maps if found.prunable]) == 12
    graph = ChannelGraph.trace(Added(), X)
    assert not graph.prunable.any()
    assert any("changes more than masking does" in kept.reason for kept in graph.kept)


def test_widths_that_a_network_found_different_never_become_equal() -> None:
    net = Guarded()  # would add the image to the first layer's maps if there were three, and 8 maps to 8 of the 12
    pruner = Pruner(ChannelGraph.trace(net, X), signal=Random())
    pruner.prune(20)  # all that may go
    with pytest.raises(PruningError, match="protected or at its least width"):
        pruner.prune()
    assert [layer.out_channels for layer in net.layers] == [4, 4, 9, 9]
    assert net(X).shape == (2, 2, 8, 8)


def test_sizes_that_einops_computes_follow_the_maps() -> None:
    einops = pytest.importorskip("einops", reason="einops is not installed; `make test` installs it")

    class Tokens(Net):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.wide = nn.LayerNorm(6), nn.Linear(6, 10)
            self.last = nn.Conv2d(10, 4, 1)

        def forward(self, x: Tensor) -> Tensor:
            y = einops.rearrange(self.first(x), "b c h w -> b (h w) c")
            y = einops.rearrange(self.wide(self.norm(y)), "b (h w) c -> b c h w", h=x.shape[2])
            out: Tensor = einops.reduce(self.last(y), "b c h w -> b c", "mean")
            return out

    net = Tokens()
    net(X)  # einops remembers sizes that it has met
    graph = ChannelGraph.trace(net, X)
    assert sum(found.prunable for found in graph.maps) == 16
    graph.mark_removed([1, 4, 8, 15])
    with masked(graph):
        expected = net(X)
    compact(graph)
    torch.testing.assert_close(net(X), expected)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (nn.Conv2d, "cannot trace <class 'torch.nn.modules.conv.Conv2d'>; give a network"),
        (torch.relu, "cannot trace .*; give a network"),
    ],
    ids=["a class", "a function"],
)
def test_what_is_not_a_network_is_refused(given: nn.Module, message: str) -> None:
    with pytest.raises(PruningError, match=message):
        ChannelGraph.trace(given, X)


@pytest.mark.filterwarnings("ignore:.*deprecated")
def test_a_script_module_is_refused() -> None:
    with pytest.raises(PruningError, match="trace the module that it was made from"):
        ChannelGraph.trace(torch.jit.script(nn.Conv2d(3, 4, 1)), X)


def test_a_network_without_layers_costs_nothing() -> None:
    assert Flops().total(ChannelGraph.trace(nn.ReLU(), X)) == 0
