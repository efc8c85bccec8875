import pytest
import torch
from torch import Tensor, nn

from fastgaze.core.errors import PruningError
from fastgaze.pruning import (
    ChannelGraph,
    Fisher,
    L1Activity,
    L1Weight,
    Layer,
    Molchanov,
    Random,
    Signal,
    Statistics,
    probed,
)
from fastgaze.pruning.probe import Reduction
from tests.pruning.nets import NETS, image_losses, make


def mask_gradients(net: nn.Module, graph: ChannelGraph, x: Tensor) -> Tensor:
    """float64 (N, maps): g_nk by autograd through an explicit mask, one image at a time."""
    rows = []
    for image in x:
        mask = torch.ones(len(graph.maps) + 1, dtype=torch.float64, requires_grad=True)
        handles = []
        for layer in graph.readers:

            def hook(_m: nn.Module, args: tuple[Tensor], layer: Layer = layer, mask: Tensor = mask) -> tuple[Tensor]:
                return (args[0] * mask[layer.inputs].view(1, -1, *(1,) * (args[0].dim() - 2)),)

            handles.append(layer.module.register_forward_pre_hook(hook))
        (grad,) = torch.autograd.grad(image_losses(net, image[None]).sum(), mask)
        rows.append(grad[:-1])
        for handle in handles:
            handle.remove()
    return torch.stack(rows)


def observe(net: nn.Module, graph: ChannelGraph, x: Tensor, reduction: Reduction = "mean") -> Statistics:
    statistics = Statistics(len(graph.maps))
    with probed(graph, statistics, reduction=reduction, activity=True):
        loss = image_losses(net, x)
        (loss.mean() if reduction == "mean" else loss.sum()).backward()  # type: ignore[no-untyped-call]
    return statistics


@pytest.mark.parametrize("name", NETS)
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_fisher_is_half_the_mean_square_of_per_image_mask_gradients(name: str, reduction: Reduction) -> None:
    net, x = make(name, batch=3, dtype=torch.float64)
    graph = ChannelGraph.trace(net, x)
    g = mask_gradients(net, graph, x)
    statistics = observe(net, graph, x, reduction)
    expected = g.square().sum(0) / (2 * 3)
    assert statistics.images == 3
    assert torch.allclose(Fisher()(graph, statistics), expected, rtol=1e-9, atol=1e-15)
    batch_gradient = g.sum(0).square() / (2 * 3)
    assert not torch.allclose(expected, batch_gradient, rtol=1e-2)


def test_the_first_order_term_is_the_mean_mask_gradient() -> None:
    """L(m_k = 0) - L(m_k = 1) = -g + g^2 / 2 to second order, with the square of gradients for the curvature."""
    net, x = make("prelu", batch=3, dtype=torch.float64)
    graph = ChannelGraph.trace(net, x)
    g = mask_gradients(net, graph, x)
    found = Fisher(first_order=True)(graph, observe(net, graph, x))
    assert torch.allclose(found, (g.square() / 2 - g).mean(0), rtol=1e-9, atol=1e-15)
    assert bool((found < 0).any())


def test_euler_identity_for_convolutions_without_normalisation() -> None:
    """g_nk = <w_k, dL_n/dw_k> + b_k dL_n/db_k, across ReLU and max-pooling."""
    net, x = make("vgg11", dtype=torch.float64)
    graph = ChannelGraph.trace(net, x)
    for n in range(len(x)):
        statistics = observe(net, graph, x[n : n + 1])
        for layer in graph.readers[:-1]:
            assert isinstance(layer.module, nn.Conv2d)
            weight, bias = layer.module.weight, layer.module.bias
            assert weight.grad is not None
            assert bias is not None
            assert bias.grad is not None
            g = (weight * weight.grad).flatten(1).sum(1) + bias * bias.grad
            assert torch.allclose(statistics.squared[layer.outputs].sqrt(), g.abs(), rtol=1e-8, atol=1e-12)
        net.zero_grad()


def test_batches_add_up() -> None:
    net, x = make("resnet", batch=4, dtype=torch.float64)
    graph = ChannelGraph.trace(net, x)
    whole = observe(net, graph, x)
    parts = Statistics(len(graph.maps))
    for part in (x[:1], x[1:]):
        with probed(graph, parts):
            image_losses(net, part).mean().backward()  # type: ignore[no-untyped-call]
    assert parts.images == 4
    assert torch.allclose(parts.squared, whole.squared)
    assert torch.allclose(parts.absolute, whole.absolute)
    assert torch.allclose(parts.signed, whole.signed)


def test_batchnorm_uses_running_statistics_while_scoring_and_its_mode_comes_back() -> None:
    net, x = make("resnet", batch=4, dtype=torch.float64)
    graph = ChannelGraph.trace(net, x)
    expected = observe(net, graph, x).squared
    net.train()
    assert torch.allclose(observe(net, graph, x).squared, expected)
    assert all(module.training for module in net.modules())


def test_gradients_of_parameters_are_those_without_probes() -> None:
    net, x = make("densenet")
    graph = ChannelGraph.trace(net, x)
    image_losses(net, x).mean().backward()  # type: ignore[no-untyped-call]
    expected = [p.grad.clone() for p in net.parameters() if p.grad is not None]
    net.zero_grad()
    observe(net, graph, x)
    for parameter, grad in zip(net.parameters(), expected, strict=True):
        assert parameter.grad is not None
        assert torch.equal(parameter.grad, grad)
    assert not any(module._forward_pre_hooks for module in net.modules())


