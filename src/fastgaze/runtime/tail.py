"""From the network's saliency map to a log density at any size: A X B^T, centre bias, softmax.

Upsampling by the stride, the Gaussian and the resampling to the output are linear in each axis, so all three together
are one small matrix for the rows and one for the columns. The centre bias C, a smooth grid, is factorised as L R by its
singular values, with few columns. It is stretched by the same kind of matrices, so it joins the same product:

    logits = [A TX | U L] [B | V R^T]^T      A (H, h), X (h, w), B (W, w), U (H, 48), V (W, 64)

The temperature T, a number, says how sure the network is; the centre bias stays as it is.

For a large map no pass over the pixels is spent on it; for a small one, whose pixels stay in the core's cache, C is
stretched once for each size, kept and added. The maximum is never searched: the rows of A and B are weights that sum to
1, so with X shifted to a maximum of 0 every exponential is bounded.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import lru_cache
from threading import Lock

import numpy as np
import numpy.typing as npt

from fastgaze.core.errors import ArgumentError
from fastgaze.core.operators import bilinear_matrix, gaussian_matrix
from fastgaze.core.sizes import Size
from fastgaze.runtime.card import Kinds

Array = npt.NDArray[np.float32]

# Rows are handled in blocks whose exponentials stay in the cache of one core.
_BLOCK_VALUES = 64 * 1024
# Singular values below this share of the first change no log density by more than about 1e-5.
_NEGLIGIBLE = 1e-7
# A bias with a longer side is not factorised: the decomposition would cost more than it saves.
_LARGEST_FACTORISED = 128
# Pixels of a map up to which adding the kept bias is cheaper than the longer product.
_MOST_ADDED = 1 << 20
# Centre biases between that of a photograph and that of a screen: what is made of one serves many pictures.
_KIND_STEPS = 16


@dataclass(frozen=True, eq=False)
class Bias:
    """A log density on a grid (h, w) as a product: ``left`` (h, r) times ``right`` (r, w)."""

    left: Array
    right: Array

    @property
    def rank(self) -> int:
        """Number of columns that it adds to the product."""
        return int(self.left.shape[1])


NO_BIAS = Bias(np.zeros((1, 0), np.float32), np.zeros((0, 1), np.float32))


def make_bias(log_density: npt.ArrayLike) -> Bias:
    """Factors of a log density (h, w) of any size; its constant does not matter. Refuses NaN and infinity."""
    grid = np.asarray(log_density, dtype=np.float64)
    if grid.ndim != 2 or grid.size == 0:
        raise ArgumentError(f"a centre bias is a log density (h, w), not an array of shape {grid.shape}")
    if not np.isfinite(grid).all():
        raise ArgumentError("a centre bias holds NaN or infinity; give finite log densities")
    grid = grid - grid.max()
    if max(grid.shape) > _LARGEST_FACTORISED:
        return Bias(np.eye(grid.shape[0], dtype=np.float32), grid.astype(np.float32))
    left, values, right = np.linalg.svd(grid, full_matrices=False)
    rank = int((values > _NEGLIGIBLE * max(values[0], 1.0)).sum())
    return Bias((left[:, :rank] * values[:rank]).astype(np.float32), right[:rank].astype(np.float32))


@lru_cache(maxsize=64)
def _blur_matrix(cells: int, pixels: int, sigma: float) -> npt.NDArray[np.float64]:
    """(pixels, cells): upsampling from the saliency map to the working size, then the Gaussian."""
    return gaussian_matrix(pixels, sigma) @ bilinear_matrix(cells, pixels)


def tail_matrix(cells: int, pixels: int, n_out: int, sigma: float) -> Array:
    """A of the equation above, (n_out, cells), for one axis."""
    return _interpolate_rows(_blur_matrix(cells, pixels, sigma), n_out).astype(np.float32)


def _interpolate_rows(matrix: npt.NDArray[np.floating], n_out: int) -> npt.NDArray[np.float64]:
    """``bilinear_matrix(len(matrix), n_out) @ matrix``, by reading two rows each instead of a dense product."""
    n_in = len(matrix)
    position = np.clip((np.arange(n_out) + 0.5) * n_in / n_out - 0.5, 0, n_in - 1)
    below = position.astype(np.intp)
    weight = (position - below)[:, None]
    above = np.minimum(below + 1, n_in - 1)
    interpolated: npt.NDArray[np.float64] = matrix[below] * (1 - weight) + matrix[above] * weight
    return interpolated


@dataclass(frozen=True, eq=False)
class Field:
    """A log density that has not been given a size yet.

    saliency: the network's output (h, w) for an image of ``working`` size (height, width).
    sigma: standard deviation of the blur, in pixels of the working size.
    temperature: factor on the saliency, and so on the log density before the bias is added.
    """

    saliency: Array
    working: Size
    sigma: float
    bias: Bias
    temperature: float = 1.0

    def log_density(self, size: Size) -> Array:
        """Log density float32 of ``size`` (height, width), natural log, logsumexp 0."""
        cells = (self.saliency.shape[0], self.saliency.shape[1])
        key = (cells, self.working, self.sigma, self.bias, size)
        plan = _PLANS.get(key, lambda: _plan(cells, self.working, self.sigma, self.bias, size))
        rows = plan.left @ (np.float32(self.temperature) * (self.saliency - self.saliency.max()))
        if plan.more is not None:
            rows = np.hstack([rows, plan.more])
        return _log_softmax_of_product(rows, plan.right, plan.added)


def bias_of_kind(kinds: Kinds, screen: float) -> Bias:
    """The centre bias of a picture that is a screen with the probability ``screen``, in even steps."""
    return _bias_of_step(kinds, round(_KIND_STEPS * screen))


@lru_cache(maxsize=64)
def _bias_of_step(kinds: Kinds, step: int) -> Bias:
    return make_bias(kinds.center_bias(step / _KIND_STEPS))


@dataclass(frozen=True, eq=False)
class _Plan:
    """What the equation needs for one pair of sizes: A and [B | V R^T]^T; U L, or C at the size of the map, or none."""

    left: Array
    right: Array
    more: Array | None = None
    added: Array | None = None

    @property
    def nbytes(self) -> int:
        return sum(part.nbytes for part in (self.left, self.right, self.more, self.added) if part is not None)


class PlanCache:
    """Plans by key, up to a number of bytes; those not used for longest go first. May be shared between threads."""

    def __init__(self, most_bytes: int) -> None:
        self.nbytes = 0
        self._most = most_bytes
        self._held: OrderedDict[Hashable, _Plan] = OrderedDict()
        self._lock = Lock()

    def get(self, key: Hashable, make: Callable[[], _Plan]) -> _Plan:
        """The plan of ``key``, made if it is not there; one that alone would fill half of the room is not kept."""
        with self._lock:
            plan = self._held.get(key)
            if plan is not None:
                self._held.move_to_end(key)
                return plan
        plan = make()  # outside the lock: two threads may both make it, none waits
        if 2 * plan.nbytes <= self._most:
            self._keep(key, plan)
        return plan

    def _keep(self, key: Hashable, plan: _Plan) -> None:
        with self._lock:
            if key not in self._held:
                self._held[key] = plan
                self.nbytes += plan.nbytes
            while self.nbytes > self._most:
                _, oldest = self._held.popitem(last=False)
                self.nbytes -= oldest.nbytes


_PLANS = PlanCache(64 << 20)


def _plan(cells: Size, working: Size, sigma: float, bias: Bias, size: Size) -> _Plan:
    left, right = (tail_matrix(*axis, sigma) for axis in zip(cells, working, size, strict=True))
    right = np.ascontiguousarray(right.T)
    if not bias.rank:
        return _Plan(left, right)
    stretched, joined = _stretched(bias, size[0]), _joined(bias, size[1])
    if size[0] * size[1] <= _MOST_ADDED:
        return _Plan(left, right, added=stretched @ joined)
    return _Plan(left, np.vstack([right, joined]), more=stretched)


def _stretched(bias: Bias, height: int) -> Array:
    """U L of the equation above, (height, rank)."""
    return _interpolate_rows(bias.left, height).astype(np.float32)


def _joined(bias: Bias, width: int) -> Array:
    """R V^T of the equation above, (rank, width)."""
    return np.ascontiguousarray(_interpolate_rows(bias.right.T, width).T, dtype=np.float32)


def _log_softmax_of_product(rows: Array, columns: Array, added: Array | None = None) -> Array:
    """log softmax over all entries of rows (H, k) @ columns (k, W) + added (H, W), with one block of temporaries."""
    out = np.empty((rows.shape[0], columns.shape[1]), np.float32)
    step = max(_BLOCK_VALUES // columns.shape[1], 1)
    scratch = np.empty((step, columns.shape[1]), np.float32)
    ones = np.ones(columns.shape[1], np.float32)
    total = 0.0
    for start in range(0, len(out), step):
        block = out[start : start + step]
        np.matmul(rows[start : start + step], columns, out=block)
        if added is not None:
            block += added[start : start + step]
        # Sums of rows first: one long float32 sum loses digits.
        total += float((np.exp(block, out=scratch[: len(block)]) @ ones).sum(dtype=np.float64))
    if not 1e-30 < total < np.inf:
        # The bound was far from the largest logit, so float32 ran out: shift by the true maximum.
        out -= out.max()
        total = float(np.exp(out).sum(dtype=np.float64))
    out -= np.float32(np.log(total))
    return out
