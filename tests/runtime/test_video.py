"""Video: right maps at right times, sound kept, cuts respected, files that play whatever happens."""

import shutil
import signal
import subprocess
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from PIL import Image

import fastgaze
from fastgaze.app.demo import EXAMPLES
from fastgaze.core.errors import ArgumentError, DataError
from fastgaze.core.progress import Clock
from fastgaze.runtime.predictor import Predictor, load
from fastgaze.runtime.video import Reader, Watch, maps, render
from fastgaze.runtime.video.overlay import Painter, plane
from fastgaze.runtime.video.watch import watch
from tests.runtime.clips import RATE, SIZE, decoded, frame_times, packets, spot, write_clip


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bright square that moves from left to right for 20 frames, then a cut to one at the left on light ground."""
    pictures = [spot(40 + 9 * k, 72) for k in range(20)] + [spot(60, 60, 150)] * 10
    return write_clip(tmp_path_factory.mktemp("video") / "clip.mp4", pictures)


def test_maps_follow_what_moves_and_carry_the_time_of_their_frame(clip: Path, bright: Predictor) -> None:
    seen = list(maps(clip, bright))
    assert [time for time, _ in seen] == pytest.approx([index / RATE for index in range(30)])
    assert all(gaze.size == SIZE for _, gaze in seen)
    assert abs(float(np.exp(seen[3][1].log_density.astype(np.float64)).sum()) - 1) < 1e-4
    for index in (2, 10, 18):
        peak = seen[index][1].peaks(1)[0]
        assert abs(peak.x - (40 + 9 * index)) < 16
        assert abs(peak.y - 72) < 16


def test_a_frame_is_predicted_as_the_same_picture_is(clip: Path, bright: Predictor) -> None:
    _, gaze = next(maps(clip, bright))
    alone = bright.predict(decoded(clip)[0])
    assert np.abs(np.exp(gaze.log_density) - alone.density).max() < 0.03 * alone.density.max()


def test_a_large_frame_is_as_soft_as_a_photograph_for_a_model_that_learned_from_soft_ones(tmp_path: Path) -> None:
    model = load("default", threads=1)
    photograph = np.asarray(Image.open(EXAMPLES / "astronaut.jpg").convert("RGB"))
    write_clip(tmp_path / "still.mkv", [photograph] * 2, sound=None, pixel_format="yuv444p")
    wanted = model.look(photograph)
    with Reader(tmp_path / "still.mkv") as reader:
        view = next(iter(watch(reader.frames(), model, Watch(), Clock()))).view
    assert np.abs(view.saliency - wanted.saliency).mean() < 0.05 * wanted.saliency.std()
    assert view.screen == pytest.approx(wanted.screen, abs=0.02)


def test_public_name_yields_maps_of_the_size_asked_for(clip: Path, bright_file: Path) -> None:
    time, gaze = next(fastgaze.video.maps(clip, bright_file, size=(18, 32)))
    assert time == 0
    assert gaze.size == (18, 32)
    assert gaze.picture_size == SIZE


def test_overlay_video_keeps_frames_times_and_sound(clip: Path, bright: Predictor, tmp_path: Path) -> None:
    report = render(clip, tmp_path / "out.mp4", bright)
    assert (report.frames, report.shots) == (30, 2)
    assert set(report.milliseconds) == {"decode", "scale", "network", "tail", "overlay", "encode"}
    assert frame_times(tmp_path / "out.mp4") == pytest.approx(frame_times(clip))
    assert packets(tmp_path / "out.mp4") == packets(clip)


def test_sound_that_the_container_cannot_hold_is_refused_by_name(bright: Predictor, tmp_path: Path) -> None:
    source = write_clip(tmp_path / "in.mkv", [spot(60, 60)] * 4, sound="flac")
    for name in ("out.mov", "out.m4v"):
        with pytest.raises(DataError, match=r"cannot hold flac sound; write a \.mkv"):
            render(source, tmp_path / name, bright)
    render(source, tmp_path / "out.mkv", bright)
    assert packets(tmp_path / "out.mkv") == packets(source)


def test_sound_that_ffmpeg_does_not_know_is_refused(bright: Predictor, tmp_path: Path) -> None:
    source = write_clip(tmp_path / "in.mkv", [spot(60, 60)] * 4, sound="flac")
    source.write_bytes(source.read_bytes().replace(b"A_FLAC", b"A_NONE"))
    with pytest.raises(DataError, match=r"does not know the sound of .*in\.mkv"):
        render(source, tmp_path / "out.mkv", bright)


def test_overlay_colours_what_is_looked_at_and_leaves_the_rest(clip: Path, bright: Predictor, tmp_path: Path) -> None:
    sharp = Watch()
    render(clip, tmp_path / "out.mp4", bright, watching=sharp, crf=5)
    before, after = decoded(clip)[10].astype(int), decoded(tmp_path / "out.mp4")[10].astype(int)
    change = np.abs(after - before).max(axis=2)
    assert change[60:84, 118:142].mean() > 60
    assert change[:, 236:].mean() < 6


@pytest.mark.parametrize(("name", "pixel_format"), [("out.mkv", "yuv444p"), ("out.mov", "yuv420p10le")])
def test_other_pixel_formats_and_containers_are_taken(
    name: str, pixel_format: str, bright: Predictor, tmp_path: Path
) -> None:
    source = write_clip(tmp_path / "in.mkv", [spot(60, 60)] * 4, sound=None, pixel_format=pixel_format)
    assert render(source, tmp_path / name, bright).frames == 4
    frame = decoded(tmp_path / name)[0]
    assert frame.shape == (*SIZE, 3)
    assert np.abs(frame[:, 200:].astype(int) - 60).mean() < 8


def test_odd_sizes_lose_their_last_row_and_column(bright: Predictor, tmp_path: Path) -> None:
    picture = np.full((145, 257, 3), 90, np.uint8)
    source = write_clip(tmp_path / "in.mkv", [picture] * 3, sound=None, pixel_format="yuv444p")
    render(source, tmp_path / "out.mp4", bright)
    assert decoded(tmp_path / "out.mp4")[0].shape == (144, 256, 3)


def test_a_bare_stream_without_times_runs_at_its_rate(clip: Path, bright: Predictor, tmp_path: Path) -> None:
    bare = tmp_path / "bare.h264"
    with av.open(str(clip)) as source, av.open(str(bare), "w", format="h264") as target:
        stream = target.add_stream_from_template(source.streams.video[0])
        for packet in source.demux(video=0):
            if packet.size:
                packet.stream = stream
                target.mux(packet)
    times = [time for time, _ in maps(bare, bright, size=(9, 16))]
    assert len(times) == 30
    assert np.diff(times) == pytest.approx(1 / RATE, abs=1e-3)
    assert render(bare, tmp_path / "out.mp4", bright).frames == 30
    assert len(decoded(tmp_path / "out.mp4")) == 30


def test_an_avi_whose_frames_are_reordered_keeps_them_all_in_order(bright: Predictor, tmp_path: Path) -> None:
    if shutil.which("ffmpeg") is None:
        pytest.skip("ffmpeg is not installed")
    source = write_clip(tmp_path / "in.mkv", [spot(40 + 5 * k, 72) for k in range(20)], sound=None)
    encode = ["-c:v", "libx264", "-bf", "3", "-b_strategy", "0", "-crf", "10", str(tmp_path / "in.avi")]
    subprocess.run(["ffmpeg", "-v", "error", "-i", str(source), *encode], check=True)
    seen = list(maps(tmp_path / "in.avi", bright))
    assert [time for time, _ in seen] == pytest.approx([index / RATE for index in range(20)])
    peaks = [gaze.peaks(1)[0].x for _, gaze in seen]
    assert peaks[0] < 60
    assert peaks[-1] > 115
    render(tmp_path / "in.avi", tmp_path / "out.mp4", bright)
    assert len(decoded(tmp_path / "out.mp4")) == 20


def test_map_mode_shows_the_map_alone(clip: Path, bright: Predictor, tmp_path: Path) -> None:
    render(clip, tmp_path / "map.mp4", bright, mode="map", crf=5)
    frame = decoded(tmp_path / "map.mp4")[10].astype(int)
    hottest = frame[64:80, 122:138].mean(axis=(0, 1))
    coldest = frame[:, :20].mean(axis=(0, 1))
    assert hottest.sum() > coldest.sum() + 200


@pytest.mark.parametrize("degrees", [90, 180, 270])
def test_turned_videos_are_seen_upright_as_ffmpeg_shows_them(
    degrees: int, clip: Path, bright: Predictor, tmp_path: Path
) -> None:
    turned, shown = tmp_path / "turned.mp4", tmp_path / "shown.png"
    mark = ["-c", "copy", "-metadata:s:v", f"rotate={degrees}", str(turned)]
    if shutil.which("ffmpeg") is None:
        pytest.skip("ffmpeg is not installed")
    subprocess.run(["ffmpeg", "-v", "error", "-i", str(clip), *mark], check=True)
    subprocess.run(["ffmpeg", "-v", "error", "-i", str(turned), "-frames:v", "1", str(shown)], check=True)
    expected = np.asarray(Image.open(shown).convert("RGB"))
    if expected.shape[:2] == SIZE and np.abs(expected - decoded(clip)[0].astype(int)).mean() < 1:
        pytest.skip("this ffmpeg writes no display matrix")
    with Reader(turned) as reader:
        upright = next(reader.frames()).to_ndarray(format="rgb24")
    assert upright.shape == expected.shape
    assert np.abs(upright.astype(int) - expected).mean() < 1
    render(turned, tmp_path / "out.mp4", bright)
    assert decoded(tmp_path / "out.mp4")[0].shape == expected.shape


def _saliencies(path: Path, predictor: Predictor, how: Watch) -> list[Any]:
    with Reader(path) as reader:
        return list(watch(reader.frames(), predictor, how, Clock()))


def test_smoothing_follows_its_time_constant_and_starts_anew_at_the_cut(clip: Path, bright: Predictor) -> None:
    raw = _saliencies(clip, bright, Watch())
    smooth = _saliencies(clip, bright, Watch(smooth=0.2))
    weight = 1 - np.exp(-1 / RATE / 0.2)
    expected = raw[0].view.saliency
    for index in range(1, 20):
        expected = expected + weight * (raw[index].view.saliency - expected)
        np.testing.assert_allclose(smooth[index].view.saliency, expected, atol=1e-4)
    assert [seen.cut for seen in smooth] == [index in (0, 20) for index in range(30)]
    np.testing.assert_array_equal(smooth[20].view.saliency, raw[20].view.saliency)


def test_every_nth_frame_is_predicted_and_the_rest_interpolated_within_a_shot(clip: Path, bright: Predictor) -> None:
    raw = _saliencies(clip, bright, Watch())
    few = _saliencies(clip, bright, Watch(every=4))
    assert [seen.time for seen in few] == [seen.time for seen in raw]
    for index in (0, 4, 16, 20, 24):
        np.testing.assert_array_equal(few[index].view.saliency, raw[index].view.saliency)
    np.testing.assert_allclose(few[6].view.saliency, (raw[4].view.saliency + raw[8].view.saliency) / 2, atol=1e-5)
    np.testing.assert_array_equal(few[19].view.saliency, raw[16].view.saliency)


def test_no_heat_of_the_old_shot_is_left_in_the_new_one(clip: Path, bright: Predictor) -> None:
    smooth = list(maps(clip, bright, watching=Watch(smooth=2.0, every=3)))
    alone = bright.predict(decoded(clip)[25])
    for _, gaze in smooth[20:]:  # the new shot stands still
        np.testing.assert_allclose(gaze.log_density, alone.log_density, atol=0.3)


def test_painter_blends_by_opacity_to_within_a_level() -> None:
    frame = av.VideoFrame(64, 32, "yuv420p")
    for index, level in enumerate((100, 90, 170)):
        plane(frame, index)[:] = level
    frame.pts, frame.time_base = 7, Fraction(1, 30)
    cold = Painter(0.5)(frame, np.zeros((4, 8), np.uint8))
    hot = Painter(0.5)(frame, np.full((4, 8), 255, np.uint8))
    white_hot = Painter(1.0)(frame, np.full((4, 8), 255, np.uint8))
    for index, level in enumerate((100, 90, 170)):
        assert np.abs(plane(cold, index).astype(int) - level).max() <= 1
        middle = (level + plane(white_hot, index).astype(float)) / 2
        assert np.abs(plane(hot, index) - middle).max() <= 1.5
    for item in (frame, hot):
        assert (item.pts, item.time_base) == (7, Fraction(1, 30))


_SLOW_RENDER = """
import signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs inherit that it is ignored
from fastgaze.runtime.predictor import load
from fastgaze.runtime.video import render
def wait(done, total, note):
    time.sleep(0.01)
    if done == 120:
        print("now", flush=True)
