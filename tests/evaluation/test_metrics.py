"""Metrics on cases with a known answer, and on input that must be refused."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import ArrayLike

from fastgaze.core.errors import DataError
from fastgaze.evaluation import metrics

POINTS = np.array([[0.0, 0.0], [3.7, 1.2], [3.7, 1.2], [4.999, 2.999]])


@given(height=st.integers(1, 40), width=st.integers(1, 40), seed=st.integers(0, 1000))
def test_a_uniform_model_scores_minus_log_of_the_pixels_half_and_zero(height: int, width: int, seed: int) -> None:
    log_density = np.full((height, width), -np.log(height * width))
    points = np.random.default_rng(seed).random((7, 2)) * (width, height)
    assert metrics.log_likelihood(log_density, points) == pytest.approx(-np.log(height * width), abs=1e-12)
    assert metrics.information_gain(log_density, points, log_density) == 0
    assert metrics.auc(log_density, points) == 0.5
    assert metrics.nss(np.exp(log_density), points) == 0
    assert height * width == 1 or metrics.cc(log_density, np.arange(height * width + 0.0).reshape(height, width)) == 0


@given(seed=st.integers(0, 1000), other=st.integers(0, 1000))
def test_no_density_beats_the_empirical_one(seed: int, other: int) -> None:
    points = np.random.default_rng(seed).random((25, 2)) * (6, 5)
    counts = np.bincount(metrics.cells((5, 6), points), minlength=30).reshape(5, 6)
    with np.errstate(divide="ignore"):
        empirical = np.log(counts / counts.sum())
    rival = np.random.default_rng(other).normal(size=(5, 6))
    rival -= np.logaddexp.reduce(rival, axis=None)
    entropy = -sum(c / 25 * np.log(c / 25) for c in counts.ravel() if c)
    assert metrics.log_likelihood(empirical, points) == pytest.approx(-entropy)
    assert metrics.log_likelihood(empirical, points) >= metrics.log_likelihood(rival, points)


def test_auc_counts_ties_at_half_by_the_definition() -> None:
    values = np.array([[0.0, 1.0, 1.0], [2.0, 2.0, 5.0]])
    points = np.array([[1.5, 0.5], [2.5, 1.5]])  # values 1 and 5
    pairs = [(v < p) + 0.5 * (v == p) for p in (1.0, 5.0) for v in values.ravel()]
    assert metrics.auc(values, points) == pytest.approx(np.mean(pairs))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", ["normal", "peaked", "ties", "constant", "two", "tiny", "infinite"])
def test_ranks_in_large_maps_are_those_of_sorting(kind: str, dtype: type[np.floating]) -> None:
    rng = np.random.default_rng(0)
    n = 70_000
    values = {
        "normal": rng.normal(size=n),
        "peaked": np.exp(8 * rng.normal(size=n)),
        "ties": rng.integers(0, 300, n) / 7,
        "constant": np.full(n, 0.3),
        "two": rng.integers(0, 2, n) + 1e-4,
        "tiny": 1 + 1e-300 * rng.normal(size=n),
        "infinite": np.where(rng.random(n) < 0.5, -np.inf, rng.normal(size=n)),
    }[kind].astype(dtype)
    positives = np.concatenate([values[:50], [values.max(), values.min(), dtype(0.1), dtype(-1e9), dtype(1e9)]])
    expected = [np.mean(values < p) + np.mean(values == p) / 2 for p in positives]
    assert metrics.auc_of_values(positives, values) == pytest.approx(np.mean(expected), abs=1e-12)


@pytest.mark.parametrize("spread", [1e-3, 0.1, 1.0])
def test_a_large_half_precision_map_has_the_auc_of_the_same_map_in_double(spread: float) -> None:
    values = (spread * np.random.default_rng(0).normal(size=(200, 300))).astype(np.float16)
    points = np.random.default_rng(1).random((40, 2)) * (300, 200)
    row, column = np.unravel_index(values.argmax(), values.shape)
    points = np.concatenate([points, [[column, row]]])
    assert metrics.auc(values, points) == metrics.auc(values.astype(np.float64), points)
    assert metrics.shuffled_auc(values, points, points) == 0.5


def test_nss_is_the_population_z_score_at_the_fixated_pixel() -> None:
    values = np.array([[1.0, 2.0], [3.0, 6.0]])
    assert metrics.nss(values, [[1.2, 1.9]]) == pytest.approx((6 - 3) / np.sqrt(3.5))


def test_equal_maps_are_perfect_and_disjoint_ones_share_nothing() -> None:
    p = np.array([[1.0, 3.0], [0.0, 0.0]])
    assert metrics.sim(p, 7 * p) == pytest.approx(1)
    assert metrics.cc(p, 7 * p + 2) == pytest.approx(1)
    assert metrics.kl_divergence(p, 7 * p) == pytest.approx(0, abs=1e-12)
    assert metrics.sim(p, np.array([[0.0, 0.0], [1.0, 2.0]])) == 0


def test_information_gain_is_in_bits() -> None:
    flat = np.full((2, 2), -np.log(4))
    sharp = np.log(np.array([[0.5, 0.5 / 3], [0.5 / 3, 0.5 / 3]]))
    assert metrics.information_gain(sharp, [[0.5, 0.5]], flat) == pytest.approx(1)


def test_a_point_belongs_to_the_pixel_of_its_floor() -> None:
    assert metrics.cells((3, 5), POINTS).tolist() == [0, 8, 8, 14]


def refusal(metric: Callable[..., float], *values: ArrayLike) -> str:
    """How the error begins, or nothing."""
    try:
        metric(*values, name="photo-7")
    except DataError as error:
        return str(error)[:7]
    return ""


@pytest.mark.parametrize(
    "points", [np.empty((0, 2)), [[5.0, 0.0]], [[-0.1, 0.0]], [[0.0, 3.0]], [[np.nan, 0.0]], [1.0, 2.0]]
)
def test_unusable_fixations_are_refused_with_the_name_of_the_image(points: ArrayLike) -> None:
    flat = np.full((3, 5), -np.log(15))
    for metric in (metrics.auc, metrics.nss, metrics.log_likelihood):
        assert refusal(metric, flat, points) == "photo-7"
    assert refusal(metrics.shuffled_auc, flat, POINTS, points) == "photo-7"


def test_nan_infinite_and_wrongly_shaped_maps_are_refused_with_the_name_of_the_image() -> None:
    good = np.full((3, 5), -np.log(15))
    broken, infinite = good.copy(), good.copy()
    broken[1, 1], infinite[1, 1] = np.nan, np.inf
    for bad in (broken, infinite, good[0], good[None]):
        for metric in (metrics.auc, metrics.nss, metrics.log_likelihood):
            assert refusal(metric, bad, POINTS) == "photo-7"
        for between in (metrics.cc, metrics.sim, metrics.kl_divergence):
            assert refusal(between, bad, good) == "photo-7"
            assert refusal(between, good, bad) == "photo-7"
        assert refusal(metrics.information_gain, good, POINTS, bad) == "photo-7"


def test_a_map_with_minus_infinity_has_ranks_and_a_likelihood_but_no_mean() -> None:
    impossible = np.full((3, 5), -np.log(14))
    impossible[0, 0] = -np.inf
    good = np.full((3, 5), -np.log(15))
    with pytest.raises(DataError, match=r"photo-7: the map holds -infinity; give the density"):
        metrics.nss(impossible, POINTS, name="photo-7")
    for metric in (metrics.cc, metrics.sim, metrics.kl_divergence):
        for pair in ((impossible, good), (good, impossible)):
            with pytest.raises(DataError, match=r"photo-7.*-infinity"):
                metric(*pair, name="photo-7")
    assert metrics.log_likelihood(impossible, POINTS) == -np.inf
    assert metrics.log_likelihood(impossible, POINTS[1:]) == pytest.approx(-np.log(14))
    assert metrics.auc(impossible, POINTS[:1]) == pytest.approx(0.5 / 15)


@pytest.mark.parametrize("offset", [0.01, -0.01, 5.0])
def test_a_density_that_does_not_sum_to_one_is_refused(offset: float) -> None:
    flat = np.full((3, 5), -np.log(15))
    with pytest.raises(DataError, match=r"photo-7.*sums to"):
        metrics.log_likelihood(flat + offset, POINTS, name="photo-7")
    with pytest.raises(DataError, match=r"photo-7.*sums to"):
        metrics.information_gain(flat, POINTS, flat + offset, name="photo-7")
