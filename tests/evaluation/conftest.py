"""A small data set on disk, made anew for each run."""

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from fastgaze.core.center_bias import CenterBias
from fastgaze.core.sizes import Size
from fastgaze.data.fixations import FixationSet, from_lists

SIZE = (48, 64)


def make_set(folder: Path, images: int = 8, observers: int = 3, seed: int = 0) -> FixationSet:
    """Images of 48x64 (recorded at 96x128) with fixations near a bright square of their own and near the centre."""
    rng = np.random.default_rng(seed)
    names, paths, points, who = [], [], [], []
    for i in range(images):
        target = rng.uniform((20, 20), (108, 76))
        pixels = np.full((*SIZE, 3), 40, np.uint8)
        column, row = (target / 2).astype(int)
        pixels[row - 4 : row + 4, column - 4 : column + 4] = 240
        path = folder / f"picture-{i}.png"
        Image.fromarray(pixels).save(path)
        near = rng.normal(target, 6, (observers * 5, 2))
        centre = rng.normal((64, 48), 14, (observers * 5, 2))
        names.append(path.stem)
        paths.append(path)
        points.append(np.concatenate([near, centre]).clip(0.5, (127.5, 95.5)))
        who.append(np.tile(np.arange(observers), 10))
    return from_lists(names, paths, [(96, 128)] * images, points, who)


@pytest.fixture
def small_set(tmp_path: Path) -> FixationSet:
    return make_set(tmp_path)


class SeesSquares:
    """Predicts the bright square, with the centre bias that it is given."""

    def __init__(self) -> None:
        self.biases: list[object] = []

    def log_density(self, image: NDArray[np.uint8], size: Size, center_bias: CenterBias) -> NDArray[np.floating]:
        self.biases.append(center_bias)
        logits = 4.0 * (np.asarray(Image.fromarray(image).resize((size[1], size[0]))).mean(axis=2) > 128)
        if isinstance(center_bias, np.ndarray):
            logits = logits + center_bias
        return np.asarray(logits - np.logaddexp.reduce(logits, axis=None))


@pytest.fixture
def model() -> SeesSquares:
    return SeesSquares()
