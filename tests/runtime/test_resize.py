"""Scaling and normalising at once equals Pillow's filter, and the plain formula, up to 8-bit rounding."""

import numpy as np
import pytest
from PIL import Image

from fastgaze.runtime.card import ModelCard, WorkingSize
from fastgaze.runtime.resize import _columns, _halved, _rows, bands, planes, prepare

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


def card(seen_pixels: int) -> ModelCard:
    bias = np.zeros((48, 64), np.float32)
    working = WorkingSize(pixels=192 * 256)
    return ModelCard("m", "litegaze", 1, 1.0, 8.0, bias, working_size=working, seen_pixels=seen_pixels)


def smooth(height: int, width: int) -> np.ndarray:
    """A picture of middle frequencies, as photographs have them."""
    coarse = Image.fromarray(noise(height // 3, width // 3))
    return np.asarray(coarse.resize((width, height), Image.Resampling.BICUBIC))


@pytest.mark.parametrize("given", [(384, 512), (600, 800), (1536, 2048)])
def test_a_large_picture_becomes_as_soft_as_by_the_size_that_training_saw(given: tuple[int, int]) -> None:
    picture, working = smooth(*given), (192, 256)
    twice = Image.fromarray(picture).resize((320, 240), Image.Resampling.BILINEAR)
    expected = prepare(np.asarray(twice), working, card(0))
    errors = [np.abs(prepare(picture, working, card(seen)) - expected).mean() for seen in (320 * 240, 0)]
    assert errors[0] < 0.6 * errors[1]


def test_a_picture_of_no_more_pixels_than_training_saw_is_left_as_sharp_as_it_is() -> None:
    picture = smooth(240, 320)
    assert np.array_equal(prepare(picture, (192, 256), card(240 * 320)), prepare(picture, (192, 256), card(0)))


def test_a_picture_that_was_decoded_at_the_working_size_is_softened_too() -> None:
    picture, whole = smooth(192, 256), (3000, 4000)
    soft, sharp = (prepare(picture, (192, 256), card(seen), whole) for seen in (240 * 320, 0))
    steps = [np.abs(np.diff(found, axis=2)).mean() for found in (soft, sharp)]
    assert steps[0] < 0.9 * steps[1]
    assert soft.mean() == pytest.approx(sharp.mean(), abs=0.01)


def test_half_the_size_is_softened_as_by_the_filter_without_a_change_of_size() -> None:
    picture, softness = noise(384, 512), 1.28
    halved = _halved(picture, SCALE)
    expected = _columns(_rows(halved, 192, softness), 256, softness)
    found = planes(picture, (192, 256), SCALE, np.zeros(3, np.float32), softness)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-3)


def test_a_card_that_says_training_saw_one_pixel_costs_no_more_than_others() -> None:
    picture = smooth(384, 512)
    found = prepare(picture, (192, 256), card(1))
    assert np.array_equal(found, prepare(picture, (192, 256), card(2)))
    assert max(band.weights.shape[1] for band in bands(384, 192, 8, 3**0.5)) < 32
