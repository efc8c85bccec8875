"""How a map is drawn: what changes in the picture, what does not, and whether people can tell the colours apart."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import fastgaze.app
from fastgaze.core.center_bias import GRID, fade_border, resample_log_density
from fastgaze.core.errors import ArgumentError
from fastgaze.runtime import contours, render
from fastgaze.runtime.gazemap import GazeMap
from fastgaze.runtime.predictor import load

EXAMPLES = Path(fastgaze.app.__file__).parent / "server" / "examples"
GROUNDS = {"white": (255, 255, 255), "black": (0, 0, 0), "red": (220, 20, 20), "gray": (128, 128, 128)}
# Linear RGB as people see it who lack one kind of cone (Machado et al. 2009, severity 1).
VISIONS = {
    "normal": np.eye(3),
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}


def spot(size: tuple[int, int] = (120, 180), at: tuple[float, float] = (60, 40), sigma: float = 9) -> np.ndarray:
    """Log density of one place (x, y) that is looked at, over a faint even ground."""
    y, x = np.mgrid[0 : size[0], 0 : size[1]] + 0.5
    density = np.exp(-((x - at[0]) ** 2 + (y - at[1]) ** 2) / (2 * sigma**2)) / sigma**2 + 1e-8
    return np.asarray(np.log(density / density.sum()))


def over(ground: tuple[int, int, int], log_density: np.ndarray | None = None) -> tuple[GazeMap, np.ndarray]:
    log_density = spot() if log_density is None else log_density
    picture = np.full((*log_density.shape, 3), ground, np.uint8)
    return GazeMap.from_log_density(log_density, picture), picture


def seen_as(rgb: np.ndarray, vision: str = "normal") -> np.ndarray:
    """OKLab of sRGB bytes (..., 3); a distance of 0.02 is just visible."""
    values = np.asarray(rgb) / 255
    linear = (
        np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4) @ np.array(VISIONS[vision]).T
    )
    cones = linear.clip(0) @ np.array(
        [
            [0.4122214708, 0.2119034982, 0.0883024619],
            [0.5363325363, 0.6806995451, 0.2817188376],
            [0.0514459929, 0.1073969566, 0.6299787005],
        ]
    )
    lab: np.ndarray = np.cbrt(cones) @ np.array(
        [
            [0.2104542553, 1.9779984951, 0.0259040371],
            [0.7936177850, -2.4285922050, 0.7827717662],
            [-0.0040720468, 0.4505937099, -0.8086757660],
        ]
    )
    return lab


def test_a_photograph_stays_as_it_is_wherever_people_look_no_more_than_on_average() -> None:
    gaze = load(threads=1).predict(EXAMPLES / "astronaut.jpg")
    with Image.open(EXAMPLES / "astronaut.jpg") as photo:
        before = np.asarray(photo.convert("RGB")).astype(int)
    size = before.shape[:2]
    change = np.abs(np.asarray(gaze.overlay(size=size)).astype(int) - before).max(axis=2)
    lift = gaze.density * gaze.density.size
    # The overlay is coloured on a coarser grid than the density, so a little below the average a level may change.
    assert change[lift < 0.8].max() == 0
    assert (change == 0).mean() > 0.5
    assert change[lift > 8].min() > 0
    assert np.unravel_index(lift.argmax(), size) == pytest.approx((130, 225), abs=25)
    assert change[lift > 20].mean() > 60


def test_attention_that_is_spread_evenly_is_drawn_as_nothing() -> None:
    gaze, picture = over((10, 200, 90), np.log(np.full((40, 60), 1 / 2400)))
    assert np.array_equal(np.asarray(gaze.overlay()), picture)


def test_habit_alone_does_not_glow_like_an_eye_catcher() -> None:
    model = load(threads=1)
    empty = model.predict(np.full((300, 400, 3), 255, np.uint8))
    photo = model.predict(EXAMPLES / "coffee.jpg")
    assert np.asarray(empty.heat()).max() < 140
    assert np.asarray(photo.heat()).max() == 255


@pytest.mark.parametrize("ground", GROUNDS)
def test_heat_can_be_told_from_the_picture_on_any_ground(ground: str) -> None:
    gaze, picture = over(GROUNDS[ground])
    levels, shown = np.asarray(gaze.heat()), np.asarray(gaze.overlay())
    distance = np.linalg.norm(seen_as(shown) - seen_as(picture), axis=2)
    assert np.median(distance[levels > 64]) > 0.08
    assert (distance[levels > 64] > 0.04).mean() > 0.85
    assert distance[levels >= 250].min() > 0.04


@pytest.mark.parametrize("vision", VISIONS)
def test_levels_that_differ_by_a_fifth_look_different_whatever_the_eyes(vision: str) -> None:
    colors = seen_as(render.palette()[::17, :3], vision)
    distance = np.linalg.norm(colors[:, None] - colors, axis=2)
    index = np.arange(len(colors))
    assert distance[np.abs(index[:, None] - index) >= 3].min() > 0.1


def test_fog_covers_what_is_not_looked_at_and_nothing_else() -> None:
    for ground in GROUNDS.values():
        gaze, picture = over(ground)
        shown = np.asarray(gaze.overlay(style="focus")).astype(int)
        assert np.array_equal(shown[35:45, 55:65], picture[35:45, 55:65])
        corner = np.linalg.norm(seen_as(shown[-1, -1]) - seen_as(picture[-1, -1]))
        assert corner > (0.04 if ground == GROUNDS["gray"] else 0.15)


def test_contours_lie_around_the_shares_that_they_name() -> None:
    gaze, picture = over(GROUNDS["white"], spot(size=(240, 360), at=(150, 120), sigma=30))
    changed = (np.asarray(gaze.overlay(style="contours")) != picture).any(axis=2)
    # The circle around a share p of a Gaussian has the radius sigma * sqrt(-2 ln(1 - p)).
    crossings = np.flatnonzero(np.diff(changed[120, 150:].astype(int)) == 1) + 1
    radii = 30 * np.sqrt(-2 * np.log(1 - np.array(sorted(contours.SHARES))))
    assert crossings == pytest.approx(radii, abs=5)
    assert not changed[120, 150]
    assert changed.mean() < 0.15


def test_contours_have_no_corner_where_the_centre_bias_fades() -> None:
    size = (240, 320)
    faded = resample_log_density(fade_border(np.zeros(GRID, np.float32)), size)
    log_density = resample_log_density(spot(size, at=(160, 15), sigma=40) + faded, size).astype(np.float32)
    smooth = contours.rounded(log_density)

    def sharpest(field: np.ndarray) -> float:
        """The largest turn between rows of the left line around 90% of the attention, in degrees."""
        bound = contours.bounds_of(field, log_density)[0]
        rows = [row for row in field[:, :161] if row[0] < bound < row[-1]]
        turns = np.diff(np.degrees(np.arctan(np.diff([np.interp(bound, row, np.arange(161)) for row in rows]))))
        return float(np.abs(turns).max())

    assert sharpest(log_density) > 3 * sharpest(smooth)
    inside = smooth >= contours.bounds_of(smooth, log_density)[0]
    assert np.exp(log_density)[inside].sum() == pytest.approx(0.9, abs=0.001)


def test_contours_of_a_map_of_one_row_or_column_are_drawn() -> None:
    for size in ((1, 40), (40, 1), (1, 1)):
        gaze, _ = over(GROUNDS["white"], spot(size=size, at=(1, 1)))
        assert gaze.overlay(style="contours").size == (size[1], size[0])


def test_gray_is_the_map_alone() -> None:
    gaze, _ = over(GROUNDS["red"])
    shown = np.asarray(gaze.overlay(style="gray"))
    assert (shown == np.asarray(gaze.heat())[..., None]).all()
    assert shown.max() == 255
    assert (shown == 0).mean() > 0.5


@pytest.mark.parametrize("style", render.STYLES)
@pytest.mark.parametrize("width", [24, 180, 1200])
def test_a_legend_is_a_strip_below_the_picture(style: str, width: int) -> None:
    gaze, _ = over(GROUNDS["gray"])
    size = (width * 2 // 3, width)
    plain, explained = gaze.overlay(size=size, style=style), gaze.overlay(size=size, style=style, legend=True)
    assert explained.width == plain.width
    assert np.array_equal(np.asarray(explained)[: size[0]], np.asarray(plain))
    strip = np.asarray(explained)[size[0] :]
    assert len(strip) > 0
    assert (strip == 255).all(axis=2).mean() > 0.3
    assert strip.min() < 120
    if width >= 180:  # no word is cut off at the right
        assert (strip[:, -2:] == 255).all()


def test_in_the_legend_of_contours_every_line_is_nearer_to_its_own_share_than_to_another() -> None:
    gaze, _ = over(GROUNDS["gray"])
    strip = np.asarray(gaze.overlay(size=(100, 720), style="contours", legend=True))[100:]
    inked = (strip != 255).any(axis=(0, 2))
    starts, ends = (np.flatnonzero(np.diff(inked.astype(int)) == step) for step in (1, -1))
    for color in render.contour_colors():
        first = np.flatnonzero((strip == color).all(axis=2).any(axis=0))[0]
        index = int(np.abs(starts + 1 - first).argmin())
        after = starts[index + 1] - ends[index]
        before = starts[index] - ends[index - 1] if index else np.inf
        assert before > 2 * after


def test_one_scale_makes_two_pictures_comparable() -> None:
    strong, weak = GazeMap.from_log_density(spot(sigma=6)), GazeMap.from_log_density(spot(sigma=12))
    scale = render.Scale.of(strong, weak)
    assert scale == render.Scale.of(strong)
    assert np.asarray(weak.heat()).max() == 255
    drawn = np.asarray(weak.overlay(style="gray", scale=scale))
    assert 0 < drawn.max() < 150
    assert [text for _, text in render.Scale(10).ticks()] == ["1x", "2x", "4x", "8x"]
    assert [text for _, text in render.Scale(150).ticks()] == ["1x", "8x", "16x", "32x", "64x", "128x"]


def test_levels_of_the_api_carry_their_own_opacity() -> None:
    gaze, picture = over(GROUNDS["white"])
    image = render.heat_image(gaze, gaze.picture_size)
    composed = Image.alpha_composite(Image.fromarray(picture).convert("RGBA"), image.convert("RGBA"))
    expected = np.asarray(gaze.overlay(opacity=1)).astype(int)
    assert np.abs(np.asarray(composed)[..., :3].astype(int) - expected).max() <= 1


def test_what_cannot_be_drawn_is_refused() -> None:
    gaze, _ = over(GROUNDS["white"])
    with pytest.raises(ArgumentError, match="no style 'jet'; choose from heat, focus, contours, gray"):
        gaze.overlay(style="jet")
    for style in render.STYLES:
        with pytest.raises(ArgumentError, match=r"opacity 1\.5"):
            gaze.overlay(opacity=1.5, style=style)


@pytest.mark.parametrize("style", render.STYLES)
@pytest.mark.parametrize("size", [(1, 1), (1, 40), (3, 2)])
def test_the_smallest_pictures_can_be_drawn(style: str, size: tuple[int, int]) -> None:
    gaze = GazeMap.from_log_density(np.zeros(size), np.zeros((*size, 3), np.uint8))
    assert gaze.overlay(style=style).size == (size[1], size[0])
