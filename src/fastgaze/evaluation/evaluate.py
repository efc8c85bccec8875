"""Score a model on a data set: a row for each image, means with confidence intervals, and baselines.

All averages are over images: each image's score is the mean over its fixations, and every image counts the same.
Maps are scored at the size of the stored image, with the fixations scaled to it.
"""

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastgaze.core.center_bias import CenterBias
from fastgaze.core.errors import ArgumentError, DataError
from fastgaze.core.jsonable import Json
from fastgaze.core.pictures import read_size
from fastgaze.core.sizes import Size
from fastgaze.data.fixations import FixationSet
from fastgaze.evaluation import baselines
from fastgaze.evaluation.protocols import METRICS, Case, check_protocol, score

CENTER_BIASES = ("own", "model", "none")
Scores = dict[str, float]
Row = dict[str, str | int | float]


class LogDensityModel(Protocol):
    """Anything that predicts: give it to ``evaluate``."""

    def log_density(self, image: NDArray[np.uint8], size: Size, center_bias: CenterBias) -> NDArray[np.floating]:
        """Natural-log density (h, w) of ``size``, logsumexp 0, for an RGB image uint8 (H, W, 3).

        center_bias: "model" (its own), None (uniform), or a log density (h, w) to use in place of its own.
        """
        ...


@dataclass(frozen=True)
class Evaluation:
    """What ``evaluate`` found; ``to_json`` gives it as plain values.

    means, baselines: metric -> mean over images. intervals: metric -> 95% bootstrap interval of the mean.
    rows: one per image, in the order of the data. skipped: images without a fixation inside.
    """

    model: str
    data: str
    protocol: str
    center_bias: str
    size: Size | None
    images: int
    fixations: int
    means: Scores
    intervals: dict[str, tuple[float, float]]
    baselines: dict[str, Scores]
    skipped: list[str] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)

    def to_json(self) -> dict[str, Json]:
        """Values that ``json`` can write."""
        return asdict(self)


def evaluate(
    model: LogDensityModel,
    data: FixationSet,
    protocol: str = "tuebingen",
    center_bias: str = "own",
    size: Size | None = None,
    resamples: int = 1000,
    seed: int = 0,
    model_name: str = "",
    data_name: str = "",
    only: ArrayLike | None = None,
    track: Callable[[Iterable[int]], Iterable[int]] = iter,
) -> Evaluation:
    """Score ``model`` on all images of ``data`` that have fixations.

    center_bias: "own" (the data set's, fitted without the image that is scored), "model" or "none".
    size: (height, width) to which images are scaled before the model sees them; as stored by default.
    only: numbers or mask of the images to score; centre bias and negatives still come from all of ``data``.
    track: wraps the indices while they are worked through, for a progress bar.
    """
    check_protocol(protocol)
    if center_bias not in CENTER_BIASES:
        raise ArgumentError(f"no centre bias {center_bias!r}; choose from {', '.join(CENTER_BIASES)}")
    wanted = np.arange(len(data)) if only is None else np.arange(len(data))[np.asarray(only)]
    scored = [int(i) for i in wanted if data.inside(int(i)).any()]
    if not scored:
        raise DataError(f"none of {len(wanted)} images has a fixation inside; check the data: fastgaze data check")
    cases = Cases(data, seed)
    results: list[dict[str, Scores]] = []
    for i in track(scored):
        case = cases[i]
        bias: CenterBias = case.center_bias if center_bias == "own" else ("model" if center_bias == "model" else None)
        prediction = model.log_density(data.image(i, size), case.size, bias)
        results.append({"model": score(protocol, prediction, case)} | cases.baselines(i, case, protocol))
    rows = [result["model"] for result in results]
    return Evaluation(
        model=model_name,
        data=data_name,
        protocol=protocol,
        center_bias=center_bias,
        size=size,
        images=len(scored),
        fixations=sum(int(data.inside(i).sum()) for i in scored),
        means=_means(rows),
        intervals=bootstrap(rows, resamples, seed),
        baselines={
            name: _means([result[name] for result in results if name in result])
            for name in ("uniform", "center_bias", "other_observers")
            if any(name in result for result in results)
        },
        skipped=[data.names[i] for i in np.setdiff1d(wanted, scored)],
        rows=[
            {"name": data.names[i], "fixations": int(data.inside(i).sum()), **_ordered(row)}
            for i, row in zip(scored, rows, strict=True)
        ],
    )


class Cases:
    """What each image of a data set is scored against, made when it is asked for."""

    def __init__(self, data: FixationSet, seed: int = 0) -> None:
        self._data = data
        self._seed = seed
        self._sizes = [read_size(path) for path in data.paths]
        self._bias = baselines.DatasetCenterBias(data)
        self._observed = bool((data.observer >= 0).any())
        grids = [baselines.gold_grid(size) for size in self._sizes] if self._observed else []
        self._negatives = baselines.Negatives(data, [*self._sizes, *grids])

    def __getitem__(self, i: int) -> Case:
        size = self._sizes[i]
        return Case(
            name=self._data.names[i],
            fixations=self._data.fixations(i, size),
            center_bias=self._bias.without(i, size),
            others=self._negatives.counts(i, size),
            sampled=self._negatives.sampled(i, size, self._seed),
            seed=self._seed + i,
        )

    def baselines(self, i: int, case: Case, protocol: str) -> dict[str, Scores]:
        """Scores of uniform, centre bias and, where observers are known, the other observers."""
        uniform = np.full(case.size, -np.log(case.center_bias.size))
        found = {"uniform": score(protocol, uniform, case), "center_bias": score(protocol, case.center_bias, case)}
        if self._observed:
            grid = baselines.gold_grid(case.size)
            gold = baselines.other_observers(
                self._data.fixations(i, grid),
                self._data.observers(i),
                self._bias.without(i, grid),
                self._negatives.counts(i, grid),
                case.center_bias.size,
            )
            found |= {"other_observers": gold} if gold else {}
        return found


def bootstrap(rows: list[Scores], resamples: int, seed: int, level: float = 0.95) -> dict[str, tuple[float, float]]:
    """Percentile interval of the mean over images, drawn with replacement, for each metric."""
    rng = np.random.default_rng(seed)
    intervals = {}
    chosen = rng.integers(len(rows), size=(resamples, len(rows)))
    for metric in _means(rows):
        values = np.array([row.get(metric, np.nan) for row in rows])
        means = np.nanmean(values[chosen], axis=1)
        low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
        intervals[metric] = (float(low), float(high))
    return intervals


def _means(rows: list[Scores]) -> Scores:
    columns = {metric: [row[metric] for row in rows if metric in row] for metric in METRICS}
    return {metric: float(np.mean(values)) for metric, values in columns.items() if values}


def _ordered(row: Scores) -> Scores:
    return {metric: row[metric] for metric in METRICS if metric in row}
