"""Protocols: which map each metric is given, and how it is computed.

``tuebingen``
    A model is its density; each metric gets the map that is best for it under that density
    (Kuemmerer, Wallis, Bethge 2018). AUC and NSS: the density. sAUC: the density divided by the centre
    bias, the distribution of the negatives. CC and KL: the density blurred with the kernel of the empirical
    map, its expectation. SIM: the same blurred density; the true optimum has no closed form, and pysaliency's
    stochastic search for it starts from this map and takes seconds per image.
``mit-legacy``
    One map, the density, for all metrics, computed as the MIT benchmark's MATLAB code did, and therefore as in
    the paper's table: fixated pixels count once, AUC after Judd with jitter and fixated values as thresholds,
    sAUC after Borji (a tenth as step, 100 random splits, negatives from ten other images), sample standard
    deviation, SIM after stretching maps to 0..1.

Log-likelihood and information gain are of the density itself in both. Numbers of two protocols cannot be
compared: DeepGaze II has NSS 1.29 in one and 2.34 in the other.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from fastgaze.core.errors import ArgumentError
from fastgaze.evaluation import metrics

METRICS = ("auc", "sauc", "nss", "sim", "kl", "cc", "log_likelihood", "log_likelihood_bits", "information_gain")
KERNEL = 35 / 1024  # sigma of the empirical map over the longer side: the benchmarks' 35 pixels at 1024
_NEGLIGIBLE = 1e-10  # eigenvalues of the kernel below this are left out
_JITTER = 1e-7
_SPLITS = 100
_THRESHOLDS = np.arange(0, 1.05, 0.1)


@dataclass(frozen=True, eq=False)
class Case:
    """What a density of one image is scored against, all at one size (h, w).

    fixations:     (k, 2), (x, y)
    center_bias:   log density (h, w), fitted to other images; the baseline of information gain
    others:        fixations of all other images, counted at each pixel, int (h * w,)
    sampled:       pixels fixated in ten other images, flat numbers (m,)
    seed:          of jitter and splits in mit-legacy
    """

    name: str
    fixations: NDArray[np.floating]
    center_bias: NDArray[np.floating]
    others: NDArray[np.int64]
    sampled: NDArray[np.int64]
    seed: int = 0

    @property
    def size(self) -> tuple[int, int]:
        """(height, width) of the maps."""
        return self.center_bias.shape[0], self.center_bias.shape[1]

    @cached_property
    def cells(self) -> NDArray[np.int64]:
        """Flat pixel number of each fixation, (k,)."""
        return metrics.cells(self.size, self.fixations, self.name)

    @cached_property
    def empirical(self) -> NDArray[np.float64]:
        """The fixations blurred with the kernel, (h, w), sum 1."""
        rows, columns = _kernel(self.size)
        y, x = np.divmod(self.cells, self.size[1])
        return _expand(rows, rows[:, y] @ columns[:, x].T / len(x), columns)


def cosine_factor(n: int, sigma: float) -> NDArray[np.float64]:
    """B (r, n) with B^T B = the Gaussian blur of n samples, mirrored at both ends as scipy's mode "reflect".

    Cosines are the eigenvectors of that blur: lambda_k = exp(-(pi k sigma / n)^2 / 2), and all but the first few
    are negligible, so a blur costs two thin products. Equal to the sampled kernel for sigma of 2 samples and more.
    Constants stay constant and no mass is lost at the border.
    """
    frequency = np.arange(n)
    eigenvalues = np.exp(-0.5 * (np.pi * frequency * sigma / n) ** 2)
    frequency = frequency[eigenvalues > _NEGLIGIBLE]
    cosines = np.cos(np.pi * frequency[:, None] * (np.arange(n) + 0.5) / n) * np.sqrt(2 / n)
    cosines[0] = np.sqrt(1 / n)
    factor: NDArray[np.float64] = np.sqrt(eigenvalues[: len(frequency), None]) * cosines
    return factor


@lru_cache(maxsize=8)
def _kernel(size: tuple[int, int]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    sigma = KERNEL * max(size)
    return cosine_factor(size[0], sigma), cosine_factor(size[1], sigma)


def _expand(
    rows: NDArray[np.float64], coefficients: NDArray[np.float64], columns: NDArray[np.float64]
) -> NDArray[np.float64]:
    # The frequencies left out would cancel ripples of the order of 1e-10; without them some values fall below 0.
    return np.maximum(rows.T @ coefficients @ columns, 0)


def blur(density: NDArray[np.floating]) -> NDArray[np.float64]:
    """The density (h, w) blurred with the kernel of the empirical map; sums to 1 as before."""
    if density.min() == density.max():  # rounding would give a uniform model a correlation
        return density.astype(np.float64)
    rows, columns = _kernel((density.shape[0], density.shape[1]))
    return _expand(rows, rows @ density @ columns.T, columns)


def score(protocol: str, log_density: NDArray[np.floating], case: Case) -> dict[str, float]:
    """All of ``METRICS`` for one image; sauc is left out where there are no other images."""
    density = metrics.check_density(log_density, case.name, case.size)
    result = _PROTOCOLS[check_protocol(protocol)](log_density, density, case)
    likelihood = float(log_density.ravel()[case.cells].mean(dtype=np.float64))
    baseline = float(case.center_bias.ravel()[case.cells].mean(dtype=np.float64))
    return result | {
        "log_likelihood": likelihood,
        "log_likelihood_bits": (likelihood + float(np.log(log_density.size))) / float(np.log(2)),
        "information_gain": (likelihood - baseline) / float(np.log(2)),
    }


def check_protocol(protocol: str) -> str:
    """The protocol itself, if there is one of that name."""
    if protocol not in _PROTOCOLS:
        raise ArgumentError(f"no protocol {protocol!r}; choose from {', '.join(_PROTOCOLS)}")
    return protocol


def _tuebingen(log_density: NDArray[np.floating], density: NDArray[np.float64], case: Case) -> dict[str, float]:
    expected = blur(density)
    result = {
        "auc": metrics.auc(log_density, case.fixations, case.name),
        "nss": metrics.nss(density, case.fixations, case.name),
        "sim": metrics.sim(expected, case.empirical, case.name),
        "kl": _mit_kl(expected, case),
        "cc": metrics.cc(expected, case.empirical, case.name),
    }
    negatives = np.flatnonzero(case.others)
    if len(negatives):
        ratio = (log_density - case.center_bias).ravel()
        result["sauc"] = metrics.auc_of_counts(ratio[case.cells], ratio[negatives], case.others[negatives])
    return result


def _mit_legacy(_: NDArray[np.floating], density: NDArray[np.float64], case: Case) -> dict[str, float]:
    rng = np.random.default_rng(case.seed)
    stretched = _stretch(density)
    fixated = np.unique(case.cells)
    result = {
        "auc": judd_auc(density, fixated, rng),
        "nss": legacy_nss(density, fixated),
        "sim": metrics.sim(stretched, _stretch(case.empirical), case.name),
        "kl": _mit_kl(density, case),
        "cc": metrics.cc(density, case.empirical, case.name),
    }
    if len(case.sampled):
        result["sauc"] = borji_auc(stretched.ravel(), fixated, case.sampled, rng)
    return result


def judd_auc(density: NDArray[np.floating], fixated: NDArray[np.int64], rng: np.random.Generator) -> float:
    """AUC_Judd.m: jittered map, thresholds at the fixated values, all other pixels as negatives.

    fixated: distinct flat pixel numbers.
    """
    values = _stretch(_stretch(density) + rng.random(density.shape) * _JITTER).ravel()
    if len(fixated) == len(values):
        return 0.5
    thresholds = np.sort(values[fixated])[::-1]
    above = len(values) - np.searchsorted(np.sort(values), thresholds, side="left")
    hits = np.arange(1, len(fixated) + 1)
    true = np.concatenate([[0], hits / len(fixated), [1]])
    false = np.concatenate([[0], (above - hits) / (len(values) - len(fixated)), [1]])
    return _area(true, false)


def borji_auc(
    values: NDArray[np.floating], fixated: NDArray[np.int64], sampled: NDArray[np.int64], rng: np.random.Generator
) -> float:
    """AUC_shuffled.m: thresholds a tenth apart, as many negatives as fixations, mean of 100 random draws."""
    draws = np.stack([rng.permutation(sampled)[: len(fixated)] for _ in range(_SPLITS)])
    positives, negatives = values[fixated], values[draws]
    areas = []
    for drawn in negatives:
        top = max(positives.max(), drawn.max())
        thresholds = _THRESHOLDS[top + 1e-12 >= _THRESHOLDS][::-1]
        true = (positives[None, :] >= thresholds[:, None]).mean(axis=1)
        false = (drawn[None, :] >= thresholds[:, None]).mean(axis=1)
        areas.append(_area(np.concatenate([[0], true, [1]]), np.concatenate([[0], false, [1]])))
    return float(np.mean(areas))


def legacy_nss(density: NDArray[np.floating], fixated: NDArray[np.int64]) -> float:
    """NSS.m: mean over fixated pixels, sample standard deviation; 0 for a constant map."""
    if density.min() == density.max():
        return 0.0
    return float((density.ravel()[fixated].mean() - density.mean()) / density.std(ddof=1))


def _mit_kl(prediction: NDArray[np.floating], case: Case) -> float:
    return metrics.kl_divergence(
        prediction, case.empirical, minimum=0, regularization=metrics.MIT_EPSILON, name=case.name
    )


def _stretch(values: NDArray[np.floating]) -> NDArray[np.floating]:
    """To 0..1; a constant map becomes 0."""
    spread = values.max() - values.min()
    stretched: NDArray[np.floating] = (values - values.min()) / (spread if spread else 1)
    return stretched


def _area(true: NDArray[np.float64], false: NDArray[np.float64]) -> float:
    return float(((true[1:] + true[:-1]) / 2 * np.diff(false)).sum())


_PROTOCOLS: dict[str, Callable[[NDArray[np.floating], NDArray[np.float64], Case], dict[str, float]]] = {
    "tuebingen": _tuebingen,
    "mit-legacy": _mit_legacy,
}
PROTOCOLS = tuple(_PROTOCOLS)
