"""ROI maps: offsets that follow the density, keep the bit rate when asked, and have the form that encoders read."""

import csv
import io
import json
import math
import re
import shutil
import struct
import subprocess
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastgaze.core.errors import ArgumentError, DataError
from fastgaze.runtime.predictor import Predictor
from fastgaze.runtime.video import Reader, Watch
from fastgaze.runtime.video.addroi import (
    MOST_RECTANGLES,
    MOST_STRETCHES,
    Rectangle,
    few_stretches,
    rectangles,
    stretches,
    write_ffmpeg,
)
from fastgaze.runtime.video.roi import (
    TEXT,
    Blocks,
    Roi,
    expected_bits,
    sum_blocks,
    watch_blocks,
    write_csv,
    write_json,
    write_kvazaar,
    write_kvazaar_binary,
    write_svt_av1,
)

SIZE = (144, 240)


def _blocks(mass: np.ndarray, bits: np.ndarray | None = None, size: tuple[int, int] | None = None) -> Blocks:
    size = size or (mass.shape[0] * 16, mass.shape[1] * 16)
    return Blocks(0.0, size, mass / mass.sum(), np.ones_like(mass) if bits is None else bits, cut=True)


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Noise with a bright square that stands at the left for 20 frames, then, after a cut, at the right for 20."""
    generator, path = np.random.default_rng(0), tmp_path_factory.mktemp("roi") / "clip.mkv"
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=20, options={"qp": "5", "preset": "ultrafast", "threads": "1"})
        stream.height, stream.width, stream.pix_fmt = *SIZE, "yuv420p"
        for index in range(40):
            left, ground = (32, 20) if index < 20 else (176, 90)
            picture = generator.integers(ground, ground + 70, (*SIZE, 3), dtype=np.uint8)
            picture[56:88, left : left + 32] |= 192
            frame = av.VideoFrame.from_ndarray(picture, format="rgb24")
            frame.pts, frame.time_base = index, Fraction(1, 20)
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return path


def _watch(clip: Path, predictor: Predictor, roi: Roi) -> list[Blocks]:
    with Reader(clip) as reader:
        return list(watch_blocks(reader, predictor, roi, Watch()))


def test_offsets_are_three_steps_for_every_doubling_of_the_density() -> None:
    offsets = _blocks(np.array([[4.0, 2.0], [1.0, 1.0]])).offsets(Roi(block=16, low=-9, high=9))
    assert offsets.tolist() == [[-3, 0], [3, 3]]
    assert _blocks(np.array([[4.0, 2.0], [1.0, 1.0]])).offsets(Roi(block=16, strength=2)).tolist() == [[-6, 0], [6, 6]]


def test_offsets_stay_in_range_even_where_nobody_looks() -> None:
    offsets = _blocks(np.array([[1.0, 0.0], [0.0, 0.0]])).offsets(Roi(block=16, low=-4, high=2))
    assert offsets.tolist() == [[-4, 2], [2, 2]]
    assert offsets.dtype == np.int8


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 10_000),
    st.tuples(st.integers(4, 12), st.integers(4, 20)),
    st.tuples(st.integers(-12, -2), st.integers(2, 12)),
)
def test_neutral_offsets_keep_the_expected_bits(seed: int, shape: tuple[int, int], limits: tuple[int, int]) -> None:
    generator = np.random.default_rng(seed)
    mass, bits = np.exp(2 * generator.standard_normal(shape)), generator.gamma(1.0, size=shape) + 0.05
    blocks = _blocks(mass, bits)
    offsets = blocks.offsets(Roi(16, *limits, neutral=True))
    assert offsets.min() >= limits[0]
    assert offsets.max() <= limits[1]
    # Offsets are whole numbers: no block's step may be larger than what is left over.
    step = float(bits.max() / bits.sum()) * 2 ** (-limits[0] / 6) * (1 - 2 ** (-1 / 6))
    assert abs(expected_bits(offsets, bits) - 1) <= max(2 * step, 0.02)


def test_neutral_means_weighted_by_bits_not_by_area() -> None:
    mass, bits = np.array([[8.0, 1.0, 1.0, 1.0]]), np.array([[30.0, 1.0, 1.0, 1.0]])
    free = _blocks(mass, bits).offsets(Roi(block=16))
    neutral = _blocks(mass, bits).offsets(Roi(block=16, neutral=True))
    assert expected_bits(free, bits) > 1.2
    assert neutral[0, 0] >= -1
    assert np.ptp(neutral) > 0


def test_block_sums_keep_the_total_and_share_cells_that_lie_across_an_edge() -> None:
    values = np.random.default_rng(0).random((48, 80), dtype=np.float32)
    sums = sum_blocks(values, (720, 1280), 64)
    assert sums.shape == (12, 20)
    assert sums.sum() == pytest.approx(values.sum(), rel=1e-6)
    assert sum_blocks(np.ones((3, 4), np.float32), (6, 8), 4)[0].tolist() == pytest.approx([4, 4])
    assert sum_blocks(np.ones((3, 4), np.float32), (6, 8), 4)[1].tolist() == pytest.approx([2, 2])


def test_a_video_gets_better_quality_where_it_is_bright(clip: Path, bright: Predictor) -> None:
    roi = Roi(block=16)
    frames = _watch(clip, bright, roi)
    assert len(frames) == 40
    assert [index for index, blocks in enumerate(frames) if blocks.cut] == [0, 20]
    for index, column in ((10, 2), (30, 11)):
        offsets = frames[index].offsets(roi)
        assert offsets.shape == (9, 15)
        assert offsets[4, column] == offsets.min() < 0
        assert offsets[:, 14 - column].min() > offsets[4, column] + 3


def test_still_parts_are_expected_to_cost_less_than_moving_ones(bright: Predictor, tmp_path: Path) -> None:
    generator, path = np.random.default_rng(0), tmp_path / "half.mkv"
    still = generator.integers(0, 255, (144, 120, 3), dtype=np.uint8)
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=20, options={"qp": "1", "preset": "ultrafast"})
        stream.height, stream.width, stream.pix_fmt = *SIZE, "yuv420p"
        for index in range(4):
            moving = generator.integers(0, 255, (144, 120, 3), dtype=np.uint8)
            frame = av.VideoFrame.from_ndarray(np.hstack([still, moving]), format="rgb24")
            frame.pts, frame.time_base = index, Fraction(1, 20)
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    bits = _watch(path, bright, Roi(block=24))[3].bits
    assert bits[:, 5:].mean() > 3 * bits[:, :5].mean()


def _parse_kvazaar(text: str) -> list[np.ndarray]:
    """By kvazaar's documentation: width, height, then width * height values in raster order, again and again."""
    numbers, maps = [int(word) for word in text.split()], []
    while numbers:
        width, height = numbers[:2]
        assert width > 0
        assert height > 0
        values, numbers = numbers[2 : 2 + width * height], numbers[2 + width * height :]
        assert len(values) == width * height
        maps.append(np.array(values).reshape(height, width))
    return maps


