"""Resampling and blur along one axis, as small dense matrices.

Bilinear interpolation and a separable Gaussian are linear in each axis, so a whole chain of them on
a map X is A X B^T with one matrix for the rows and one for the columns.
"""

import numpy as np
from numpy.typing import NDArray


def bilinear_matrix(n_in: int, n_out: int) -> NDArray[np.float64]:
    """Matrix (n_out, n_in) that interpolates n_in samples linearly at n_out points.

    Sample i lies at i + 0.5 of n_in, output j at (j + 0.5) * n_in / n_out; beyond the outermost samples
    the edge value is kept. Rows sum to 1. The same as torch's ``interpolate(align_corners=False)``.
    """
    position = np.clip((np.arange(n_out) + 0.5) * n_in / n_out - 0.5, 0, n_in - 1)
    left = np.minimum(position.astype(np.int64), max(n_in - 2, 0))
    weight = position - left
    matrix = np.zeros((n_out, n_in))
    rows = np.arange(n_out)
    matrix[rows, left] = 1 - weight
    matrix[rows, np.minimum(left + 1, n_in - 1)] += weight
    return matrix


def gaussian_matrix(n: int, sigma: float) -> NDArray[np.float64]:
    """Matrix (n, n) that blurs n samples with a Gaussian of width ``sigma`` in samples.

    Each row is divided by its sum: near an end the kernel is cut off and keeps unit weight, so a
    constant stays the same constant.
    """
    offset = np.arange(n)[:, None] - np.arange(n)[None, :]
    kernel = np.exp(-0.5 * (offset / max(sigma, 1e-6)) ** 2)
    matrix: NDArray[np.float64] = kernel / kernel.sum(axis=1, keepdims=True)
    return matrix


def sharing_matrix(n_in: int, n_out: int) -> NDArray[np.float64]:
    """Matrix (n_out, n_in) that hands the mass of n_in cells to n_out cells over the same length, by overlap.

    Columns sum to 1, so that no mass is lost.
    """
    edges = np.arange(n_out + 1) * (n_in / n_out)
    cells = np.arange(n_in)
    overlap = np.minimum(edges[1:, None], cells + 1) - np.maximum(edges[:-1, None], cells)
    shares: NDArray[np.float64] = np.clip(overlap, 0, None)
    return shares
