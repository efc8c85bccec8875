"""Calibrate a model for other pictures and viewers: its temperature, its blur and its centre bias, in seconds.

A network that is asked about pictures unlike those it learned from is often right about the places and too sure of
them, and every group of viewers has a centre bias of its own. Both are settled by a few numbers of the tail:

    log Q = T A X B^T + w C - logsumexp        A and B depend on sigma, as in ``runtime.tail``

The network runs once for each image. Given sigma and C, the log-likelihood is concave in T and w (an exponential
family with two statistics), so Newton's method finds its maximum; sigma is tried in steps.

A part of the tail is changed only if images that it was not fitted to say so: parts are added one by one, the most
useful first, as long as the cross-validated gain is larger than ``STANDARD_ERRORS`` times its standard error.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fastgaze.core.center_bias import GRID, fit_center_bias, resample_log_density
from fastgaze.core.errors import ArgumentError, DataError
from fastgaze.core.files import write_whole
from fastgaze.core.jsonable import Json
from fastgaze.core.sizes import Size, shrunk
from fastgaze.data.fixations import FixationSet
from fastgaze.evaluation.metrics import cells
from fastgaze.runtime import zoo
from fastgaze.runtime.card import ModelCard, with_card
from fastgaze.runtime.engines import make_engine
from fastgaze.runtime.predictor import Predictor
from fastgaze.runtime.tail import tail_matrix

Array = NDArray[np.float32]

NEEDED = {"temperature": 12, "blur": 12, "center_bias_weight": 12, "center_bias": 24}
"""The parts, and how many images each needs: a centre bias is a map, the others are numbers."""
MOST_IMAGES = 200
"""Of a larger set as many images, evenly spread, are used: four numbers do not need more."""
STANDARD_ERRORS = 2.0
FOLDS = 10
_LONGEST = 64  # cells along the longer side of the grid on which images are scored
_BLURS = tuple(2 ** (step / 2) for step in range(-3, 5))  # times the model's own sigma
_LEAST_SIGMA = 1.0  # pixels that the steps above start from where a model has no blur
# Of temperature and weight: at the lower ends the network, or the centre bias, says nothing any more.
_LOW, _HIGH = np.array([0.05, 0.0]), np.array([5.0, 3.0])
_STEPS, _CLOSE_ENOUGH = 50, 1e-4
_BIT = float(np.log(2))


@dataclass(frozen=True)
class Part:
    """A part of the tail, and what became of it.

    name: a key of ``NEEDED``. before, after: its value in the model and as fitted; a centre bias is that of the "model"
    or of the "data". gain: bits per fixation on images that it was not fitted to, beyond the parts adopted before it;
    error: standard error of the gain; both None if there were too few images to try. adopted: whether it was changed.
    """

    name: str
    before: float | str
    after: float | str
    gain: float | None
    error: float | None
    adopted: bool


@dataclass(frozen=True, eq=False)
class Calibration:
    """What ``calibrate`` found.

    before, after: bits per fixation over a uniform density, mean over images; ``after`` is of images that were left
    out of the fit. error: standard error of the difference.
    """

    model: str
    data: str
    images: int
    fixations: int
    before: float
    after: float
    error: float
    parts: tuple[Part, ...]
    card: ModelCard = field(repr=False)
    """That of the calibrated model."""
    _content: bytes = field(repr=False)

    @property
    def changed(self) -> bool:
        """Whether any part was adopted; otherwise the model is best left as it is."""
        return any(part.adopted for part in self.parts)

    def write(self, path: str | Path) -> None:
        """Write the calibrated model to ``path``, an .onnx file: the same network with another card."""
        path = Path(path)
        if path.suffix != ".onnx":
            raise ArgumentError(f"{path} does not end in .onnx, by which models are recognised")
        card = replace(self.card, name=path.name.removesuffix(".onnx"))
        write_whole(path, with_card(self._content, card))

    def to_json(self) -> dict[str, Json]:
        """Values that ``json`` can write."""
        facts = {key: getattr(self, key) for key in ("model", "data", "images", "fixations", "before", "after")}
        return {**facts, "error": self.error, "parts": [asdict(part) for part in self.parts]}


def calibrate(
    model: str | Path | None,
    data: FixationSet,
    data_name: str = "",
    threads: int | None = None,
    track: Callable[[Iterable[int]], Iterable[int]] = iter,
) -> Calibration:
    """Fit the tail of a bundled model or an .onnx file to recorded fixations; ``write`` the result to a file.

    model: the default model if None. threads: of the network. track: wraps the numbers of the images while the network
    works through them, for a progress bar.
    """
    path, content, card = zoo.read_model(zoo.default_name() if model is None else model)
    predictor = Predictor(card, make_engine(path, content, threads=threads))
    looked = [_look(predictor, data, i) for i in track(_chosen(data))]
    study = _Study(looked, card)
    parts, adopted = _select(study)
    before, after = study.scores(study.start, study.everyone), study.left_out(adopted)
    name = data_name or "data of the user's own"
    return Calibration(
        model=card.name,
        data=data_name,
        images=len(looked),
        fixations=sum(len(each.cells) for each in looked),
        before=float(before.mean()),
        after=float(after.mean()),
        error=_standard_error(after - before),
        parts=parts,
        card=_calibrated(card, study.fit(adopted, study.everyone), f"calibrated on {name} ({len(looked)} images)"),
        _content=content,
    )


def fitted_temperature(predictor: Predictor, data: FixationSet, chosen: Iterable[int]) -> float:
    """The temperature that fits the chosen images best, with the centre bias of ``data`` and all else as it is.

    It is relative to the model's own: at 1 the model is calibrated, below 1 it is too sure of itself.
    """
    bias = fit_center_bias(np.sum([data.counts(i, GRID) for i in range(len(data))], axis=0))
    looked = [_look(predictor, data, int(i)) for i in chosen if data.inside(int(i)).any()]
    study = _Study(looked, replace(predictor.card, center_bias=bias))
    return study.fit(("temperature",), study.everyone).temperature / predictor.card.temperature


def _chosen(data: FixationSet) -> list[int]:
    """Numbers of the images that are used; too few are refused."""
    found = [i for i in range(len(data)) if data.inside(i).any()]
    if len(found) < (least := min(NEEDED.values())):
        raise DataError(
            f"{len(found)} images with fixations are too few to calibrate on; give at least {least}, better "
            f"{max(NEEDED.values())} or more"
        )
    return [found[k] for k in np.linspace(0, len(found) - 1, min(len(found), MOST_IMAGES)).astype(int)]


def _calibrated(card: ModelCard, setting: "_Setting", remark: str) -> ModelCard:
    """Scores of the card are those of the model as it was, and go; so do the centre biases of kinds of pictures if the
    viewers have one of their own, which crops are to use too."""
    own_bias = setting.weight != 1 or setting.center_bias is not card.center_bias
    bias = resample_log_density(setting.weight * setting.center_bias.astype(np.float64), setting.center_bias.shape)
    return replace(
        card,
        temperature=setting.temperature,
        sigma=setting.sigma,
        center_bias=bias.astype(np.float32),
        kinds=None if own_bias else card.kinds,
        scores={},
        data="; ".join(filter(None, (card.data, remark))),
    )


@dataclass(frozen=True, eq=False)
class _Looked:
    """An image as far as the fit needs it.

    saliency (h, w) of ``working`` size; grid: size of the map that is scored; cells: numbers of the fixated cells of
    that grid, (k,); counts: of fixations on the grid of the centre bias, (48, 64).
    """

    saliency: Array
    working: Size
    grid: Size
    cells: NDArray[np.int64]
    counts: NDArray[np.int64]

    def field(self, sigma: float) -> Array:
        """A X B^T on the grid, (cells,)."""
        axes = zip(self.saliency.shape, self.working, self.grid, strict=True)
        rows, columns = (tail_matrix(*axis, sigma) for axis in axes)
        values: Array = (rows @ (self.saliency - self.saliency.max()) @ columns.T).ravel()
        return values


def _look(predictor: Predictor, data: FixationSet, i: int) -> _Looked:
    view = predictor.look(data.paths[i])
    grid = shrunk(view.picture_size, _LONGEST)
    fixated = cells(grid, data.fixations(i, grid))
    return _Looked(view.saliency, view.working, grid, fixated, data.counts(i, GRID))


@dataclass(frozen=True, eq=False)
class _Setting:
    """Values of all parts. center_bias: log density (48, 64), without its weight."""

    temperature: float
    sigma: float
    weight: float
    center_bias: Array

    @property
    def theta(self) -> NDArray[np.float64]:
        """(T, w), in which the likelihood is concave."""
        return np.array([self.temperature, self.weight])


class _Study:
    """The images, and the likelihood of their fixations under any setting of the tail."""

    def __init__(self, images: Sequence[_Looked], card: ModelCard) -> None:
        self.start = _Setting(card.temperature, card.sigma, 1.0, card.center_bias)
        self.everyone: NDArray[np.int64] = np.arange(len(images))
        self._images = images
        self._fields: dict[tuple[int, float], Array] = {}
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

    def scores(self, setting: _Setting, chosen: NDArray[np.int64]) -> NDArray[np.float64]:
        """Bits per fixation over a uniform density, one for each of the chosen images, (k,)."""
        statistics = self._statistics(setting.sigma, chosen, self._stretched(setting.center_bias, chosen))
        return np.array([one.moments(setting.theta)[0] + np.log(one.values.shape[1]) for one in statistics]) / _BIT

    def fit(self, parts: Sequence[str], chosen: NDArray[np.int64], near: _Setting | None = None) -> _Setting:
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
        return _Setting(float(temperature), sigmas[step], float(weight), bias)

    @property
    def _sigmas(self) -> list[float]:
        """Widths of the blur to choose from, the model's own among them."""
        own = self.start.sigma
        return sorted(own if factor == 1 else factor * max(own, _LEAST_SIGMA) for factor in _BLURS)

    def _stretched(self, center_bias: Array, chosen: NDArray[np.int64]) -> dict[Size, Array]:
        """The centre bias on the grids of the chosen images, (cells,)."""
        grids = {self._images[i].grid for i in chosen}
        return {grid: resample_log_density(center_bias, grid).ravel().astype(np.float32) for grid in grids}

    def _statistics(
        self, sigma: float, chosen: NDArray[np.int64], stretched: Mapping[Size, Array]
    ) -> list["_Statistics"]:
        return [self._statistics_of(int(i), sigma, stretched) for i in chosen]

    def _statistics_of(self, i: int, sigma: float, stretched: Mapping[Size, Array]) -> "_Statistics":
        image = self._images[i]
        if (i, sigma) not in self._fields:
            self._fields[i, sigma] = image.field(sigma)
        values = np.stack([self._fields[i, sigma], stretched[image.grid]])
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


