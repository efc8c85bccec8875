"""A detector for thumbor: its smart crops go where people look.

In ``thumbor.conf``:

    DETECTORS = ["fastgaze.app.thumbor"]
    FASTGAZE_MODEL = "NAME"    # of a bundled model, or the path of an .onnx file; the default model without it

Every place that draws the eye becomes a focal point that weighs as much as the attention around it. thumbor centres its
window on their mean, and keeps the points of a picture for other sizes where it has a storage.
"""

import asyncio
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
from thumbor.config import Config
from thumbor.detectors import BaseDetector
from thumbor.point import FocalPoint

from fastgaze.runtime.peaks import Peak
from fastgaze.runtime.predictor import Predictor, load

PEAKS = 5

Config.define(
    "FASTGAZE_MODEL", None, "Name of a bundled model of fastgaze, or the path of an exported one.", "fastgaze Detector"
)


class Detector(BaseDetector):  # type: ignore[misc]  # thumbor has no types
    """Finds the focal points of the picture that thumbor's engine holds."""

    async def detect(self) -> None:
        """Add the focal points to the request; other requests are answered meanwhile."""
        model, pixels = _model(self.context.config.FASTGAZE_MODEL), _pixels(self.context.modules.engine)
        for peak in await asyncio.to_thread(_peaks, model, pixels):
            # thumbor stores weights as whole numbers.
            weight = max(round(1000 * peak.mass), 1)
            self.context.request.focal_points.append(FocalPoint(peak.x, peak.y, weight=weight, origin="fastgaze"))


@lru_cache(maxsize=4)
def _model(name: str | None) -> Predictor:
    return load(name, threads=1)


def _pixels(engine: Any) -> npt.NDArray[np.uint8]:
    """What any engine of thumbor holds, as (H, W, 3) or (H, W, 4)."""
    mode, content = engine.image_data_as_rgb(update_image=False)
    width, height = engine.size
    return np.frombuffer(content, np.uint8).reshape(height, width, len(mode))


def _peaks(model: Predictor, pixels: npt.NDArray[np.uint8]) -> list[Peak]:
    return model.predict(pixels).peaks(PEAKS)
