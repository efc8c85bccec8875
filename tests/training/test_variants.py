from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fastgaze.training.variants import CHANGES, Change, variant, variant_images
from tests.training.helpers import bright_squares


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_every_change_leaves_a_picture_of_the_same_size_that_differs(change: Change) -> None:
    pixels = np.random.default_rng(0).integers(0, 255, (48, 64, 3)).astype(np.uint8)
    changed = change(Image.fromarray(pixels), np.random.default_rng(1))
    assert (changed.size, changed.mode) == ((64, 48), "RGB")
    assert (np.asarray(changed) != pixels).mean() > 0.5


def test_a_picture_without_contours_can_be_drawn() -> None:
    blank = np.full((48, 64, 3), 77, np.uint8)
    drawing = next(index for index, change in enumerate(CHANGES) if change.__name__ == "drawn")
    np.testing.assert_array_equal(variant(blank, drawing), 255)


def test_variants_are_made_once_and_are_the_same_each_time(tmp_path: Path) -> None:
    squares = bright_squares(9)
    first = np.array(variant_images(squares, tmp_path))
    assert first.shape == squares.images.shape
    for index in range(len(squares)):
        np.testing.assert_array_equal(first[index], variant(squares.images[index], index))
    (file,) = tmp_path.iterdir()
    written = file.stat().st_mtime_ns
    np.testing.assert_array_equal(variant_images(squares, tmp_path), first)
    assert file.stat().st_mtime_ns == written
