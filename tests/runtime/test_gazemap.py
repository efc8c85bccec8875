"""What a gaze map says: peaks, masses, percentiles, pictures, files, whatever the size of the map."""

import json
import pickle
from pathlib import Path
from time import process_time

import numpy as np
import pytest
from PIL import Image

import fastgaze.app
from fastgaze.core.errors import ArgumentError
from fastgaze.core.pictures import Picture, open_picture
from fastgaze.runtime.crop import Integral, find_crops
from fastgaze.runtime.gazemap import DISPLAY, GRID, GazeMap
from fastgaze.runtime.headroom import map_heads
from fastgaze.runtime.peaks import find_peaks
from fastgaze.runtime.predictor import Predictor, load
from fastgaze.runtime.render import LEAST_TOP


def gaze_of(density: np.ndarray, picture: np.ndarray | None = None) -> GazeMap:
    return GazeMap.from_log_density(np.log(density / density.sum()), picture, "test")


def blobs(size: tuple[int, int], *places: tuple[float, float, float, float]) -> np.ndarray:
    """Gaussians (x, y, sigma, weight) over a faint even ground."""
    y, x = np.mgrid[0 : size[0], 0 : size[1]] + 0.5
    total = np.zeros(size)
    for cx, cy, s, w in places:
        total += w * np.exp(-((x - cx) ** 2 + (y - cy) ** 2) / (2 * s**2)) / s**2
    return total + 1e-9


THREE = gaze_of(blobs((400, 600), (100, 100, 12, 0.5), (500, 90, 12, 0.2), (300, 320, 12, 0.3)))


@pytest.mark.parametrize("factor", [1, 4])
def test_peaks_are_the_places_by_mass(factor: int) -> None:
    gaze = THREE if factor == 1 else gaze_of(THREE.density.repeat(factor, 0).repeat(factor, 1))
    peaks = gaze.peaks(5)
    found = [(peak.x / factor, peak.y / factor) for peak in peaks]
    assert np.array(found[:3]) == pytest.approx(np.array([(100, 100), (300, 320), (500, 90)]), abs=0.5)
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


def test_the_end_of_a_slope_at_the_border_is_no_peak_but_the_highest_place_there_is() -> None:
    y, x = np.mgrid[0:160, 0:256] + 0.5
    place = -(((x - 128) / 20) ** 2 + ((y - 30) / 20) ** 2)
    # Above the place it goes down to the border, and up again by a little in the last rows.
    log_density = np.maximum(place, -9) + np.where((y < 3) & (x > 150) & (x < 170), 0.3 * (3 - y), 0) - 2.0 * (y < 4)
    peak, *others = GazeMap.from_log_density(log_density).peaks(9)
    assert (peak.x, peak.y) == pytest.approx((128, 30), abs=1)
    assert all(other.y > 1 for other in others)
    (peak,) = GazeMap.from_log_density(-(((x - 128) / 20) ** 2 + (y / 20) ** 2)).peaks(1)
    assert (peak.x, peak.y) == pytest.approx((128, 0.5), abs=1)


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
    gaze = GazeMap.from_log_density(THREE.log_density, picture)
    shown = np.asarray(gaze.overlay())
    assert shown.shape == (400, 600, 3)
    assert (shown[390, 590] == 77).all()
    assert np.abs(shown[100, 100].astype(int) - 77).max() > 45
    assert np.array_equal(np.asarray(gaze.overlay(opacity=0)), picture)
    # Without a picture the heat map stands alone; with another size of map the picture is scaled to it.
    assert THREE.overlay().size == (600, 400)
    assert GazeMap.from_log_density(THREE.log_density, picture[::2, ::2]).overlay().size == (600, 400)
    with pytest.raises(ArgumentError, match="opacity"):
        gaze.overlay(opacity=2)


def test_an_overlay_has_the_size_of_a_screen_unless_another_is_asked_for(bright: Predictor) -> None:
    large = np.full((1500, 2000, 3), 90, np.uint8)
    gaze = bright.predict(large)
    assert max(gaze.overlay().size) == DISPLAY
    assert gaze.overlay(size=gaze.picture_size).size == (2000, 1500)
    assert bright.predict(large, size=(30, 40)).overlay().size == (40, 30)
    assert bright.predict(large[:300, :400]).overlay().size == (400, 300)


def test_the_heat_map_is_the_same_at_every_size(bright: Predictor) -> None:
    picture = np.full((900, 1200, 3), 30, np.uint8)
    picture[200:400, 300:500] = 240
    view = bright.look(picture)
    gaze = view.at()

    def levels(density: np.ndarray) -> np.ndarray:
        lift = density * density.size
        return np.asarray((np.sqrt(lift) - 1) / (np.sqrt(max(lift.max(), LEAST_TOP)) - 1)).clip(0, 1)

    assert np.abs(np.asarray(gaze.heat((900, 1200))) / 255 - levels(gaze.density)).max() < 0.02
    assert np.abs(np.asarray(gaze.heat((90, 120))) / 255 - levels(view.at((90, 120)).density)).max() < 0.01


def test_files_hold_what_their_suffix_says(tmp_path: Path) -> None:
    for suffix in ("npy", "json", "png", "jpg", "webp"):
        THREE.save(tmp_path / f"map.{suffix}")
    assert np.array_equal(np.load(tmp_path / "map.npy", allow_pickle=False), THREE.log_density)
    facts = json.loads((tmp_path / "map.json").read_text())
    del facts["milliseconds"]
    assert facts.items() <= json.loads(json.dumps(THREE.to_json())).items()
    assert facts["picture_size"] == {"width": 600, "height": 400}
    with Image.open(tmp_path / "map.png") as image:
        assert image.size == (600, 400)
        assert np.array_equal(np.asarray(image), np.asarray(THREE.overlay()))
    with pytest.raises(ArgumentError, match=r"use \.npy"):
        THREE.save(tmp_path / "map.xyz")


