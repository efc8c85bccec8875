"""The verbs video, roi and batch: results on stdout, one line and exit code 2 for a user's error."""

import json
import os
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image

from fastgaze.app.cli import main


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("cli") / "clip.mkv"
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=10, options={"preset": "ultrafast", "threads": "1"})
        stream.height, stream.width, stream.pix_fmt = 96, 128, "yuv420p"
        for index in range(5):
            picture = np.full((96, 128, 3), 30, np.uint8)
            picture[32:64, 16:48] = 255
            frame = av.VideoFrame.from_ndarray(picture, format="rgb24")
            frame.pts, frame.time_base = index, Fraction(1, 10)
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return path


def _run(*arguments: object) -> int:
    with pytest.raises(SystemExit) as exit:
        main([str(argument) for argument in arguments])
    return int(exit.value.code or 0)


def test_video_reports_frames_and_speed(
    clip: Path, bright_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _run("video", clip, tmp_path / "out.mp4", "--model", bright_file, "--json") == 0
    report = json.loads(capsys.readouterr().out)
    assert report["frames"] == 5
    assert report["fps"] > 0
    with av.open(str(tmp_path / "out.mp4")) as container:
        assert sum(1 for _ in container.decode(video=0)) == 5


def test_roi_goes_to_stdout_or_a_file(
    clip: Path, bright_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    common = ("roi", clip, "--model", bright_file, "--block", 32, "--range", "-6:4")
    assert _run(*common) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0::2] == ["4 3"] * 5
    first = [int(value) for value in lines[1].split()]
    assert len(first) == 12
    assert min(first) == min(first[4:6])
    assert set(first) <= set(range(-6, 5))
    assert _run(*common, "--out", tmp_path / "roi.bin") == 0
    assert (tmp_path / "roi.bin").stat().st_size == 5 * (8 + 12)
    assert capsys.readouterr().out == f"wrote {tmp_path / 'roi.bin'}\n"
    assert _run(*common, "--format", "ffmpeg", "--out", tmp_path / "roi.ffmpeg") == 0
    assert (tmp_path / "roi.ffmpeg").read_text().startswith("[0:v]split=1[s0];\n[s0]trim=start_frame=0:end_frame=5")


def test_batch_writes_rows_and_says_how_many(
    bright_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "photos").mkdir()
    for index in range(3):
        Image.new("RGB", (64, 48), (index, 0, 0)).save(tmp_path / "photos" / f"{index}.png")
    (tmp_path / "photos" / "bad.png").write_text("")
    rows = tmp_path / "rows"
    arguments = ("batch", tmp_path / "photos", rows, "--model", bright_file, "--workers", 1, "--size", "8x6")
    assert _run(*arguments, "--ratio", "1:1", "--json") == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["images"], report["done"], report["errors"]) == (4, 4, 1)
    table = pq.read_table(rows)
    assert table.num_rows == 4
    assert {len(values) for values in table["log_density"].to_pylist() if values} == {48}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("video", "none.mp4", "out.mp4"), "no video file"),
        (("roi", "none.mp4", "--format", "x265"), "'x265' is not one of"),
        (("roi", "none.mp4", "--range", "8"), "LOW:HIGH"),
        (("batch", "none", "out", "--runner", "spark"), "'spark'"),
    ],
)
def test_a_wrong_argument_is_one_line_and_exit_code_2(
    arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _run(*arguments) == 2
    shown = capsys.readouterr().err
    assert message in shown
    assert shown.count("\n") == 1


# A file system that talks, as Ray and some drivers of object stores do, in the driver and in every worker.
NOISY = """
import fsspec
from fsspec.implementations.local import LocalFileSystem

class Noisy(LocalFileSystem):
    protocol = "noisy"

    @classmethod
    def _strip_protocol(cls, path):
        print("a word from the file system", flush=True)
        return super()._strip_protocol(str(path).removeprefix("noisy://"))

fsspec.register_implementation("noisy", Noisy)
"""


def test_batch_prints_nothing_but_its_result_on_stdout(bright_file: Path, tmp_path: Path) -> None:
    photos = tmp_path / "photos"
    photos.mkdir()
    Image.new("RGB", (64, 48), "white").save(photos / "white.jpg")
    (tmp_path / "sitecustomize.py").write_text(NOISY)
    paths = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [sys.executable, "-m", "fastgaze", "batch", f"noisy://{photos}/*.jpg", str(tmp_path / "rows"), "--json"]
    ended = subprocess.run(
        [*command, "--model", str(bright_file), "--workers", "1"],
        capture_output=True, text=True, check=False, env=os.environ | {"PYTHONPATH": paths},
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout)["errors"] == 0
    assert "a word from the file system" in ended.stderr
