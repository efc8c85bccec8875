"""What a user names is printed as it is: brackets, colons and long paths are no markup and are not broken."""

import shlex
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest
from PIL import Image
from rich.progress import ProgressColumn

from fastgaze.app.cli import common
from fastgaze.app.cli.common import note, print_result, progress
from fastgaze.onnx.write import Facts, export_onnx
from tests.commands import run
from tests.small_models import bright_model

ODD = "a[/b] [red] :b: " + "long" * 20
"""A closing tag without its opening one, which rich raises for, a style, an emoji and more than 80 columns."""


@pytest.fixture
def odd(tmp_path: Path) -> Path:
    folder = tmp_path / ODD
    folder.mkdir(parents=True)
    return folder


@pytest.fixture
def clip(odd: Path) -> Path:
    path = odd / "clip.mkv"
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=10, options={"preset": "ultrafast", "threads": "1"})
        stream.height, stream.width, stream.pix_fmt = 32, 48, "yuv420p"
        for index in range(2):
            frame = av.VideoFrame.from_ndarray(np.full((32, 48, 3), 90, np.uint8), format="rgb24")
            frame.pts, frame.time_base = index, Fraction(1, 10)
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return path


def test_video_names_its_output(clip: Path, bright_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = clip.with_name("out.mp4")
    assert run("video", clip, target, "--model", bright_file) == 0
    assert capsys.readouterr().out.splitlines()[0].startswith(f"{target}: 2 frames")


def test_the_command_that_roi_prints_can_be_run_as_it_is(
    clip: Path, bright_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    graph = clip.with_name("roi.ffmpeg")
    assert run("roi", clip, "--format", "ffmpeg", "--out", graph, "--model", bright_file) == 0
    command = shlex.split(capsys.readouterr().err.splitlines()[-1])
    assert command[:7] == ["ffmpeg", "-i", str(clip), "-filter_complex_script", str(graph), "-map", "[out]"]


def test_the_command_that_roi_prints_has_the_quality_for_which_its_size_was_measured(
    clip: Path, bright_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    graph = clip.with_name("roi.ffmpeg")
    assert run("roi", clip, "--format", "ffmpeg", "--out", graph, "--model", bright_file, "--neutral", "--crf", 26) == 0
    command = shlex.split(capsys.readouterr().err.splitlines()[-1])
    assert command[-5:] == ["-c:v", "libx264", "-crf", "26", "OUT.mp4"]


def test_batch_names_its_output(
    odd: Path, bright_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "photos").mkdir()
    Image.new("RGB", (64, 48)).save(tmp_path / "photos" / "photo.png")
    assert run("batch", tmp_path / "photos", odd / "rows", "--model", bright_file, "--workers", 1) == 0
    assert capsys.readouterr().out.startswith(f"{odd / 'rows'}: 1 picture, 1 of them done in this run, 0 with an error")


@pytest.mark.parametrize("verb", [["info"], ["bench", "--size", "32x32", "--rounds", "3", "--no-cold"]])
def test_info_and_bench_name_the_model(odd: Path, verb: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    export_onnx(bright_model(), odd / "m.onnx", Facts(ODD))
    assert run(*verb, odd / "m.onnx") == 0
    assert ODD in capsys.readouterr().out.splitlines()[0]


def test_the_workshop_names_its_files(odd: Path, capsys: pytest.CaptureFixture[str]) -> None:
    print_result({"checkpoint": str(odd)}, json=False)
    note(str(odd))
    captured = capsys.readouterr()
    assert captured.out == f"checkpoint: {odd}\n"
    assert captured.err == f"{odd}\n"


def test_a_progress_bar_names_its_file() -> None:
    bar = progress()
    bar.add_task(ODD)
    column = bar.columns[0]
    assert isinstance(column, ProgressColumn)
    assert str(column.render(bar.tasks[0])) == ODD


def test_one_of_a_kind_is_not_called_many() -> None:
    assert [common.counted(n, "frame") for n in (0, 1, 2)] == ["0 frames", "1 frame", "2 frames"]
