"""``fastgaze predict`` and ``crop``: what a user types and what comes back."""

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from experiments import hostile_files
from fastgaze.app.cli import pictures
from fastgaze.runtime.crop import Crop
from fastgaze.runtime.gazemap import GazeMap
from tests.commands import fresh, run

EXAMPLES = Path(__file__).parents[2] / "src" / "fastgaze" / "app" / "server" / "examples"


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Two good pictures, one in a folder below, a text file and a damaged picture."""
    folder = tmp_path / "photos"
    (folder / "below").mkdir(parents=True)
    array = np.zeros((60, 80, 3), np.uint8)
    array[20:30, 50:60] = 255
    Image.fromarray(array).save(folder / "a.jpg")
    Image.fromarray(array).save(folder / "below" / "b.png")
    (folder / "notes.txt").write_text("no picture")
    (folder / "broken.jpg").write_bytes((folder / "a.jpg").read_bytes()[:200])
    return folder


def test_a_folder_run_finishes_the_good_ones_and_exits_1_with_a_summary(
    photos: Path, bright_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert run("predict", photos, "--out", out, "--model", bright_file, "--format", "png,npy,json") == 1
    files = sorted(str(path.relative_to(out)) for path in out.rglob("*.*"))
    assert files == ["a.gaze.png", "a.json", "a.npy", "below/b.gaze.png", "below/b.json", "below/b.npy"]
    log_density = np.load(out / "a.npy", allow_pickle=False)
    assert log_density.shape == (60, 80)
    assert np.exp(log_density).sum() == pytest.approx(1, abs=1e-5)
    peak = json.loads((out / "a.json").read_text())["peaks"][0]
    assert (peak["x"], peak["y"]) == pytest.approx((55, 25), abs=6)
    errors = capsys.readouterr().err.splitlines()
    assert errors[-1] == "fastgaze: 1 of 3 pictures failed, 2 done"
    assert "broken.jpg" in errors[-2]


def test_results_lie_beside_the_picture_and_are_not_taken_for_pictures(photos: Path, bright_file: Path) -> None:
    (photos / "broken.jpg").unlink()
    for _ in range(2):
        assert run("predict", photos, "--model", bright_file) == 0
    assert sorted(path.name for path in photos.rglob("*.gaze.png")) == ["a.gaze.png", "b.gaze.png"]


def test_pictures_of_one_name_keep_their_own_results(photos: Path, bright_file: Path) -> None:
    (photos / "broken.jpg").unlink()
    Image.new("RGB", (20, 30)).save(photos / "a.png")
    assert run("predict", photos / "a.jpg", photos / "a.png", "--model", bright_file, "--format", "npy") == 0
    assert np.load(photos / "a.jpg.npy").shape == (60, 80)
    assert np.load(photos / "a.png.npy").shape == (30, 20)


def test_pictures_of_one_file_name_from_two_folders_keep_their_own_results(
    photos: Path, bright_file: Path, tmp_path: Path
) -> None:
    Image.new("RGB", (20, 30)).save(photos / "below" / "a.jpg")
    out = tmp_path / "out"
    pictures = (photos / "a.jpg", photos / "below" / "a.jpg")
    assert run("predict", *pictures, "--model", bright_file, "--format", "npy", "--out", out) == 0
    assert np.load(out / "a.jpg.npy").shape == (60, 80)
    assert np.load(out / "a.jpg-2.npy").shape == (30, 20)


def test_a_picture_that_two_arguments_name_is_done_once(
    photos: Path, bright_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (photos / "broken.jpg").unlink()
    monkeypatch.chdir(photos)
    again = (photos, "below", Path("below", "..", "below", "b.png"), photos / "**" / "*.png")
    assert run("predict", ".", *again, "--model", bright_file) == 0
    results = sorted(str(path.relative_to(photos)) for path in photos.rglob("*.gaze.png"))
    assert results == ["a.gaze.png", "below/b.gaze.png"]
    out = tmp_path / "out"
    assert run("predict", photos / "below", photos, "--model", bright_file, "--out", out) == 0
    assert sorted(path.name for path in out.rglob("*.*")) == ["a.gaze.png", "b.gaze.png"]


@pytest.mark.parametrize("out", ["crops", "below/crops", "linked/crops"])
def test_results_in_a_folder_below_the_pictures_are_not_taken_for_pictures(
    photos: Path, bright_file: Path, monkeypatch: pytest.MonkeyPatch, out: str
) -> None:
    (photos / "broken.jpg").unlink()
    (photos / "linked").symlink_to("below")
    monkeypatch.chdir(photos)
    for _ in range(2):
        assert run("crop", ".", "--ratio", "1:1", "--out", out, "--model", bright_file) == 0
    written = sorted(str(path.relative_to(photos / out)) for path in (photos / out).rglob("*.*"))
    assert written == ["a.1x1.jpg", "below/b.1x1.png"]


def test_json_lists_results_and_errors(photos: Path, bright_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = run("predict", photos / "*.jpg", "--model", bright_file, "--json", "--size", "40x30")
    assert code == 1
    good, bad = json.loads(capsys.readouterr().out)
    assert good["picture_size"] == {"width": 80, "height": 60}
    assert set(good["milliseconds"]) == {"decode", "prepare", "network", "tail", "describe"}
    assert "broken.jpg: cannot read the picture" in bad["error"]


def test_a_picture_goes_through_a_pipe(photos: Path, bright_file: Path) -> None:
    content = (photos / "a.jpg").read_bytes()
    shown = fresh("predict", "-", "--model", bright_file, stdin=content)
    assert Image.open(io.BytesIO(shown.stdout)).size == (80, 60)
    array = fresh("predict", "-", "--model", bright_file, "--format", "npy", stdin=content)
    assert np.load(io.BytesIO(array.stdout)).shape == (60, 80)
    summary = fresh("predict", "-", "--model", bright_file, "--json", stdin=content)
    assert json.loads(summary.stdout)[0]["name"] == "stdin"
    bad = fresh("predict", "-", "--model", bright_file, stdin=b"nothing")
    assert (bad.returncode, bad.stdout) == (1, b"")
    assert bad.stderr.startswith(b"fastgaze: stdin: not a picture in a known format")


def test_the_centre_bias_can_be_chosen(
    photos: Path, bright_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.save(tmp_path / "left.npy", np.where(np.arange(8) < 4, 0.0, -20.0)[None].repeat(6, axis=0))
    assert (
        run("predict", photos / "a.jpg", "--model", bright_file, "--center-bias", tmp_path / "left.npy", "--json") == 0
    )
    assert json.loads(capsys.readouterr().out)[0]["peaks"][0]["x"] < 48
    assert run("predict", photos / "a.jpg", "--model", bright_file, "--center-bias", "none", "--json") == 0
    (tmp_path / "broken.npz").write_bytes(b"PK\3\4 and no more")
    for wrong in ("center", tmp_path / "absent.npy", bright_file, tmp_path / "broken.npz"):
        assert run("predict", photos / "a.jpg", "--model", bright_file, "--center-bias", wrong) == 2


@pytest.mark.parametrize(
    "arguments",
    [
        ["predict", "x.jpg", "--format", "bmp"],
        ["predict", "x.jpg", "--size", "10"],
        ["predict", str(EXAMPLES / "coffee.jpg"), "--size", "99999x99999"],
        ["predict", "x.jpg", "--out", __file__],
        ["predict", "x.jpg", "y.jpg", "--out", "heat.png"],
        ["predict", "x.jpg", "--out", "heat.bmp"],
        ["predict", "x.jpg", "--out", "heat.png", "--format", "npy"],
        ["predict", str(EXAMPLES / "coffee.jpg"), "--out", str(EXAMPLES / "coffee.jpg")],
        ["crop", "x.jpg", "y.jpg", "--ratio", "1:1", "--out", "crop.jpg"],
        ["crop", "x.jpg", "--ratio", "1:1", "--ratio", "4:3", "--out", "crop.jpg"],
        ["crop", "x.jpg", "--ratio", "1:1", "--out", "crop.jpg", "--format", "webp"],
        ["predict", "x.jpg", "--model", "nope"],
        ["predict", "x.jpg", "--engine", "cuda"],
        ["crop", "x.jpg", "--ratio", "wide"],
        ["demo", "--out", __file__],
    ],
)
def test_a_users_error_is_one_line_and_exit_code_2(
    arguments: list[str], bright_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    extra = [] if "--model" in arguments else ["--model", str(bright_file)]
    assert run(*arguments, *extra) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert len(captured.err.strip().splitlines()) == 1


@pytest.mark.parametrize("name", ["heat.png", "heat.JPG", "heat.webp", "map.npy", "facts.json"])
def test_out_may_name_the_one_file_to_write(
    name: str, photos: Path, bright_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "new" / name
    for _ in range(2):  # an earlier result is replaced
        assert run("predict", photos / "a.jpg", "--model", bright_file, "--out", out) == 0
    assert str(out) in capsys.readouterr().out
    assert [path.name for path in out.parent.iterdir()] == [name]
    content = out.read_bytes()
    if name == "map.npy":
        assert np.load(out).shape == (60, 80)
    elif name == "facts.json":
        assert json.loads(content)["picture_size"] == {"width": 80, "height": 60}
    else:
        with Image.open(out) as overlay:
            assert (overlay.format, overlay.size) == ({"png": "PNG", "JPG": "JPEG"}.get(name[5:], "WEBP"), (80, 60))


def test_out_of_crop_may_name_the_one_file_to_write_and_says_its_format(
    photos: Path, bright_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "square.webp"
    assert run("crop", photos / "a.jpg", "--ratio", "1:1", "--model", bright_file, "--out", out, "--json") == 0
    (facts,) = json.loads(capsys.readouterr().out)
    assert (facts["name"], facts["written"][0]["file"]) == (str(photos / "a.jpg"), str(out))
    with Image.open(out) as cut:
        assert (cut.format, cut.size) == ("WEBP", (60, 60))


def test_crop_says_where_it_wrote_its_files(
    photos: Path, bright_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["crop", photos / "a.jpg", "--ratio", "1:1", "--ratio", "4:3", "--model", bright_file]
    assert run(*arguments, "--out", tmp_path / "cut") == 0
    ends = [line.rpartition(" -> ")[2] for line in capsys.readouterr().out.splitlines()]
    assert ends == [str(tmp_path / "cut" / f"a.{mark}.jpg") for mark in ("1x1", "4x3")]
    assert run(*arguments, "-n", 2) == 0
    assert " -> " not in capsys.readouterr().out


def test_a_folder_stays_a_folder_whatever_it_is_called(photos: Path, bright_file: Path, tmp_path: Path) -> None:
    (tmp_path / "old.png").mkdir()
    for out in (tmp_path / "old.png", tmp_path / "version.2"):
        assert run("predict", photos / "a.jpg", "--model", bright_file, "--out", out) == 0
        assert [path.name for path in out.iterdir()] == ["a.gaze.png"]


def test_a_missing_option_is_named_as_it_is_typed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("crop", "x.jpg") == 2
    assert "--ratio 16:9" in capsys.readouterr().err
    assert run("predict", "x.jpg", "--modle", "s") == 2
    assert "--model" in capsys.readouterr().err


def test_a_result_that_cannot_be_written_is_told_by_its_name(
    photos: Path, bright_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (photos / "a.gaze.png").mkdir()
    assert run("predict", photos / "a.jpg", "--model", bright_file) == 1
    assert f"cannot write {photos / 'a.gaze.png'}: Is a directory" in capsys.readouterr().err


@pytest.mark.parametrize(("verb", "advice"), [("predict", "give a smaller --size"), ("crop", "scale the picture down")])
def test_a_map_that_does_not_fit_comes_with_advice_that_the_verb_can_follow(verb: str, advice: str) -> None:
    def work(_: pictures.Job) -> dict[str, Any]:
        raise MemoryError

    results, failures = pictures.run_jobs([pictures.Job("a.jpg", "a.jpg", None)], work, verb)
    assert (results, failures) == ([{"name": "a.jpg", "error": f"a.jpg: not enough memory; {advice}"}], 1)


def test_a_missing_picture_and_an_empty_folder_are_exit_code_1(
    bright_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("predict", "absent.jpg", tmp_path, "--model", bright_file) == 1
    errors = capsys.readouterr().err
    assert "absent.jpg" in errors
    assert "a folder without pictures" in errors


def test_control_characters_of_a_file_name_do_not_reach_the_terminal(
    photos: Path, bright_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = photos / "evil\x1b[2J\n.jpg"
    name.write_bytes(b"")
    assert run("predict", name, "--model", bright_file) == 1
    assert "\x1b" not in capsys.readouterr().err


def test_crops_are_listed_and_written(
    photos: Path, bright_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "crops"
    arguments = ["crop", photos / "a.jpg", "--ratio", "1:1", "--ratio", "16:9", "--model", bright_file, "--out", out]
    assert run(*arguments, "--json", "-n", 2) == 0
    result = json.loads(capsys.readouterr().out)[0]
    square, wide = result["crops"]
    assert (square["ratio"], wide["ratio"]) == ("1:1", "16:9")
    best = square["windows"][0]
    assert (best["box"]["width"], best["box"]["height"]) == (60, 60)
    assert best["box"]["left"] <= 50 <= 60 <= best["box"]["left"] + 60
    assert set(best) == {"box", "mass", "gain", "focal_point", "scale", "object_position"}
    assert len(wide["windows"]) == 2
    assert Image.open(out / "a.1x1.jpg").size == (60, 60)
    assert Image.open(out / "a.16x9.jpg").size == (80, 45)
    assert run(*arguments[:-2]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 6


def test_sizes_are_cut_exactly_with_a_srcset_and_a_position_for_css(
    photos: Path, bright_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["crop", photos / "a.jpg", "--model", bright_file, "--out", tmp_path, "--json"]
    assert run(*arguments, "--size", "40x20", "--size", "20x10", "--format", "webp") == 0
    result = json.loads(capsys.readouterr().out)[0]
    assert result["srcset"] == "a.20x10.webp 20w, a.40x20.webp 40w"
    assert [Image.open(facts["file"]).size for facts in result["written"]] == [(40, 20), (20, 10)]
    assert result["crops"][0]["windows"][0]["object_position"].startswith("50.00% ")


@pytest.mark.parametrize("extra", [[], ["--json"]])
def test_the_windows_of_a_shape_are_found_once(
    photos: Path, bright_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, extra: list[str]
) -> None:
    searches: list[str] = []
    crop = GazeMap.crop

    def noted(self: GazeMap, ratio: str, n: int = 1) -> list[Crop]:
        searches.append(ratio)
        return crop(self, ratio, n)

    monkeypatch.setattr(GazeMap, "crop", noted)
    arguments = ["crop", photos / "a.jpg", "--model", bright_file, "--out", tmp_path, *extra]
    assert run(*arguments, "--ratio", "16:9", "--size", "20x20") == 0
    assert searches == ["16:9", "20:20"]
    assert Image.open(tmp_path / "a.20x20.jpg").size == (20, 20)


def test_a_focus_decides_where_the_window_is(
    photos: Path, bright_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("crop", photos / "a.jpg", "--model", bright_file, "--ratio", "1:1", "--focus", "5,5", "--json") == 0
    (crop,) = json.loads(capsys.readouterr().out)[0]["crops"]
    assert [window["box"] for window in crop["windows"]] == [{"left": 0, "top": 0, "width": 60, "height": 60}]
    assert run("crop", photos / "a.jpg", "--model", bright_file, "--ratio", "1:1", "--focus", "5") == 2
    assert "X,Y" in capsys.readouterr().err
    assert run("crop", photos / "a.jpg", "--model", bright_file) == 2
    assert "--size 1200x630" in capsys.readouterr().err


def test_heic_in_a_folder_is_read_or_named(
    bright_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pillow_heif").register_heif_opener()
    folder = tmp_path / "camera"
    folder.mkdir()
    Image.new("RGB", (64, 48), "white").save(folder / "phone.heic")
    arguments = ["predict", folder, "--model", bright_file]
    assert run(*arguments) == 0
    assert "phone.heic" in capsys.readouterr().out
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    monkeypatch.delitem(Image.OPEN, "HEIF")
    assert run(*arguments) == 1
    assert "phone.heic: a HEIC picture" in capsys.readouterr().err


def test_a_fresh_process_imports_no_torch(photos: Path, bright_file: Path) -> None:
    code = (
        "import sys\nfrom fastgaze.app.cli import main\n"
        f"try:\n    main(['predict', {str(photos / 'a.jpg')!r}, '--model', {str(bright_file)!r}])\n"
        "except SystemExit as end:\n"
        "    print(end.code or 0, {'numpy', 'torch', 'onnx', 'scipy', 'matplotlib'} & set(sys.modules))"
    )
    ended = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert ended.stdout.splitlines()[-1] == "0 {'numpy'}"


@pytest.mark.slow
def test_100_megapixels_fit_into_two_gigabytes(bright_file: Path, tmp_path: Path) -> None:
    Image.init()
    Image.new("L", (10_000, 10_000), 90).save(tmp_path / "grey.jpg")
    Image.new("P", (10_000, 10_000), 3).save(tmp_path / "palette.png")
    report = hostile_files.run_predict(tmp_path, bright_file, megabytes=4000)
    assert report["maps"] == 2
    assert report["peak_rss_mb"] < 2000


def test_a_folder_of_hostile_files_gives_an_error_each_and_no_crash(bright_file: Path, tmp_path: Path) -> None:
    kinds = hostile_files.make_files(tmp_path / "files", 220, seed=1)
    report = hostile_files.run_predict(tmp_path / "files", bright_file, megabytes=3000)
    assert report["crashed"] == 0
    assert report["good_done"] == report["good"] == kinds["good"]
    assert report["answered"] == report["files"]
    assert report["exit_codes"] == [1]


@pytest.mark.parametrize("extra", [["--json"], []])
def test_verbs_end_cleanly_when_the_reader_of_a_pipe_goes_away(
    photos: Path, bright_file: Path, extra: list[str]
) -> None:
    read, write = os.pipe()
    os.close(read)
    pictures = (photos / "a.jpg", photos / "below" / "b.png")
    command = [sys.executable, "-m", "fastgaze", "predict", *map(str, pictures), "--model", str(bright_file), *extra]
    done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, check=False)
    os.close(write)
    assert (done.returncode, done.stderr) == (1, b"")


def test_results_go_to_stdout_while_a_progress_bar_runs_on_the_terminal(photos: Path, bright_file: Path) -> None:
    terminal, other_end = os.openpty()
    command = [sys.executable, "-m", "fastgaze", "predict", str(photos / "a.jpg"), str(photos / "below" / "b.png")]
    done = subprocess.run(
        [*command, "--model", str(bright_file)],
        stdout=subprocess.PIPE,
        stderr=other_end,
        check=True,
        env=os.environ | {"TERM": "xterm"},
    )
    os.close(other_end)
    shown = os.read(terminal, 100_000)
    os.close(terminal)
    assert [line.split(b":")[0][-5:] for line in done.stdout.splitlines()] == [b"a.jpg", b"b.png"]
    assert b"predict" in shown
