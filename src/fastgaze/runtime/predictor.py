"""From a picture to a gaze map: decode, prepare, network, tail."""

import os
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from time import perf_counter
from typing import Literal

import numpy as np
import numpy.typing as npt

from fastgaze.core.errors import ArgumentError
from fastgaze.core.pictures import MAX_PIXELS, Size, Source, open_picture
from fastgaze.runtime import resize, tail, zoo
from fastgaze.runtime.card import ModelCard
from fastgaze.runtime.engines import Engine, make_engine
from fastgaze.runtime.gazemap import GazeMap

Array = npt.NDArray[np.float32]
CenterBias = Literal["model"] | None | npt.NDArray[np.floating]


@dataclass(frozen=True, eq=False)
class Prepared:
    """A picture as the network wants it."""

    pixels: Array
    """float32 (3, H, W), normalised RGB at the working size."""
    size: Size
    """(height, width) of the picture itself."""

    @property
    def working(self) -> Size:
        """(height, width) that the network sees."""
        return self.pixels.shape[1], self.pixels.shape[2]


class Predictor:
    """One model, ready to predict; may be shared between threads."""

    def __init__(self, card: ModelCard, engine: Engine) -> None:
        self.card = card
        self.engine = engine
        self._bias = tail.make_bias(card.center_bias)
        std = 255 * np.array(card.std, np.float32)
        self._scale = (1 / std).astype(np.float32)
        self._offset = -(255 * np.array(card.mean, np.float32) / std).astype(np.float32)

    @property
    def name(self) -> str:
        """The model's name."""
        return self.card.name

    def predict(self, image: Source, size: Size | None = None, center_bias: CenterBias = "model") -> GazeMap:
        """Where people look in ``image``: a path, bytes, a PIL image or a uint8 array (H, W, 3), (H, W, 4) or (H, W).

        size: (height, width) of the map, that of the picture by default; a float32 map takes 4 bytes a pixel.
        center_bias: "model" (the one it was trained with), None (uniform) or a log density (h, w) of any size.
        """
        bias = self.bias(center_bias)
        size = checked_size(size)
        start = perf_counter()
        picture = open_picture(image)
        photo = picture.pixels(at_least=self.card.working_size(picture.size))
        decoded = perf_counter()
        prepared = self.prepare(photo, picture.size)
        ready = perf_counter()
        saliency = self.engine(prepared.pixels[None])[0, 0]
        seen = perf_counter()
        log_density = self.finish(saliency, prepared.working, size or picture.size, bias)
        steps = (start, decoded, ready, seen, perf_counter())
        milliseconds = {
            step: 1e3 * (after - before)
            for step, before, after in zip(("decode", "prepare", "network", "tail"), steps, steps[1:], strict=False)
        }
        return GazeMap(log_density, self.name, milliseconds, image, picture.size)

    def prepare(self, photo: npt.NDArray[np.uint8], size: Size | None = None) -> Prepared:
        """Scale upright RGB (H, W, 3) to the working size and normalise it; give ``size`` if it was decoded smaller."""
        size = size or (photo.shape[0], photo.shape[1])
        working = self.card.working_size(size)
        if photo.shape[:2] == working:
            return Prepared(self.normalise(photo), size)
        return Prepared(resize.planes(photo, working, self._scale, self._offset), size)

    def normalise(self, rgb: npt.NDArray[np.uint8]) -> Array:
        """uint8 (H, W, 3) RGB -> float32 (3, H, W) with the mean and spread that the model was trained with."""
        pixels = np.empty((3, *rgb.shape[:2]), np.float32)
        for channel in range(3):
            np.multiply(rgb[:, :, channel], self._scale[channel], out=pixels[channel])
            pixels[channel] += self._offset[channel]
        return pixels

    def finish(self, saliency: Array, working: Size, size: Size, bias: tail.Bias) -> Array:
        """saliency (h, w) of an image of ``working`` size -> log density float32 of ``size``."""
        return tail.log_density(saliency, working, self.card.sigma, bias, size)

    def bias(self, center_bias: CenterBias = "model") -> tail.Bias:
        """The centre bias as ``finish`` wants it; make it once for many pictures."""
        if center_bias is None:
            return tail.NO_BIAS
        if isinstance(center_bias, str):
            if center_bias != "model":
                raise ArgumentError(f"center_bias {center_bias!r} is not 'model', None or a log density (h, w)")
            return self._bias
        return tail.make_bias(center_bias)


def load(
    name: str | os.PathLike[str] | None = None, engine: str = "onnxruntime", threads: int | None = None
) -> Predictor:
    """A bundled model by name (the default one without a name), or the exported .onnx file at a path.

    engine: "onnxruntime", "openvino" or "openvino-bf16". threads: of the network, all cores by default.
    """
    path, content, card = zoo.read_model(zoo.default_name() if name is None else Path(name))
    return Predictor(card, make_engine(path, content, engine, threads))


@lru_cache(maxsize=4)
def _shared(name: str | None) -> Predictor:
    return load(name)


def predict(
    image: Source, model: str | None = None, size: Size | None = None, center_bias: CenterBias = "model"
) -> GazeMap:
    """Where people look in ``image``; the model is loaded at the first call and kept. See ``Predictor.predict``."""
    return _shared(model).predict(image, size, center_bias)


def checked_size(size: Size | None) -> Size | None:
    """``size`` as whole numbers (height, width), if a map can have it; None stays None."""
    if size is None:
        return None
    try:
        height, width = (int(side) for side in size)
    except (TypeError, ValueError, OverflowError):
        height = width = 0
    if height < 1 or width < 1 or height * width > MAX_PIXELS:
        raise ArgumentError(f"size {size} is not (height, width) with 1 to {MAX_PIXELS // 10**6} million pixels")
    return height, width
