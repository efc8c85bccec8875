"""How well a tail predicts recorded fixations, and the tail that predicts them best.

    log Q = T A X B^T + w C - logsumexp        A and B depend on sigma, as in ``runtime.tail``

The network runs once for each image. Given sigma and C, the log-likelihood is concave in T and w (an exponential
family with two statistics), so Newton's method finds its maximum; sigma is tried in steps.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastgaze.core.center_bias import GRID, fit_center_bias, resample_log_density
from fastgaze.core.sizes import Size, shrunk
from fastgaze.data.fixations import FixationSet
from fastgaze.evaluation.metrics import cells
from fastgaze.runtime.card import ModelCard
from fastgaze.runtime.predictor import Predictor
from fastgaze.runtime.tail import tail_matrix

Array = NDArray[np.float32]

FOLDS = 10
_LONGEST = 64  # cells along the longer side of the grid on which images are scored
_BLURS = tuple(2 ** (step / 2) for step in range(-3, 5))  # times the model's own sigma
_LEAST_SIGMA = 1.0  # pixels that the steps above start from where a model has no blur
# Of temperature and weight: at the lower ends the network, or the centre bias, says nothing any more.
_LOW, _HIGH = np.array([0.05, 0.0]), np.array([5.0, 3.0])
_STEPS, _CLOSE_ENOUGH = 50, 1e-4
_BIT = float(np.log(2))


@dataclass(frozen=True, eq=False)
class Looked:
    """An image as far as the fit needs it.

    saliency (h, w) of ``working`` size; grid: size of the map that is scored; cells: numbers of the fixated cells of
    that grid, (k,); counts: of fixations on the grid of the centre bias, (48, 64); own_bias: the model's centre bias
    for this picture, a log density on that grid.
    """

    saliency: Array
    working: Size
    grid: Size
    cells: NDArray[np.int64]
    counts: NDArray[np.int64]
    own_bias: Array

    def field(self, sigma: float) -> Array:
        """A X B^T on the grid, (cells,)."""
        axes = zip(self.saliency.shape, self.working, self.grid, strict=True)
        rows, columns = (tail_matrix(*axis, sigma) for axis in axes)
        values: Array = (rows @ (self.saliency - self.saliency.max()) @ columns.T).ravel()
        return values


def look(predictor: Predictor, data: FixationSet, i: int) -> Looked:
    """Run the network on image i of ``data``."""
    view = predictor.look(data.paths[i])
    grid = shrunk(view.picture_size, _LONGEST)
    fixated = cells(grid, data.fixations(i, grid))
    own_bias, kinds = predictor.card.center_bias, predictor.card.kinds
    if kinds is not None and view.screen is not None:
        own_bias = kinds.center_bias(view.screen).astype(np.float32)
    return Looked(view.saliency, view.working, grid, fixated, data.counts(i, GRID), own_bias)


@dataclass(frozen=True, eq=False)
class Setting:
    """Values of all parts. center_bias: log density (48, 64), without its weight; None for the model's own, which may
    differ from picture to picture."""

    temperature: float
    sigma: float
    weight: float
    center_bias: Array | None

    @property
    def theta(self) -> NDArray[np.float64]:
        """(T, w), in which the likelihood is concave."""
        return np.array([self.temperature, self.weight])


class Study:
    """The images, and the likelihood of their fixations under any setting of the tail."""

    def __init__(self, images: Sequence[Looked], card: ModelCard, center_bias: Array | None = None) -> None:
        """center_bias: what every fit starts from in place of the model's own."""
        self.start = Setting(card.temperature, card.sigma, 1.0, center_bias)
        self.everyone: NDArray[np.int64] = np.arange(len(images))
        self._images = images
        self._fields: dict[tuple[int, float], Array] = {}
        self._own: dict[int, Array] = {}
        folds, shuffled = min(FOLDS, len(images)), np.random.default_rng(0).permutation(len(images))
        self._folds = [np.sort(shuffled[k::folds]) for k in range(folds)]

    def left_out(self, parts: Sequence[str]) -> NDArray[np.float64]:
        """Bits per fixation of every image, (n,), with ``parts`` fitted to the images of the other folds."""
        if not parts:
            return self.scores(self.start, self.everyone)
        found, near = np.empty(len(self._images)), self.fit(parts, self.everyone)
        for fold in self._folds:
            found[fold] = self.scores(self.fit(parts, np.setdiff1d(self.everyone, fold), near), fold)
        return found

    def scores(self, setting: Setting, chosen: NDArray[np.int64]) -> NDArray[np.float64]:
        """Bits per fixation over a uniform density, one for each of the chosen images, (k,)."""
        statistics = self._statistics(setting.sigma, chosen, self._stretched(setting.center_bias, chosen))
        return np.array([one.moments(setting.theta)[0] + np.log(one.values.shape[1]) for one in statistics]) / _BIT

    def fit(self, parts: Sequence[str], chosen: NDArray[np.int64], near: Setting | None = None) -> Setting:
        """The setting with the highest likelihood on the chosen images; only ``parts`` differ from the model's.

        near: a setting of the same parts from which the search starts.
        """
        bias, begin = self.start.center_bias, near or self.start
        if "center_bias" in parts:
            bias = fit_center_bias(np.sum([self._images[i].counts for i in chosen], axis=0))
        stretched = self._stretched(bias, chosen)
        free = np.array(["temperature" in parts, "center_bias_weight" in parts])
        sigmas = self._sigmas if "blur" in parts else [self.start.sigma]

        def highest(step: int) -> tuple[float, NDArray[np.float64]]:
            return _maximum(self._statistics(sigmas[step], chosen, stretched), begin.theta, free)

        step, (temperature, weight) = _climb(highest, sigmas.index(begin.sigma), len(sigmas))
        return Setting(float(temperature), sigmas[step], float(weight), bias)

    @property
    def _sigmas(self) -> list[float]:
        """Widths of the blur to choose from, the model's own among them."""
        own = self.start.sigma
        return sorted(own if factor == 1 else factor * max(own, _LEAST_SIGMA) for factor in _BLURS)

    def _stretched(self, center_bias: Array | None, chosen: NDArray[np.int64]) -> dict[int, Array]:
        """The centre bias on the grid of each of the chosen images, (cells,), by the image's number."""
        if center_bias is None:
            return {int(i): self._own_stretched(int(i)) for i in chosen}
        grids = {self._images[i].grid for i in chosen}
        stretched = {grid: _on_grid(center_bias, grid) for grid in grids}
        return {int(i): stretched[self._images[i].grid] for i in chosen}

    def _own_stretched(self, i: int) -> Array:
        """The model's own centre bias for one image, on its grid."""
        if i not in self._own:
            self._own[i] = _on_grid(self._images[i].own_bias, self._images[i].grid)
        return self._own[i]

    def _statistics(
        self, sigma: float, chosen: NDArray[np.int64], stretched: Mapping[int, Array]
    ) -> list["_Statistics"]:
        return [self._statistics_of(int(i), sigma, stretched) for i in chosen]

    def _statistics_of(self, i: int, sigma: float, stretched: Mapping[int, Array]) -> "_Statistics":
        image = self._images[i]
        if (i, sigma) not in self._fields:
            self._fields[i, sigma] = image.field(sigma)
        values = np.stack([self._fields[i, sigma], stretched[i]])
        return _Statistics(values, values[:, image.cells].mean(axis=1, dtype=np.float64))