def test_kvazaar_text_and_binary_hold_the_same_grids(clip: Path, bright: Predictor) -> None:
    roi = Roi(block=64)
    frames = _watch(clip, bright, roi)
    text, binary = io.StringIO(), io.BytesIO()
    write_kvazaar(frames, roi, text)
    write_kvazaar_binary(frames, roi, binary)
    maps = _parse_kvazaar(text.getvalue())
    assert len(maps) == 40
    assert maps[0].shape == (math.ceil(144 / 64), math.ceil(240 / 64))
    assert text.getvalue().splitlines()[0] == "4 3"
    content = binary.getvalue()
    assert len(content) == 40 * (8 + 12)
    for index, grid in enumerate(maps):
        np.testing.assert_array_equal(grid, frames[index].offsets(roi))
        part = content[20 * index : 20 * index + 20]
        assert struct.unpack("<ii12b", part) == (4, 3, *grid.ravel().tolist())


def test_csv_and_json_hold_every_frame_and_block(clip: Path, bright: Predictor) -> None:
    roi = Roi(block=48, low=-5, high=3)
    frames = _watch(clip, bright, roi)
    table, document = io.StringIO(), io.StringIO()
    write_csv(frames, roi, table)
    write_json(frames, roi, document)
    parsed = json.loads(document.getvalue())
    assert (parsed["block"], parsed["size"], parsed["range"]) == (48, {"width": 240, "height": 144}, [-5, 3])
    assert len(parsed["frames"]) == 40
    rows = list(csv.DictReader(io.StringIO(table.getvalue())))
    assert len(rows) == 40 * 3 * 5
    last = rows[-1]
    assert (last["frame"], last["row"], last["column"]) == ("39", "2", "4")
    assert float(last["time"]) == pytest.approx(39 / 20)
    assert int(last["qp_offset"]) == parsed["frames"][39]["qp_offset"][2][4] == frames[39].offsets(roi)[2, 4]