def test_an_even_map_has_its_peaks_in_no_time() -> None:
    even = gaze_of(np.ones((1200, 1600)))
    assert even.grid.shape == (192, 256)
    start = process_time()
    peaks = even.peaks(3)
    assert len(peaks) == 3
    assert process_time() - start < 0.5  # every cell is a local maximum


def test_every_place_belongs_to_one_peak_so_that_shares_never_exceed_the_whole() -> None:
    # Two spots just farther apart than the reach of a peak: discs around both would overlap and count the middle twice.
    close = gaze_of(blobs((400, 400), (160, 200, 40, 0.5), (235, 200, 40, 0.5), (230, 130, 30, 0.2)))
    shares = [peak.mass for peak in close.peaks(10)]
    assert sum(shares) <= 1
    noisy = gaze_of(np.random.default_rng(0).random((300, 300)) ** 8)
    assert 0.9 < sum(peak.mass for peak in noisy.peaks(1000)) <= 1 + 1e-6


def test_a_log_density_that_is_none_is_refused() -> None:
    for wrong in (np.zeros(3), np.zeros((0, 3)), np.full((2, 2), np.nan), np.full((2, 2), -np.inf)):
        with pytest.raises(ArgumentError, match="a log density is"):
            GazeMap.from_log_density(wrong)


@pytest.fixture(scope="module")
def large() -> Picture:
    """A photograph six times as large as its grid."""
    examples = Path(fastgaze.app.__file__).parent / "server" / "examples"
    with Image.open(examples / "coffee.jpg") as photo:
        return open_picture(photo.resize((6 * photo.width, 6 * photo.height), Image.Resampling.BICUBIC))


@pytest.fixture(scope="module")
def seen(large: Picture) -> GazeMap:
    return load(threads=1).predict(large)


def test_all_positions_are_in_pixels_of_the_picture_whatever_the_size_of_the_map(
    bright: Predictor,
) -> None:
    picture = np.full((900, 1200, 3), 30, np.uint8)
    picture[200:400, 300:500] = 240
    view = bright.look(picture)
    own, small, large = view.at(), view.at((9, 12)), view.at((1800, 2400))
    assert own.to_json(ratios=["16:9"], n=2)["crops"] == small.to_json(ratios=["16:9"], n=2)["crops"]
    assert own.peaks(3) == small.peaks(3) == large.peaks(3)
    assert own.mass((100, 100, 700, 500)) == large.mass((100, 100, 700, 500))
    assert own.bits == small.bits


@pytest.mark.parametrize("ratio", ["16:9", "1:1", "2:1", "9:16"])
def test_windows_on_the_grid_are_those_of_the_full_map_within_one_cell(
    seen: GazeMap, large: Picture, ratio: str
) -> None:
    cell = max(seen.picture_size) / GRID
    on_grid = seen.crop(ratio)[0]
    in_full = find_crops(Integral(seen.density), ratio, heads=map_heads(large))[0]
    assert np.abs(np.array(on_grid.box) - in_full.box).max() <= cell
    # It belongs to the square that keeps most, whose places are steps of the window: one step is two cells here.
    assert np.abs(np.array(on_grid.focal_point) - in_full.focal_point).max() <= 2 * cell
    assert on_grid.mass == pytest.approx(in_full.mass, abs=2e-3)
    left, top, right, bottom = in_full.box
    assert seen.mass(in_full.box) == pytest.approx(float(seen.density[top:bottom, left:right].sum()), abs=2e-3)


def test_peaks_and_bits_on_the_grid_are_those_of_the_full_map_within_one_cell(seen: GazeMap) -> None:
    cell = max(seen.picture_size) / GRID
    pairs = list(zip(seen.peaks(4), find_peaks(seen.density, seen.picture_size), strict=False))
    # Those that nobody would see, with a hundredth of the attention, may be of the rounding of float32.
    pairs = [pair for pair in pairs if pair[0].mass > 0.01]
    assert len(pairs) > 1
    for on_grid, in_full in pairs:
        assert abs(on_grid.x - in_full.x) <= cell
        assert abs(on_grid.y - in_full.y) <= cell
        assert on_grid.mass == pytest.approx(in_full.mass, abs=5e-3)
        assert on_grid.density == pytest.approx(in_full.density, rel=0.01)
    density = seen.density.astype(np.float64)
    entropy = -(density * seen.log_density).sum() / np.log(2)
    assert seen.bits == pytest.approx(np.log2(density.size) - entropy, abs=2e-3)


def test_the_full_map_is_made_only_when_it_is_asked_for(bright: Predictor) -> None:
    gaze = bright.predict(np.full((1500, 2000, 3), 90, np.uint8))
    gaze.to_json(ratios=["1:1"])
    gaze.overlay()
    assert "log_density" not in vars(gaze)
    assert gaze.log_density.shape == (1500, 2000)
    assert gaze.log_density is gaze.log_density


def test_a_gaze_map_travels_between_processes(bright: Predictor, tmp_path: Path) -> None:
    path = tmp_path / "photo.png"
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (90, 120, 3), dtype=np.uint8)).save(path)
    gaze = bright.predict(path)
    again = pickle.loads(pickle.dumps(gaze))
    assert np.array_equal(again.log_density, gaze.log_density)
    assert again.peaks(3) == gaze.peaks(3)
    assert np.array_equal(np.asarray(again.overlay()), np.asarray(gaze.overlay()))
