"""``fastgaze crop``: what it says about a window, which formats and sizes it takes."""

from pathlib import Path

import pytest
from PIL import Image

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


@pytest.mark.parametrize(
    ("format", "out", "written"),
    [
        ("jpg", "crops", "crops/spot.1x1.jpg"),
        ("JPG", "square.jpeg", "square.jpeg"),
        ("jpeg", "square.jpg", "square.jpg"),
        ("jpg", "square.jpg", "square.jpg"),
    ],
)
def test_jpg_is_another_name_of_jpeg(format: str, out: str, written: str, bright_file: Path, tmp_path: Path) -> None:
    picture = tmp_path / "spot.png"
    Image.new("RGB", (64, 48), "white").save(picture)
    wanted = ("--ratio", "1:1", "--format", format, "--out", tmp_path / out, "--model", bright_file)
    assert run("crop", picture, *wanted) == 0
    with Image.open(tmp_path / written) as cut:
        assert (cut.format, cut.size) == ("JPEG", (48, 48))


def test_a_format_that_is_none_is_answered_with_those_there_are(
    bright_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    picture = tmp_path / "spot.png"
    Image.new("RGB", (64, 48), "white").save(picture)
    assert run("crop", picture, "--ratio", "1:1", "--format", "bmp", "--out", tmp_path, "--model", bright_file) == 2
    assert "'bmp' is not one of keep, jpeg, png, webp, avif, gif, tiff" in capsys.readouterr().err
