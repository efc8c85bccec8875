"""Heads are found well enough to be left whole, and nothing is made of pictures without any."""

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import fastgaze.app
from fastgaze.core.errors import ArgumentError
from fastgaze.core.pictures import open_picture
from fastgaze.runtime.gazemap import GazeMap
from fastgaze.runtime.headroom import ALONE, LEAST, LIKELY, OUTLINE, Head, find_heads, map_heads
from fastgaze.runtime.predictor import load

EXAMPLES = Path(fastgaze.app.__file__).parent / "server" / "examples"
# Crown and chin, left and right side of the astronaut's head in the picture of 512x512 pixels.
CROWN, CHIN, LEFT, RIGHT = 15, 190, 145, 305


@pytest.fixture(scope="module")
def astronaut() -> GazeMap:
    return load(threads=1).predict(EXAMPLES / "astronaut.jpg")


def test_the_map_is_high_on_the_face_and_low_elsewhere() -> None:
    heads = map_heads(open_picture(EXAMPLES / "astronaut.jpg"))
    rows, columns = heads.shape
    assert heads.dtype == np.float32
    assert 0 <= heads.min() <= heads.max() <= 1
    y, x = np.unravel_index(heads.argmax(), heads.shape)
    assert CROWN < (y + 0.5) / rows * 512 < CHIN
    assert LEFT < (x + 0.5) / columns * 512 < RIGHT
    assert heads.max() > 0.9
    assert heads[rows * 3 // 4 :].max() < 0.3


@pytest.mark.parametrize("name", ["chelsea.jpg", "rocket.jpg"])
def test_pictures_without_people_have_no_heads_that_count_much(name: str) -> None:
    assert sum(head.weight for head in find_heads(map_heads(open_picture(EXAMPLES / name)))) < 0.4


def test_heads_are_regions_with_edges_between_cells() -> None:
    grid = np.zeros((10, 20), np.float32)
    grid[2:4, 5:9] = 1
    grid[4, 5:9] = (LIKELY + OUTLINE) / 2
    grid[5, 5:9] = OUTLINE / 2
    grid[8:, 18:] = 0.8
    first, second = find_heads(grid)
    # From the centre of the last cell, 1, the value falls to 0 in the next one; below, less likely cells go on.
    beside = 1 - OUTLINE
    below = (LIKELY - OUTLINE) / LIKELY
    assert (first.left, first.right) == pytest.approx(((5.5 - beside) / 20, (8.5 + beside) / 20))
    assert (first.top, first.bottom) == pytest.approx(((2.5 - beside) / 10, (4.5 + below) / 10))
    strength = 4 * 0.8**2
    assert first.weight == pytest.approx((8 / (8 + strength)) ** ALONE)
    assert (second.right, second.bottom) == (1, 1)
    assert second.weight == pytest.approx(0.8 * (strength / (8 + strength)) ** ALONE)


def test_cells_that_touch_only_at_a_corner_are_two_heads() -> None:
    grid = np.zeros((4, 4), np.float32)
    grid[0, 0] = grid[1, 1] = 1
    assert [head.weight for head in find_heads(grid)] == [0.5**ALONE, 0.5**ALONE]


def test_a_speck_counts_little() -> None:
    grid = np.zeros((24, 32), np.float32)
    grid[3, 5] = 1
    (speck,) = find_heads(grid)
    assert speck.weight == pytest.approx((1 / (LEAST * 24 * 32)) ** ALONE)


def test_unlikely_cells_are_no_heads() -> None:
    assert find_heads(np.full((12, 16), LIKELY - 0.01, np.float32)) == []
    assert find_heads(np.ones((12, 16), np.float32)) == [Head(0, 0, 1, 1, 1)]


@pytest.mark.parametrize("ratio", ["16:9", "1:1", "4:5", "9:16"])
def test_no_window_cuts_the_astronauts_head(astronaut: GazeMap, ratio: str) -> None:
    left, top, right, bottom = astronaut.crop(ratio)[0].box
    assert top <= CROWN
    assert bottom >= CHIN
    assert left <= LEFT
    assert right >= RIGHT


def test_a_map_without_its_picture_knows_no_heads(astronaut: GazeMap) -> None:
    assert GazeMap.from_log_density(astronaut.grid).crop("16:9")[0].box[1] > CROWN


def test_on_a_plain_colour_nothing_is_gained() -> None:
    plain = load(threads=1).predict(np.full((600, 800, 3), 200, np.uint8))
    for ratio in ("2:1", "1:1", "9:16"):
        # People look a little above the middle, and a plain picture could be an empty page.
        assert plain.crop(ratio)[0].gain == pytest.approx(0, abs=0.02)


def test_the_best_window_comes_as_a_file_of_the_size_asked_for(astronaut: GazeMap) -> None:
    cut = astronaut.cut(size=(63, 120))
    assert Image.open(io.BytesIO(cut.content)).size == (120, 63)
    assert cut.box == astronaut.crop("120:63")[0].box
    around = astronaut.cut("1:2", focus=(500, 256))
    assert around.box == (256, 0, 512, 512)
    assert (around.size, around.format) == ((512, 256), "jpeg")


def test_a_cut_needs_a_shape_and_a_picture(astronaut: GazeMap) -> None:
    with pytest.raises(ArgumentError, match="16:9"):
        astronaut.cut()
    with pytest.raises(ArgumentError, match="no picture"):
        GazeMap.from_log_density(astronaut.grid).cut("1:1")