def test_a_frozen_trunk_is_scored_and_stays_frozen() -> None:
    net, x = make("vgg11", dtype=torch.float64)
    graph = ChannelGraph.trace(net, x)
    expected = observe(net, graph, x).squared
    net.zero_grad()
    assert isinstance(net, nn.Sequential)
    net[:10].requires_grad_(False)
    assert torch.allclose(observe(net, graph, x).squared, expected)
    assert net.get_parameter("0.weight").grad is None


def test_autocast_scores_are_close_to_full_precision() -> None:
    net, x = make("vgg11", batch=4)
    graph = ChannelGraph.trace(net, x)
    expected = Fisher()(graph, observe(net, graph, x))
    statistics = Statistics(len(graph.maps))
    with probed(graph, statistics), torch.autocast("cpu", torch.bfloat16):
        loss = image_losses(net, x).mean()
        loss.backward()  # type: ignore[no-untyped-call]
    scores = Fisher()(graph, statistics)
    keep = (scores > 0) & (expected > 0)
    assert keep.sum() > 0.7 * len(keep)
    correlation = torch.corrcoef(torch.stack((scores[keep].log(), expected[keep].log())))[0, 1]
    assert scores.dtype == torch.float64
    assert correlation > 0.95


def test_molchanov_takes_absolute_values_of_images_and_normalises_layers() -> None:
    net, x = make("vgg11", batch=3, dtype=torch.float64)
    graph = ChannelGraph.trace(net, x)
    g = mask_gradients(net, graph, x)
    statistics = observe(net, graph, x)
    plain = Molchanov(normalized=False)(graph, statistics)
    first = graph.layer("0").outputs
    positions = 18 * 22  # behind the first 2x2 pool of 37x45
    assert torch.allclose(plain[first], g.abs().mean(0)[first] / positions)
    normal = Molchanov()(graph, statistics)
    for layer in graph.readers[:-1]:
        assert float(normal[layer.outputs].square().sum()) == pytest.approx(1.0)


def test_l1_of_activities_is_their_mean_magnitude_at_the_readers() -> None:
    net, x = make("lenet", batch=3, dtype=torch.float64)
    graph = ChannelGraph.trace(net, x)
    scores = L1Activity()(graph, observe(net, graph, x))
    assert isinstance(net, nn.Sequential)
    with torch.no_grad():
        pooled = net[:4](x)
        hidden = net[:7](x)
    assert torch.allclose(scores[20:70], pooled.abs().mean((0, 2, 3)))
    assert torch.allclose(scores[70:570], hidden.abs().mean(0))


def test_l1_of_weights_adds_tied_producers() -> None:
    net, x = make("resnet")
    graph = ChannelGraph.trace(net, x)
    scores = L1Weight()(graph, Statistics(len(graph.maps)))
    tied = [net.get_parameter(f"{name}.weight") for name in ("stem.0", "stages.0.conv2", "stages.1.conv2")]
    assert float(scores[3]) == pytest.approx(sum(float(w[3].abs().sum().detach()) for w in tied), rel=1e-5)


def test_random_scores_repeat_with_their_seed_and_change_from_round_to_round() -> None:
    net, x = make("prelu")
    graph = ChannelGraph.trace(net, x)
    statistics = Statistics(len(graph.maps))
    one, same, other = Random(1), Random(1), Random(2)
    first = one(graph, statistics)
    assert torch.equal(first, same(graph, statistics))
    assert not torch.equal(first, other(graph, statistics))
    graph.mark_removed([0])
    assert not torch.equal(first, one(graph, statistics))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize(
    "signal", [Fisher(), Fisher(first_order=True), Molchanov(), L1Activity(), L1Weight()], ids=repr
)
def test_signals_on_a_gpu_are_those_on_a_cpu(signal: Signal) -> None:
    net, x = make("resnet", batch=3, dtype=torch.float64)
    graph = ChannelGraph.trace(net, x)
    expected = signal(graph, observe(net, graph, x))
    net.cuda()
    found = signal(graph, observe(net, graph, x.cuda()))
    assert found.device == expected.device
    torch.testing.assert_close(found, expected)


def test_signals_without_images_are_refused() -> None:
    net, x = make("prelu")
    graph = ChannelGraph.trace(net, x)
    for signal in (Fisher(), Molchanov(), L1Activity()):
        with pytest.raises(PruningError, match="no image was observed"):
            signal(graph, Statistics(len(graph.maps)))


def test_misuse_of_the_block_is_refused() -> None:
    net, x = make("prelu")
    graph = ChannelGraph.trace(net, x)
    statistics = Statistics(len(graph.maps))
    with pytest.raises(PruningError, match="no backward pass"), probed(graph, statistics):
        net(x)
    with pytest.raises(PruningError, match="one observe"), probed(graph, statistics):
        (image_losses(net, x).mean() + image_losses(net, x).mean()).backward()  # type: ignore[no-untyped-call]
    with pytest.raises(PruningError, match="'mean' or a 'sum'"), probed(graph, statistics, reduction="max"):  # type: ignore[arg-type]
        pass
    assert statistics.images == 0
    assert not any(module._forward_pre_hooks for module in net.modules())