@dataclass(frozen=True, eq=False)
class _Statistics:
    """The exponential family of one image: log Q = theta . values - log Z.

    values: of saliency and centre bias in every cell, (2, cells). observed: their mean over the fixations, (2,).
    """

    values: Array
    observed: NDArray[np.float64]

    def moments(self, theta: NDArray[np.float64]) -> tuple[float, NDArray[np.float64], NDArray[np.float64]]:
        """The mean log-likelihood of the fixations (nats), its gradient (2,) and its negative Hessian (2, 2).

        The Hessian is minus the covariance of the values under Q.
        """
        logits = theta.astype(np.float32) @ self.values
        highest = float(logits.max())
        density = np.exp(logits - highest)
        total = float(density.sum(dtype=np.float64))
        weighted = self.values * (density / np.float32(total))
        mean = weighted.sum(axis=1, dtype=np.float64)
        covariance = (weighted @ self.values.T).astype(np.float64) - np.outer(mean, mean)
        likelihood = float(theta @ self.observed) - highest - float(np.log(total))
        return likelihood, self.observed - mean, covariance


def _on_grid(log_density: Array, grid: Size) -> Array:
    """A log density on the cells of another grid, (cells,)."""
    return resample_log_density(log_density, grid).ravel().astype(np.float32)


def _climb(
    highest: Callable[[int], tuple[float, NDArray[np.float64]]], step: int, steps: int
) -> tuple[int, NDArray[np.float64]]:
    """From ``step`` uphill through 0..steps - 1 to a top: where it is, and what ``highest`` found there."""
    found: dict[int, tuple[float, NDArray[np.float64]]] = {}
    while True:
        for near in (step, step - 1, step + 1):
            if 0 <= near < steps and near not in found:
                found[near] = highest(near)
        top = max(found, key=lambda each: found[each][0])
        if top == step:
            return step, found[step][1]
        step = top


def _maximum(
    images: Sequence[_Statistics], theta: NDArray[np.float64], free: NDArray[np.bool_]
) -> tuple[float, NDArray[np.float64]]:
    """The highest mean log-likelihood over ``images`` and where it is; entries that are not free stay as they are.

    Newton's method, each step halved until it climbs, within the limits of the values.
    """
    likelihood, gradient, covariance = _mean_moments(images, theta)
    for _ in range(_STEPS):
        blocked = ((theta <= _LOW) & (gradient < 0)) | ((theta >= _HIGH) & (gradient > 0))
        moving = np.flatnonzero(free & ~blocked)
        step = np.zeros_like(theta)
        curvature = covariance[np.ix_(moving, moving)] + 1e-9 * np.eye(len(moving))
        step[moving] = np.linalg.solve(curvature, gradient[moving])
        while np.abs(step).max() > _CLOSE_ENOUGH:
            tried = np.clip(theta + step, _LOW, _HIGH)
            found = _mean_moments(images, tried)
            if found[0] > likelihood:
                break
            step /= 2
        else:
            return likelihood, theta
        theta, (likelihood, gradient, covariance) = tried, found
    return likelihood, theta


def _mean_moments(
    images: Sequence[_Statistics], theta: NDArray[np.float64]
) -> tuple[float, NDArray[np.float64], NDArray[np.float64]]:
    likelihoods, gradients, covariances = zip(*(image.moments(theta) for image in images), strict=True)
    return float(np.mean(likelihoods)), np.mean(gradients, axis=0), np.mean(covariances, axis=0)
