"""Every metric against the field's reference, pysaliency 0.2.22, on random maps with ties and repeats."""

import warnings
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from fastgaze.core.sizes import Size
from fastgaze.evaluation import metrics

# pysaliency was written for numpy 1 (facts 8).
np.trapz, np.string_ = np.trapezoid, np.bytes_  # type: ignore[attr-defined]
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    pytest.importorskip("pysaliency")
    import pysaliency
    from pysaliency import metrics as reference
    from pysaliency.saliency_map_models import FullShuffledNonfixationProvider

SIZES = [(11, 17), (23, 9), (16, 16)]
KINDS = ["smooth", "ties", "constant", "signed", "peaked"]


Map = NDArray[np.float64]


class Maps(pysaliency.SaliencyMapModel):  # type: ignore[misc]  # pysaliency has no types
    """The reference's model of given maps, found again by the number in the stimulus' first pixel."""

    def __init__(self, maps: Sequence[Map]) -> None:
        super().__init__(caching=False)
        self.maps = maps

    def _saliency_map(self, stimulus: NDArray[np.uint8]) -> Map:
        return self.maps[int(stimulus[0, 0, 0])]


class Densities(pysaliency.Model):  # type: ignore[misc]  # pysaliency has no types
    """The same for log densities."""

    def __init__(self, densities: Sequence[Map]) -> None:
        super().__init__(caching=False)
        self.densities = densities

    def _log_density(self, stimulus: NDArray[np.uint8]) -> Map:
        return self.densities[int(stimulus[0, 0, 0])]


def make_map(rng: np.random.Generator, kind: str, size: Size) -> Map:
    if kind == "ties":
        return rng.integers(0, 4, size).astype(float)
    if kind == "constant":
        return np.full(size, 0.25)
    if kind == "signed":
        return rng.normal(size=size)
    if kind == "peaked":
        return np.exp(6 * rng.normal(size=size))
    return rng.random(size)


def normalised(values: Map) -> Map:
    return np.asarray(values - np.logaddexp.reduce(values, axis=None))


def scene(seed: int, kinds: tuple[str, ...]) -> tuple[pysaliency.Stimuli, pysaliency.Fixations, list[Map], list[Map]]:
    """Stimuli, fixations (with many repeats) and maps; the fixations as pysaliency and as we take them."""
    rng = np.random.default_rng(seed)
    maps = [make_map(rng, kind, size) for kind, size in zip(kinds, SIZES, strict=True)]
    points = []
    for height, width in SIZES:
        once = rng.random((int(rng.integers(1, 20)), 2)) * (width, height)
        points.append(np.concatenate([once, once[:: int(rng.integers(1, 4))]]))
    stimuli = pysaliency.Stimuli([np.full((*size, 3), i, np.uint8) for i, size in enumerate(SIZES)])
    xy = np.concatenate(points)
    n = np.repeat(np.arange(len(SIZES)), [len(p) for p in points])
    fixations = pysaliency.Fixations.create_without_history(xy[:, 0], xy[:, 1], n)
    return stimuli, fixations, maps, points


def per_image(values: Map, fixations: pysaliency.Fixations) -> list[np.float64]:
    return [np.mean(values[fixations.n == i]) for i in range(len(SIZES))]


scenes = given(seed=st.integers(0, 2**31), kinds=st.tuples(*[st.sampled_from(KINDS)] * 3))
few = settings(max_examples=40, deadline=None)


@pytest.mark.parametrize(("metric", "theirs"), [(metrics.auc, Maps.AUCs), (metrics.nss, Maps.NSSs)])
@scenes
@few
def test_auc_and_nss_agree(
    metric: Callable[[Map, Map], float], theirs: Callable[..., Map], seed: int, kinds: tuple[str, ...]
) -> None:
    stimuli, fixations, maps, points = scene(seed, kinds)
    expected = per_image(theirs(Maps(maps), stimuli, fixations), fixations)
    ours = [metric(m, p) for m, p in zip(maps, points, strict=True)]
    np.testing.assert_allclose(ours, expected, atol=1e-6)


