"""On a full disk nothing is truncated in silence: an error, and what was there before stays."""

import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

ROOM = 4096
OLD = b"what was there before"


def full_disk() -> None:
    """From here on a file takes 4 kB and no more, as on a disk that fills up while it is written."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (ROOM, ROOM))


def on_full_disk(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-B", "-m", "fastgaze", *arguments]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.run(
        command, capture_output=True, text=True, env=environment, preexec_fn=full_disk, timeout=120, check=False
    )


@pytest.fixture(scope="module")
def photo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("photo") / "photo.jpg"
    pixels = np.random.default_rng(0).integers(0, 256, (300, 400, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path, quality=90)
    return path


def files_left(ended: subprocess.CompletedProcess[str], folder: Path) -> list[Path]:
    """What lies in the folder after a program that ended with one line about the full disk."""
    assert ended.returncode in (1, 2), ended.stderr
    assert "File too large" in ended.stderr
    assert "Traceback" not in ended.stderr
    return [path for path in folder.iterdir() if path.is_file()]


def test_predict_and_crop_say_so_and_leave_nothing(photo: Path, bright_file: Path, tmp_path: Path) -> None:
    model = ["--model", str(bright_file)]
    for number, verb in enumerate((["predict"], ["predict", "--format", "npy"], ["crop", "--ratio", "1:1"])):
        folder = tmp_path / str(number)
        folder.mkdir()
        ended = on_full_disk(*verb, str(photo), "--out", str(folder), *model)
        assert files_left(ended, folder) == []


@pytest.mark.parametrize("suffix", [".png", ".jpg", ".webp", ".npy"])
def test_a_gaze_map_is_saved_whole_or_not_at_all(suffix: str, photo: Path, bright_file: Path, tmp_path: Path) -> None:
    kept = tmp_path / f"map{suffix}"
    kept.write_bytes(OLD)
    script = (
        "import sys\nfrom fastgaze.runtime.predictor import load\nfrom tests.runtime.test_full_disk import full_disk\n"
        "found = load(sys.argv[1], threads=1).predict(sys.argv[2])\nfull_disk()\nfound.save(sys.argv[3])"
    )
    command = [sys.executable, "-B", "-c", script, str(bright_file), str(photo), str(kept)]
    root = Path(__file__).parents[2]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, cwd=root)
    assert ended.returncode == 1
    assert "File too large" in ended.stderr
    assert [path.name for path in tmp_path.iterdir()] == [kept.name]
    assert kept.read_bytes() == OLD


def test_a_video_that_does_not_fit_leaves_the_earlier_one(bright_file: Path, tmp_path: Path, clip: Path) -> None:
    kept = tmp_path / "out.mp4"
    kept.write_bytes(OLD)
    ended = on_full_disk("video", str(clip), str(kept), "--model", str(bright_file))
    assert files_left(ended, tmp_path) == [kept]
    assert kept.read_bytes() == OLD


def test_offsets_that_do_not_fit_leave_the_earlier_ones(bright_file: Path, tmp_path: Path, clip: Path) -> None:
    kept = tmp_path / "roi.csv"
    kept.write_bytes(OLD)
    options = ["--format", "csv", "--block", "8", "--model", str(bright_file)]
    ended = on_full_disk("roi", str(clip), "--out", str(kept), *options)
    assert files_left(ended, tmp_path) == [kept]
    assert kept.read_bytes() == OLD


def test_a_killed_rerun_of_a_video_leaves_the_earlier_one(
    bright_file: Path, tmp_path: Path, clip: Path, wait_until: Callable[[Callable[[], bool]], None]
) -> None:
    kept = tmp_path / "out.mp4"
    kept.write_bytes(OLD)
    command = [sys.executable, "-m", "fastgaze", "video", str(clip), str(kept), "--model", str(bright_file)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        wait_until(lambda: len(list(tmp_path.iterdir())) > 1 or process.poll() is not None)
        process.kill()
    assert kept.read_bytes() == OLD


def test_a_name_that_looks_like_a_protocol_is_a_file(bright_file: Path, clip: Path, tmp_path: Path) -> None:
    odd = tmp_path / "concat:a.mp4"
    odd.write_bytes(clip.read_bytes())
    command = [sys.executable, "-m", "fastgaze", "video", odd.name, "http:b.mp4", "--model", str(bright_file)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert (tmp_path / "http:b.mp4").stat().st_size > 1000


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two seconds of noise, which does not compress."""
    av = pytest.importorskip("av")
    path = tmp_path_factory.mktemp("clip") / "clip.mp4"
    generator = np.random.default_rng(0)
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=25, options={"preset": "ultrafast", "crf": "30"})
        stream.width, stream.height, stream.pix_fmt = 160, 128, "yuv420p"
        for _ in range(50):
            pixels = generator.integers(0, 256, (128, 160, 3), dtype=np.uint8)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")))
        container.mux(stream.encode(None))
    return path


@pytest.fixture
def wait_until() -> Callable[[Callable[[], bool]], None]:
    import time

    def wait(condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 60
        while not condition():
            assert time.monotonic() < deadline
            time.sleep(0.01)

    return wait
