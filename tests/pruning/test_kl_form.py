"""Supplement S2: the Fisher signal is the quadratic form of the KL divergence between a network and its masked self."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fastgaze.pruning import ChannelGraph, Fisher, Pruner

MAPS, CLASSES = 6, 5


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return (
        nn.Sequential(
            nn.Conv2d(1, MAPS, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(MAPS, CLASSES, 3),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
        )
        .double()
        .eval()
    )


def scaled(net: nn.Sequential, images: Tensor, index: int, mask: float) -> Tensor:
    """Log probabilities when map ``index`` is multiplied by ``mask`` before it is read."""
    factors = torch.ones(1, MAPS, 1, 1, dtype=torch.float64)
    factors[0, index] = mask
    reader = net[2]
    hook = reader.register_forward_pre_hook(lambda _, inputs: (inputs[0] * factors,))
    try:
        with torch.no_grad():
            return F.log_softmax(net(images), dim=1)
    finally:
        hook.remove()


def mean_kl(net: nn.Sequential, images: Tensor, index: int, mask: float) -> float:
    """KL[Q || Q with the mask], mean over images."""
    with torch.no_grad():
        whole = F.log_softmax(net(images), dim=1)
    return float((whole.exp() * (whole - scaled(net, images, index, mask))).sum(1).double().mean())


def expected_signal(net: nn.Sequential, images: Tensor) -> Tensor:
    """The Fisher signal with the expectation over the model's own labels: each class weighs as its probability."""
    pruner = Pruner(ChannelGraph.trace(net, images[:1]), signal=Fisher())
    for label in range(CLASSES):
        with pruner.observe():
            log_q = F.log_softmax(net(images), dim=1)[:, label]
            # g is linear in the loss, so the root of the probability weighs its square by the probability.
            (-log_q * log_q.detach().exp().sqrt()).mean().backward()  # type: ignore[no-untyped-call]
    return CLASSES * pruner.delta_loss()[:MAPS]  # every image was seen once for each class


def test_the_signal_predicts_the_kl_of_a_network_whose_map_fades() -> None:
    net, images = network(), torch.randn(16, 1, 12, 12, dtype=torch.float64)
    signal, fade = expected_signal(net, images), 0.01
    for index in range(MAPS):
        measured = mean_kl(net, images, index, 1 - fade) / fade**2
        assert abs(measured / float(signal[index]) - 1) < 0.05, index


def test_the_signal_orders_maps_as_the_kl_of_removing_them_does() -> None:
    net, images = network(), torch.randn(16, 1, 12, 12, dtype=torch.float64)
    signal = expected_signal(net, images)
    removed = torch.tensor([mean_kl(net, images, index, 0.0) for index in range(MAPS)])
    assert int(signal.argmin()) == int(removed.argmin())
    assert int(signal.argmax()) == int(removed.argmax())
