"""Sizes are (height, width) in code, WIDTHxHEIGHT for people and objects in JSON."""

import pytest

from fastgaze.core.errors import ArgumentError
from fastgaze.core.sizes import box_to_json, format_size, parse_size, point_to_json, shrunk, size_to_json


def test_people_write_the_width_first() -> None:
    assert parse_size("640x480") == (480, 640)
    assert parse_size(" 16X9 ") == (9, 16)
    assert format_size((480, 640)) == "640x480"
    assert parse_size(format_size((7, 5))) == (7, 5)
    assert size_to_json((480, 640)) == {"width": 640, "height": 480}


def test_boxes_and_points_have_names_in_json() -> None:
    assert box_to_json((10, 20, 110, 70)) == {"left": 10, "top": 20, "width": 100, "height": 50}
    assert point_to_json((1.234, 5)) == {"x": 1.23, "y": 5}


@pytest.mark.parametrize("text", ["", "640", "640x", "x480", "0x5", "5x0", "-1x5", "640x480x3", "4.5x3"])
def test_what_is_not_a_size_is_refused(text: str) -> None:
    with pytest.raises(ArgumentError, match="is not WIDTHxHEIGHT"):
        parse_size(text)


def test_a_size_shrinks_to_a_longest_side_and_keeps_its_shape() -> None:
    assert shrunk((3000, 4000), 256) == (192, 256)
    assert shrunk((30, 40), 256) == (30, 40)
    assert shrunk((1, 60_000), 100) == (1, 100)
