"""Reframing: a window that follows attention, rests when it can and jumps at cuts only; sound and times stay."""

import json
import shutil
import subprocess
from pathlib import Path

import av
import numpy as np
import pytest

import fastgaze
from fastgaze.app.cli import main
from fastgaze.core.errors import ArgumentError, DataError
from fastgaze.runtime.predictor import Predictor
from fastgaze.runtime.video.camera import Steadiness, find_path, keyframes, toward_middle
from fastgaze.runtime.video.reframe import Reframing, plan, reframe
from tests.runtime.clips import RATE, decoded, frame_times, packets, spot, write_clip

PLACES = np.linspace(0, 0.6, 61)


def _hill(at: np.ndarray) -> np.ndarray:
    """Worth (n, p) that is highest where the window's corner is at ``at`` (n,), as high above the rest as in films."""
    worth: np.ndarray = 0.3 * np.exp(-0.5 * ((PLACES - at[:, None]) / 0.1) ** 2)
    return worth


def _path(at: np.ndarray, how: Steadiness | None = None) -> np.ndarray:
    times = np.arange(len(at)) / RATE
    return find_path(_hill(at), times, PLACES, times, how or Steadiness())


def test_the_window_rests_at_the_best_place_of_what_only_trembles() -> None:
    tremble = 0.3 + 0.03 * np.random.default_rng(0).standard_normal(200)
    path = _path(tremble)
    assert np.ptp(path) == 0
    assert path[0] == pytest.approx(0.3, abs=0.02)


def test_the_window_follows_what_goes_away_and_never_jumps() -> None:
    path = _path(np.repeat([0.1, 0.5], 150))
    assert path[0] == pytest.approx(0.1, abs=0.02)
    assert path[-1] == pytest.approx(0.5, abs=0.02)
    assert np.ptp(path[:100]) == np.ptp(path[200:]) == 0
    speed = np.diff(path) * RATE
    assert 0.2 < speed.max() <= Steadiness().speed + 1e-9
    assert speed.min() >= 0
    assert np.abs(np.diff(speed)).max() < 0.12  # it starts and stops gently


def test_a_glance_aside_does_not_move_the_window() -> None:
    aside = np.full(200, 0.1)
    aside[90:100] = 0.5
    assert np.ptp(_path(aside)) == 0


def test_a_window_that_must_not_move_stands_where_all_moments_together_are_best() -> None:
    path = _path(np.repeat([0.1, 0.5], [60, 140]), Steadiness(move=1e6))
    assert np.ptp(path) == 0
    assert path[0] == pytest.approx(0.5, abs=0.05)


def test_the_middle_wins_where_the_map_says_little_and_not_where_it_says_much() -> None:
    def best(worth: np.ndarray) -> float:
        return float(PLACES[toward_middle(worth, PLACES, 0.4, 0.3)[0].argmax()])

    aside = _hill(np.array([0.05]))
    assert best(0.01 * aside) == pytest.approx(0.3, abs=0.02)
    assert best(3 * aside) == pytest.approx(0.05, abs=0.06)
    np.testing.assert_array_equal(toward_middle(aside, PLACES, 0.4, 0.0), aside)


