"""Scaling and normalising at once equals Pillow's filter, and the plain formula, up to 8-bit rounding."""

import numpy as np
import pytest
from PIL import Image

from fastgaze.runtime.resize import bands, planes

GENERATOR = np.random.default_rng(0)
SCALE, OFFSET = np.array([1.0, 2.0, 0.5], np.float32), np.array([0.0, -3.0, 7.0], np.float32)


def noise(height: int, width: int) -> np.ndarray:
    """A picture of all frequencies."""
    return GENERATOR.integers(0, 256, (height, width, 3), dtype=np.uint8)


@pytest.mark.parametrize(
    ("given", "asked"),
    [
        ((384, 512), (240, 320)),
        ((481, 640), (240, 320)),
        ((701, 900), (240, 320)),
        ((240, 320), (192, 256)),
        ((1, 1), (272, 272)),
        ((3, 500), (32, 560)),
        ((100, 75), (320, 240)),
        ((2000, 33), (544, 32)),
    ],
)
def test_it_equals_pillows_filter(given: tuple[int, int], asked: tuple[int, int]) -> None:
    picture = noise(*given)
    found = (planes(picture, asked, SCALE, OFFSET) - OFFSET[:, None, None]) / SCALE[:, None, None]
    expected = Image.fromarray(picture).resize((asked[1], asked[0]), Image.Resampling.BILINEAR)
    assert found.shape == (3, *asked)
    # Pillow rounds to 8 bits after each of its two passes.
    assert np.abs(found.transpose(1, 2, 0) - np.asarray(expected)).max() < 1.1


def test_an_even_picture_stays_even() -> None:
    found = planes(np.full((37, 91, 3), 200, np.uint8), (48, 64), SCALE, OFFSET)
    assert np.abs(found - (200 * SCALE + OFFSET)[:, None, None]).max() < 1e-3


def test_a_view_with_odd_strides_counts_as_its_values() -> None:
    picture = noise(60, 80)
    turned = picture[::-1, ::-1]
    assert np.array_equal(
        planes(turned, (32, 48), SCALE, OFFSET), planes(np.ascontiguousarray(turned), (32, 48), SCALE, OFFSET)
    )


@pytest.mark.parametrize(("n_in", "n_out"), [(1, 1), (1, 40), (512, 320), (65_535, 32), (7, 8)])
def test_every_output_is_covered_once_by_weights_that_sum_to_one(n_in: int, n_out: int) -> None:
    found = bands(n_in, n_out, 16)
    assert [band.start for band in found] + [n_out] == [0] + [band.stop for band in found]
    assert all(0 <= band.first < band.last <= n_in for band in found)
    assert all(np.abs(band.weights.sum(axis=1) - 1).max() < 1e-5 for band in found)


def test_half_the_size_is_the_mean_of_two_by_two_pixels() -> None:
    picture = noise(64, 96)
    means = picture.reshape(32, 2, 48, 2, 3).mean(axis=(1, 3)).transpose(2, 0, 1)
    found = planes(picture, (32, 48), SCALE, OFFSET)
    assert np.abs(found - (means * SCALE[:, None, None] + OFFSET[:, None, None])).max() < 1e-3


@pytest.mark.parametrize("given", [(384, 512), (700, 900), (320, 418)])
def test_more_than_twice_the_size_is_halved_first_as_files_are(given: tuple[int, int]) -> None:
    picture = noise(*given)
    found = (planes(picture, (160, 208), SCALE, OFFSET) - OFFSET[:, None, None]) / SCALE[:, None, None]
    expected = Image.fromarray(picture).reduce(2).resize((208, 160), Image.Resampling.BILINEAR)
    # Pillow rounds to 8 bits three times.
    assert np.abs(found.transpose(1, 2, 0) - np.asarray(expected)).max() < 1.6
