"""Damaged and undecodable videos: what can be decoded is used, and the rest is one of our errors."""

from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest

from fastgaze.app.cli import main
from fastgaze.core.errors import DataError
from fastgaze.runtime.predictor import Predictor
from fastgaze.runtime.video import Reader, maps, render

FRAMES = 4


def _write(path: Path, codec: str, pixel_format: str, space: int = 2, title: str = "") -> Path:
    generator = np.random.default_rng(0)
    with av.open(str(path), "w") as container:
        container.metadata["title"] = title
        stream = container.add_stream(codec, rate=25)
        assert isinstance(stream, av.VideoStream)
        stream.height, stream.width, stream.pix_fmt = 48, 64, pixel_format
        stream.codec_context.colorspace = space
        for index in range(FRAMES):
            noise = generator.integers(0, 255, (48, 64, 3), dtype=np.uint8)
            frame = av.VideoFrame.from_ndarray(noise, format="rgb24").reformat(format=pixel_format)
            frame.pts, frame.time_base, frame.colorspace = index, Fraction(1, 25), space
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return path


def _change(path: Path, before: bytes, after: bytes) -> Path:
    content = path.read_bytes()
    assert before in content
    path.write_bytes(content.replace(before, after, 1))
    return path


def _failed(*arguments: object) -> None:
    with pytest.raises(SystemExit) as exit:
        main([str(argument) for argument in arguments])
    assert exit.value.code == 2


def test_a_frame_that_the_decoder_does_not_know_yet_is_skipped(bright: Predictor, tmp_path: Path) -> None:
    head = b"\xff\xc0\0\x11\x08\0\x30\0\x40\x03\x01"
    sampling, unknown = b"\x22", b"\xff"
    source = _change(_write(tmp_path / "in.avi", "mjpeg", "yuvj420p"), head + sampling, head + unknown)
    assert len(list(maps(source, bright))) == FRAMES - 1
    assert render(source, tmp_path / "out.mp4", bright).frames == FRAMES - 1


def test_a_video_whose_decoder_refuses_every_frame_is_an_error(bright: Predictor, tmp_path: Path) -> None:
    place, flags, unknown = b"\x40\0\x30\0", b"\0\x08", b"\xff\x08"
    source = _change(_write(tmp_path / "in.gif", "gif", "rgb8"), place + flags, place + unknown)
    with pytest.raises(DataError, match="no frame that can be decoded"):
        render(source, tmp_path / "out.mp4", bright)


def test_a_stream_without_decoder_is_refused(tmp_path: Path) -> None:
    source = _change(_write(tmp_path / "in.mkv", "ffv1", "yuv420p"), b"V_FFV1", b"V_NONE")
    with pytest.raises(DataError, match="no decoder"):
        Reader(source)


@pytest.fixture
def unreadable(tmp_path: Path) -> Path:
    """FFmpeg takes the name for that of text art, and fails when it looks for the second picture."""
    path = tmp_path / "in.bin"
    path.write_bytes(bytes(480))
    return path


def test_a_file_that_cannot_be_read_further_is_an_error_that_names_it(
    unreadable: Path, bright: Predictor, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match=r"in\.bin cannot be read further"):
        list(maps(unreadable, bright))
    with pytest.raises(DataError, match=r"in\.bin cannot be read further"):
        render(unreadable, tmp_path / "out.mp4", bright)


def test_frames_that_cannot_become_rgb_are_an_error(bright: Predictor, tmp_path: Path) -> None:
    ycgco = 8
    source = _write(tmp_path / "in.mkv", "ffv1", "yuv444p", space=ycgco)
    with pytest.raises(DataError, match="yuv444p frames with colour matrix 8"):
        list(maps(source, bright))


def test_a_title_that_is_not_utf_8_does_not_matter(bright: Predictor, tmp_path: Path) -> None:
    source = _change(_write(tmp_path / "in.mkv", "ffv1", "yuv420p", title="cafe in may"), b"cafe in", b"caf\xe9 in")
    assert len(list(maps(source, bright))) == FRAMES


def test_a_rate_that_nobody_films_at_is_not_believed(bright: Predictor, tmp_path: Path) -> None:
    source = _write(tmp_path / "in.avi", "mjpeg", "yuvj420p")
    seconds, frames = (1).to_bytes(4, "little"), (25).to_bytes(4, "little")
    _change(source, seconds + frames, seconds + b"\xff\xff\xff\x7f")
    assert render(source, tmp_path / "out.mp4", bright).frames >= 1
    with Reader(source) as reader:
        assert reader.rate == 25


def test_a_full_disk_is_an_error_that_names_the_output(bright: Predictor, tmp_path: Path) -> None:
    (tmp_path / "out.mp4").symlink_to("/dev/full")
    with pytest.raises(DataError, match=r"cannot write .*out\.mp4: No space left"):
        render(_write(tmp_path / "in.mkv", "ffv1", "yuv420p"), tmp_path / "out.mp4", bright)


def test_roi_tells_a_video_it_cannot_read_from_a_file_it_cannot_write(
    unreadable: Path, bright_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _failed("roi", unreadable, "--model", bright_file, "--out", tmp_path / "roi.txt")
    assert "in.bin cannot be read further" in capsys.readouterr().err
    source = _write(tmp_path / "in.mkv", "ffv1", "yuv420p")
    (tmp_path / "roi.bin").symlink_to("/dev/full")
    for out in ("/dev/full", tmp_path / "roi.bin"):
        _failed("roi", source, "--model", bright_file, "--out", out)
        shown = capsys.readouterr().err
        assert f"cannot write {out}: No s" in shown
        assert shown.count("\n") == 1