@scenes
@few
def test_shuffled_auc_agrees_from_points_and_from_counts(seed: int, kinds: tuple[str, ...]) -> None:
    stimuli, fixations, maps, points = scene(seed, kinds)
    expected = per_image(Maps(maps).AUCs(stimuli, fixations, nonfixations="shuffled"), fixations)
    provider = FullShuffledNonfixationProvider(stimuli, fixations)
    for i, (values, own) in enumerate(zip(maps, points, strict=True)):
        x, y = provider._nonfixations_for_image(i)
        others = np.stack([x, y], axis=1)
        assert metrics.shuffled_auc(values, own, others) == pytest.approx(expected[i], abs=1e-6)
        counts = np.bincount(metrics.cells(values.shape, others), minlength=values.size)
        positives = values.ravel()[metrics.cells(values.shape, own)]
        assert metrics.auc_of_counts(positives, values.ravel(), counts) == pytest.approx(expected[i], abs=1e-6)


@scenes
@few
def test_log_likelihood_and_information_gain_agree(seed: int, kinds: tuple[str, ...]) -> None:
    stimuli, fixations, maps, points = scene(seed, kinds)
    baselines = [normalised(np.random.default_rng(seed).normal(size=size)) for size in SIZES]
    densities = [normalised(m) for m in maps]
    model, baseline = Densities(densities), Densities(baselines)
    expected = per_image(model.log_likelihoods(stimuli, fixations), fixations)
    ours = [metrics.log_likelihood(d, p) for d, p in zip(densities, points, strict=True)]
    np.testing.assert_allclose(ours, expected, atol=1e-6)
    expected = per_image(model.information_gains(stimuli, fixations, baseline), fixations)
    ours = [metrics.information_gain(d, p, b) for d, p, b in zip(densities, points, baselines, strict=True)]
    np.testing.assert_allclose(ours, expected, atol=1e-6)
    uniform = per_image(model.information_gains(stimuli, fixations), fixations)
    flat = [np.full(size, -np.log(size[0] * size[1])) for size in SIZES]
    ours = [metrics.information_gain(d, p, b) for d, p, b in zip(densities, points, flat, strict=True)]
    np.testing.assert_allclose(ours, uniform, atol=1e-6)


@given(seed=st.integers(0, 2**31), first=st.sampled_from(KINDS), second=st.sampled_from([*KINDS, "fixations"]))
@settings(max_examples=100, deadline=None)
def test_map_against_map_metrics_agree(seed: int, first: str, second: str) -> None:
    rng = np.random.default_rng(seed)
    p = make_map(rng, first, SIZES[0])
    q = rng.poisson(0.1, SIZES[0]).astype(float) if second == "fixations" else make_map(rng, second, SIZES[0])
    assert metrics.sim(p, q) == pytest.approx(reference.SIM(p, q), abs=1e-6)
    ours = metrics.kl_divergence(p, q)
    assert ours == pytest.approx(reference.image_based_kl_divergence(p, q), abs=1e-6)
    mit = metrics.kl_divergence(p, q, minimum=0, regularization=metrics.MIT_EPSILON)
    with np.errstate(divide="ignore"):  # the reference takes the log of empty pixels and undoes it
        assert mit == pytest.approx(reference.MIT_KLDiv(p, q), abs=1e-6)
    if q.min() < q.max():
        assert metrics.cc(p, q) == pytest.approx(reference.CC(p, q), abs=1e-6)
    else:
        assert np.isnan(metrics.cc(p, q))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_metrics_agree_on_a_real_sized_map(dtype: type[np.floating]) -> None:
    rng = np.random.default_rng(3)
    log_density = normalised(rng.normal(size=(240, 320))).astype(dtype)
    points = rng.random((300, 2)) * (320, 240)
    x, y = points.T
    density = np.exp(log_density)
    assert metrics.nss(density, points) == pytest.approx(reference.NSS(density, x, y).mean(), abs=1e-6)
    other = rng.random((240, 320))
    assert metrics.cc(density, other) == pytest.approx(reference.CC(density, other), abs=1e-6)
    assert metrics.sim(density, other) == pytest.approx(reference.SIM(density, other), abs=1e-6)
