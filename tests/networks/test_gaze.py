"""Equation 1: tail, normalisation, any size, any batch."""

import math

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from fastgaze.core import operators
from fastgaze.networks import create_model
from fastgaze.networks.gaze import GazeModel, Tail, bilinear_matrix, gaussian_matrix
from tests.small_models import SMALL


@pytest.fixture(params=SMALL)
def model(request: pytest.FixtureRequest) -> GazeModel:
    torch.manual_seed(0)
    spec = SMALL[request.param]
    model = create_model(spec.architecture, spec).eval()
    assert isinstance(model, GazeModel)
    return model


@pytest.mark.parametrize("size", [(32, 32), (33, 47), (240, 320), (384, 512), (50, 400)])
@torch.inference_mode()
def test_outputs_are_log_densities_at_every_size(model: GazeModel, size: tuple[int, int]) -> None:
    log_density = model(torch.randn(3, 3, *size))
    assert log_density.shape == (3, *size)
    assert log_density.double().flatten(1).logsumexp(1).abs().max() < 1e-5


@torch.inference_mode()
def test_a_batch_equals_its_images_one_by_one(model: GazeModel) -> None:
    images = torch.randn(3, 3, 45, 70)
    one_by_one = torch.cat([model(image[None]) for image in images])
    torch.testing.assert_close(model(images), one_by_one, atol=1e-5, rtol=0)


@torch.inference_mode()
def test_another_map_size_is_a_log_density_too(model: GazeModel) -> None:
    log_density = model(torch.randn(2, 3, 64, 80), size=(20, 30))
    assert log_density.shape == (2, 20, 30)
    assert log_density.double().flatten(1).logsumexp(1).abs().max() < 1e-5


@torch.inference_mode()
def test_a_given_center_bias_replaces_the_models_own(model: GazeModel) -> None:
    image = torch.randn(1, 3, 48, 64)
    model.tail.center_bias.copy_(torch.randn_like(model.tail.center_bias))
    left_out = model(image, center_bias=torch.zeros(1, 1))
    own = model(image)
    assert (own - left_out).abs().max() > 0.1
    torch.testing.assert_close(model(image, center_bias=model.tail.center_bias), own)


def _explicit_tail(x: torch.Tensor, size: tuple[int, int], sigma: float) -> torch.Tensor:
    """Upsampling by 16, then a separable Gaussian as two convolutions, normalised at the border, then the crop."""
    up = F.interpolate(x, scale_factor=16, mode="bilinear", align_corners=False)
    reach = max(up.shape[-2:])
    kernel = torch.exp(-0.5 * (torch.arange(-reach, reach + 1, dtype=x.dtype) / sigma) ** 2)
    for shape in ((1, 1, -1, 1), (1, 1, 1, -1)):
        padding = tuple(reach if n == -1 else 0 for n in shape[2:])
        weights = F.conv2d(torch.ones_like(up), kernel.view(shape), padding=padding)
        up = F.conv2d(up, kernel.view(shape), padding=padding) / weights
    return up[0, 0, : size[0], : size[1]]


@pytest.mark.parametrize("size", [(33, 47), (17, 95), (48, 64)])
@pytest.mark.parametrize("sigma", [2.0, 8.0, 21.5])
def test_tail_equals_upsampling_then_gaussian_then_crop(size: tuple[int, int], sigma: float) -> None:
    tail = Tail()
    tail.log_sigma.data.fill_(math.log(sigma))
    x = torch.randn(1, 1, math.ceil(size[0] / 16), math.ceil(size[1] / 16))
    logits = _explicit_tail(x.double(), size, sigma)
    expected = logits - logits.flatten().logsumexp(0)
    torch.testing.assert_close(tail(x, size, size)[0].double(), expected, atol=1e-5, rtol=0)


def test_blur_width_is_learned() -> None:
    tail = Tail()
    tail(torch.randn(1, 1, 3, 4), (48, 64), (48, 64))[0, 20, 30].backward()
    assert tail.log_sigma.grad is not None
    assert tail.log_sigma.grad.abs() > 0


@pytest.mark.parametrize(("n_in", "n_out"), [(1, 5), (2, 2), (3, 16), (16, 3), (7, 240), (64, 63)])
def test_bilinear_matrix_equals_torchs_interpolation(n_in: int, n_out: int) -> None:
    x = torch.randn(1, 1, n_in, dtype=torch.float64)
    expected = F.interpolate(x, size=n_out, mode="linear", align_corners=False)[0, 0]
    torch.testing.assert_close(bilinear_matrix(n_in, n_out, like=x) @ x[0, 0], expected)


@pytest.mark.parametrize(("n", "sigma"), [(1, 1.0), (20, 0.5), (240, 13.0)])
def test_numpy_and_torch_blur_agree(n: int, sigma: float) -> None:
    ours = gaussian_matrix(n, torch.tensor(sigma, dtype=torch.float64)).numpy()
    np.testing.assert_allclose(ours, operators.gaussian_matrix(n, sigma), atol=1e-12)


def test_spec_follows_the_layers(model: GazeModel) -> None:
    assert model.spec == SMALL[model.architecture]
