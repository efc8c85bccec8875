"""Which map each metric gets, and what the older MIT code computed."""

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter

from fastgaze.core.errors import ArgumentError, DataError
from fastgaze.evaluation import metrics, protocols
from fastgaze.evaluation.protocols import Case, score

SIZE = (45, 60)


def make_case(
    seed: int = 0, fixations: int = 40, name: str = "photo-7", points: NDArray[np.floating] | None = None
) -> Case:
    rng = np.random.default_rng(seed)
    points = rng.random((fixations, 2)) * (SIZE[1], SIZE[0]) if points is None else points
    bias = smooth(rng, 8)
    return Case(name, points, bias, rng.poisson(0.5, SIZE[0] * SIZE[1]), rng.permutation(2700)[:300], seed)


def smooth(rng: np.random.Generator, sigma: float) -> NDArray[np.float64]:
    values: NDArray[np.float64] = gaussian_filter(rng.normal(size=SIZE), sigma) * sigma * 3
    return np.asarray(values - np.logaddexp.reduce(values, axis=None))


def counts_of(case: Case) -> NDArray[np.int64]:
    return np.bincount(case.cells, minlength=SIZE[0] * SIZE[1]).reshape(SIZE)


def test_the_empirical_map_is_the_gaussian_of_the_fixations_with_reflecting_borders() -> None:
    case = make_case()
    sigma = protocols.KERNEL * 60
    expected = gaussian_filter(counts_of(case) / 40.0, sigma, mode="reflect", truncate=8)
    np.testing.assert_allclose(case.empirical, expected, atol=1e-7)
    np.testing.assert_allclose(protocols.blur(counts_of(case) / 40), expected, atol=1e-7)
    assert case.empirical.sum() == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("n", [1, 2, 7, 300])
@pytest.mark.parametrize("sigma", [2.5, 4.0, 20.0])
def test_the_kernel_is_scipys_gaussian_and_keeps_constants_and_mass(n: int, sigma: float) -> None:
    factor = protocols.cosine_factor(n, sigma)
    blur = factor.T @ factor
    np.testing.assert_allclose(blur.sum(axis=0), 1, atol=1e-9)
    np.testing.assert_allclose(blur.sum(axis=1), 1, atol=1e-9)
    expected = gaussian_filter(np.eye(n), (sigma, 0), mode="reflect", truncate=9)
    np.testing.assert_allclose(blur, expected, atol=1e-8)


