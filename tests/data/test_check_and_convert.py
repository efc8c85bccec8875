"""``data check`` finds every defect; ``data convert`` keeps what it converts."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner, Result

from fastgaze.app.cli import app, main
from fastgaze.core.errors import ArgumentError, DataError
from fastgaze.data.check import check
from fastgaze.data.convert import convert, file_names
from fastgaze.data.fixations import FixationSet, from_lists, held_out
from fastgaze.data.formats import load


@pytest.fixture
def data(tmp_path: Path) -> FixationSet:
    """Five images of 48x64, with fixations recorded at twice that size."""
    rng = np.random.default_rng(0)
    paths = [tmp_path / "source" / f"p{i}.png" for i in range(5)]
    paths[0].parent.mkdir()
    for path in paths:
        Image.fromarray(rng.integers(0, 255, (48, 64, 3), dtype=np.uint8)).save(path)
    points = [rng.uniform((0, 0), (128, 96), (6, 2)) for _ in paths]
    return from_lists([p.stem for p in paths], paths, [(96, 128)] * 5, points, [[0, 0, 1, 1, 2, 2]] * 5)


def test_a_sound_set_has_no_defects(tmp_path: Path, data: FixationSet) -> None:
    convert(data, "npz", tmp_path / "set")
    report = check("auto", tmp_path / "set")
    assert (report.format, report.images, report.fixations, report.observers) == ("npz", 5, 30, 3)
    assert report.sizes == {"128x96": 5}
    assert report.fixations_per_image == {"least": 6, "mean": 6, "most": 6}
    assert report.defects == []
    assert np.shape(report.center_bias) == (12, 16)
    assert np.sum(report.center_bias) == pytest.approx(1, abs=1e-3)


def test_every_defect_is_listed(tmp_path: Path, data: FixationSet) -> None:
    x = data.x.copy()
    x[data.points(1)][2:] = 1000
    convert(replace(data, x=x), "npz", tmp_path / "set")
    images = tmp_path / "set" / "images"
    (images / "p0.png").unlink()
    (images / "p2.png").write_bytes(b"damaged")
    Image.new("RGB", (64, 64)).save(images / "p3.png")
    (images / "p4.png").write_bytes((images / "p1.png").read_bytes())
    for pixels in (True, False):
        found = {(d["kind"], d["where"]) for d in check("npz", tmp_path / "set", pixels=pixels).defects}
        assert found == {
            ("point outside", "p1"),
            ("missing image", "p0"),
            ("unreadable image", "p2"),
            ("other shape", "p3"),
            ("duplicate image", "p4"),
        }


def test_a_truncated_image_is_found_by_decoding_it(tmp_path: Path, data: FixationSet) -> None:
    convert(data, "npz", tmp_path / "set")
    path = tmp_path / "set" / "images" / "p0.png"
    path.write_bytes(path.read_bytes()[:2000])
    assert [d["where"] for d in check("npz", tmp_path / "set").defects] == ["p0"]


def test_lines_and_names_that_cannot_be_used_are_defects(tmp_path: Path, data: FixationSet) -> None:
    convert(data, "folder", tmp_path / "set")
    with open(tmp_path / "set" / "fixations.csv", "a") as file:
        file.write("p0.png,left,1,0\nnowhere.png,1,1,0\n")
    report = check("auto", tmp_path / "set")
    assert report.fixations == 30
    assert [d["kind"] for d in report.defects] == ["unreadable file"] * 2
    twice = replace(data, names=("p0", "p0", *data.names[2:]))
    convert(twice, "npz", tmp_path / "twice")
    assert load("npz", tmp_path / "twice").names[:2] == ("p0", "p0-2")


@pytest.mark.parametrize("target", ["npz", "folder", "hdf5"])
def test_converted_sets_have_the_same_fixations_and_images(tmp_path: Path, data: FixationSet, target: str) -> None:
    convert(data, target, tmp_path / "set")
    again = load("auto", tmp_path / "set")
    assert again.names == data.names
    for i in range(5):
        np.testing.assert_allclose(again.fixations(i, (48, 64)), data.fixations(i, (48, 64)), atol=1e-3)
        np.testing.assert_array_equal(again.observers(i), data.observers(i))
        np.testing.assert_array_equal(again.image(i), data.image(i))


def test_fixations_on_a_turned_photograph_keep_their_places(tmp_path: Path) -> None:
    turned = Image.Exif()
    turned[0x0112] = 6  # stored 48x64, to be shown 64x48
    Image.new("RGB", (64, 48)).save(tmp_path / "photo.jpg", exif=turned)
    data = from_lists(["photo"], [tmp_path / "photo.jpg"], [(64, 48)], [[(40, 60)]])
    convert(data, "folder", tmp_path / "set")
    np.testing.assert_allclose(load("folder", tmp_path / "set").fixations(0), [(40, 60)])


def test_images_can_be_scaled_down_on_the_way(tmp_path: Path, data: FixationSet) -> None:
    convert(data, "npz", tmp_path / "set", longest=32)
    again = load("npz", tmp_path / "set")
    assert again.image(0).shape == (24, 32, 3)
    np.testing.assert_array_equal(again.fixations(0), data.fixations(0))


def test_nothing_is_overwritten_and_only_known_forms_are_written(tmp_path: Path, data: FixationSet) -> None:
    with pytest.raises(DataError, match="not empty"):
        convert(data, "npz", tmp_path / "source")
    with pytest.raises(DataError, match="is a file; give a new folder"):
        convert(data, "npz", data.paths[0])
    with pytest.raises(ArgumentError, match="cannot write 'mat'; choose from npz, folder, hdf5"):
        convert(data, "mat", tmp_path / "new")


def test_names_with_slashes_become_names_of_files(data: FixationSet) -> None:
    assert file_names(replace(data, names=("a/b", "a-b", "c", "a-b-2", "d"))) == ["a-b", "a-b-2", "c", "a-b-2-2", "d"]


def test_conversion_holds_out_the_same_images(tmp_path: Path, data: FixationSet) -> None:
    names = [f"{folder}{i}" for i in range(20) for folder in ("indoor/", "outdoor\\")]
    many = from_lists(names, [data.paths[0]] * len(names), [(96, 128)] * len(names), [[(1, 1)]] * len(names))
    convert(many, "npz", tmp_path / "set")
    plain = load("npz", tmp_path / "set")
    assert 0 < held_out(names, 0.3).sum() < len(names)
    assert held_out(plain.names, 0.3).tolist() == held_out(names, 0.3).tolist()


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(a) for a in arguments])


def test_the_command_prints_json_and_says_by_its_exit_code_whether_there_are_defects(
    tmp_path: Path, data: FixationSet
) -> None:
    convert(data, "npz", tmp_path / "set")
    result = run("data", "check", "auto", tmp_path / "set", "--json")
    assert result.exit_code == 0
    assert json.loads(result.stdout)["images"] == 5
    (tmp_path / "set" / "images" / "p0.png").unlink()
    result = run("data", "check", "npz", tmp_path / "set")
    assert result.exit_code == 1
    assert "missing image: p0" in result.stdout
    assert "centre bias" in result.stdout


def test_the_command_converts(tmp_path: Path, data: FixationSet) -> None:
    convert(data, "npz", tmp_path / "set")
    result = run("data", "convert", "auto", tmp_path / "set", "--format", "folder", "--out", tmp_path / "plain")
    assert result.exit_code == 0
    assert len(load("folder", tmp_path / "plain").x) == 30
    assert "salicon" in run("data", "layouts").stdout


def test_a_users_error_is_one_line_and_exit_code_two(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit:
        main(["data", "check", "auto", str(tmp_path / "nowhere")])
    assert exit.value.code == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "no data at" in error
