import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from fastgaze.core.errors import PruningError
from fastgaze.pruning import ChannelGraph, Pruner, compact, masked
from tests.pruning.nets import NETS, image_losses, make, removable_choice


@pytest.mark.parametrize("name", NETS)
@settings(max_examples=8, deadline=None)
@given(share=st.floats(0.0, 1.0), seed=st.integers(0, 1000))
def test_masked_network_equals_compacted_network(name: str, share: float, seed: int) -> None:
    net, x = make(name, seed)
    graph = ChannelGraph.trace(net, x)
    chosen = removable_choice(graph, share, seed)
    graph.mark_removed(chosen)
    with torch.no_grad(), masked(graph):
        expected = net(x)
    before = sum(p.numel() for p in net.parameters())
    compact(graph)
    with torch.no_grad():
        assert torch.allclose(net(x), expected, atol=1e-5, rtol=1e-5)
    assert (sum(p.numel() for p in net.parameters()) < before) == bool(chosen)


@pytest.mark.parametrize("name", NETS)
def test_compacting_in_steps_equals_compacting_at_once(name: str) -> None:
    net, x = make(name)
    graph = ChannelGraph.trace(net, x)
    chosen = removable_choice(graph, 0.6, 3)
    other = copy.deepcopy(net)
    other_graph = ChannelGraph.trace(other, x)
    for index in chosen:
        graph.mark_removed([index])
        compact(graph)
    other_graph.mark_removed(chosen)
    compact(other_graph)
    for a, b in zip(net.state_dict().values(), other.state_dict().values(), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("name", ["densenet", "mobile", "resnet"])
def test_a_trace_of_the_compacted_network_has_the_same_widths(name: str) -> None:
    net, x = make(name)
    graph = ChannelGraph.trace(net, x)
    graph.mark_removed(removable_choice(graph, 0.5, 1))
    compact(graph)
    again = ChannelGraph.trace(net, x)
    for old, new in zip(graph.widths(), again.widths(), strict=True):
        assert torch.equal(old, new)


def test_masks_hold_in_training_mode_of_batchnorm() -> None:
    net, x = make("densenet", batch=4)
    graph = ChannelGraph.trace(net, x)
    graph.mark_removed(removable_choice(graph, 0.4, 5))
    net.train()
    with torch.no_grad(), masked(graph):
        expected = net(x)
    compact(graph)
    with torch.no_grad():
        assert torch.allclose(net(x), expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("name", ["lenet", "densenet", "resnet", "mobile"])
@pytest.mark.parametrize("kind", ["sgd", "adam"])
def test_training_goes_on_alike_on_the_masked_and_on_the_compacted_network(name: str, kind: str) -> None:
    net, x = make(name, dtype=torch.float64)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.mul_(0.5)

    def optimizer_of(model: nn.Module) -> torch.optim.Optimizer:
        if kind == "sgd":
            return torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9, nesterov=True)
        return torch.optim.AdamW(model.parameters(), lr=1e-3, amsgrad=True)

    def step(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        optimizer.zero_grad()
        image_losses(model, x).mean().backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    optimizer = optimizer_of(net)
    for _ in range(3):
        step(net, optimizer)
    twin = copy.deepcopy(net)
    twin_optimizer = optimizer_of(twin)
    twin_optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))

    graph, twin_graph = ChannelGraph.trace(net, x), ChannelGraph.trace(twin, x)
    chosen = removable_choice(graph, 0.4, 7)
    graph.mark_removed(chosen)
    twin_graph.mark_removed(chosen)
    compact(graph, [optimizer])
    for _ in range(20):
        step(net, optimizer)
        with masked(twin_graph):
            step(twin, twin_optimizer)
    compact(twin_graph)
    for (key, a), b in zip(net.named_parameters(), twin.parameters(), strict=True):
        assert torch.allclose(a, b, rtol=1e-7, atol=1e-9), key


def test_frozen_weights_stay_frozen_and_the_memory_format_is_kept() -> None:
    net, x = make("vgg11")
    net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    net.get_parameter("0.weight").requires_grad_(False)
    graph = ChannelGraph.trace(net, x)
    graph.mark_removed([0, 1, 9])
    compact(graph)
    assert not net.get_parameter("0.weight").requires_grad
    assert net.get_parameter("3.weight").requires_grad
    assert net.get_parameter("3.weight").is_contiguous(memory_format=torch.channels_last)


def test_the_optimizer_holds_the_new_parameters_in_their_groups() -> None:
    net, x = make("prelu")
    assert isinstance(net, nn.Sequential)
    optimizer = torch.optim.SGD(
        [{"params": net[0].parameters(), "lr": 0.1}, {"params": list(net[2:].parameters()), "lr": 0.2}], momentum=0.9
    )
    image_losses(net, x).mean().backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    graph = ChannelGraph.trace(net, x)
    graph.mark_removed([1, 13])
    momentum = optimizer.state[net.get_parameter("0.weight")]["momentum_buffer"].clone()
    compact(graph, [optimizer])
    held = [id(p) for group in optimizer.param_groups for p in group["params"]]
    assert held == [id(p) for p in net.parameters()]
    keep = [k for k in range(12) if k != 1]
    assert torch.equal(optimizer.state[net.get_parameter("0.weight")]["momentum_buffer"], momentum[keep])
    assert set(map(id, optimizer.state)) == set(held)


def test_an_optimizer_with_factored_state_is_refused_by_name_and_the_network_stays_whole() -> None:
    net, x = make("prelu")
    optimizer = torch.optim.Adafactor(net.parameters())
    pruner = Pruner(ChannelGraph.trace(net, x), optimizer=optimizer)
    with pruner.observe():
        image_losses(net, x).mean().backward()  # type: ignore[no-untyped-call]
    optimizer.step()  # type: ignore[no-untyped-call]
    expected = net(x)
    with pytest.raises(PruningError, match="Adafactor keeps row_var"):
        pruner.prune()
    assert bool(pruner.graph.alive.all())
    assert torch.equal(net(x), expected)