render(sys.argv[1], sys.argv[2], load(sys.argv[3], threads=1), progress=wait, threads=1)
"""


@pytest.fixture(scope="module")
def long_clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_clip(tmp_path_factory.mktemp("long") / "long.mp4", [spot(40 + k % 170, 72) for k in range(400)])


@pytest.mark.parametrize(
    ("how", "name"), [(signal.SIGINT, "a.mp4"), (signal.SIGKILL, "b.mp4"), (signal.SIGKILL, "c.mkv")]
)
def test_an_interrupted_run_leaves_a_file_that_plays(
    how: signal.Signals, name: str, long_clip: Path, bright_file: Path, tmp_path: Path
) -> None:
    target = tmp_path / name
    arguments = [sys.executable, "-c", _SLOW_RENDER, str(long_clip), str(target), str(bright_file)]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"now\n"
        process.send_signal(how)
        process.wait(20)
    frames = decoded(target)
    assert len(frames) < 400
    # SIGINT finishes everything; SIGKILL may lose the last two seconds and what x264 looks ahead.
    assert len(frames) >= (119 if how == signal.SIGINT else 30)
    assert packets(target)


@pytest.mark.slow
def test_memory_does_not_grow_with_the_length(bright_file: Path, tmp_path: Path) -> None:
    source = write_clip(tmp_path / "long.mp4", [spot(40 + k % 170, 72) for k in range(3000)], sound=None)
    code = (
        "import sys, resource\nfrom fastgaze.runtime.video import maps\npeak = []\n"
        "for index, _ in enumerate(maps(sys.argv[1], sys.argv[2], threads=1)):\n"
        "    if index in (300, 2999): peak.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)\n"
        "print(peak[1] - peak[0])"
    )
    result = subprocess.run(
        [sys.executable, "-c", code, str(source), str(bright_file)], capture_output=True, check=True
    )
    assert int(result.stdout) < 8_000  # KiB


def test_errors_name_what_is_wrong(clip: Path, bright: Predictor, tmp_path: Path) -> None:
    (tmp_path / "text.mp4").write_text("no video")
    for name, message in [("none.mp4", "no video file"), ("text.mp4", "not a video")]:
        with pytest.raises(DataError, match=message):
            render(tmp_path / name, tmp_path / "out.mp4", bright)
    for target, message in [(tmp_path / "out.webm", "ends in"), (clip, "input itself")]:
        with pytest.raises(ArgumentError, match=message):
            render(clip, target, bright)
    with pytest.raises(ArgumentError, match="mode"):
        render(clip, tmp_path / "out.mp4", bright, mode="both")
    with pytest.raises(ArgumentError, match=r"size \(0, 0\) is not"):
        next(maps(clip, bright, size=(0, 0)))
    with pytest.raises(ArgumentError, match="every"):
        Watch(every=0)