@pytest.mark.parametrize("form", [*TEXT, "ffmpeg"])
def test_a_video_without_a_frame_is_an_error_in_every_form(form: str) -> None:
    text = io.StringIO()
    with pytest.raises(DataError, match="no frame that can be decoded"):
        (TEXT | {"ffmpeg": write_ffmpeg})[form]([], Roi(), text)
    assert text.getvalue() == ""


def test_a_video_without_a_frame_is_an_error_in_binary_too() -> None:
    with pytest.raises(DataError, match="no frame that can be decoded"):
        write_kvazaar_binary([], Roi(), io.BytesIO())


def _painted(found: list[Rectangle], size: tuple[int, int]) -> np.ndarray:
    """What an encoder sees: of rectangles that overlap the first counts."""
    picture = np.zeros(size)
    for item in reversed(found):
        picture[item.top : item.top + item.height, item.left : item.left + item.width] = item.offset
    return picture


def test_rectangles_are_few_and_come_near_the_map() -> None:
    y, x = np.mgrid[:45, :80]
    wanted = 8 - 16 * np.exp(-(((x - 50) / 9) ** 2) - ((y - 20) / 7) ** 2)
    found = rectangles(wanted, (720, 1280), Roi(block=16))
    assert 4 <= len(found) <= MOST_RECTANGLES + 1
    assert (found[-1].width, found[-1].height) == (1280, 720)
    shown = _painted(found, (720, 1280))[8::16, 8::16]
    assert np.square(shown - wanted).mean() < 0.1 * wanted.var()
    assert shown[20, 50] < -4


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 9), st.integers(1, 9))
def test_rectangles_never_make_a_map_worse_and_stay_in_the_frame(seed: int, rows: int, columns: int) -> None:
    wanted = np.random.default_rng(seed).normal(0, 4, (rows, columns))
    size, roi = (rows * 16 - 5, columns * 16 - 3), Roi(block=16)
    found = rectangles(wanted, size, roi)
    clipped = np.clip(wanted, -8, 8)
    for item in found:
        assert item.left + item.width <= size[1]
        assert item.top + item.height <= size[0]
        assert -8 <= item.offset <= 8
    error = np.square(_painted(found, size)[5::16, 5::16] - clipped).sum()
    assert error <= np.square(clipped - clipped.mean()).sum() + 0.01


def test_a_map_of_two_levels_is_given_back_exactly() -> None:
    wanted = np.full((9, 15), 2.0)
    wanted[3:5, 6:12] = -6
    found = rectangles(wanted, (144, 240), Roi(block=16))
    np.testing.assert_allclose(_painted(found, (144, 240)), wanted.repeat(16, 0).repeat(16, 1), atol=0.01)


def test_stretches_that_look_the_same_are_one_but_never_across_a_cut(clip: Path, bright: Predictor) -> None:
    roi = Roi(block=16)
    found = few_stretches(_watch(clip, bright, roi), roi, 0.4)
    assert [part.frames for part in found] == [20, 20]


def test_a_long_video_has_few_stretches_all_the_same() -> None:
    generator = np.random.default_rng(0)
    frames = [
        Blocks(index / 2, (48, 64), mass / mass.sum(), np.ones((3, 4)), cut=True)
        for index, mass in enumerate(np.exp(3 * generator.standard_normal((400, 3, 4))))
    ]
    found = few_stretches(frames, Roi(block=16), 1.0)
    assert len(found) == MOST_STRETCHES
    assert sum(part.frames for part in found) == 400
    text = io.StringIO()
    write_ffmpeg(frames, Roi(block=16), text)
    assert text.getvalue().count("addroi") <= MOST_STRETCHES * (MOST_RECTANGLES + 1)


def test_svt_av1_gets_a_line_for_every_change_and_at_most_eight_offsets(clip: Path, bright: Predictor) -> None:
    text = io.StringIO()
    write_svt_av1(_watch(clip, bright, Roi(block=64)), Roi(block=64), text)
    lines = [[int(word) for word in line.split()] for line in text.getvalue().splitlines()]
    numbers = [line[0] for line in lines]
    assert numbers == sorted(set(numbers))
    assert numbers[0] == 0
    assert 20 in numbers
    assert {len(line) for line in lines} == {1 + 3 * 4}
    assert len({value for line in lines for value in line[1:]}) <= 8
    assert min(lines[0][1:]) < 0 < max(lines[0][1:])
    with pytest.raises(ArgumentError, match="only size of blocks"):
        write_svt_av1(_watch(clip, bright, Roi(block=32)), Roi(block=32), text)