def test_keyframes_give_the_path_back_to_the_tolerance() -> None:
    times = np.arange(300) / RATE
    path = np.column_stack([1000 * _path(np.repeat([0.1, 0.5, 0.2], 100)), np.zeros(300)])
    chosen = keyframes(times, path, 1.0)
    assert len(chosen) < 60
    assert np.abs(np.interp(times, times[chosen], path[chosen, 0]) - path[:, 0]).max() <= 1.0
    assert keyframes(times[:1], path[:1], 0.5) == [0]


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bright square at the left for 40 frames, and after a cut one at the right on lighter, striped ground for 40.

    Without the stripes, a pan or a zoom could have moved the one square to the place of the other.
    """
    stripes = (24 * (np.arange(256) // 16 % 2)).astype(np.uint8)[None, :, None]
    second = np.maximum(spot(210, 60, 130), 130 + stripes)
    pictures = [spot(50, 72)] * 40 + [second] * 40
    return write_clip(tmp_path_factory.mktemp("reframe") / "clip.mp4", pictures)


@pytest.fixture(scope="module")
def found(clip: Path, bright: Predictor) -> Reframing:
    return plan(clip, "9:16", bright)


def test_the_window_is_where_people_look_and_jumps_at_the_cut_only(found: Reframing) -> None:
    assert (found.size, found.window, found.frames) == ((144, 256), (144, 80), 80)
    corners = np.array(list(found.corners()))
    assert (corners[:, 1] == 0).all()
    steps = np.flatnonzero(np.diff(corners[:, 0]))
    assert steps.tolist() == [39]
    assert 0 <= corners[0, 0] <= 42  # the square covers 34 to 66; the middle pulls a little
    assert 138 <= corners[-1, 0] <= 176  # 194 to 226
    for shot in found.shots:
        assert shot.mass > shot.central


def test_keyframes_for_editors_are_plain_values(found: Reframing) -> None:
    document = json.loads(json.dumps(found.to_json()))
    assert (document["size"], document["window"]) == ({"width": 256, "height": 144}, {"width": 80, "height": 144})
    first, second = document["shots"]
    assert (first["start"], second["start"]) == (0, pytest.approx(40 / RATE))
    assert first["frames"] == 40
    assert [key["time"] for key in first["keyframes"]] == pytest.approx([0, 39 / RATE])
    assert {key["top"] for key in second["keyframes"]} == {0}
    assert second["gain"] > 0


def test_the_result_shows_the_window_with_times_and_sound_kept(clip: Path, bright: Predictor, tmp_path: Path) -> None:
    out = tmp_path / "out.mp4"
    counted: list[tuple[int, int | None]] = []
    found = fastgaze.video.reframe(
        clip, out, "9:16", model=bright, crf=5, progress=lambda done, total, _: counted.append((done, total))
    )
    assert counted[-1] == (160, 160)
    assert frame_times(out) == pytest.approx(frame_times(clip))
    assert packets(out) == packets(clip)
    before, after = decoded(clip), decoded(out)
    for index, (left, top) in enumerate(found.corners()):
        window = before[index][top : top + 144, left : left + 80].astype(int)
        assert np.abs(after[index] - window).mean() < 6


def test_a_size_can_be_asked_for_and_upright_windows_can_be_cut_from_upright_videos(
    bright: Predictor, tmp_path: Path
) -> None:
    pictures = [np.ascontiguousarray(spot(200, 72).transpose(1, 0, 2))] * 12
    source = write_clip(tmp_path / "upright.mkv", pictures, sound=None)
    found = reframe(source, tmp_path / "out.mp4", 1.0, (96, 96), bright)
    assert found.window == (144, 144)
    (left, top), *_ = found.corners()
    assert left == 0
    assert 72 <= top <= 112  # the square covers the rows 184 to 216
    frames = decoded(tmp_path / "out.mp4")
    assert len(frames) == 12
    assert frames[0].shape == (96, 96, 3)
    assert frames[0].max() > 240


def test_the_encoder_chooses_its_own_key_frames_whatever_the_source_had(
    clip: Path, bright: Predictor, tmp_path: Path
) -> None:
    if shutil.which("ffmpeg") is None:
        pytest.skip("ffmpeg is not installed")
    intra = tmp_path / "intra.mkv"
    command = ["ffmpeg", "-v", "error", "-i", str(clip), "-frames:v", "24", "-an", "-c:v", "libx264", "-g", "1"]
    subprocess.run([*command, "-pix_fmt", "yuv420p", str(intra)], check=True)
    with av.open(str(intra)) as container:
        assert all(packet.is_keyframe for packet in container.demux(video=0) if packet.size)
    reframe(intra, tmp_path / "out.mp4", 1.0, None, bright)
    fastgaze.video.render(intra, tmp_path / "heat.mp4", model=bright)
    for name in ("out.mp4", "heat.mp4"):
        with av.open(str(tmp_path / name)) as container:
            kinds = [packet.is_keyframe for packet in container.demux(video=0) if packet.size]
        assert sum(kinds) == 1, name


def test_pixels_that_are_not_square_count_as_they_are_shown(clip: Path, bright: Predictor, tmp_path: Path) -> None:
    if shutil.which("ffmpeg") is None:
        pytest.skip("ffmpeg is not installed")
    wide = tmp_path / "wide.mp4"
    command = [
        "ffmpeg",
        "-v",
        "error",
        "-i",
        str(clip),
        "-c",
        "copy",
        "-bsf:v",
        "h264_metadata=sample_aspect_ratio=2/1",
    ]
    subprocess.run([*command, "-frames:v", "8", "-an", str(wide)], check=True)
    found = reframe(wide, tmp_path / "out.mp4", 1.0, None, bright)
    assert found.window == (144, 72)
    with av.open(str(tmp_path / "out.mp4")) as container:
        assert container.streams.video[0].sample_aspect_ratio == 2
    reframe(wide, tmp_path / "square.mp4", 1.0, (100, 100), bright)
    with av.open(str(tmp_path / "square.mp4")) as container:
        assert container.streams.video[0].sample_aspect_ratio in (None, 0, 1)


def test_errors_come_before_the_work(clip: Path, bright: Predictor, tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="even numbers"):
        reframe(clip, tmp_path / "out.mp4", 1.0, (99, 99), bright)
    with pytest.raises(ArgumentError, match="ends in"):
        reframe(clip, tmp_path / "out.webm", 1.0, None, bright)
    with pytest.raises(ArgumentError, match="width:height"):
        plan(clip, "wide", bright)
    with pytest.raises(DataError, match="no video file"):
        plan(tmp_path / "none.mp4", 1.0, bright)


def _run(*arguments: object) -> int:
    with pytest.raises(SystemExit) as exit:
        main([str(argument) for argument in arguments])
    return int(exit.value.code or 0)


def test_the_verb_writes_a_video_or_keyframes_alone(
    clip: Path, bright_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    common = ("--model", bright_file, "--threads", 1)
    assert _run("reframe", clip, tmp_path / "out.mp4", "--size", "90x160", *common, "--json") == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["output"].endswith("out.mp4")
    assert decoded(tmp_path / "out.mp4")[0].shape == (160, 90, 3)
    assert _run("reframe", clip, tmp_path / "keys.json", "--ratio", "9:16", *common, "--quiet") == 0
    assert json.loads((tmp_path / "keys.json").read_text())["shots"] == printed["shots"]
    assert _run("reframe", clip, tmp_path / "out.mp4", *common) == 2
    assert "give --ratio" in capsys.readouterr().err
    assert _run("reframe", clip, tmp_path / "out.mp4", "--ratio", "1:1", "--size", "90x160", *common) == 2
    assert "does not have the --ratio 1:1" in capsys.readouterr().err
