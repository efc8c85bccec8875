"""Evaluation of a model on a data set: what is averaged, what is left out, what stands beside it."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from fastgaze.core.center_bias import GRID, CenterBias, fit_center_bias, resample_log_density
from fastgaze.core.errors import ArgumentError, DataError
from fastgaze.core.sizes import Size
from fastgaze.data.fixations import FixationSet, concatenate, from_lists
from fastgaze.data.formats import load
from fastgaze.evaluation.evaluate import Cases, bootstrap, evaluate
from fastgaze.evaluation.protocols import METRICS
from tests.evaluation.conftest import SeesSquares


def test_a_good_model_beats_the_baselines_and_not_the_other_observers(
    small_set: FixationSet, model: SeesSquares
) -> None:
    result = evaluate(model, small_set)
    gain = {name: scores["information_gain"] for name, scores in result.baselines.items()}
    assert gain["uniform"] < gain["center_bias"] == 0 < result.means["information_gain"]
    assert gain["other_observers"] > 0
    assert result.baselines["uniform"]["auc"] == 0.5
    assert result.baselines["uniform"]["log_likelihood"] == pytest.approx(-np.log(48 * 64))
    assert set(result.means) == set(result.intervals) == set(METRICS)


def test_means_are_over_images_whatever_their_number_of_fixations(small_set: FixationSet, model: SeesSquares) -> None:
    result = evaluate(model, small_set)
    assert len(result.rows) == result.images == 8
    for metric in METRICS:
        assert result.means[metric] == pytest.approx(np.mean([row[metric] for row in result.rows]))
        low, high = result.intervals[metric]
        assert low <= result.means[metric] <= high


def test_the_own_centre_bias_leaves_out_the_image_itself(small_set: FixationSet) -> None:
    counts = np.sum([small_set.counts(i, GRID) for i in range(8) if i != 3], axis=0)
    expected = resample_log_density(fit_center_bias(counts), (48, 64))
    np.testing.assert_allclose(Cases(small_set)[3].center_bias, expected)
    own = small_set.points(3)
    moved = small_set.x.copy()
    moved[own] = 1.0
    changed = Cases(replace(small_set, x=moved))
    np.testing.assert_array_equal(changed[3].center_bias, Cases(small_set)[3].center_bias)
    assert not np.array_equal(changed[2].center_bias, Cases(small_set)[2].center_bias)


def test_negatives_are_all_fixations_of_the_other_images(small_set: FixationSet) -> None:
    case = Cases(small_set)[2]
    expected = np.sum([small_set.counts(i, (48, 64)) for i in range(8) if i != 2], axis=0)
    np.testing.assert_array_equal(case.others, expected.ravel())


@pytest.mark.parametrize(("choice", "expected"), [("model", "model"), ("none", None)])
def test_the_model_is_told_which_centre_bias_to_use(
    small_set: FixationSet, model: SeesSquares, choice: str, expected: str | None
) -> None:
    evaluate(model, small_set, center_bias=choice)
    assert model.biases == [expected] * 8


def test_with_own_the_model_gets_the_log_density_of_the_data_set(small_set: FixationSet, model: SeesSquares) -> None:
    evaluate(model, small_set, center_bias="own", only=[5])
    np.testing.assert_array_equal(model.biases[0], Cases(small_set)[5].center_bias)


def test_the_model_sees_images_at_the_size_asked_for_and_is_scored_at_the_stored_one(small_set: FixationSet) -> None:
    seen: list[tuple[tuple[int, ...], Size]] = []

    class Records:
        def log_density(self, image: NDArray[np.uint8], size: Size, center_bias: CenterBias) -> NDArray[np.floating]:
            seen.append((image.shape, size))
            return np.full(size, -np.log(size[0] * size[1]))

    evaluate(Records(), small_set, size=(32, 40), only=[0])
    evaluate(Records(), small_set, only=[0])
    assert seen == [((32, 40, 3), (48, 64)), ((48, 64, 3), (48, 64))]


def test_images_without_fixations_are_skipped_and_named(small_set: FixationSet, model: SeesSquares) -> None:
    empty = from_lists(["nobody", "outside"], small_set.paths[:2], [(96, 128)] * 2, [[], [[500, 2]]])
    result = evaluate(model, concatenate([small_set, empty]))
    assert result.skipped == ["nobody", "outside"]
    assert result.images == 8
    with pytest.raises(DataError, match="none of 2 images"):
        evaluate(model, empty)


def test_pooled_observers_have_no_gold_standard(small_set: FixationSet, model: SeesSquares) -> None:
    pooled = replace(small_set, observer=np.full_like(small_set.observer, -1))
    assert set(evaluate(model, pooled).baselines) == {"uniform", "center_bias"}


def test_a_single_image_is_scored_against_uniform(small_set: FixationSet, model: SeesSquares) -> None:
    result = evaluate(model, small_set.subset([0]))
    assert result.means["information_gain"] == pytest.approx(result.means["log_likelihood_bits"])
    assert "sauc" not in result.means


@pytest.mark.parametrize("fault", ["nan", "shape", "sum"])
def test_a_broken_prediction_is_refused_with_the_name_of_the_image(small_set: FixationSet, fault: str) -> None:
    class Broken:
        def log_density(self, image: NDArray[np.uint8], size: Size, center_bias: CenterBias) -> NDArray[np.floating]:
            flat = np.full(size, -np.log(size[0] * size[1]))
            return {"nan": flat * np.nan, "shape": flat[:-1], "sum": flat + 1}[fault]

    with pytest.raises(DataError, match="picture-4"):
        evaluate(Broken(), small_set, only=[4])


def test_unknown_choices_are_refused(small_set: FixationSet, model: SeesSquares) -> None:
    with pytest.raises(ArgumentError, match="no protocol"):
        evaluate(model, small_set, protocol="mit")
    with pytest.raises(ArgumentError, match="no centre bias 'ours'; choose from own, model, none"):
        evaluate(model, small_set, center_bias="ours")


def test_results_repeat_and_can_be_written_as_json(small_set: FixationSet, model: SeesSquares) -> None:
    for protocol in ("tuebingen", "mit-legacy"):
        first, second = (evaluate(model, small_set, protocol=protocol).to_json() for _ in range(2))
        assert first == second
        assert json.loads(json.dumps(first, allow_nan=False))["protocol"] == protocol


def test_the_bootstrap_interval_is_that_of_the_mean() -> None:
    values = np.random.default_rng(0).normal(size=400)
    low, high = bootstrap([{"auc": v} for v in values], 2000, seed=0)["auc"]
    half = 1.96 * values.std() / np.sqrt(400)
    assert low == pytest.approx(values.mean() - half, abs=0.1 * half)
    assert high == pytest.approx(values.mean() + half, abs=0.1 * half)


class GivesTheBias:
    def log_density(self, image: NDArray[np.uint8], size: Size, center_bias: CenterBias) -> NDArray[np.floating]:
        assert isinstance(center_bias, np.ndarray)
        return center_bias


@pytest.mark.parametrize(
    ("name", "auc", "nss"),
    [("salicon/val", 0.777, 1.03), ("osie", 0.747, 0.92), ("eyecrowd", 0.77, None), ("cat2000", 0.845, 2.07)],
)
def test_the_centre_bias_of_real_data_scores_what_it_is_known_to(
    real_data: Path, name: str, auc: float, nss: float | None
) -> None:
    data = load("npz", real_data / name)
    data = replace(data, observer=np.full_like(data.observer, -1))  # without the slow gold standard
    means = evaluate(GivesTheBias(), data, only=np.arange(0, len(data), len(data) // 30)).means
    assert means["auc"] == pytest.approx(auc, abs=0.02)
    if nss is not None:
        assert means["nss"] == pytest.approx(nss, abs=0.17)
