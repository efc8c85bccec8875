"""Cuts: every hard one is found at its frame, and pans, zooms, shakes, fades, flashes and noise begin no shot."""

from collections.abc import Iterable
from fractions import Fraction
from functools import lru_cache
from pathlib import Path

import av
import numpy as np
import pytest
from PIL import Image, ImageFilter

import fastgaze
from fastgaze.runtime.video.shots import Glance, change, glance, mark_cuts, overlap, unlike

RATE = 25
SIZE = (144, 256)


@lru_cache(maxsize=16)
def _scene(seed: int) -> Image.Image:
    """Something like a photograph: shapes and textures of many sizes, all scenes with much the same colours."""
    generator = np.random.default_rng(seed)
    total = np.zeros((216, 384, 3))
    for blur in (2, 6, 16):
        noise = Image.fromarray(generator.integers(0, 255, total.shape, dtype=np.uint8))
        values = np.asarray(noise.filter(ImageFilter.GaussianBlur(blur)), np.float64)
        total += (values - values.mean()) / values.std()
    return Image.fromarray(np.clip(110 + 25 * total, 0, 255).astype(np.uint8))


def _window(scene: Image.Image, left: float, top: float, width: float = 192) -> np.ndarray:
    height = width * SIZE[0] / SIZE[1]
    return np.asarray(
        scene.resize((SIZE[1], SIZE[0]), Image.Resampling.BILINEAR, (left, top, left + width, top + height))
    )


def _still(seed: int, count: int) -> list[np.ndarray]:
    return [_window(_scene(seed), 50, 50)] * count


def _cuts(pictures: Iterable[np.ndarray], rate: float = RATE) -> list[int]:
    glances = [(index, glance(picture, index / rate)) for index, picture in enumerate(pictures)]
    marked = list(mark_cuts(glances))
    assert [index for index, _ in marked] == list(range(len(glances)))
    return [index for index, cut in marked if cut]


def _pan(seed: int, pixels: float, count: int) -> list[np.ndarray]:
    return [_window(_scene(seed), 2 + pixels * index, 50) for index in range(count)]


def test_hard_cuts_between_shots_of_the_same_colours_are_found_at_their_frames() -> None:
    pictures = [picture for seed in range(6) for picture in _pan(seed, 2.5, 14)]
    assert _cuts(pictures) == [0, 14, 28, 42, 56, 70]


@pytest.mark.parametrize("rate", [24, 60])
def test_a_shot_of_half_a_second_is_one_even_if_the_old_shot_comes_back(rate: int) -> None:
    count = rate // 2
    assert _cuts(_still(0, count) + _still(1, count) + _still(0, count), rate) == [0, count, 2 * count]


def test_pans_zooms_and_shakes_begin_no_shot() -> None:
    scene = _scene(3)
    zoom = [_window(scene, 192 - 90 * 1.03**-k, 108 - 50 * 1.03**-k, 180 * 1.03**-k) for k in range(30)]
    shake = [_window(scene, 75 + 7 * np.sin(3 * k), 50 + 4.5 * np.cos(2.3 * k)) for k in range(30)]
    for pictures in (_pan(3, 6, 30), zoom, zoom[::-1], shake):
        assert _cuts(pictures) == [0]


@pytest.mark.parametrize("level", [0, 250])
@pytest.mark.parametrize("length", [1, 2, 5])
def test_a_flash_is_no_cut_while_the_camera_moves(level: int, length: int) -> None:
    pictures = _pan(4, 1.5, 40)
    for index in range(20, 20 + length):
        pictures[index] = np.full_like(pictures[index], level)
    assert _cuts(pictures) == [0]


def test_a_stroboscope_and_changes_of_light_are_no_cuts() -> None:
    still = _still(5, 40)
    strobe = [picture if index % 4 < 2 else np.full_like(picture, 250) for index, picture in enumerate(still)]
    light = [
        np.minimum(picture * (1.0 + 0.8 * (index % 3)), 255).astype(np.uint8) for index, picture in enumerate(still)
    ]
    fade = [(picture * (1 - index / 39)).astype(np.uint8) for index, picture in enumerate(still)]
    for pictures in (strobe, light, fade, fade[::-1]):
        assert _cuts(pictures) == [0]


