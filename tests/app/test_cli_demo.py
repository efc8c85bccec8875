"""``fastgaze models`` and ``demo``: what is there, and the page that shows it."""

import json
from pathlib import Path

import pytest
from PIL import Image

from fastgaze.app.demo import EXAMPLES
from tests.commands import run


def test_models_and_demo_say_what_is_there(
    bright_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("models", "--json") == 0
    listed = json.loads(capsys.readouterr().out)
    assert all({"name", "parameters", "gflop_640x480", "scores"} <= set(model) for model in listed)
    assert not any("gflop" in model for model in listed), "a cost without its size"
    assert run("models") == 0
    assert run("demo", "--out", tmp_path / "demo", "--model", bright_file) == 0
    page = (tmp_path / "demo" / "index.html").read_text()
    for photo in EXAMPLES.glob("*.jpg"):
        assert f'src="{photo.stem}.gaze.jpg"' in page
        assert (tmp_path / "demo" / f"{photo.stem}.gaze.jpg").is_file()
    assert run("demo", "--out", tmp_path / "demo", "--model", bright_file, "--images", tmp_path) == 2


def test_the_demo_table_fits_80_columns(
    bright_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    name = "a photograph whose name is much longer than what is left of a line beside the numbers"
    Image.new("RGB", (4000, 3000), "white").save(tmp_path / f"{name}.jpg")
    assert run("demo", "--out", tmp_path / "demo", "--model", bright_file, "--images", tmp_path) == 0
    head, row, *_ = capsys.readouterr().out.splitlines()
    assert max(len(head), len(row)) <= 80
    assert "16:9 keeps" in head
    assert row.startswith(" a photo")
    assert row.rstrip().endswith("%")


def test_demo_links_to_photographs_of_any_name(
    bright_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Image.new("RGB", (64, 48), "white").save(tmp_path / "50% #1.jpg")
    assert run("demo", "--out", tmp_path / "demo", "--model", bright_file, "--images", tmp_path, "--json") == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["photo"] == "50% #1"
    assert 0 < row["crop"]["mass"] <= 1
    assert 'src="50%25%20%231.gaze.jpg"' in (tmp_path / "demo" / "index.html").read_text()


def test_demo_leaves_photographs_alone_and_takes_no_earlier_result_for_one(
    bright_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    photos, linked, demo = tmp_path / "photos", tmp_path / "linked", tmp_path / "demo"
    photos.mkdir()
    linked.symlink_to(photos)
    Image.new("RGB", (64, 48), "white").save(photos / "a.jpg")
    before = (photos / "a.jpg").read_bytes()
    for out in (photos, linked, tmp_path / "demo" / ".." / "photos"):
        assert run("demo", "--images", photos, "--out", out, "--model", bright_file) == 2
        assert "give another folder" in capsys.readouterr().err
    assert [path.name for path in photos.iterdir()] == ["a.jpg"]
    assert (photos / "a.jpg").read_bytes() == before
    assert run("demo", "--images", photos, "--out", demo, "--model", bright_file) == 0
    capsys.readouterr()
    assert run("demo", "--images", demo, "--out", tmp_path / "again", "--model", bright_file, "--json") == 0
    assert [row["photo"] for row in json.loads(capsys.readouterr().out)] == ["a"]
