"""Sizes are typed and answered as WIDTHxHEIGHT on the command line, and never as (height, width)."""

from pathlib import Path

import pytest

from fastgaze.app.demo import EXAMPLES
from tests.commands import run

PHOTO = EXAMPLES / "coffee.jpg"


@pytest.mark.parametrize(
    ("arguments", "size", "valid"),
    [
        (["predict", PHOTO, "--out", "out"], "99999x9999", "at most 120 million pixels"),
        (["predict", PHOTO, "--out", "out"], "90000x10", "sides up to 65535"),
        (["crop", PHOTO], "99999x99999", "at most 120 million pixels"),
        (["crop", PHOTO, "--out", "out"], "20000x10000", "at most 120 million pixels"),
        (["crop", PHOTO, "--out", "out"], "1000x2", "between 1:100 and 100:1"),
        (["batch", PHOTO, "out"], "3000x1000", "at most 1 million pixels"),
        (["reframe", "clip.mp4", "out.mp4"], "607x1080", "even ones, such as 606x1080"),
        (["reframe", "clip.mp4", "out.mp4"], "99998x9998", "at most 120 million pixels"),
        (["bench", "--no-cold"], "99968x99968", "at most 120 million pixels"),
    ],
)
def test_a_size_that_cannot_be_had_is_answered_as_it_was_typed(
    arguments: list[object],
    size: str,
    valid: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("clip.mp4").write_bytes(b"")
    assert run(*arguments, "--size", size) == 2
    captured = capsys.readouterr()
    (line,) = captured.err.splitlines()
    assert f"--size {size}" in line
    assert valid in line
    assert "height, width" not in line
    assert captured.out == ""
    assert [path.name for path in tmp_path.iterdir()] == ["clip.mp4"]


@pytest.mark.parametrize("text", ["big", "10", "0x5", "5x0", "1.5x2", "-3x4", "9" * 5000 + "x1"])
def test_what_is_no_size_is_answered_with_what_one_is(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("info", "fastgaze", f"--size={text}") == 2
    assert "is not WIDTHxHEIGHT in pixels, such as 640x480" in capsys.readouterr().err
