"""Pictures beside each other: one scale, what moved, what regions gained."""

import io
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import fastgaze
from experiments import design_demo
from fastgaze.core.errors import ArgumentError
from fastgaze.core.jsonable import Document
from fastgaze.runtime.compare import Comparison, names_of
from fastgaze.runtime.gazemap import GazeMap

DESIGN = (Path(__file__).parents[2] / "docs" / "design.md").read_text()
LEFT, RIGHT = (0, 0, 60, 80), (60, 0, 120, 80)


def gaze_at(x: float, size: tuple[int, int] = (80, 120), sigma: float = 8) -> GazeMap:
    """A map of one place in the row in the middle; x from 0 to 1."""
    rows, columns = np.mgrid[0 : size[0], 0 : size[1]] + 0.5
    distance = (columns - x * size[1]) ** 2 + (rows - size[0] / 2) ** 2
    density = np.exp(-distance / (2 * sigma**2)) + 1e-6
    return GazeMap.from_log_density(np.log(density), np.full((*size, 3), 200, np.uint8))


def comparison(*places: float) -> Comparison:
    boxes = [{"left": LEFT, "right": RIGHT}] * len(places)
    return Comparison([gaze_at(x) for x in places], [str(x) for x in places], boxes)


def test_a_comparison_shows_itself_in_a_notebook() -> None:
    found = comparison(0.25, 0.75)
    assert repr(found) == "<Comparison of 0.25, 0.75>"
    with Image.open(io.BytesIO(found._repr_png_())) as shown:
        assert shown.size == found.image().size


def test_what_one_region_loses_another_gains() -> None:
    left, right = comparison(0.25, 0.75).changes()
    assert left.found[0] is not None
    assert left.found[0].share == pytest.approx(1, abs=0.02)
    assert left.changes[0] == right.changes[0] == 0
    assert left.changes[1:] == pytest.approx((-1,), abs=0.03)
    assert right.changes[1:] == pytest.approx((1,), abs=0.03)


def test_overlap_is_the_attention_at_the_same_places() -> None:
    found = comparison(0.25, 0.25, 0.75)
    assert found.overlap(0) == pytest.approx(1, abs=1e-4)
    assert found.overlap(1) == pytest.approx(1, abs=1e-4)
    assert found.overlap(2) < 0.05


def test_a_region_may_be_missing_or_elsewhere_in_a_picture() -> None:
    gazes = [gaze_at(0.25), gaze_at(0.75)]
    found = Comparison(gazes, ["a", "b"], [{"cta": LEFT, "old": RIGHT}, {"cta": RIGHT, "new": LEFT}])
    cta, old, new = found.changes()
    assert cta.changes[1] == pytest.approx(0, abs=0.01)
    assert old.found[1] is None
    assert new.changes == (None, None)
    document: Document = old.to_json()
    assert document["shares"][1] is None


def test_the_difference_is_orange_where_more_is_drawn_and_blue_where_less_is() -> None:
    found = Comparison([gaze_at(0.25), gaze_at(0.75)], ["a", "b"], [{}, {}])
    shown = np.asarray(found.difference(1)).astype(int)
    plain = shown[2, 2]
    assert (np.abs(shown[:6] - plain).max(axis=2) == 0)[:, 10:50].all()  # nobody looks there in either picture
    for x, stronger in ((30, 2), (90, 0)):
        red_or_blue = shown[50, x]
        assert red_or_blue[stronger] > red_or_blue[2 - stronger] + 60


def test_equal_pictures_differ_nowhere() -> None:
    gaze = gaze_at(0.4)
    shown = np.asarray(Comparison([gaze, gaze], ["a", "b"], [{}, {}]).difference(1))
    assert (shown == shown[0, 0]).all()


def test_pictures_share_one_scale_whatever_their_size() -> None:
    strong, weak = gaze_at(0.5, sigma=4), gaze_at(0.5, (240, 360), sigma=36)
    found = Comparison([weak, strong], ["weak", "strong"], [{}, {}])
    assert found.scale.top == pytest.approx(120 * 80 / (2 * np.pi * 16), rel=0.05)
    drawn = [np.asarray(gaze.overlay(style="gray", scale=found.scale)).max() for gaze in found.gazes]
    assert drawn[0] < 120
    assert drawn[1] > 245
    sheet = found.image()
    assert sheet.width == 2 * 360 + 3 * 7


def test_a_sheet_of_very_tall_pictures_stays_small() -> None:
    tall = GazeMap.from_log_density(np.zeros((4000, 2)), np.zeros((4000, 2, 3), np.uint8))
    assert Comparison([tall, gaze_at(0.5)], ["a", "b"], [{}, {}]).image().height < 1000


@pytest.mark.parametrize("width", [300, 400, 800])
def test_captions_end_inside_the_sheet(width: int) -> None:
    white = np.full((width // 2, width, 3), 255, np.uint8)
    gazes = [GazeMap.from_log_density(gaze_at(x, white.shape[:2]).log_density, white) for x in (0.2, 0.5)]
    sheet = Comparison(gazes, ["landing-page-a.png", "landing-page-b.png"], [{}, {}]).image(column=width)
    shown = np.asarray(sheet)
    for margin in (shown[:, :4], shown[:, -4:], shown[-4:]):  # nothing touches the border
        assert (margin == 255).all()


def test_names_are_those_of_files_and_each_is_its_own() -> None:
    assert names_of(["x/a.png", Path("y/b.png")]) == ["a.png", "b.png"]
    assert names_of(["x/a.png", "y/a.png", b"..."]) == ["a.png (1)", "a.png (2)", "picture 3"]


def test_what_cannot_be_compared_is_refused() -> None:
    gaze = gaze_at(0.5)
    for n in (0, 1, 9):
        with pytest.raises(ArgumentError, match=f"give 2 to 8 pictures to compare, not {n}"):
            Comparison([gaze] * n, ["x"] * n, [{}] * n)
    page = np.zeros((40, 60, 3), np.uint8)
    with pytest.raises(ArgumentError, match="regions has 1 mappings for 2 pictures"):
        fastgaze.compare(page, page, regions=[{}])


def _percents(text: str) -> list[float]:
    """Of the table's first two columns."""
    rows = re.findall(r"^\| \w+ \| ([\d.]+)% \| ([\d.]+)% \|", text, re.MULTILINE)
    assert len(rows) == 3
    return [float(share) for row in rows for share in row]


def test_the_call_to_action_of_the_demo_draws_far_more_in_one_design(tmp_path: Path) -> None:
    found = design_demo.make(tmp_path)
    assert _percents(design_demo.shown(found)) == pytest.approx(_percents(DESIGN), abs=0.3), "the guide's table"
    cta = next(change for change in found.changes() if change.name == "cta")
    a, b = (region.share for region in cta.found if region is not None)
    assert a > 0.02
    assert b < a / 3
    for name in ("design-a.png", "design-b.png", "design-compared.png"):
        with Image.open(tmp_path / name) as image:
            assert image.width >= 1200
