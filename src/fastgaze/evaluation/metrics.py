"""The field's metrics, each as pysaliency 0.2.22 computes it: numpy in, one number out.

A map is float (H, W), any values; a log density is a map of natural logarithms whose exponentials sum to 1.
Fixations are (k, 2), (x, y) in pixels of the map. A score for fixations is the mean over them, repeated
ones included. ``name`` is the image's, for error messages.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastgaze.core.errors import DataError

Map = NDArray[np.floating]

MIT_EPSILON = 2.2204e-16  # MATLAB's eps, with which the MIT and Tuebingen benchmarks regularise KL
_BINS = 1 << 15
_LARGEST_SCALE = 1e30  # a map with a smaller spread is sorted as a whole
NORMALISATION_TOLERANCE = 1e-3  # of logsumexp; float32 sums over a million pixels stay far below it


def cells(shape: tuple[int, ...], fixations: ArrayLike, name: str = "image") -> NDArray[np.int64]:
    """Flat pixel numbers (k,) of fixations on a map of ``shape`` (H, W); refuses none, NaN and points outside."""
    points = np.asarray(fixations)
    if points.ndim != 2 or points.shape[1] != 2 or len(points) == 0:
        raise DataError(f"{name}: fixations of shape {points.shape}; give at least one, as rows of (x, y)")
    x, y = points[:, 0], points[:, 1]
    inside = (x >= 0) & (x < shape[1]) & (y >= 0) & (y < shape[0])
    if not inside.all():
        bad = points[np.argmin(inside)]
        raise DataError(
            f"{name}: fixation ({bad[0]:g}, {bad[1]:g}) is not inside the map of {shape[1]}x{shape[0]}; "
            "scale fixations to the map and drop those outside"
        )
    return y.astype(np.int64) * shape[1] + x.astype(np.int64)


def check_map(values: Map, name: str = "image", size: tuple[int, int] | None = None) -> Map:
    """The map itself, if it is 2-d, has ``size`` where given, and holds neither NaN nor +infinity."""
    if values.ndim != 2 or values.size == 0 or (size is not None and values.shape != size):
        wanted = f"{size[0]}x{size[1]}" if size else "(height, width)"
        raise DataError(f"{name}: a map of shape {values.shape}; it must be {wanted}")
    if not values.max() < np.inf:  # false for NaN as well
        raise DataError(f"{name}: the map holds NaN or infinity; check the model on this image")
    return values


def check_finite(values: Map, name: str = "image", size: tuple[int, int] | None = None) -> Map:
    """``check_map``, and no -infinity either: a mean or a sum over such a map has no value."""
    if not check_map(values, name, size).min() > -np.inf:
        raise DataError(f"{name}: the map holds -infinity; give the density in place of its logarithm")
    return values


def check_density(log_density: Map, name: str = "image", size: tuple[int, int] | None = None) -> NDArray[np.float64]:
    """The density (H, W) of a log density that is finite and sums to 1; refuses another one."""
    check_map(log_density, name, size)
    density = np.exp(log_density, dtype=np.float64)
    total = float(density.sum())
    if not abs(total - 1) < NORMALISATION_TOLERANCE:
        raise DataError(f"{name}: the density sums to {total:g}, not 1; subtract logsumexp from the log density")
    return density


def log_likelihood(log_density: Map, fixations: ArrayLike, name: str = "image") -> float:
    """Mean log density at the fixations, nats per fixation; a uniform model scores -log(H * W)."""
    check_density(log_density, name)
    return float(log_density.ravel()[cells(log_density.shape, fixations, name)].mean(dtype=np.float64))


def information_gain(log_density: Map, fixations: ArrayLike, baseline: Map, name: str = "image") -> float:
    """How much better than the log density ``baseline`` the model predicts, bits per fixation."""
    check_map(baseline, f"{name} (baseline)", _size(log_density))
    gain = log_likelihood(log_density, fixations, name) - log_likelihood(baseline, fixations, name)
    return gain / float(np.log(2))


def auc(saliency_map: Map, fixations: ArrayLike, name: str = "image") -> float:
    """Probability that a fixated pixel has a higher value than a random pixel of the map; ties count half."""
    values = check_map(saliency_map, name).ravel()
    return auc_of_values(values[cells(saliency_map.shape, fixations, name)], values)


def shuffled_auc(saliency_map: Map, fixations: ArrayLike, others: ArrayLike, name: str = "image") -> float:
    """AUC with the fixations ``others`` (m, 2) of other images, scaled to this one, as negatives."""
    values = check_map(saliency_map, name).ravel()
    negatives = values[cells(saliency_map.shape, others, f"{name} (other images)")]
    return auc_of_values(values[cells(saliency_map.shape, fixations, name)], negatives)


def auc_of_values(positives: Map, negatives: Map) -> float:
    """Share of pairs in which the positive is larger, ties at half."""
    below, upto = _ranks(negatives, positives)
    return float((below + upto).mean() / (2 * len(negatives)))


def _ranks(values: Map, thresholds: Map) -> tuple[NDArray[np.integer], NDArray[np.integer]]:
    """How many values are < and <= each threshold, exactly.

    Values are put into many bins, and only those in a bin with a threshold are sorted: a fifth of the time of
    sorting a whole map for its few fixations.
    """
    # In float16 the scale of a map with a small spread overflows.
    values, thresholds = (v.astype(np.promote_types(v.dtype, np.float32), copy=False) for v in (values, thresholds))
    lowest, highest = float(values.min()), float(values.max())
    scale = (_BINS - 1) / (highest - lowest) if -np.inf < lowest < highest < np.inf else np.inf
    if len(values) < _BINS or not scale < _LARGEST_SCALE:
        ordered = np.sort(values)
        return np.searchsorted(ordered, thresholds, side="left"), np.searchsorted(ordered, thresholds, side="right")
    # Subtraction and product are monotone in floating point too, so a larger value is never in a lower bin.
    bins = ((values - lowest) * scale).astype(np.intp)
    at = np.clip((thresholds - lowest) * scale, 0, _BINS - 1).astype(np.intp)
    wanted = np.zeros(_BINS + 1, dtype=np.bool_)
    wanted[at] = True
    near = np.sort(values[wanted[bins]])
    counts = np.bincount(bins, minlength=_BINS + 1)
    far_before = np.cumsum(np.where(wanted, 0, counts))[at]
    below = np.searchsorted(near, thresholds, side="left") + far_before
    return below, np.searchsorted(near, thresholds, side="right") + far_before


def auc_of_counts(positives: Map, negatives: Map, counts: NDArray[np.integer]) -> float:
    """``auc_of_values`` where negative i occurs counts[i] times; no slower for millions of them."""
    thresholds, occurrences = np.unique(positives, return_counts=True)
    bins = len(thresholds) + 1
    # A negative v is < thresholds[j] when #(thresholds <= v) <= j, and <= thresholds[j] when #(thresholds < v) <= j.
    below = np.bincount(np.searchsorted(thresholds, negatives, side="right"), counts, bins).cumsum()
    upto = np.bincount(np.searchsorted(thresholds, negatives, side="left"), counts, bins).cumsum()
    return float(((below + upto)[:-1] * occurrences).sum() / (2 * below[-1] * occurrences.sum()))


def nss(saliency_map: Map, fixations: ArrayLike, name: str = "image") -> float:
    """Mean value at the fixations of the map with mean 0 and (population) standard deviation 1; 0 if constant."""
    values = check_finite(saliency_map, name).ravel()
    fixated = values[cells(saliency_map.shape, fixations, name)].mean(dtype=np.float64)
    # Rounding gives a constant map a tiny deviation, and NSS of 1, unless it is caught here.
    if values.min() == values.max():
        return 0.0
    return float((fixated - values.mean(dtype=np.float64)) / values.std(dtype=np.float64))


def cc(saliency_map: Map, empirical_map: Map, name: str = "image") -> float:
    """Pearson's correlation of two maps; 0 for a constant prediction, NaN if the empirical map is constant."""
    first = check_finite(saliency_map, name).ravel()
    second = check_finite(empirical_map, f"{name} (empirical map)", _size(saliency_map)).ravel()
    if second.min() == second.max():
        return float("nan")
    if first.min() == first.max():
        return 0.0
    first, second = first - first.mean(dtype=np.float64), second - second.mean(dtype=np.float64)
    return float(first @ second / np.sqrt((first @ first) * (second @ second)))