def test_tuebingen_gives_each_metric_its_own_map() -> None:
    case, log_density = make_case(), smooth(np.random.default_rng(5), 3)
    density, result = np.exp(log_density), score("tuebingen", log_density, case)
    blurred = gaussian_filter(density, protocols.KERNEL * 60, mode="reflect", truncate=8)
    cells = np.repeat(np.arange(2700), case.others)
    others = np.stack([cells % 60, cells // 60], axis=1)
    expected = {
        "auc": metrics.auc(density, case.fixations),
        "sauc": metrics.shuffled_auc(log_density - case.center_bias, case.fixations, others),
        "nss": metrics.nss(density, case.fixations),
        "sim": metrics.sim(blurred, case.empirical),
        "kl": metrics.kl_divergence(blurred, case.empirical),
        "cc": metrics.cc(blurred, case.empirical),
        "log_likelihood": metrics.log_likelihood(log_density, case.fixations),
        "log_likelihood_bits": metrics.information_gain(log_density, case.fixations, np.full(SIZE, -np.log(2700))),
        "information_gain": metrics.information_gain(log_density, case.fixations, case.center_bias),
    }
    assert set(result) == set(protocols.METRICS)
    for metric, value in expected.items():
        assert result[metric] == pytest.approx(value, abs=1e-5), metric


def test_the_blurred_density_is_a_better_map_for_kl_and_cc_than_the_density_itself() -> None:
    rng = np.random.default_rng(1)
    log_density = smooth(rng, 1.5)
    drawn = [rng.choice(2700, 60, p=np.exp(log_density).ravel()) for _ in range(20)]
    cases = [make_case(points=np.stack([c % 60, c // 60], axis=1) + 0.5) for c in drawn]
    ours = [score("tuebingen", log_density, case) for case in cases]
    plain = [metrics.kl_divergence(np.exp(log_density), case.empirical) for case in cases]
    assert np.mean([s["kl"] for s in ours]) < np.mean(plain)
    plain = [metrics.cc(np.exp(log_density), case.empirical) for case in cases]
    assert np.mean([s["cc"] for s in ours]) > np.mean(plain)


@pytest.mark.parametrize("protocol", protocols.PROTOCOLS)
def test_a_uniform_model_scores_chance(protocol: str) -> None:
    case = make_case()
    result = score(protocol, np.full(SIZE, -np.log(2700)), case)
    # The older code's jitter makes a constant map a random one.
    assert result["auc"] == pytest.approx(0.5, abs=0 if protocol == "tuebingen" else 0.15)
    assert (result["nss"], result["cc"]) == (0, 0)
    assert result["log_likelihood"] == pytest.approx(-np.log(2700), abs=1e-12)
    assert result["log_likelihood_bits"] == pytest.approx(0, abs=1e-12)


def test_the_centre_bias_gains_nothing_over_itself_and_is_chance_in_shuffled_auc() -> None:
    case = make_case()
    result = score("tuebingen", case.center_bias, case)
    assert result["information_gain"] == 0
    assert result["sauc"] == 0.5


def test_both_protocols_state_the_same_likelihood_and_differ_elsewhere() -> None:
    case, log_density = make_case(), smooth(np.random.default_rng(5), 1)
    first, second = (score(protocol, log_density, case) for protocol in protocols.PROTOCOLS)
    for metric in ("log_likelihood", "log_likelihood_bits", "information_gain"):
        assert first[metric] == second[metric]
    for metric in ("nss", "sim", "kl", "cc", "auc", "sauc"):
        assert first[metric] != second[metric]


def test_legacy_auc_is_judds_by_hand() -> None:
    values = np.array([[0.0, 0.2, 0.4], [0.6, 0.8, 1.0]])
    fixated = np.array([5, 2])  # values 1.0 and 0.4
    # Thresholds 1.0 and 0.4: hits 1/2 and 1; false alarms 0 of 4 and 2 of 4 (0.8 and 0.6).
    area = 0 + (0.5 + 1) / 2 * 0.5 + 1 * 0.5
    assert protocols.judd_auc(values, fixated, np.random.default_rng(0)) == pytest.approx(area, abs=1e-5)


def test_legacy_nss_counts_a_pixel_once_and_divides_by_the_sample_deviation() -> None:
    density = np.exp(smooth(np.random.default_rng(2), 2))
    points = np.array([[10.5, 10.5]] * 9 + [[40.5, 30.5]])
    result = score("mit-legacy", np.log(density), make_case(points=points))
    expected = (np.mean([density[10, 10], density[30, 40]]) - density.mean()) / density.std(ddof=1)
    assert result["nss"] == pytest.approx(expected)


def test_legacy_sim_stretches_both_maps_before_comparing() -> None:
    case, log_density = make_case(), smooth(np.random.default_rng(2), 5)

    def stretch(m: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray((m - m.min()) / (m.max() - m.min()))

    expected = metrics.sim(stretch(np.exp(log_density)), stretch(case.empirical))
    assert score("mit-legacy", log_density, case)["sim"] == pytest.approx(expected, abs=1e-6)


def test_legacy_shuffled_auc_is_one_for_a_perfect_map_half_for_a_constant_one_and_repeatable() -> None:
    values = np.zeros(100)
    values[:10] = 1
    fixated, sampled = np.arange(10), np.arange(10, 60)
    assert protocols.borji_auc(values, fixated, sampled, np.random.default_rng(0)) == pytest.approx(1)
    assert protocols.borji_auc(0 * values, fixated, sampled, np.random.default_rng(0)) == pytest.approx(0.5)
    noisy = np.random.default_rng(1).random(100)
    runs = {protocols.borji_auc(noisy, fixated, sampled, np.random.default_rng(7)) for _ in range(3)}
    assert len(runs) == 1


def test_shuffled_auc_is_left_out_where_there_are_no_other_images() -> None:
    case = make_case()
    alone = Case("a", case.fixations, case.center_bias, np.zeros(2700, np.int64), np.empty(0, np.int64))
    for protocol in protocols.PROTOCOLS:
        assert "sauc" not in score(protocol, case.center_bias, alone)


def test_bad_input_is_refused_with_the_name_of_the_image() -> None:
    case, good = make_case(), smooth(np.random.default_rng(5), 3)
    broken = good.copy()
    broken[3, 3] = np.nan
    for bad in (broken, good + 0.1, good[1:], np.full(SIZE, -np.inf)):
        with pytest.raises(DataError, match="photo-7"):
            score("tuebingen", bad, case)
    with pytest.raises(DataError, match="photo-7"):
        score("tuebingen", good, make_case(points=np.empty((0, 2))))
    with pytest.raises(ArgumentError, match=r"no protocol 'paris'.*tuebingen, mit-legacy"):
        score("paris", good, case)
