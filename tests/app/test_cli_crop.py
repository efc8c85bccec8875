"""``fastgaze crop``: what it says about a window, which formats and sizes it takes."""

import pytest

from fastgaze.app.demo import EXAMPLES
from tests.commands import run


def crop_lines(capsys: pytest.CaptureFixture[str], *arguments: object) -> list[str]:
    """What ``crop`` prints."""
    assert run("crop", *arguments) == 0
    return capsys.readouterr().out.splitlines()


def test_a_window_that_keeps_less_than_the_middle_for_a_head_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    (line,) = crop_lines(capsys, EXAMPLES / "astronaut.jpg", "--ratio", "16:9", "-n", 1)
    assert "points less than the middle, to leave a head whole)" in line
    assert "% of the attention" in line
    for other in ("coffee.jpg", "rocket.jpg"):
        assert "head" not in " ".join(crop_lines(capsys, EXAMPLES / other, "--ratio", "16:9"))


def test_a_window_around_a_point_keeps_what_it_keeps_and_names_no_head(capsys: pytest.CaptureFixture[str]) -> None:
    picture = EXAMPLES / "astronaut.jpg"
    (line,) = crop_lines(capsys, picture, "--ratio", "16:9", "--focus", "256,10")
    assert "points less than the middle)" in line


def test_alternatives_are_not_measured_by_the_middle_where_the_best_window_may_lie(
    capsys: pytest.CaptureFixture[str],
) -> None:
    best, *others = crop_lines(capsys, EXAMPLES / "coffee.jpg", "--ratio", "16:9")
    assert "the middle" in best
    assert len(others) == 2
    assert not any("the middle" in line for line in others)
