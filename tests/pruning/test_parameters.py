import pytest
import torch
from torch import nn

from fastgaze.core.errors import PruningError
from fastgaze.pruning import ParameterPruner
from fastgaze.pruning.probe import Reduction
from tests.pruning.nets import image_losses, make


@pytest.mark.parametrize("name", ["lenet", "vgg11", "mobile"])
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_delta_loss_of_parameters_equals_a_loop_over_images(name: str, reduction: Reduction) -> None:
    net, x = make(name, batch=3, dtype=torch.float64)
    pruner = ParameterPruner(net, biases=True)
    with pruner.observe(reduction):
        losses = image_losses(net, x)
        (losses.mean() if reduction == "mean" else losses.sum()).backward()  # type: ignore[no-untyped-call]
    expected = {name: torch.zeros_like(p) for name, p in pruner.parameters.items()}
    for image in x:
        net.zero_grad()
        image_losses(net, image[None]).sum().backward()  # type: ignore[no-untyped-call]
        for key, p in pruner.parameters.items():
            assert p.grad is not None
            expected[key] += p.grad.square() * p.detach().square() / (2 * 3)
    found = pruner.delta_loss()
    assert found.keys() == expected.keys()
    for key, value in found.items():
        assert torch.allclose(value, expected[key], rtol=1e-9, atol=1e-20), key


def test_masks_hold_through_training() -> None:
    net, x = make("lenet", batch=8)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-3)
    pruner = ParameterPruner(net, optimizer)
    for _ in range(3):
        optimizer.zero_grad()
        with pruner.observe():
            image_losses(net, x).mean().backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        pruner.prune(pruner.left // 2)
    total = sum(mask.numel() for mask in pruner.masks.values())
    assert pruner.left == pytest.approx(total / 8, abs=3)
    before = net.get_parameter("5.weight").detach().clone()
    for _ in range(3):
        optimizer.zero_grad()
        image_losses(net, x).mean().backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    assert not torch.equal(before, net.get_parameter("5.weight"))
    for name, mask in pruner.masks.items():
        assert not pruner.parameters[name].detach()[~mask].any()
    pruner.close()
    optimizer.step()
    assert any(pruner.parameters[name].detach()[~mask].any() for name, mask in pruner.masks.items())


def test_the_lowest_scores_go_first_and_only_once() -> None:
    net = nn.Sequential(nn.Linear(4, 1, bias=False))
    pruner = ParameterPruner(net)
    scores = {"0.weight": torch.tensor([[3.0, 1.0, 2.0, 4.0]])}
    pruner.prune(1, scores)
    pruner.prune(1, scores)
    assert pruner.masks["0.weight"].tolist() == [[True, False, False, True]]
    with pytest.raises(PruningError, match="cannot remove 3 parameters; 2 are present"):
        pruner.prune(3, scores)


def test_misuse_is_refused() -> None:
    net, x = make("lenet")
    pruner = ParameterPruner(net)
    with pytest.raises(PruningError, match="no image was observed"):
        pruner.prune(1)
    with pytest.raises(PruningError, match="no backward pass"), pruner.observe():
        net(x)
    with pytest.raises(PruningError, match="zero padding given as numbers"):
        ParameterPruner(nn.Sequential(nn.Conv2d(3, 3, 3, padding="same")))


def test_a_frozen_layer_is_measured_like_the_others() -> None:
    net, x = make("lenet", batch=3, dtype=torch.float64)
    whole, frozen = ParameterPruner(net), ParameterPruner(net)
    for pruner, trained in ((whole, True), (frozen, False)):
        net.get_submodule("0").requires_grad_(trained)
        with pruner.observe():
            image_losses(net, x).mean().backward()  # type: ignore[no-untyped-call]
    for name, expected in whole.delta_loss().items():
        assert torch.allclose(frozen.delta_loss()[name], expected), name


class _Twice(nn.Module):
    """One linear layer, called two times."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.layer(self.layer(x))
        return out


@pytest.mark.parametrize(
    ("net", "shape", "message"),
    [
        (_Twice(), (3, 4), "layer ran twice inside observe"),
        (nn.Sequential(nn.Linear(4, 2)), (3, 5, 4), r"0 reads \(3, 5, 4\)"),
        (nn.TransformerEncoderLayer(4, 1, 8, batch_first=True), (3, 5, 4), "reads|out_proj got no gradient"),
    ],
    ids=["called twice", "more than features", "attention"],
)
def test_what_cannot_be_measured_is_refused_and_not_taken_for_worthless(
    net: nn.Module, shape: tuple[int, ...], message: str
) -> None:
    pruner = ParameterPruner(net)
    with pytest.raises(PruningError, match=message), pruner.observe():
        net(torch.randn(shape)).square().mean().backward()
    assert pruner.images == 0


def test_a_layer_that_does_not_run_is_named() -> None:
    net = nn.ModuleDict({"used": nn.Linear(4, 2), "spare": nn.Linear(4, 2)})
    pruner = ParameterPruner(net)
    with pytest.raises(PruningError, match="spare got no gradient"), pruner.observe():
        net["used"](torch.randn(3, 4)).square().mean().backward()


@pytest.mark.parametrize(
    ("net", "shape"),
    [
        (nn.Sequential(nn.Conv1d(3, 4, 3, padding=1, groups=1), nn.Flatten(), nn.Linear(24, 2)), (3, 6)),
        (nn.Sequential(nn.Conv3d(2, 4, 2, dilation=2, groups=2), nn.Flatten(), nn.Linear(32, 2)), (2, 4, 4, 4)),
    ],
    ids=["one dimension", "three dimensions"],
)
def test_convolutions_of_other_dimensions_are_measured(net: nn.Module, shape: tuple[int, ...]) -> None:
    net = net.double()
    x = torch.randn(3, *shape, dtype=torch.float64)
    pruner = ParameterPruner(net)
    with pruner.observe():
        net(x).square().sum(1).mean().backward()
    expected = torch.zeros_like(pruner.parameters["0.weight"])
    for image in x:
        net.zero_grad()
        net(image[None]).square().sum().backward()
        weight = pruner.parameters["0.weight"]
        assert weight.grad is not None
        expected += weight.grad.square() * weight.detach().square() / 6
    torch.testing.assert_close(pruner.delta_loss()["0.weight"], expected)


def test_layers_without_gradients_of_single_images_are_refused_by_name() -> None:
    with pytest.raises(PruningError, match="0 is a ConvTranspose2d"):
        ParameterPruner(nn.Sequential(nn.ConvTranspose2d(3, 3, 2)))
