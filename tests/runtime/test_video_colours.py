"""Colours of a rendered video: what a player shows where nothing is painted is what it showed before."""

from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest

from fastgaze.runtime.predictor import Predictor
from fastgaze.runtime.video import render

LIMITED, FULL = 1, 2
UNTAGGED, BT709, BT470BG, SMPTE170M, BT2020 = 2, 1, 5, 6, 9
PQ = 16
SD, HD = (96, 128), (720, 1280)


@dataclass(frozen=True)
class Clip:
    """Two frames of one colour. Numbers of ranges, matrices, primaries and transfers are FFmpeg's."""

    codec: str
    pixel_format: str
    size: tuple[int, int] = SD
    levels: tuple[int, ...] = (64, 90, 170)
    range: int = LIMITED
    space: int = UNTAGGED
    primaries: int = UNTAGGED
    transfer: int = UNTAGGED

    def write(self, path: Path) -> Path:
        with av.open(str(path), "w") as container:
            options = {"crf": "1"} if self.codec == "libx264" else {}
            stream = container.add_stream(self.codec, rate=25, options=options)
            assert isinstance(stream, av.VideoStream)
            stream.height, stream.width, stream.pix_fmt = *self.size, self.pixel_format
            context = stream.codec_context
            context.color_range, context.colorspace = self.range, self.space
            context.color_primaries, context.color_trc = self.primaries, self.transfer
            for index in range(2):
                container.mux(stream.encode(self._frame(index)))
            container.mux(stream.encode(None))
        return path

    def _frame(self, index: int) -> av.VideoFrame:
        frame = av.VideoFrame(self.size[1], self.size[0], self.pixel_format)
        wide = np.uint16 if "10le" in self.pixel_format else np.uint8
        for plane, level in zip(frame.planes, self.levels, strict=True):
            np.frombuffer(memoryview(plane), wide)[:] = level
        frame.color_range, frame.colorspace = self.range, self.space
        frame.pts, frame.time_base = index, Fraction(1, 25)
        return frame


def _first(path: Path) -> av.VideoFrame:
    with av.open(str(path)) as container:
        return next(container.decode(video=0))


def _shown(frame: av.VideoFrame, space: int) -> np.ndarray:
    """RGB of the middle of the frame, as a player that takes its matrix for ``space`` shows it."""
    picture = frame.reformat(format="rgb24", src_colorspace=space).to_ndarray()
    return np.asarray(picture[frame.height // 2, frame.width // 2]).astype(int)


@pytest.mark.parametrize(
    ("clip", "space"),
    [
        (Clip("libx264", "yuvj420p", range=FULL), SMPTE170M),
        (Clip("mjpeg", "yuvj422p", range=FULL), SMPTE170M),
        (Clip("ffv1", "yuv420p", range=FULL), SMPTE170M),
        (Clip("ffv1", "gray", levels=(64,), range=FULL), SMPTE170M),
        (Clip("libx264", "yuv420p"), SMPTE170M),
        (Clip("libx264", "yuv420p", HD), BT709),
        (Clip("libx264", "yuv420p", HD, space=BT470BG), BT470BG),
        (Clip("libx264", "yuv420p", SD, space=BT709), BT709),
        (Clip("ffv1", "yuv444p10le", (97, 129), (256, 360, 680), space=BT2020), BT2020),
    ],
)
def test_what_is_not_painted_looks_as_before_and_is_tagged(
    clip: Clip, space: int, bright: Predictor, tmp_path: Path
) -> None:
    source = clip.write(tmp_path / "in.mkv")
    render(source, tmp_path / "out.mp4", bright, opacity=0, crf=1, threads=1)
    before, after = _first(source), _first(tmp_path / "out.mp4")
    assert np.abs(_shown(after, space) - _shown(before, space)).max() <= 3
    assert (after.format.name, after.color_range) == ("yuv420p", LIMITED)
    same_matrix = {BT470BG, SMPTE170M} if space in (BT470BG, SMPTE170M) else {space}
    assert after.colorspace in same_matrix


@pytest.mark.parametrize(("size", "space"), [(SD, BT470BG), (HD, BT709)])
def test_rgb_is_converted_with_the_matrix_that_is_tagged(
    size: tuple[int, int], space: int, bright: Predictor, tmp_path: Path
) -> None:
    blue = np.zeros((*size, 3), np.uint8)
    blue[:, :, 2] = 200
    with av.open(str(tmp_path / "in.mkv"), "w") as container:
        stream = container.add_stream("ffv1", rate=25)
        stream.height, stream.width, stream.pix_fmt = *size, "bgr0"
        container.mux(stream.encode(av.VideoFrame.from_ndarray(blue, format="rgb24").reformat(format="bgr0")))
        container.mux(stream.encode(None))
    render(tmp_path / "in.mkv", tmp_path / "out.mp4", bright, opacity=0, crf=1, threads=1)
    after = _first(tmp_path / "out.mp4")
    assert after.colorspace == space
    assert np.abs(_shown(after, space) - (0, 0, 200)).max() <= 4


def test_primaries_and_transfer_stay_those_of_the_source(bright: Predictor, tmp_path: Path) -> None:
    clip = Clip("libx264", "yuv420p", space=BT2020, primaries=BT2020, transfer=PQ)
    source = clip.write(tmp_path / "in.mp4")
    for mode in ("overlay", "map"):
        render(source, tmp_path / "out.mp4", bright, mode=mode, threads=1)
        after = _first(tmp_path / "out.mp4")
        assert (after.color_primaries, after.color_trc, after.colorspace) == (BT2020, PQ, BT2020)


def test_a_map_alone_has_the_same_colours_whatever_the_matrix_of_its_source(bright: Predictor, tmp_path: Path) -> None:
    shown = []
    for space in (BT709, BT470BG, BT2020):
        source = Clip("libx264", "yuv420p", space=space).write(tmp_path / f"{space}.mp4")
        render(source, tmp_path / "map.mp4", bright, mode="map", crf=1, threads=1)
        shown.append(_shown(_first(tmp_path / "map.mp4"), space))
    assert np.ptp(shown, axis=0).max() <= 8
