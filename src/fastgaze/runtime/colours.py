"""One perceptual colour map: lightness rises evenly from near black over violet and orange to pale yellow."""

from functools import lru_cache

import numpy as np
import numpy.typing as npt
from PIL import Image

# Linear light from the cone responses of OKLab (Ottosson 2020).
_TO_CONES = np.array(
    [[1, 0.3963377774, 0.2158037573], [1, -0.1055613458, -0.0638541728], [1, -0.0894841775, -1.2914855480]]
)
_TO_RGB = np.array(
    [
        [4.0767416621, -3.3077115913, 0.2309699292],
        [-1.2684380046, 2.6097574011, -0.3413193965],
        [-0.0041960863, -0.7034186147, 1.7076147010],
    ]
)


@lru_cache(maxsize=1)
def table() -> npt.NDArray[np.uint8]:
    """RGB of 256 levels, (256, 3)."""
    level = np.linspace(0, 1, 256)
    lightness = 0.16 + 0.80 * level
    hue = np.deg2rad(285 + 180 * level)
    chroma = 0.20 * np.sin(np.pi * (0.12 + 0.72 * level)) ** 0.8
    lab = np.stack([lightness, chroma * np.cos(hue), chroma * np.sin(hue)], axis=1)
    linear = ((lab @ _TO_CONES.T) ** 3 @ _TO_RGB.T).clip(0, 1)
    encoded = np.where(linear <= 0.0031308, 12.92 * linear, 1.055 * linear ** (1 / 2.4) - 0.055)
    rounded: npt.NDArray[np.uint8] = np.round(255 * encoded).astype(np.uint8)
    return rounded


def colorize(levels: Image.Image) -> Image.Image:
    """8-bit grey levels -> RGB."""
    image = levels.copy()
    image.putpalette(table().tobytes())
    return image.convert("RGB")
