"""Made-up data in the layout of the real sets, so small that every experiment runs on it in seconds."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from fastgaze.data.fixations import from_lists
from fastgaze.data.formats.npz import write_arrays
from tests.experiments.digits import write_idx

SIZE = (48, 64)
COUNTS = {"salicon/train": 24, "salicon/val": 20, "osie": 20, "eyecrowd": 20, "cat2000": 8}


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    """Experiments set the number of threads; what runs after them shall not notice."""
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def small_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with every set that the experiments name."""
    folder = tmp_path_factory.mktemp("data")
    for seed, (name, count) in enumerate(COUNTS.items()):
        _write_set(folder / name, count, seed)
    _write_digits(folder / "mnist")
    return folder


def _write_set(folder: Path, count: int, seed: int) -> None:
    """Noise with a bright square, at which two observers look."""
    rng = np.random.default_rng(seed)
    (folder / "images").mkdir(parents=True)
    names = [f"{folder.name}{i:03d}" for i in range(count)]
    points, observers = [], []
    for name in names:
        pixels = rng.integers(0, 90, (*SIZE, 3), dtype=np.uint8)
        top, left = rng.integers(0, SIZE[0] - 12), rng.integers(0, SIZE[1] - 12)
        pixels[top : top + 12, left : left + 12] = 240
        Image.fromarray(pixels).save(folder / "images" / f"{name}.webp", lossless=True)
        points.append(np.array([left, top]) + rng.uniform(0, 12, (8, 2)))
        observers.append(np.arange(8) % 2)
    paths = [folder / "images" / f"{name}.webp" for name in names]
    fixations = from_lists(names, paths, [SIZE] * count, points, observers)
    write_arrays(folder / "fixations.npz", fixations, names)


def _write_digits(folder: Path) -> None:
    """Bright squares whose place is the class."""
    folder.mkdir()
    rng = np.random.default_rng(0)
    for part, count in (("train", 200), ("t10k", 50)):
        labels = rng.integers(0, 10, count)
        images = rng.integers(0, 60, (count, 28, 28))
        for image, label in zip(images, labels, strict=True):
            image[4 + 4 * (label // 2) : 8 + 4 * (label // 2), 6 + 10 * (label % 2) : 12 + 10 * (label % 2)] = 250
        write_idx(folder / f"{part}-images-idx3-ubyte.gz", images)
        write_idx(folder / f"{part}-labels-idx1-ubyte.gz", labels)