def kl_divergence(
    saliency_map: Map,
    empirical_map: Map,
    minimum: float = 1e-20,
    regularization: float = 0.0,
    name: str = "image",
) -> float:
    """KL(empirical || prediction) in nats, both maps divided by their sums.

    As pysaliency's ``image_based_kl_divergence`` by default (``minimum`` is added to both maps), and as its
    ``MIT_KLDiv`` with minimum=0, regularization=MIT_EPSILON: sum q log(eps + q / (p + eps)).
    """
    p = to_density(check_finite(saliency_map, name), minimum)
    q = to_density(check_finite(empirical_map, f"{name} (empirical map)", _size(saliency_map)), minimum)
    quotient = q / (p + regularization)
    quotient += regularization
    return float((q * np.log(quotient, out=quotient)).sum())


def sim(saliency_map: Map, empirical_map: Map, name: str = "image") -> float:
    """Shared mass of two maps, each divided by its sum: 1 for equal ones, 0 for disjoint ones."""
    p = to_density(check_finite(saliency_map, name))
    q = to_density(check_finite(empirical_map, f"{name} (empirical map)", _size(saliency_map)))
    return float(np.minimum(p, q).sum())


def to_density(saliency_map: Map, minimum: float = 0.0) -> NDArray[np.float64]:
    """A map divided by its sum, lifted to 0 if it is negative somewhere, and by ``minimum``; all zero: uniform."""
    values = np.asarray(saliency_map, dtype=np.float64)
    lowest = float(values.min())
    if lowest < 0:
        values = values - lowest
    if minimum:  # in a second step, because added to ``lowest`` it would be rounded away
        values = values + minimum
    total = float(values.sum())
    return values / total if total else np.full(values.shape, 1 / values.size)


def _size(values: Map) -> tuple[int, int]:
    return values.shape[0], values.shape[1]