def test_a_cut_hidden_by_a_flash_is_one_cut_at_the_new_shot() -> None:
    flash = [np.full((*SIZE, 3), 250, np.uint8)]
    assert _cuts(_still(0, 20) + flash + _still(1, 20)) == [0, 21]


def test_a_plain_picture_is_a_shot_only_if_it_lasts() -> None:
    plain = [np.full((*SIZE, 3), 250, np.uint8)]
    assert _cuts(_still(0, 20) + 5 * plain + _still(1, 20)) == [0, 25]
    assert _cuts(_still(0, 20) + 5 * plain) == [0]
    assert _cuts(_still(0, 20) + 20 * plain + _still(1, 20)) == [0, 20, 40]
    assert _cuts(_still(0, 20) + 90 * plain + _still(1, 20), rate=120) == [0, 20, 110]


def test_noise_that_changes_with_every_frame_is_one_shot() -> None:
    generator = np.random.default_rng(0)
    assert _cuts(generator.integers(0, 255, (30, *SIZE, 3), dtype=np.uint8)) == [0]


def test_cuts_at_the_ends_of_a_video_are_found_and_frames_of_another_size_begin_a_shot() -> None:
    assert _cuts(_still(0, 1) + _still(1, 20) + _still(2, 1)) == [0, 1, 21]
    assert _cuts([picture[: 144 - 16 * (index // 5)] for index, picture in enumerate(_still(0, 10))]) == [0, 5]
    assert _cuts([]) == []


def test_frames_are_held_back_only_while_a_cut_is_decided() -> None:
    read: list[int] = []

    def frames() -> Iterable[tuple[int, Glance]]:
        for index, picture in enumerate(_still(0, 20) + _still(1, 20)):
            read.append(index)
            yield index, glance(picture, index / RATE)

    held = [read[-1] - index for index, _ in mark_cuts(frames())]
    assert set(held[:20]) == {0}
    assert max(held) == 9


def test_what_is_found_nearby_is_alike_whatever_its_brightness() -> None:
    here, there = (glance(_window(_scene(6), left, 50), 0).luma for left in (50, 68))
    assert unlike(here, here) == pytest.approx(0, abs=1e-6)
    assert unlike(here, there) < 0.1
    assert unlike(here, 0.7 * here + 60) < 0.1
    assert unlike(here, glance(_window(_scene(7), 50, 50), 0).luma) > 0.35
    plain = np.full_like(here, 200)
    assert unlike(plain, here) > 0.7
    assert unlike(plain, plain - 50) == pytest.approx(0, abs=1e-6)


def test_a_whip_pan_is_no_cut_and_its_overlap_is_found() -> None:
    whip = [_window(_scene(3), 190 / (1 + np.exp(15 - 1.2 * index)), 50) for index in range(26)]
    assert _cuts(whip) == [0]
    left, right = (glance(_window(_scene(3), x, 50), 0).luma for x in (20, 98))
    both = overlap(left, right)
    assert both is not None
    assert both[0].shape == both[1].shape == (36, 38)  # 78 of 192 pixels are 26 of 64
    assert np.corrcoef(both[0].ravel(), both[1].ravel())[0, 1] > 0.99


def test_a_flash_in_the_middle_of_a_crash_zoom_is_no_cut() -> None:
    widths = [190] * 10 + [190 * 0.88**k for k in range(8)] + [68] * 10
    zoom = [_window(_scene(3), 192 - width / 2, 108 - width * 9 / 32, width) for width in widths]
    assert _cuts(zoom) == [0]
    for index in (12, 13):
        zoom[index] = np.full_like(zoom[index], 250)
    assert _cuts(zoom) == [0]


def test_a_narrow_frame_can_be_compared() -> None:
    strip = np.random.default_rng(0).integers(0, 255, (8, 900, 3), dtype=np.uint8)
    assert change(glance(strip, 0), glance(strip, 0)) == 0


def test_public_name_gives_the_times_of_cuts_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "clip.mp4"
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=RATE, options={"crf": "28", "preset": "ultrafast"})
        stream.height, stream.width, stream.pix_fmt = *SIZE, "yuv420p"
        for index, picture in enumerate(_pan(8, 1.5, 15) + _pan(9, 1.5, 15)):
            frame = av.VideoFrame.from_ndarray(picture, format="rgb24")
            frame.pts, frame.time_base = index, Fraction(1, RATE)
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    assert list(fastgaze.video.cuts(path)) == pytest.approx([0, 15 / RATE])
