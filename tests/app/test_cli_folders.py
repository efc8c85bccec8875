"""``fastgaze predict`` on large folders: results never fill a whole tree that somebody named by accident."""

import os
from pathlib import Path

import pytest
from PIL import Image

from fastgaze.app.cli.pictures import MOST_BESIDE, find_jobs
from fastgaze.core.errors import ArgumentError
from tests.commands import run


@pytest.fixture(scope="module")
def crowd(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tree of as many pictures as may be predicted without --out, all of them one file on the disk."""
    root = tmp_path_factory.mktemp("crowd")
    for folder in ("a", "b/c"):
        (root / folder).mkdir(parents=True)
    Image.new("RGB", (64, 48), "white").save(root / "a" / "0.png")
    for number in range(1, MOST_BESIDE):
        os.link(root / "a" / "0.png", root / ("a" if number % 2 else "b/c") / f"{number}.png")
    return root


@pytest.fixture
def one_more(tmp_path: Path) -> Path:
    path = tmp_path / "more" / "one.png"
    path.parent.mkdir()
    Image.new("RGB", (64, 48), "white").save(path)
    return path


@pytest.mark.parametrize("extra", [[], ["--json"], ["--format", "npy"]])
def test_results_are_not_written_beside_every_picture_of_a_large_tree(
    extra: list[str], crowd: Path, one_more: Path, bright_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(crowd.rglob("*"))
    assert run("predict", crowd, one_more.parent, "--model", bright_file, *extra) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.splitlines()
    assert "1,001 pictures" in line
    assert "--out FOLDER" in line
    assert "fewer" in line
    assert sorted(crowd.rglob("*")) == before
    assert list(one_more.parent.iterdir()) == [one_more]


def test_a_glob_that_matches_folders_does_not_get_around_it(crowd: Path, one_more: Path) -> None:
    with pytest.raises(ArgumentError, match="1,001 pictures"):
        find_jobs([str(crowd / "*"), str(one_more.parent.parent / "m*")], None, beside=True)


def test_pictures_that_are_named_themselves_are_the_users_own_list(crowd: Path, one_more: Path) -> None:
    assert len(find_jobs([str(crowd), str(one_more)], None, beside=True)) == MOST_BESIDE + 1
    globbed = [str(crowd / "**" / "*.png"), str(one_more.with_name("*.png"))]
    assert len(find_jobs(globbed, None, beside=True)) == MOST_BESIDE + 1


def test_a_picture_in_two_of_the_folders_counts_once(crowd: Path) -> None:
    assert len(find_jobs([str(crowd), str(crowd / "a")], None, beside=True)) == MOST_BESIDE


def test_any_number_of_pictures_may_have_their_results_in_a_folder_of_their_own(
    crowd: Path, one_more: Path, tmp_path: Path
) -> None:
    folders = [str(crowd), str(one_more.parent)]
    assert len(find_jobs(folders, tmp_path / "out", beside=True)) == MOST_BESIDE + 1
    assert len(find_jobs(folders, None)) == MOST_BESIDE + 1  # `crop` without --out lists windows and writes nothing
