"""Areas of interest: what a box draws, and every way to say which box."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fastgaze.core.errors import ArgumentError
from fastgaze.core.jsonable import Document
from fastgaze.runtime.gazemap import GazeMap
from fastgaze.runtime.regions import boxes_in, parse_region, parse_regions, read_regions

# Quarters of a picture of 400x200 with 40, 30, 20 and 10% of the attention.
QUARTERS = np.kron([[0.4, 0.3], [0.2, 0.1]], np.ones((100, 200)) / 20_000)
GAZE = GazeMap.from_log_density(np.log(QUARTERS), np.full((200, 400, 3), 90, np.uint8))


def test_share_lift_rank_and_chance_follow_from_the_density() -> None:
    logo, cta, all_of_it = GAZE.regions(
        {"logo": (200, 100, 400, 200), "cta": (0, 0, 200, 100), "page": (-50, 0, 9000, 200)}, fixations=3
    )
    assert (logo.name, logo.box, logo.rank) == ("logo", (200, 100, 400, 200), 3)
    assert logo.share == pytest.approx(0.1, abs=1e-3)
    assert logo.lift == pytest.approx(0.4, abs=4e-3)
    assert logo.seen == pytest.approx(1 - 0.9**3, abs=3e-3)
    assert cta.share == pytest.approx(0.4, abs=1e-3)
    assert cta.lift == pytest.approx(1.6, abs=4e-3)
    assert cta.rank == 2
    assert all_of_it.box == (0, 0, 400, 200)
    assert (all_of_it.share, all_of_it.lift) == pytest.approx((1, 1))
    assert all_of_it.rank == 1
    assert all_of_it.seen == pytest.approx(1)


def test_regions_that_share_a_picture_out_draw_all_of_it() -> None:
    rows = GAZE.regions({str(top): (0, top, 400, top + 25) for top in range(0, 200, 25)})
    assert sum(region.share for region in rows) == pytest.approx(1)
    assert sorted(region.rank for region in rows) == list(range(1, 9))


def test_the_summary_carries_them_in_one_shape() -> None:
    facts: Document = GAZE.to_json(regions={"cta": (0, 0, 200, 100)}, fixations=1)
    (region,) = facts["regions"]
    assert list(region) == ["name", "box", "share", "lift", "rank", "seen"]
    assert region["box"] == {"left": 0, "top": 0, "width": 200, "height": 100}
    assert region["seen"] == region["share"]
    assert GAZE.to_json()["regions"] == []
    json.dumps(facts)


def test_what_holds_no_pixel_is_refused_by_name() -> None:
    for box in ((500, 0, 600, 10), (5, 5, 5, 9), (0, 0, 1), (0, 0, float("nan"), 3)):
        with pytest.raises(ArgumentError, match="region 'cta': box"):
            GAZE.regions({"cta": box})
    with pytest.raises(ArgumentError, match="fixations=0 is not between 1 and 1000"):
        GAZE.regions({}, fixations=0)


@pytest.mark.parametrize("boxes", [[(0, 0, 200, 100)], (0, 0, 200, 100), "logo=0,0,200,100", 7])
def test_boxes_without_names_are_answered_with_what_regions_are(boxes: Any) -> None:
    with pytest.raises(ArgumentError, match=rf"not a {type(boxes).__name__}; give a mapping, such as {{'logo'"):
        GAZE.regions(boxes)


@pytest.mark.parametrize("box", [7, None, "1234", ("1", "2", "30", "40"), {"left": 0, "top": 0}, ((0, 0), (9, 9))])
def test_what_is_no_box_at_all_is_refused_like_a_wrong_one(box: Any) -> None:
    with pytest.raises(ArgumentError, match=r"region 'cta': box .* is not \(left, top, right, bottom\) in pixels"):
        GAZE.regions({"cta": box})
    with pytest.raises(ArgumentError, match=r"box .* is not"):
        GAZE.mass(box)


def test_a_box_may_be_an_array() -> None:
    box: Any = np.array([0, 0, 200, 100])
    assert GAZE.mass(box) == pytest.approx(0.4, abs=1e-3)


def test_a_region_in_words_is_in_pixels_or_percent_of_the_picture() -> None:
    assert parse_region("cta=10,20,30.5,40").box((200, 400)) == (10, 20, 40.5, 60)
    assert parse_region("big logo = 0, 50%, 25%, 10").box((200, 400)) == (0, 100, 100, 110)
    assert parse_region("a=b=1,2,3,4").name == "a=b"
    assert parse_region("x@2=-1,2,3,4").picture == 2


@pytest.mark.parametrize(
    "text",
    ["", "cta", "cta=1,2,3", "cta=1,2,3,4,5", "=1,2,3,4", "cta=1,2,0,4", "cta=1,2,3,-4", "cta=1;2;3;4", "c=1,2,3,nan",
     "c=1e9,2,3,4", "\x1b[31m=1,2,3,4", "n" * 61 + "=1,2,3,4", "a=1" + " " * 100_000 + "x"],
)  # fmt: skip
def test_words_that_are_no_region_are_refused_in_one_line(text: str) -> None:
    with pytest.raises(ArgumentError, match="region") as caught:
        parse_region(text)
    assert "\n" not in str(caught.value)
    assert "\x1b" not in str(caught.value)


def test_a_region_has_one_box_in_a_picture() -> None:
    with pytest.raises(ArgumentError, match="region 'a' is given twice"):
        parse_regions(["a=1,2,3,4", "a=5,6,7,8"])
    with pytest.raises(ArgumentError, match="65 regions are given; at most 64"):
        parse_regions([f"r{i}=1,2,3,4" for i in range(65)])
    regions = parse_regions(["cta=0,0,10,10", "cta@2=5,5,10,10", "logo@3=0,0,1,1"])
    assert boxes_in(regions, (50, 50)) == {"cta": (0, 0, 10, 10)}
    assert boxes_in(regions, (50, 50), picture=2) == {"cta": (5, 5, 15, 15)}
    assert boxes_in(regions, (50, 50), picture=3) == {"cta": (0, 0, 10, 10), "logo": (0, 0, 1, 1)}


@pytest.mark.parametrize(
    "content",
    [
        {"cta": [10, 20, 30, 40]},
        {"cta": {"left": 10, "top": 20, "width": 30, "height": 40}},
        [{"name": "cta", "left": 10, "top": 20, "width": 30, "height": 40}],
        [{"name": "cta", "box": {"x": 10, "y": 20, "width": 30, "height": 40}}],
        [{"name": "cta", "box": [10, 20, 30, 40]}],
    ],
)
def test_a_json_file_may_have_the_shapes_that_people_write(content: object, tmp_path: Path) -> None:
    path = tmp_path / "boxes.json"
    path.write_text(json.dumps(content))
    (region,) = parse_regions([str(path)])
    assert (region.name, region.box((200, 400))) == ("cta", (10, 20, 40, 60))


def box(x: float, y: float, width: float, height: float) -> dict[str, float]:
    return {"x": x, "y": y, "width": width, "height": height}


LAYERS = {
    "document": {
        "name": "Document",
        "children": [
            {
                "name": "Page 1",
                "children": [
                    {
                        "name": "Landing",
                        "absoluteBoundingBox": box(-1000, 500, 200, 100),
                        "children": [
                            {"name": "Rectangle 12", "absoluteBoundingBox": box(-1000, 500, 200, 20)},
                            {"name": "Hidden", "visible": False, "absoluteBoundingBox": box(-1000, 500, 9, 9)},
                            {
                                "name": "Group 3",
                                "absoluteBoundingBox": box(-950, 550, 100, 40),
                                "children": [{"name": "CTA", "absoluteBoundingBox": box(-950, 550, 50, 20)}],
                            },
                            {"name": "Card", "absoluteBoundingBox": box(-820, 500, 90, 30)},
                            {"name": "Card", "absoluteBoundingBox": box(-1000, 580, 20, 20)},
                            {"name": "Elsewhere", "absoluteBoundingBox": box(5000, 500, 10, 10)},
                        ],
                    }
                ],
            }
        ],
    }
}


def test_layers_of_a_design_become_regions_whatever_the_size_of_the_export(tmp_path: Path) -> None:
    path = tmp_path / "figma.json"
    path.write_text(json.dumps(LAYERS))
    boxes = boxes_in(read_regions(path), (200, 400))  # exported at twice the size
    assert list(boxes) == ["CTA", "Card", "Card 2"]
    assert boxes["CTA"] == pytest.approx((100, 100, 200, 140))
    assert boxes["Card"] == pytest.approx((360, 0, 400, 60))  # cut at the frame
    assert boxes["Card 2"] == pytest.approx((0, 160, 40, 200))


@pytest.mark.parametrize(
    "content",
    ["", "[", "3", "[]", "{}", '{"cta": 3}', '{"cta": [1, 2, 3]}', '{"cta": [1, 2, 3, "4"]}', "[[1, 2, 3, 4]]",
     '{"cta": [1, 2, 3, true]}', '{"cta": [1, 2, 0, 4]}', '{"cta": [1, 2, 3, NaN]}', "[" * 100_000,
     '{"name": "x", "absoluteBoundingBox": {"x": 0, "y": 0, "width": 9, "height": 9}, "children": []}'],
)  # fmt: skip
def test_files_without_regions_are_refused_in_one_line(content: str, tmp_path: Path) -> None:
    path = tmp_path / "odd.json"
    path.write_text(content)
    with pytest.raises(ArgumentError) as caught:
        parse_regions([str(path)])
    assert "\n" not in str(caught.value)


def test_an_overlay_outlines_regions_and_names_them() -> None:
    found = GAZE.regions({"cta": (100, 80, 300, 160), "logo": (0, 0, 30, 10), "pixel": (399, 199, 400, 200)})
    plain, outlined = (np.asarray(GAZE.overlay(style="gray", regions=regions)).astype(int) for regions in ((), found))
    changed = (plain != outlined).any(axis=2)
    assert changed[80, 110:290].all()
    assert changed[90:150, 100].all()
    assert not changed[100:150, 110:290].any()
    assert changed[60:80, 100:180].mean() > 0.2  # the label above the box