def _select(study: _Study) -> tuple[tuple[Part, ...], tuple[str, ...]]:
    """What became of every part, and the names of those to adopt, in the order in which they were."""
    scores = study.left_out(())
    gains: dict[str, tuple[float, float]] = {}
    adopted: tuple[str, ...] = ()
    waiting = [name for name, images in NEEDED.items() if len(study.everyone) >= images]
    while waiting:
        tried = {name: study.left_out((*adopted, name)) for name in waiting}
        gains |= {
            name: (float((found - scores).mean()), _standard_error(found - scores)) for name, found in tried.items()
        }
        best = max(waiting, key=lambda name: gains[name][0])
        if gains[best][0] <= STANDARD_ERRORS * gains[best][1]:
            break
        scores, adopted = tried[best], (*adopted, best)
        waiting.remove(best)
    fitted = study.fit(adopted, study.everyone)
    parts = []
    for name in NEEDED:
        setting = fitted if name in adopted or name not in gains else study.fit((*adopted, name), study.everyone)
        before, after = _value(study.start, study.start, name), _value(setting, study.start, name)
        gain, error = gains.get(name, (None, None))
        parts.append(Part(name, before, after, gain, error, name in adopted))
    return tuple(parts), adopted


def _value(setting: _Setting, start: _Setting, name: str) -> float | str:
    if name == "center_bias":
        return "model" if setting.center_bias is start.center_bias else "data"
    return float({"temperature": setting.temperature, "blur": setting.sigma}.get(name, setting.weight))


def _standard_error(differences: NDArray[np.float64]) -> float:
    return float(differences.std(ddof=1) / np.sqrt(len(differences)))
