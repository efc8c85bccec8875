"""What a model is compared with: the data set's centre bias, other images' fixations, other observers."""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from fastgaze.core.center_bias import GRID, fit_center_bias, resample_log_density
from fastgaze.core.operators import gaussian_matrix
from fastgaze.core.sizes import Size, shrunk
from fastgaze.data.fixations import FixationSet
from fastgaze.evaluation import metrics

GOLD_SIGMA = 0.022  # of the longer side; with the shares below near the best likelihood on OSIE and EyeCrowd
GOLD_CENTER_SHARE = 0.1
GOLD_LONGEST = 256  # cells along the longer side; finer grids change AUC and NSS in the third digit
_SAMPLED_IMAGES = 10


class DatasetCenterBias:
    """The centre bias of a data set for each of its images, fitted to the other images."""

    def __init__(self, data: FixationSet) -> None:
        self._counts = [data.counts(i, GRID) for i in range(len(data))]
        self._total = np.sum(self._counts, axis=0)

    def without(self, i: int, size: Size) -> NDArray[np.float64]:
        """Log density (h, w) from all images but i; uniform where there is no other fixation."""
        counts = self._total - self._counts[i]
        if not counts.any():
            return np.full(size, -np.log(size[0] * size[1]))
        return resample_log_density(fit_center_bias(counts), size)


class Negatives:
    """The fixations of all other images, laid over each image."""

    def __init__(self, data: FixationSet, sizes: Sequence[Size]) -> None:
        self._data = data
        self._totals = {size: self._total(size) for size in set(sizes)}

    def _total(self, size: Size) -> NDArray[np.int64]:
        total = np.zeros(size, np.int64)
        for i in range(len(self._data)):
            total += self._data.counts(i, size)
        return total.ravel()

    def counts(self, i: int, size: Size) -> NDArray[np.int64]:
        """How often each pixel was fixated in other images, (h * w,)."""
        return self._totals[size] - self._data.counts(i, size).ravel()

    def sampled(self, i: int, size: Size, seed: int) -> NDArray[np.int64]:
        """Distinct pixels fixated in ten random other images, flat numbers (m,)."""
        others = np.delete(np.arange(len(self._data)), i)
        rng = np.random.default_rng((seed, i))
        chosen = rng.choice(others, min(_SAMPLED_IMAGES, len(others)), replace=False)
        return np.flatnonzero(np.sum([self._data.counts(int(j), size) for j in chosen], axis=0))


@lru_cache(maxsize=8)
def _kernel(size: Size, sigma: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    return gaussian_matrix(size[0], sigma), gaussian_matrix(size[1], sigma)


def gold_grid(size: Size) -> Size:
    """The grid on which observers are compared: ``size``, at most ``GOLD_LONGEST`` along the longer side."""
    return shrunk(size, GOLD_LONGEST)


def other_observers(
    fixations: NDArray[np.floating],
    observers: NDArray[np.integer],
    center_bias: NDArray[np.floating],
    others: NDArray[np.integer],
    pixels: int,
) -> dict[str, float] | None:
    """How well the other observers of an image predict each one: the gold standard.

    Each observer's fixations are scored under a density estimated from all others' (Gaussian kernel, with a
    share of the centre bias), and the scores are averaged over fixations.

    fixations (k, 2) and center_bias (h, w) on the grid; observers (k,); others: fixations of other images
    counted on the grid, (h * w,); pixels: of the image, whose density the likelihood is stated for.
    None where observers are unknown or there is only one.
    """
    who = np.unique(observers)
    if len(who) < 2 or who[0] < 0:
        return None
    size = (center_bias.shape[0], center_bias.shape[1])
    cells = metrics.cells(size, fixations)
    rows, columns = _kernel(size, GOLD_SIGMA * max(size))
    y, x = np.divmod(cells, size[1])
    total = rows[y].T @ columns[x]
    bias = np.exp(center_bias)
    negatives = np.flatnonzero(others)
    sums: dict[str, float] = {}
    for one in who:
        own = np.flatnonzero(observers == one)
        rest = np.maximum(total - rows[y[own]].T @ columns[x[own]], 0) / (len(cells) - len(own))
        density = (1 - GOLD_CENTER_SHARE) * rest + GOLD_CENTER_SHARE * bias
        for key, value in _scores(density, bias, cells[own], others, negatives).items():
            sums[key] = sums.get(key, 0.0) + value * len(own)
    means = {key: value / len(cells) for key, value in sums.items()}
    means["log_likelihood"] += float(np.log(center_bias.size / pixels))
    means["log_likelihood_bits"] = (means["log_likelihood"] + float(np.log(pixels))) / float(np.log(2))
    return means


def _scores(
    density: NDArray[np.float64],
    bias: NDArray[np.float64],
    cells: NDArray[np.int64],
    others: NDArray[np.integer],
    negatives: NDArray[np.int64],
) -> dict[str, float]:
    values, baseline = density.ravel(), bias.ravel()
    likelihood = float(np.log(values[cells]).mean())
    result = {
        "auc": metrics.auc_of_values(values[cells], values),
        "nss": float((values[cells].mean() - values.mean()) / values.std()),
        "log_likelihood": likelihood,
        "information_gain": (likelihood - float(np.log(baseline[cells]).mean())) / float(np.log(2)),
    }
    if len(negatives):
        ratio = values / baseline
        result["sauc"] = metrics.auc_of_counts(ratio[cells], ratio[negatives], others[negatives])
    return result
