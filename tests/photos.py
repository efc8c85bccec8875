"""Pictures with one thing to look at."""

import numpy as np


def photo(height: int = 240, width: int = 320, spot: tuple[int, int] = (80, 60)) -> np.ndarray:
    """A dark picture with a bright disc at (x, y)."""
    y, x = np.mgrid[0:height, 0:width] + 0.5
    disc = (x - spot[0]) ** 2 + (y - spot[1]) ** 2 < (0.08 * max(height, width)) ** 2
    return np.where(disc, 240, 30).astype(np.uint8)[:, :, None].repeat(3, axis=2)
