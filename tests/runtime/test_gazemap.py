"""What a gaze map says: peaks, masses, percentiles, pictures, files."""

import json
from pathlib import Path
from time import process_time

import numpy as np
import pytest
from PIL import Image

from fastgaze.core.errors import ArgumentError
from fastgaze.runtime import colours as colormap
from fastgaze.runtime.crop import find_crops
from fastgaze.runtime.gazemap import GazeMap


def gaze_of(density: np.ndarray, source: np.ndarray | None = None) -> GazeMap:
    return GazeMap(np.log(density / density.sum()).astype(np.float32), "test", {"network": 1.0}, source)


def blobs(size: tuple[int, int], *places: tuple[float, float, float, float]) -> np.ndarray:
    """Gaussians (x, y, sigma, weight) over a faint even ground."""
    y, x = np.mgrid[0 : size[0], 0 : size[1]] + 0.5
    total = sum(w * np.exp(-((x - cx) ** 2 + (y - cy) ** 2) / (2 * s**2)) / s**2 for cx, cy, s, w in places)
    return total + 1e-9


THREE = gaze_of(blobs((400, 600), (100, 100, 12, 0.5), (500, 90, 12, 0.2), (300, 320, 12, 0.3)))


@pytest.mark.parametrize("factor", [1, 4])
def test_peaks_are_the_places_by_mass(factor: int) -> None:
    gaze = THREE if factor == 1 else gaze_of(THREE.density.repeat(factor, 0).repeat(factor, 1))
    peaks = gaze.peaks(5)
    found = [(peak.x / factor, peak.y / factor) for peak in peaks]
    assert np.array(found[:3]) == pytest.approx(np.array([(100, 100), (300, 320), (500, 90)]), abs=1)
    assert [peak.mass for peak in peaks[:3]] == pytest.approx([0.5, 0.3, 0.2], abs=0.01)


def test_peaks_are_distinct_and_no_more_than_asked_for() -> None:
    noisy = gaze_of(np.random.default_rng(0).random((300, 300)) + 0.1)
    peaks = noisy.peaks(6)
    assert 3 <= len(peaks) <= 6
    radius = 0.1 * np.hypot(300, 300)
    for i, a in enumerate(peaks):
        assert all(np.hypot(a.x - b.x, a.y - b.y) > radius for b in peaks[:i])
    assert len(THREE.peaks(1)) == 1
    with pytest.raises(ArgumentError, match="n=0"):
        THREE.peaks(0)


def test_an_even_map_has_a_peak_too_and_says_nothing() -> None:
    even = gaze_of(np.ones((20, 30)))
    assert even.peaks(1)
    assert even.bits == pytest.approx(0, abs=1e-4)
    assert (even.percentile() == 0).all()


def test_bits_measure_how_much_is_known() -> None:
    half = np.full((8, 8), 1e-12)
    half[:, :4] = 1
    assert gaze_of(half).bits == pytest.approx(1, abs=1e-3)


def test_mass_of_a_box_is_its_probability() -> None:
    assert THREE.mass((0, 0, 600, 400)) == pytest.approx(1, abs=1e-5)
    assert THREE.mass((50, 50, 150, 150)) == pytest.approx(0.5, abs=0.01)
    assert THREE.mass((-1e9, -5, 300, 200.2)) == pytest.approx(THREE.mass((0, 0, 300, 200)))
    for box in ((5, 5, 5, 9), (700, 0, 800, 10), (0, 0, 1), (0, 0, float("nan"), 3)):
        with pytest.raises(ArgumentError, match="box"):
            THREE.mass(box)


def test_percentiles_are_ranks() -> None:
    values = np.random.default_rng(1).permutation(600).reshape(20, 30)
    found = gaze_of(np.exp(values / 100)).percentile()
    assert found == pytest.approx(values / 600, abs=1e-6)


def test_the_overlay_shows_heat_where_people_look_and_the_picture_elsewhere() -> None:
    picture = np.full((400, 600, 3), 77, np.uint8)
    gaze = GazeMap(THREE.log_density, source=picture)
    shown = np.asarray(gaze.overlay())
    assert shown.shape == (400, 600, 3)
    assert (shown[390, 590] == 77).all()
    assert np.abs(shown[100, 100].astype(int) - 77).max() > 60
    assert np.array_equal(np.asarray(gaze.overlay(opacity=0)), picture)
    # Without a picture the heat map stands alone; with another size of map the picture is scaled to it.
    assert THREE.overlay().size == (600, 400)
    assert GazeMap(THREE.log_density, source=picture[::2, ::2]).overlay().size == (600, 400)
    with pytest.raises(ArgumentError, match="opacity"):
        gaze.overlay(opacity=2)


def test_files_hold_what_their_suffix_says(tmp_path: Path) -> None:
    for suffix in ("npy", "json", "png", "jpg", "webp"):
        THREE.save(tmp_path / f"map.{suffix}")
    assert np.array_equal(np.load(tmp_path / "map.npy", allow_pickle=False), THREE.log_density)
    facts = json.loads((tmp_path / "map.json").read_text())
    assert facts == json.loads(json.dumps(THREE.to_json()))
    assert facts["size"] == [400, 600]
    with Image.open(tmp_path / "map.png") as image:
        assert image.size == (600, 400)
    with pytest.raises(ArgumentError, match=r"use \.npy"):
        THREE.save(tmp_path / "map.xyz")


def test_lightness_of_the_colour_map_rises_all_the_way() -> None:
    linear = (colormap.table() / 255.0) ** 2.2
    luminance = linear @ (0.2126, 0.7152, 0.0722)
    assert (np.diff(luminance ** (1 / 2.4)) > -0.004).all()
    assert luminance[0] < 0.01
    assert luminance[-1] > 0.75


def test_an_even_map_has_its_peaks_in_no_time() -> None:
    even = GazeMap(np.full((1200, 1600), -np.log(1200 * 1600), np.float32))
    start = process_time()
    peaks = even.peaks(3)
    assert len(peaks) == 3
    assert process_time() - start < 0.5  # every block is a local maximum


def test_windows_of_several_ratios_share_one_integral() -> None:
    gaze = GazeMap(THREE.log_density)
    first = gaze.integral
    assert [crop.box for crop in gaze.crop("16:9", 3)] == [crop.box for crop in find_crops(gaze.density, "16:9", 3)]
    assert gaze.integral is first
