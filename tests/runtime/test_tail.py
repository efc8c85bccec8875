"""The tail equals the equation written out in float64, and is a density at every size."""

import numpy as np
import pytest

from fastgaze.core.center_bias import resample_log_density
from fastgaze.core.errors import ArgumentError
from fastgaze.core.operators import bilinear_matrix, gaussian_matrix
from fastgaze.runtime.tail import NO_BIAS, Bias, Field, PlanCache, _Plan, make_bias

GENERATOR = np.random.default_rng(0)
GRID = GENERATOR.standard_normal((48, 64)).astype(np.float32)


def log_density(
    saliency: np.ndarray, working: tuple[int, int], sigma: float, bias: Bias, size: tuple[int, int]
) -> np.ndarray:
    return Field(saliency, working, sigma, bias).log_density(size)


def written_out(saliency: np.ndarray, sigma: float, bias: np.ndarray | None, size: tuple[int, int]) -> np.ndarray:
    """Upsample, blur, resample, add the centre bias, normalise: one step after the other."""
    axes = []
    for cells, n_out in zip(saliency.shape, size, strict=True):
        pixels = 16 * cells
        axes.append(bilinear_matrix(pixels, n_out) @ gaussian_matrix(pixels, sigma) @ bilinear_matrix(cells, pixels))
    logits = axes[0] @ saliency.astype(np.float64) @ axes[1].T
    if bias is not None:
        logits = logits + resample_log_density(bias, size)
    logits = logits - logits.max()
    return np.asarray(logits - np.log(np.exp(logits).sum()))


@pytest.mark.parametrize("size", [(1, 1), (1, 7), (48, 64), (240, 320), (413, 717), (1000, 90)])
@pytest.mark.parametrize("with_bias", [True, False])
def test_the_tail_equals_the_equation(size: tuple[int, int], with_bias: bool) -> None:
    saliency = (4 * GENERATOR.standard_normal((15, 20))).astype(np.float32)
    bias = make_bias(GRID) if with_bias else NO_BIAS
    found = log_density(saliency, (240, 320), 11.0, bias, size)
    assert found.dtype == np.float32
    assert np.abs(found - written_out(saliency, 11.0, GRID if with_bias else None, size)).max() < 2e-5


@pytest.mark.parametrize("size", [(48, 64), (1100, 1000)])
@pytest.mark.parametrize("temperature", [0.4, 3.0])
def test_the_temperature_is_a_factor_on_the_saliency_but_not_on_the_bias(
    size: tuple[int, int], temperature: float
) -> None:
    saliency = (2 * GENERATOR.standard_normal((15, 20))).astype(np.float32)
    found = Field(saliency, (240, 320), 11.0, make_bias(GRID), temperature).log_density(size)
    assert np.abs(found - written_out(temperature * saliency, 11.0, GRID, size)).max() < 2e-5


@pytest.mark.parametrize("shape", [(1, 1), (1, 9), (200, 300), (480, 640)])
def test_a_bias_of_any_size_counts_in_full(shape: tuple[int, int]) -> None:
    grid = GENERATOR.standard_normal(shape)
    found = log_density(np.zeros((4, 5), np.float32), (64, 80), 8.0, make_bias(grid), (30, 50))
    assert np.abs(found - resample_log_density(grid, (30, 50))).max() < 2e-5


def test_a_smooth_bias_has_few_factors_and_loses_nothing() -> None:
    y, x = np.mgrid[-1:1:48j, -1:1:64j]
    smooth = np.log(np.exp(-2 * x**2 - 3 * y**2) + 0.05)
    bias = make_bias(smooth)
    assert bias.left.shape[1] < 20
    assert np.abs(bias.left @ bias.right - (smooth - smooth.max())).max() < 1e-5


def test_even_saliency_gives_exactly_the_uniform_density() -> None:
    found = log_density(np.full((4, 4), 1e4, np.float32), (64, 64), 8.0, NO_BIAS, (50, 70))
    assert np.abs(found + np.log(50 * 70)).max() < 1e-5


def test_a_lone_spike_of_any_height_stays_finite_and_normalised() -> None:
    saliency = np.zeros((15, 20), np.float32)
    saliency[7, 9] = 5e4  # after the blur the largest logit is thousands below the bound that the tail starts from
    found = log_density(saliency, (240, 320), 60.0, NO_BIAS, (240, 320))
    assert np.isfinite(found).all()
    assert np.exp(found.astype(np.float64)).sum() == pytest.approx(1, abs=1e-4)


def test_large_maps_sum_to_one() -> None:
    saliency = (3 * GENERATOR.standard_normal((15, 20))).astype(np.float32)
    found = log_density(saliency, (240, 320), 8.0, make_bias(GRID), (2000, 3000))
    assert np.exp(found.astype(np.float64)).sum() == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("bias", [np.zeros(3), np.zeros((0, 3)), np.full((2, 2), np.nan), np.full((2, 2), -np.inf)])
def test_what_is_no_log_density_is_refused(bias: np.ndarray) -> None:
    with pytest.raises(ArgumentError, match="centre bias"):
        make_bias(bias)


def kilobyte() -> _Plan:
    return _Plan(np.zeros(128, np.float32), np.zeros(128, np.float32))


def test_the_plans_that_are_kept_stay_below_a_number_of_bytes() -> None:
    cache = PlanCache(10 * 1024)
    for key in range(100):
        cache.get(key, kilobyte)
    assert cache.nbytes == 10 * 1024


def test_a_plan_that_is_used_stays_and_one_that_is_not_goes() -> None:
    cache = PlanCache(3 * 1024)
    first, second = cache.get("a", kilobyte), cache.get("b", kilobyte)
    for key in range(5):
        cache.get(key, kilobyte)
        assert cache.get("a", kilobyte) is first
    assert cache.get("b", kilobyte) is not second


def test_a_plan_that_would_push_out_half_of_the_others_is_not_kept() -> None:
    cache = PlanCache(1024)
    assert cache.get("large", kilobyte) is not cache.get("large", kilobyte)
    assert cache.nbytes == 0
