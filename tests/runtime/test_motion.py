"""Motion: what moves by itself draws attention, what the camera moves does not."""

from pathlib import Path

import numpy as np
import pytest

from fastgaze.core.errors import ArgumentError
from fastgaze.runtime.predictor import Predictor
from fastgaze.runtime.video import Watch, maps
from fastgaze.runtime.video.motion import FLOOR, Motion, cue, moved
from tests.runtime.clips import RATE, spot, write_clip


def _texture(shift: int = 0) -> np.ndarray:
    wide = np.random.default_rng(0).integers(60, 180, (36, 96)).astype(np.float32)
    return wide[:, 10 + shift : 74 + shift]


def test_the_shift_of_the_whole_picture_is_no_motion() -> None:
    change = moved(_texture(), _texture(4))
    assert change[:, 8:-8].max() == 0


def test_what_moves_on_its_own_is_found_where_it_is() -> None:
    before, after = _texture(), _texture(3).copy()
    after[10:20, 30:40] = 255
    change = moved(before, after)
    assert change[10:20, 30:40].min() > 60
    assert change[24:, 8:-8].max() == 0
    grid = cue(change, (12, 16))
    assert np.unravel_index(grid.argmax(), grid.shape)[0] in (3, 4, 5)
    assert grid.min() == pytest.approx(np.log(FLOOR))


def test_a_frame_is_compared_with_one_a_little_before_it_in_the_same_shot() -> None:
    motion = Motion()
    for index in range(6):
        motion.see(np.full((36, 64), 40.0 * (index == 2), np.float32), index / RATE, cut=index == 0)
    assert motion.cue((4, 4)).max() > np.log(41)  # frame 5 against frame 2
    motion.see(np.full((36, 64), 90, np.float32), 6 / RATE, cut=True)
    np.testing.assert_array_equal(motion.cue((4, 4)), 0)


def test_a_moving_thing_gets_more_attention_than_a_still_one(bright: Predictor, tmp_path: Path) -> None:
    pictures = []
    for index in range(16):
        picture = spot(50, 72)
        picture[56:88, 180 + 3 * (index % 4) : 212 + 3 * (index % 4)] = 255
        pictures.append(picture)
    clip = write_clip(tmp_path / "clip.mp4", pictures, sound=None)
    plain, moving = (list(maps(clip, bright, watching=Watch(motion=strength)))[10][1] for strength in (0.0, 1.0))
    right = (160, 0, 256, 144)
    assert moving.mass(right) > plain.mass(right) + 0.05
    with pytest.raises(ArgumentError, match="motion=-1"):
        Watch(motion=-1)