@pytest.mark.parametrize("crf", [27, 32])
def test_neutral_offsets_leave_the_size_of_the_encoded_video_as_it_was(
    clip: Path, bright: Predictor, tmp_path: Path, crf: int
) -> None:
    if shutil.which("ffmpeg") is None:
        pytest.skip("ffmpeg is not installed")
    roi = Roi(block=16, neutral=True, crf=crf)
    script = tmp_path / "roi.ffmpeg"
    with script.open("w") as out:
        write_ffmpeg(_watch(clip, bright, roi), roi, out, source=clip)
    sizes = []
    for name, graph in (("roi.h264", ["-filter_complex_script", str(script), "-map", "[out]"]), ("plain.h264", [])):
        encode = ["-c:v", "libx264", "-crf", str(crf), "-preset", "veryfast", "-threads", "1", str(tmp_path / name)]
        subprocess.run(["ffmpeg", "-v", "error", "-i", str(clip), *graph, *encode], check=True)
        sizes.append((tmp_path / name).stat().st_size)
    # Offsets are whole numbers, and sums that are rounded otherwise on another number of cores may move one of them.
    assert sizes[0] / sizes[1] == pytest.approx(1, abs=0.025)
    assert "addroi" in script.read_text()


def test_stretches_end_at_cuts_and_after_the_interval(clip: Path, bright: Predictor) -> None:
    frames = _watch(clip, bright, Roi(block=16))
    found = list(stretches(frames, 0.4))
    assert [stretch.frames for stretch in found] == [8, 8, 4, 8, 8, 4]
    np.testing.assert_allclose(found[0].mass, np.mean([frame.mass for frame in frames[:8]], axis=0))


def _psnr(clip: Path, coded: Path, columns: slice) -> float:
    def luma(path: Path) -> np.ndarray:
        with av.open(str(path)) as container:
            frames = [frame.to_ndarray(format="gray") for frame in container.decode(video=0)]
        return np.array(frames, float)[:20, 56:88, columns]

    return float(10 * np.log10(255**2 / np.square(luma(clip) - luma(coded)).mean()))


def test_ffmpeg_runs_the_script_and_x264_obeys_it(clip: Path, bright: Predictor, tmp_path: Path) -> None:
    if shutil.which("ffmpeg") is None:
        pytest.skip("ffmpeg is not installed")
    roi = Roi(block=16, low=-12, high=12)
    script = tmp_path / "roi.ffmpeg"
    with script.open("w") as out:
        write_ffmpeg(_watch(clip, bright, roi), roi, out)
    assert re.search(
        r"trim=start_frame=0:end_frame=20,setpts=PTS-STARTPTS,addroi=x=\d+:y=\d+:w=\d+", script.read_text()
    )
    encode = ["-c:v", "libx264", "-crf", "30", "-preset", "veryfast", "-threads", "1"]
    for name, graph in (("roi.mkv", ["-filter_complex_script", str(script), "-map", "[out]"]), ("plain.mkv", [])):
        command = ["ffmpeg", "-v", "warning", "-i", str(clip), *graph, *encode, str(tmp_path / name)]
        result = subprocess.run(command, check=True, capture_output=True, text=True)
        assert "ROI" not in result.stderr
    with av.open(str(tmp_path / "roi.mkv")) as container:
        times = [frame.time for frame in container.decode(video=0)]
    assert times == pytest.approx([index / 20 for index in range(40)], abs=0.002)
    inside, outside = slice(32, 64), slice(176, 208)
    gain = _psnr(clip, tmp_path / "roi.mkv", inside) - _psnr(clip, tmp_path / "plain.mkv", inside)
    loss = _psnr(clip, tmp_path / "plain.mkv", outside) - _psnr(clip, tmp_path / "roi.mkv", outside)
    assert gain > 2
    assert gain + loss > 2


@pytest.mark.parametrize(
    "wrong", [{"block": 20}, {"block": 0}, {"low": 1}, {"high": 60}, {"strength": -1.0}, {"strength": math.nan}]
)
def test_settings_out_of_range_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ArgumentError):
        Roi(**wrong)  # type: ignore[arg-type]
