"""Images are scaled to exact pixels, with the extra ``fast`` and without it."""

import sys
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import PIL
import pytest
from PIL import Image

from fastgaze.core import scaling
from fastgaze.core.scaling import Spot, resized

SPOTS: list[tuple[tuple[int, int], Spot]] = [
    ((120, 63), (0, 20, 200, 125)),
    ((97, 61), (10.25, 3.5, 180.75, 140.1)),
    ((300, 240), (40, 30, 100, 78)),
    ((60, 200), (0, 0, 120, 100)),
]


@pytest.fixture(autouse=True)
def _look_again() -> Iterator[None]:
    scaling._resizer.cache_clear()
    yield
    scaling._resizer.cache_clear()


def photo(mode: str) -> Image.Image:
    generator = np.random.default_rng(0)
    coarse = Image.fromarray(generator.integers(0, 256, (15, 20, 3), dtype=np.uint8))
    return coarse.resize((200, 150), Image.Resampling.BICUBIC).convert(mode)


def levels(image: Image.Image) -> npt.NDArray[np.int64]:
    return np.asarray(image).astype(np.int64)


@pytest.mark.parametrize("mode", ["RGB", "L"])
@pytest.mark.parametrize(("size", "spot"), SPOTS)
def test_the_extra_gives_what_pillows_bicubic_filter_gives(mode: str, size: tuple[int, int], spot: Spot) -> None:
    pytest.importorskip("cykooz_resizer")
    image = photo(mode)
    found = resized(image, size, spot)
    assert (found.mode, found.size) == (mode, size)
    assert np.abs(levels(found) - levels(image.resize(size, Image.Resampling.BICUBIC, spot))).max() <= 2
    assert image.size == (200, 150)


def test_without_the_extra_pillow_scales(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cykooz_resizer", None)
    (size, spot), image = SPOTS[0], photo("RGB")
    expected = image.resize(size, Image.Resampling.HAMMING, spot, 3.0)
    assert np.array_equal(levels(resized(image, size, spot)), levels(expected))


def test_the_extra_is_not_used_with_a_pillow_that_it_does_not_know(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PIL, "__version__", "99.0.0")
    (size, spot), image = SPOTS[0], photo("RGB")
    expected = image.resize(size, Image.Resampling.HAMMING, spot, 3.0)
    assert np.array_equal(levels(resized(image, size, spot)), levels(expected))


def test_transparent_pixels_do_not_bleed() -> None:
    image = Image.new("RGBA", (40, 40), (255, 0, 0, 0))
    image.paste((0, 0, 255, 255), (20, 0, 40, 40))
    edge = levels(resized(image, (10, 10), (0, 0, 40, 40)))
    assert edge[edge[:, :, 3] > 8][:, 0].max() <= 8
