"""A tiny learnable problem: people look at the bright square."""

from pathlib import Path

import numpy as np
from PIL import Image

from fastgaze.core.spec import GazeSpec, VGGSpec
from fastgaze.data.fixations import from_lists
from fastgaze.data.formats.npz import write_arrays
from fastgaze.networks import create_model
from fastgaze.networks.gaze import GazeModel
from fastgaze.training.datasets import PreparedSet
from fastgaze.training.stream import Source, fixation_source

SIZE = (64, 96)
WORKSHOP = """
[workshop]
data = "data"
runs = "runs"
format = "npz"
pretraining = "large"
validation = "validation"
eye_tracking = ["eyes"]
size = "96x64"
"""
TINY = GazeSpec("fastgaze", VGGSpec(((4,), (6,), (6,), (8,), (8,)), ("relu5_1",)), (4, 1), "prelu")


def bright_squares(count: int, size: tuple[int, int] = (64, 96), seed: int = 0) -> PreparedSet:
    """Grey images (n, H, W, 3), each with a white square that holds all its fixations."""
    rng = np.random.default_rng(seed)
    images = rng.integers(60, 120, (count, *size, 3)).astype(np.uint8)
    counts = np.zeros((count, size[0] // 4, size[1] // 4), np.float32)
    for i in range(count):
        row, column = rng.integers(0, size[0] // 16 - 1), rng.integers(0, size[1] // 16 - 1)
        images[i, 16 * row : 16 * row + 24, 16 * column : 16 * column + 24] = 255
        counts[i, 4 * row : 4 * row + 6, 4 * column : 4 * column + 6] = 1
    uniform = np.full((48, 64), -np.log(48 * 64), np.float32)
    return PreparedSet("squares", tuple(map(str, range(count))), images, counts, uniform)


def source(count: int = 40, size: tuple[int, int] = (64, 96), seed: int = 0, weight: float = 1.0) -> Source:
    """The problem as a source."""
    return fixation_source(bright_squares(count, size, seed), weight)


def tiny_model(seed: int = 0) -> GazeModel:
    """A network of a few thousand parameters, the same for the same seed."""
    import torch

    torch.manual_seed(seed)
    model = create_model("fastgaze", TINY)
    assert isinstance(model, GazeModel)
    return model


def write_set(folder: Path, count: int, seed: int) -> None:
    """Bright squares as an npz folder."""
    squares = bright_squares(count, SIZE, seed)
    (folder / "images").mkdir(parents=True)
    names = [f"{folder.name}{i:03d}" for i in range(count)]
    points = []
    for name, image, counts in zip(names, squares.images, squares.counts, strict=True):
        Image.fromarray(image).save(folder / "images" / f"{name}.webp", lossless=True)
        rows, columns = np.nonzero(counts)
        points.append(np.stack([4 * columns + 2, 4 * rows + 2], axis=1))
    paths = [folder / "images" / f"{name}.webp" for name in names]
    write_arrays(folder / "fixations.npz", from_lists(names, paths, [SIZE] * count, points), names)


def write_sets(folder: Path) -> None:
    """The data sets that WORKSHOP names."""
    for seed, (name, count) in enumerate({"large": 24, "validation": 8, "eyes": 20}.items()):
        write_set(folder / name, count, seed)
