"""The centre bias: fitted from counts, normalised at every size."""

import numpy as np
import pytest

from fastgaze.core.center_bias import FADE, GRID, fade_border, fit_center_bias, resample_log_density
from fastgaze.core.errors import DataError


def _logsumexp(log_density: np.ndarray) -> float:
    return float(np.log(np.exp(log_density.astype(np.float64)).sum()))


def test_a_fit_is_a_log_density_with_its_peak_where_people_looked() -> None:
    counts = np.zeros(GRID)
    counts[10, 50] = 7
    fitted = fit_center_bias(counts)
    assert fitted.shape == GRID
    assert fitted.dtype == np.float32
    assert abs(_logsumexp(fitted)) < 1e-5
    assert [int(i) for i in np.unravel_index(fitted.argmax(), GRID)] == [10, 50]
    assert np.isfinite(fitted).all()


def test_uniform_fixations_give_a_nearly_uniform_bias() -> None:
    fitted = fit_center_bias(np.ones(GRID))
    assert np.abs(np.exp(fitted) * fitted.size - 1).max() < 0.6  # at the border half the kernel is cut away
    np.testing.assert_allclose(np.exp(fitted)[16:32, 20:44] * fitted.size, 1, atol=0.1)


def test_no_mass_is_lost_at_the_border() -> None:
    corner = np.zeros(GRID)
    corner[0, 0] = 1
    assert abs(_logsumexp(fit_center_bias(corner))) < 1e-5


@pytest.mark.parametrize("size", [(1, 1), (33, 47), (48, 64), (600, 800)])
def test_it_is_exactly_normalised_at_any_size(size: tuple[int, int]) -> None:
    counts = np.random.default_rng(0).random(GRID)
    resampled = resample_log_density(fit_center_bias(counts), size)
    assert resampled.shape == size
    assert abs(_logsumexp(resampled)) < 1e-9


def test_resampling_keeps_the_shape_of_the_density() -> None:
    rows, columns = np.mgrid[:48, :64]
    smooth = -(((rows - 23.5) / 12) ** 2) - ((columns - 31.5) / 16) ** 2
    fine = resample_log_density(smooth, (480, 640))
    coarse = np.exp(fine).reshape(48, 10, 64, 10).sum(axis=(1, 3))
    np.testing.assert_allclose(coarse, np.exp(resample_log_density(smooth, GRID)), atol=1e-5)


@pytest.mark.parametrize("counts", [np.zeros(GRID), np.full(GRID, np.nan), np.ones(5)])
def test_counts_without_fixations_are_refused(counts: np.ndarray) -> None:
    with pytest.raises(DataError, match="at least one fixation"):
        fit_center_bias(counts)


def test_a_faded_density_drops_at_every_side_and_stays_one_elsewhere() -> None:
    density = fit_center_bias(np.ones(GRID))
    faded = fade_border(density)
    assert abs(_logsumexp(faded)) < 1e-5
    change = faded - density
    inside = change[6:-6, 6:-6]
    np.testing.assert_allclose(inside, inside[0, 0], atol=1e-5)
    for side in (change[0], change[-1], change[:, 0], change[:, -1]):
        assert (side < inside[0, 0] - FADE / 3).all()
