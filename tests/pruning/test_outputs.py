"""Whatever a network hands out keeps its channels, in whatever it is wrapped; what cannot be seen is refused."""

import re
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fastgaze.core.errors import PruningError
from fastgaze.pruning import ChannelGraph, Pruner, compact, masked
from tests.pruning.odd_list import make_odd
from tests.pruning.odd_sequences import old_weight_norm


@dataclass
class Inner:
    features: Tensor


@dataclass
class Outer:
    logits: Tensor
    inner: Inner


@dataclass(slots=True)
class Slots:
    logits: Tensor
    features: list[Tensor]


class Held:
    __slots__ = "logits"

    def __init__(self, logits: Tensor, features: Tensor) -> None:
        self.logits = {"deep": (logits, [features])}


class Named(OrderedDict[str, Tensor]):
    pass


class Wrapped(nn.Module):
    """Six maps that are handed out, four that are not, two logits."""

    def __init__(self, wrap: Callable[[Tensor, Tensor], Any]) -> None:
        super().__init__()
        self.wrap = wrap
        self.a, self.b, self.c, self.fc = (
            nn.Conv2d(3, 6, 1), nn.Conv2d(6, 4, 1), nn.Conv2d(4, 5, 1), nn.Linear(5, 2),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Any:
        a = self.a(x)
        return self.wrap(self.fc(self.c(self.b(a.relu()).relu()).mean((2, 3))), a)


@pytest.mark.parametrize(
    "wrap",
    [
        lambda y, a: Outer(y, Inner(a)),
        lambda y, a: Slots(y, [a]),
        lambda y, a: Held(y, a),
        lambda y, a: Named(logits=y, features=a),
        lambda y, a: {"logits": y, "more": [{"features": a}, None, "text", 3]},
        lambda y, a: (torch.distributions.Categorical(logits=y), a),
    ],
    ids=["nested dataclass", "slots", "object", "mapping of a class of its own", "nested dict", "distribution"],
)
@pytest.mark.parametrize("check", [True, False])
def test_outputs_keep_their_channels_in_whatever_they_are_wrapped(wrap: Any, check: bool) -> None:
    graph = ChannelGraph.trace(Wrapped(wrap), torch.randn(2, 3, 8, 8), check=check)
    assert graph.prunable.tolist() == [False] * 6 + [True] * 9 + [False] * 2


def test_a_result_in_which_no_tensor_can_be_seen_is_refused() -> None:
    net = Wrapped(lambda y, a: (part for part in (y, a)))
    with pytest.raises(PruningError, match="Wrapped returns a generator, in which there is no tensor"):
        ChannelGraph.trace(net, torch.randn(2, 3, 8, 8))


def test_what_no_layer_reads_stays_since_a_loss_may_read_it() -> None:
    class Sideways(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last, self.side = nn.Conv2d(3, 6, 1), nn.Conv2d(6, 2, 1), nn.Conv2d(6, 4, 1)

        def forward(self, x: Tensor) -> Any:
            y = self.first(x)
            self.features = self.side(y)
            return self.last(y)

    graph = ChannelGraph.trace(Sideways(), torch.randn(2, 3, 8, 8))
    assert graph.prunable[graph.maps_of("first")].all()
    assert not graph.prunable[graph.maps_of("side")].any()
    assert any("4 maps: side makes what no layer reads" in str(kept) for kept in graph.kept)


class Looking(nn.Module):
    def __init__(self, returned: bool) -> None:
        super().__init__()
        self.first, self.last, self.returned = nn.Linear(3, 8), nn.Linear(8, 2), returned
        self.attend = nn.MultiheadAttention(8, 4, batch_first=True)

    def forward(self, x: Tensor) -> Any:
        x = self.first(x)
        y, where = self.attend(x, x, x)
        return (self.last(y), where) if self.returned else self.last(y)


@pytest.mark.parametrize("example", [torch.zeros(1, 5, 3), torch.randn(2, 5, 3)], ids=["zeros", "random"])
@pytest.mark.parametrize("returned", [True, False])
def test_heads_stay_if_the_mean_over_them_is_returned(returned: bool, example: Tensor) -> None:
    graph = ChannelGraph.trace(Looking(returned), example, check=False)
    assert graph.prunable[graph.maps_of("attend.in_proj")].tolist() == [not returned] * 4
    if returned:
        assert any("4 maps: MultiheadAttention attend hands out what all heads look at" in str(k) for k in graph.kept)


def test_an_example_of_zeros_hides_nothing_from_the_trial() -> None:
    class Centred(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x - x.mean(-1, keepdim=True))

    net = nn.Sequential(nn.Linear(3, 8, bias=False), Centred(8, 6), nn.Linear(6, 2))
    graph = ChannelGraph.trace(net, torch.zeros(1, 3))
    assert graph.prunable.tolist() == [False] * 8 + [True] * 6 + [False] * 2


def test_attention_with_a_forward_pass_of_its_own_stays() -> None:
    class Averaged(nn.MultiheadAttention):
        def forward(self, *args: Any, **kwargs: Any) -> Any:
            y, where = super().forward(*args, **kwargs)
            assert where is not None
            return y * where.amax(), None

    class Scaled(Looking):
        def __init__(self) -> None:
            super().__init__(False)
            self.attend = Averaged(8, 4, batch_first=True)

    graph = ChannelGraph.trace(Scaled(), torch.randn(2, 5, 3))
    assert not graph.prunable.any()
    assert any("Averaged attend has a forward pass of its own" in str(kept) for kept in graph.kept)


def test_a_reason_found_by_trial_is_short_where_a_map_ties_many_channels() -> None:
    class Centred(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x - x.mean(-1, keepdim=True))

    class Residual(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Linear(3, 8), Centred(8, 2)
            self.blocks = nn.ModuleList(nn.Linear(8, 8) for _ in range(5))

        def forward(self, x: Tensor) -> Any:
            x = self.first(x)
            for block in self.blocks:
                x = x + block(x).relu()
            return self.last(x)

    graph = ChannelGraph.trace(Residual(), torch.randn(2, 3))
    assert not graph.prunable.any()
    assert re.search(r"removing first\[\d\] with 5 tied to it changes more than masking does", str(graph.kept[0]))


def test_a_state_that_a_recurrent_layer_starts_from_stays() -> None:
    class Decoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.start, self.words, self.last = nn.Linear(3, 5), nn.Linear(3, 4), nn.Linear(5, 2)
            self.rnn = nn.GRU(4, 5, batch_first=True)

        def forward(self, x: Tensor) -> Any:
            return self.last(self.rnn(self.words(x), self.start(x.mean(1))[None])[0])

    graph = ChannelGraph.trace(Decoder(), torch.randn(2, 6, 3))
    assert graph.prunable[graph.maps_of("words")].all()
    assert not graph.prunable[graph.maps_of("start")].any()
    assert any("5 maps: GRU rnn starts from them" in str(kept) for kept in graph.kept)


def test_a_weight_that_is_used_elsewhere_is_reported_with_the_line_that_does_it() -> None:
    class Penalised(nn.Sequential):
        def forward(self, x: Tensor) -> Any:
            return super().forward(x), self.get_parameter("0.weight").square().sum()  # type: ignore[no-untyped-call]

    graph = ChannelGraph.trace(Penalised(nn.Linear(3, 6), nn.ReLU(), nn.Linear(6, 2)), torch.randn(2, 3))
    assert not graph.prunable.any()
    assert any("0.weight is used outside of its layer too (pruning/test_outputs.py:" in str(k) for k in graph.kept)


def test_a_spectral_norm_stays_and_says_what_to_do() -> None:
    norm = nn.utils.parametrizations.spectral_norm
    net = nn.Sequential(nn.Conv2d(3, 6, 1), nn.ReLU(), norm(nn.Conv2d(6, 5, 1)), nn.Conv2d(5, 2, 1))
    graph = ChannelGraph.trace(net, torch.randn(2, 3, 8, 8))
    assert not graph.prunable.any()
    assert any("computes its weight (spectral_norm and such); make it a plain" in str(kept) for kept in graph.kept)


@pytest.mark.parametrize("norm", [old_weight_norm, nn.utils.parametrizations.weight_norm])
def test_weight_normalised_layers_train_on_and_count_their_parameters(norm: Any) -> None:
    from fastgaze.pruning import Parameters

    net, x = nn.Sequential(norm(nn.Linear(3, 8)), nn.ReLU(), norm(nn.Linear(8, 6)), nn.Linear(6, 2)), torch.randn(4, 3)
    optimizer = torch.optim.Adam(net.parameters(), 1e-2)
    net(x).square().mean().backward()  # the old one now holds a weight with a history, which cannot be copied
    pruner = Pruner(ChannelGraph.trace(net, x), cost=Parameters(), optimizer=optimizer)
    for _ in range(3):
        optimizer.zero_grad()
        with pruner.observe():
            net(x).square().mean().backward()
        optimizer.step()
        expected = net(x)
        removal = pruner.prune(2)
        assert removal.cost == sum(parameter.numel() for parameter in net.parameters())
    assert not torch.allclose(net(x), expected)  # something went
    assert set(map(id, net.parameters())) == {id(p) for group in optimizer.param_groups for p in group["params"]}


def test_a_weight_normalised_row_of_which_only_zeros_are_left_stays_zero() -> None:
    norm = nn.utils.parametrizations.weight_norm
    net, x = nn.Sequential(nn.Linear(3, 4), norm(nn.Linear(4, 5)), nn.Linear(5, 2)), torch.randn(4, 3)
    net.get_parameter("1.parametrizations.weight.original1").data[2, 1:] = 0
    graph = ChannelGraph.trace(net, x)
    graph.mark_removed([0])  # the only input that the row has
    with masked(graph):
        expected = net(x)
    compact(graph)
    torch.testing.assert_close(net(x), expected)


def test_recurrent_layers_count_their_parameters() -> None:
    from fastgaze.pruning import Parameters

    for name in ("lstm behind convolutions", "cells"):
        net, inputs = make_odd(name)
        graph = ChannelGraph.trace(net, inputs)
        assert Parameters().total(graph) == sum(parameter.numel() for parameter in net.parameters())
