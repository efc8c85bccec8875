"""Any fastgaze model in code that is written for pysaliency.

from fastgaze.evaluation.pysaliency import PysaliencyModel
PysaliencyModel().information_gain(stimuli, fixations)
"""

import os
from typing import Any

import numpy as np
import numpy.typing as npt

from fastgaze.core.center_bias import CenterBias
from fastgaze.core.errors import require
from fastgaze.runtime.predictor import Predictor, load

_models: Any = require("pysaliency", "pysaliency").models


class PysaliencyModel(_models.Model):  # type: ignore[misc]  # pysaliency has no types
    """A model of pysaliency: log densities (natural logarithm) over the pixels of each stimulus, kept by default."""

    def __init__(
        self,
        model: Predictor | str | os.PathLike[str] | None = None,
        center_bias: CenterBias = "model",
        cache_location: str | None = None,
        caching: bool = True,
        memory_cache_size: int | None = None,
    ) -> None:
        """model: a loaded one, or what ``fastgaze.load`` takes. center_bias: as in ``Predictor.predict``.

        cache_location, caching, memory_cache_size: as every model of pysaliency has them.
        """
        super().__init__(cache_location, caching, memory_cache_size)
        self.predictor = model if isinstance(model, Predictor) else load(model)
        self.center_bias = center_bias

    def _log_density(self, stimulus: npt.NDArray[np.uint8]) -> npt.NDArray[np.float64]:
        """stimulus (H, W, 3) or (H, W) -> float64 (H, W), logsumexp 0 to double precision."""
        found = self.predictor.predict(stimulus, center_bias=self.center_bias).log_density.astype(np.float64)
        highest = found.max()
        normalised: npt.NDArray[np.float64] = found - (highest + np.log(np.exp(found - highest).sum()))
        return normalised
