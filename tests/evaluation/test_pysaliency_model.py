"""A fastgaze model inside pysaliency: the real package calls it, and scores agree with ours."""

import warnings
from pathlib import Path

import numpy as np
import pytest

from fastgaze.runtime.predictor import Predictor
from tests.photos import photo

# pysaliency was written for numpy 1 (facts 8).
np.trapz, np.string_ = np.trapezoid, np.bytes_  # type: ignore[attr-defined]
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    pytest.importorskip("pysaliency")
    import pysaliency

    from fastgaze.evaluation.pysaliency import PysaliencyModel

RNG = np.random.default_rng(0)
COLOUR, GREY = photo(90, 120, (30, 40)), photo(80, 100, (70, 50))[:, :, 0]


@pytest.fixture(scope="module")
def model(bright: Predictor) -> PysaliencyModel:
    return PysaliencyModel(bright)


@pytest.fixture(scope="module")
def stimuli() -> pysaliency.Stimuli:
    return pysaliency.Stimuli([COLOUR, GREY])


def test_densities_are_the_runtimes_and_sum_to_one(
    model: PysaliencyModel, bright: Predictor, stimuli: pysaliency.Stimuli
) -> None:
    for stimulus, picture in zip(stimuli, (COLOUR, GREY), strict=True):
        found = model.log_density(stimulus)
        assert found.shape == picture.shape[:2]
        assert np.exp(found).sum() == pytest.approx(1, abs=1e-12)
        np.testing.assert_allclose(found, bright.predict(picture).log_density, atol=1e-4)
    assert model.log_density(stimuli[0]) is model.log_density(stimuli[0]), "kept, as every model of pysaliency does"


def test_pysaliency_scores_it(model: PysaliencyModel, stimuli: pysaliency.Stimuli) -> None:
    places = [(n, x + RNG.normal(), y + RNG.normal()) for n, x, y in [(0, 30, 40), (1, 70, 50)] for _ in range(10)]
    n, x, y = np.array(places).T
    fixations = pysaliency.Fixations.create_without_history(x, y, n.astype(int))
    uniform = pysaliency.UniformModel()
    expected = np.mean(
        [model.log_density(stimuli[k])[int(b), int(a)] for k, a, b in zip(n.astype(int), x, y, strict=True)]
    )
    assert model.log_likelihood(stimuli, fixations) == pytest.approx(expected)
    assert model.information_gain(stimuli, fixations, uniform) > 0.5
    assert pysaliency.DensitySaliencyMapModel(model).AUC(stimuli, fixations) > 0.9
    xs, ys, _ = model._sample_fixation_train(stimuli[0], 200, rst=np.random.RandomState(0))
    assert abs(np.median(xs) - 30) < 10
    assert abs(np.median(ys) - 40) < 10


def test_the_centre_bias_and_the_model_can_be_chosen(bright: Predictor, bright_file: Path) -> None:
    flat = np.full((60, 80, 3), 128, np.uint8)
    without = PysaliencyModel(bright_file, center_bias=None, caching=False).log_density(flat)
    assert np.ptp(without[20:-20, 20:-20]) < 1e-3
    assert np.ptp(PysaliencyModel(bright).log_density(flat)) > 0.3
