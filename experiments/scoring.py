"""The sets that models are scored on, and the one way to score a model on one of them."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fastgaze.data import formats
from fastgaze.data.fixations import FixationSet, held_out
from fastgaze.evaluation.evaluate import Evaluation, LogDensityModel, bootstrap, evaluate

DIGITS = 4
ROW_METRICS = ("auc", "nss", "sim", "log_likelihood_bits")
"""What is kept of every image, for paired intervals."""


@dataclass(frozen=True)
class ScoredSet:
    """A data set as a test: its folder, whether only images that were kept out of training count, the protocol."""

    folder: str
    kept_out: bool = False
    protocol: str = "tuebingen"


SETS: dict[str, ScoredSet] = {
    "salicon-val": ScoredSet("salicon/val"),
    "osie-held-out": ScoredSet("osie", kept_out=True),
    "eyecrowd-held-out": ScoredSet("eyecrowd", kept_out=True),
    "ueyes-held-out": ScoredSet("ueyes", kept_out=True),
    "cat2000": ScoredSet("cat2000"),
    "cat2000-legacy": ScoredSet("cat2000", protocol="mit-legacy"),
}
SHIPPED = ("salicon-val", "osie-held-out", "eyecrowd-held-out", "ueyes-held-out", "cat2000")
"""The sets that model cards report."""
STOPPED_TRAINING = 200
"""So many images of salicon/val, the first ones, also decided when training stopped and which step was kept."""


def load_set(name: str, data: Path) -> FixationSet:
    """All images of the set, those that train included: they give centre bias and negatives."""
    return formats.load("npz", data / SETS[name].folder)


def chosen(name: str, fixations: FixationSet, limit: int | None) -> npt.NDArray[np.int64]:
    """Numbers of the images to score: all that the set's role allows, or ``limit`` of them, evenly spread."""
    allowed: npt.NDArray[np.int64] = np.arange(len(fixations))
    if SETS[name].kept_out:
        allowed = np.flatnonzero(held_out(fixations.names))
    if limit is None or limit >= len(allowed):
        return allowed
    spread: npt.NDArray[np.int64] = allowed[np.linspace(0, len(allowed) - 1, limit).round().astype(int)]
    return spread


def score(
    model: LogDensityModel, name: str, data: Path, limit: int | None = None, fixations: FixationSet | None = None
) -> Evaluation:
    """Score a model on a set, with the set's own centre bias."""
    fixations = fixations or load_set(name, data)
    return evaluate(model, fixations, SETS[name].protocol, only=chosen(name, fixations, limit))


def facts(found: Evaluation) -> dict[str, Any]:
    """Images, means and 95% intervals over images, rounded for a record."""
    intervals = {metric: [round(edge, DIGITS) for edge in pair] for metric, pair in found.intervals.items()}
    return {"images": found.images, "means": rounded(found.means), "intervals": intervals}


def part(found: Evaluation, names: Collection[str]) -> dict[str, Any]:
    """As ``facts``, over the images of these names alone."""
    rows = [{key: float(row[key]) for key in found.means} for row in found.rows if row["name"] in names]
    means = {metric: float(np.mean([row[metric] for row in rows])) for metric in found.means}
    return facts(replace(found, images=len(rows), means=means, intervals=bootstrap(rows, resamples=1000, seed=0)))


def categories(name: str, data: Path) -> dict[str, list[str]]:
    """Names of the images in each category of a set, if its file has any."""
    with np.load(data / SETS[name].folder / "fixations.npz", allow_pickle=False) as archive:
        if "category" not in archive:
            return {}
        names, kinds = archive["name"], archive["category"]
    return {str(kind): [str(image) for image in names[kinds == kind]] for kind in np.unique(kinds)}


def columns(found: Evaluation) -> dict[str, list[Any]]:
    """Names and scores of every image, column by column: what paired intervals are computed from."""
    scores = {metric: [round(float(row[metric]), DIGITS) for row in found.rows] for metric in ROW_METRICS}
    return {"name": [row["name"] for row in found.rows], **scores}


def rounded(means: Mapping[str, float]) -> dict[str, float]:
    """Means as records hold them."""
    return {metric: round(value, DIGITS) for metric, value in means.items()}


def shown(means: Mapping[str, float]) -> str:
    """Means in a printed line."""
    return ", ".join(f"{metric} {value:.3f}" for metric, value in means.items())
