"""What a network may do besides layers: what pruning follows, what it leaves alone, and what it refuses by name."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.parametrizations import spectral_norm

from fastgaze.core.errors import PruningError
from fastgaze.pruning import ChannelGraph, compact, masked

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
