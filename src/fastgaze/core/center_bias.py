"""The centre bias: where people look when nothing is known about the picture, log Q(x, y) of equation 1.

It is kept as a log density on a fixed grid, so that one array serves pictures of every size, and
is stretched to the picture. It depends on the viewers and their task, and so on the data set.
"""

from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fastgaze.core.errors import DataError
from fastgaze.core.operators import bilinear_matrix, gaussian_matrix
from fastgaze.core.sizes import Size

KINDS = ("photograph", "screen")
NamedBias: TypeAlias = Literal["model", "photograph", "screen"] | None
CenterBias: TypeAlias = NamedBias | NDArray[np.floating]
"""The one that a prediction uses: the model's own for this picture ("model") or for a picture of the kind that is
named, a log density (h, w) of any size, or None for a uniform one."""
BIASES: dict[str, NamedBias] = {"model": "model", "photograph": "photograph", "screen": "screen", "none": None}
"""Those that have a name, by what a person writes."""

GRID = (48, 64)  # height, width
BANDWIDTH = 0.04  # of the picture's width and height; a fixed choice, not tuned
FADE = 3.0  # nats; chosen on SALICON val and the images kept out, see experiments/border.py
FADE_WIDTH = 0.015  # of the picture's width and height
UNIFORM_SHARE = 0.01  # keeps the log density finite where nobody ever looked


def fit_center_bias(counts: NDArray[np.number], bandwidth: float = BANDWIDTH) -> NDArray[np.float32]:
    """Smoothed marginal log density of fixations, natural log.

    counts: fixations per cell (h, w), summed over pictures that were each stretched to the grid.
    bandwidth: of the Gaussian, as a share of height and width.
    Returns float32 (h, w) with logsumexp 0.
    """
    total = float(counts.sum())
    if counts.ndim != 2 or not np.isfinite(total) or total <= 0:
        raise DataError(
            f"a centre bias needs a 2-d grid with at least one fixation, not shape {counts.shape}, sum {total}"
        )
    height, width = counts.shape
    rows, columns = gaussian_matrix(height, bandwidth * height), gaussian_matrix(width, bandwidth * width)
    # The transposes spread each count over its neighbours and lose none at the border.
    density = rows.T @ (counts / total) @ columns
    density = (1 - UNIFORM_SHARE) * density / density.sum() + UNIFORM_SHARE / density.size
    log_density: NDArray[np.float32] = np.log(density).astype(np.float32)
    return log_density


def fade_border(log_density: NDArray[np.floating]) -> NDArray[np.float32]:
    """A log density (h, w) that drops by up to ``FADE`` nats within about ``FADE_WIDTH`` of every side; logsumexp 0.

    The smoothing of a centre bias and the coarse cells of a network's map both spread attention up to the very border,
    where hardly anybody looks: without this, the hottest row of a page can be the one above its first line.
    """
    drops = []
    for cells in log_density.shape:
        place = (np.arange(cells) + 0.5) / cells  # from 0 to 1
        distance = np.minimum(place, 1 - place)
        drops.append(FADE * np.exp(-np.square(distance / FADE_WIDTH)))
    faded = log_density - drops[0][:, None] - drops[1][None, :]
    return resample_log_density(faded, (faded.shape[0], faded.shape[1])).astype(np.float32)


def resample_log_density(log_density: NDArray[np.floating], size: Size) -> NDArray[np.float64]:
    """A log density on any grid -> log density at ``size`` (height, width), logsumexp 0 there."""
    if log_density.shape != size:
        height, width = size
        rows = bilinear_matrix(log_density.shape[0], height)
        columns = bilinear_matrix(log_density.shape[1], width)
        log_density = rows @ log_density @ columns.T
    shifted = log_density - log_density.max()
    normalised: NDArray[np.float64] = shifted - np.log(np.exp(shifted, dtype=np.float64).sum())
    return normalised
