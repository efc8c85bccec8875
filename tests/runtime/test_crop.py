"""Crops keep what is looked at, cut where nobody looks, leave heads whole, and say what they gain."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastgaze.core.errors import ArgumentError
from fastgaze.runtime.crop import MOST_OVERLAP, Crop, Integral, crop_around, find_crops, parse_ratio


def blobs(size: tuple[int, int], *places: tuple[float, float, float, float]) -> np.ndarray:
    """A density made of Gaussians (x, y, sigma, weight)."""
    y, x = np.mgrid[0 : size[0], 0 : size[1]] + 0.5
    total = np.zeros(size)
    for cx, cy, s, w in places:
        total += w * np.exp(-((x - cx) ** 2 + (y - cy) ** 2) / (2 * s**2)) / s**2
    return (total / np.sum(total)).astype(np.float32)


def best(density: np.ndarray, ratio: str, heads: np.ndarray | None = None) -> Crop:
    return find_crops(Integral(density), ratio, heads=heads)[0]


def overlap(a: tuple[int, ...], b: tuple[int, ...]) -> float:
    width = max(min(a[2], b[2]) - max(a[0], b[0]), 0)
    height = max(min(a[3], b[3]) - max(a[1], b[1]), 0)
    areas = [(box[2] - box[0]) * (box[3] - box[1]) for box in (a, b)]
    return width * height / (sum(areas) - width * height)


def test_the_window_goes_where_people_look() -> None:
    crop = best(blobs((300, 600), (480, 150, 20, 1)), "1:1")
    assert (crop.box[1], crop.box[3]) == (0, 300)
    assert crop.box[0] <= 420
    assert crop.box[2] >= 540
    assert crop.mass > 0.99
    assert crop.gain > 0.85
    assert crop.focal_point == pytest.approx((480, 150), abs=3)


def test_mass_counts_and_not_the_highest_point() -> None:
    # A sharp spot with a fifth of the attention at the left, a broad region with the rest at the right.
    density = blobs((200, 800), (60, 100, 3, 0.2), (650, 100, 60, 0.8))
    assert density.argmax() % 800 < 100
    crop = best(density, "1:1")
    assert crop.box[0] > 450
    assert crop.mass > 0.7


def test_an_edge_does_not_cut_through_a_head_when_it_can_pass_beside_it() -> None:
    # A body to keep, and a head that only fits in half: better to leave it out or to take it in than to halve it.
    density = blobs((200, 400), (150, 100, 25, 0.8), (300, 100, 8, 0.2))
    left, _, right, _ = best(density, "1:1").box
    assert not any(abs(edge - 300) < 12 for edge in (left, right))


def head(size: tuple[int, int], top: int, bottom: int, left: int, right: int) -> np.ndarray:
    heads = np.zeros(size, np.float32)
    heads[top:bottom, left:right] = 1
    return heads


def test_of_windows_with_nearly_the_same_attention_the_one_that_leaves_the_head_whole_is_chosen() -> None:
    # A face at a third of the height, and as much to look at near the bottom: attention alone starts below the crown.
    density = blobs((300, 400), (200, 90, 12, 0.8), (200, 205, 12, 0.2))
    heads = head((24, 32), 2, 9, 13, 19)
    assert best(density, "2:1").box[1] > 35
    crop = best(density, "2:1", heads)
    assert crop.box[1] <= 2 * 300 / 24
    assert crop.mass > best(density, "2:1").mass - 0.2


def test_a_window_that_gives_up_attention_for_a_head_says_so() -> None:
    density = blobs((300, 400), (200, 90, 12, 0.5), (200, 215, 12, 0.5))
    crown = head((24, 32), 2, 9, 13, 19)
    crop = best(density, "2:1", crown)
    assert crop.gain < -0.1
    assert crop.for_head
    assert not best(density, "2:1").for_head
    # The same head at a place where attention alone puts the window, and one that the middle leaves whole as well.
    assert not best(blobs((300, 400), (200, 60, 12, 1)), "2:1", crown).for_head
    assert not best(density, "2:1", head((24, 32), 9, 14, 13, 19)).for_head


def test_only_the_best_window_can_be_moved_for_a_head() -> None:
    density = blobs((300, 400), (200, 90, 12, 0.5), (200, 215, 12, 0.5))
    found = find_crops(Integral(density), "2:1", 3, heads=head((24, 32), 2, 9, 13, 19))
    assert [crop.for_head for crop in found] == [True, False, False]
    assert not crop_around(Integral(density), "2:1", (200, 10)).for_head


def test_a_head_that_costs_too_much_attention_is_cut() -> None:
    density = blobs((300, 400), (200, 240, 12, 1))
    crop = best(density, "3:1", head((24, 32), 2, 20, 4, 8))
    assert crop.mass > 0.95


def test_a_head_that_fits_no_window_leaves_the_choice_to_attention() -> None:
    density = blobs((300, 400), (200, 90, 12, 0.7), (200, 215, 12, 0.3))
    assert best(density, "2:1", head((24, 32), 2, 22, 13, 19)).box == best(density, "2:1").box


def test_of_two_heads_that_do_not_fit_together_the_larger_one_is_kept() -> None:
    density = blobs((200, 600), (80, 100, 20, 1), (500, 100, 20, 1))
    small, large = head((20, 60), 6, 10, 6, 10), head((20, 60), 4, 14, 44, 54)
    assert best(density, "1:1", np.maximum(small, large)).box[2] > 540
    assert best(density, "1:1", np.maximum(small, large)[:, ::-1]).box[0] < 60


def test_edges_beside_a_head_do_not_count_as_cuts() -> None:
    density = blobs((300, 600), (420, 150, 30, 1))
    beside = head((24, 48), 4, 12, 2, 6)
    assert best(density, "1:1", beside).box == best(density, "1:1").box


def test_object_position_shows_the_same_window() -> None:
    crop = best(blobs((300, 600), (560, 150, 20, 1)), "1:1")
    assert crop.object_position is not None
    x, y = crop.object_position
    assert crop.box[0] == pytest.approx(x / 100 * (600 - 300), abs=0.5)
    assert y == 50
    assert crop.to_json()["object_position"] == f"{x:.2f}% 50.00%"
    smaller = find_crops(Integral(blobs((300, 600), (60, 60, 5, 1))), "1:1", 2, scales=(1, 0.5))[1]
    assert smaller.object_position is None


@pytest.mark.parametrize(("focus", "box"), [((300, 150), (150, 0, 450, 300)), ((590, 0), (300, 0, 600, 300))])
def test_a_focus_is_as_near_to_the_middle_as_the_picture_allows(
    focus: tuple[float, float], box: tuple[int, ...]
) -> None:
    crop = crop_around(Integral(blobs((300, 600), (60, 60, 30, 1))), "1:1", focus)
    assert crop.box == box
    assert crop.focal_point == focus


@pytest.mark.parametrize("focus", [10, None, "10,20", (10,), (10, 20, 30), (10, float("nan")), ("10", "20")])
def test_a_focus_that_is_no_point_is_answered_with_what_one_is(focus: Any) -> None:
    with pytest.raises(ArgumentError, match=r"focus .* is not a point \(x, y\) in pixels of the picture, such as"):
        crop_around(Integral(blobs((300, 600), (60, 60, 30, 1))), "1:1", focus)


def test_a_focus_outside_the_picture_is_refused() -> None:
    with pytest.raises(ArgumentError, match="600x300"):
        crop_around(Integral(blobs((300, 600), (60, 60, 30, 1))), "1:1", (601, 20))


def test_an_even_map_gives_the_middle_and_gains_nothing() -> None:
    crop = best(np.full((300, 600), 1 / 180_000, np.float32), "1:1")
    assert crop.box == (150, 0, 450, 300)
    assert crop.gain == pytest.approx(0, abs=1e-6)


def test_two_equal_subjects_far_apart_give_half_the_mass_and_both_as_candidates() -> None:
    density = blobs((100, 1000), (100, 50, 15, 1), (900, 50, 15, 1))
    first, second = find_crops(Integral(density), "1:1", n=2)
    assert first.mass == pytest.approx(0.5, abs=0.02)
    assert first.gain == pytest.approx(first.mass, abs=0.01)
    assert {first.box[0] > 500, second.box[0] > 500} == {True, False}


def test_the_whole_picture_keeps_everything_and_gains_nothing() -> None:
    crop = best(blobs((90, 160), (20, 20, 10, 1)), "16:9")
    assert crop.box == (0, 0, 160, 90)
    assert crop.mass == pytest.approx(1)
    assert crop.gain == 0
    assert crop.object_position == (50, 50)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 90), st.integers(1, 90), st.floats(0.1, 10), st.integers(1, 6), st.integers(0, 99))
def test_windows_are_inside_distinct_and_of_the_ratio(height: int, width: int, ratio: float, n: int, seed: int) -> None:
    density = np.random.default_rng(seed).random((height, width), dtype=np.float32) ** 4
    density /= density.sum()
    crops = find_crops(Integral(density), ratio, n)
    assert 1 <= len(crops) <= n
    for index, crop in enumerate(crops):
        left, top, right, bottom = crop.box
        assert 0 <= left < right <= width
        assert 0 <= top < bottom <= height
        if min(right - left, bottom - top) > 1:  # a window has at least one pixel, whatever the ratio
            assert right - left == pytest.approx(ratio * (bottom - top), abs=0.5 + 0.5 * ratio)
        assert crop.mass == pytest.approx(float(density[top:bottom, left:right].sum()), abs=1e-5)
        assert crop.mass - 1 <= crop.gain <= crop.mass
        assert left <= crop.focal_point[0] <= right
        assert top <= crop.focal_point[1] <= bottom
        assert all(overlap(crop.box, other.box) <= MOST_OVERLAP for other in crops[:index])
    assert crops[0].scale == 1


def test_integral_masses_are_sums() -> None:
    density = np.random.default_rng(0).random((70, 50), dtype=np.float32)
    integral = Integral(density)
    found = integral.mass([3, 10], [40, 70], [0, 7], [50, 9])
    expected = [[density[t:b, x0:x1].sum() for x0, x1 in ((0, 50), (7, 9))] for t, b in ((3, 40), (10, 70))]
    assert found == pytest.approx(np.array(expected), rel=1e-5)


@pytest.mark.parametrize(("text", "value"), [("16:9", 16 / 9), ("4/3", 4 / 3), ("1.5", 1.5), (2, 2), ((9, 16), 9 / 16)])
def test_ratios_are_read(text: object, value: float) -> None:
    assert parse_ratio(text) == pytest.approx(value)  # type: ignore[arg-type]


@pytest.mark.parametrize("ratio", ["", "0:1", "1:0", "a:b", "-1", "1:2:3", "1e999", 0, -2, float("nan"), "1..2"])
def test_other_ratios_are_refused(ratio: object) -> None:
    with pytest.raises(ArgumentError, match="16:9"):
        parse_ratio(ratio)  # type: ignore[arg-type]


def test_silly_counts_and_scales_are_refused() -> None:
    density = np.full((4, 4), 1 / 16, np.float32)
    for n in (0, 65):
        with pytest.raises(ArgumentError, match="between 1"):
            find_crops(Integral(density), 1, n)
    for scales in ((), (0,), (1.5,)):
        with pytest.raises(ArgumentError, match="scales"):
            find_crops(Integral(density), 1, 1, scales)
