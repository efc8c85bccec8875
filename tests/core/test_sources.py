"""Arrays, tensors and streams as pictures: the rules of ``core.sources``."""

import io
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from fastgaze.core.errors import ArgumentError, ImageError, ImageTooLargeError
from fastgaze.core.pictures import is_one_picture, open_picture
from fastgaze.core.sources import read_stream

RNG = np.random.default_rng(0)
RGB = RNG.integers(0, 256, (20, 30, 3), dtype=np.uint8)
RGBA = np.dstack([RGB, np.full((20, 30), 255, np.uint8)])


def pixels(source: object, bgr: bool = False) -> np.ndarray:
    return np.asarray(open_picture(source, bgr).rgb())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "array",
    [
        RGB,
        RGBA,
        RGB.transpose(2, 0, 1),
        RGBA.transpose(2, 0, 1),
        RGB.astype(np.int64),
        RGB.astype(np.uint16) * 257,
        RGB / 255,
        (RGB / 255).astype(np.float32).transpose(2, 0, 1),
        (RGB / 255).astype(np.float16),
    ],
    ids=["hwc", "hwc4", "chw", "chw4", "int64", "uint16", "float64", "float32-chw", "float16"],
)
def test_arrays_of_every_layout_and_type_are_the_same_picture(array: np.ndarray) -> None:
    tolerance = 1 if array.dtype == np.float16 else 0
    assert np.abs(pixels(array).astype(int) - RGB).max() <= tolerance


def test_grey_arrays_have_no_channel_or_one_first_or_last() -> None:
    grey = RGB[:, :, 0]
    for array in (grey, grey[:, :, None], grey[None]):
        assert np.array_equal(pixels(array), np.repeat(grey[:, :, None], 3, axis=2))


def test_the_last_axis_is_the_channels_where_both_could_be() -> None:
    assert open_picture(np.zeros((3, 50, 4), np.uint8)).size == (3, 50)
    assert open_picture(np.zeros((3, 50, 40), np.uint8)).size == (50, 40)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32, torch.bfloat16])
def test_tensors_are_pictures(dtype: torch.dtype) -> None:
    values = torch.from_numpy(RGB.copy()).permute(2, 0, 1)
    tensor = values if dtype == torch.uint8 else (values / 255).to(dtype).requires_grad_()
    tolerance = 1 if dtype == torch.bfloat16 else 0
    assert np.abs(pixels(tensor).astype(int) - RGB).max() <= tolerance


def test_whatever_numpy_reads_is_an_array() -> None:
    class Wrapped:
        def __array__(self, dtype: object = None, copy: object = None) -> np.ndarray:
            return RGB

    assert np.array_equal(pixels(Wrapped()), RGB)


@pytest.mark.parametrize("array", [RGB, RGBA, RGB.transpose(2, 0, 1), RGB / 255])
def test_bgr_turns_the_channels_around_and_keeps_alpha(array: np.ndarray) -> None:
    assert np.array_equal(pixels(array, bgr=True), RGB[:, :, ::-1])


def test_bgr_is_refused_where_the_order_is_known_or_means_nothing() -> None:
    with pytest.raises(ArgumentError, match="bgr=True is for arrays and tensors; Image has its own order"):
        open_picture(Image.fromarray(RGB), bgr=True)
    with pytest.raises(ArgumentError, match="this one is grey"):
        open_picture(RGB[:, :, 0], bgr=True)


def test_an_overshoot_of_floats_is_clipped() -> None:
    array = np.full((4, 4, 3), 1.04, np.float32)
    array[0] = -0.03
    assert np.array_equal(np.unique(pixels(array)), [0, 255])


@pytest.mark.parametrize(
    ("array", "complaint"),
    [
        (RGB.astype(np.float32), r"a picture of float32 has values 0\.\.1, not .*divide it by 255"),
        ((RGB / 255 - 0.45) / 0.22, r"float64 has values 0\.\.1, not -2\.045\.\.2\.5; .*undo its normalisation"),
        (np.full((4, 4), np.nan), r"not nan\.\.nan; replace NaN"),
        (np.full((4, 4), 1e9), r"scale it to 0\.\.1"),
        (np.full((4, 4), 300, np.int32), r"a picture of int32 has values 0\.\.255, not 300\.\.300"),
        (np.full((4, 4), -1, np.int8), r"not -1\.\.-1"),
        (np.zeros((4, 4), bool), r"integers 0\.\.255 or floats 0\.\.1, not of bool"),
        (np.zeros((4, 4), complex), "not of complex128"),
        (np.zeros((4, 4), object), "not of object"),
        (np.zeros(4, np.uint8), r"\(H, W\), \(H, W, C\) or \(C, H, W\).*, not one of shape \(4,\)"),
        (np.zeros((5, 6, 7), np.uint8), r"not one of shape \(5, 6, 7\)"),
        (np.zeros((0, 6, 3), np.uint8), r"not one of shape \(0, 6, 3\)"),
        (np.zeros((2, 5, 6, 3), np.uint8), r"\(2, 5, 6, 3\) holds 2 pictures; give it to predict_many"),
    ],
)
def test_arrays_that_are_not_pictures_are_refused_with_what_is_valid(array: np.ndarray, complaint: str) -> None:
    with pytest.raises(ArgumentError, match=complaint) as caught:
        open_picture(array)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("thing", [None, 5, {"a": 1}, [RGB]])
def test_things_that_are_not_pictures_are_named(thing: object) -> None:
    with pytest.raises(ArgumentError, match=f"a picture is a path, .* a tensor, not {type(thing).__name__}$"):
        open_picture(thing)  # type: ignore[arg-type]


class Dripping(io.RawIOBase):
    """A connection that never gives more than a hundred bytes at once."""

    def __init__(self, content: bytes) -> None:
        self._content = io.BytesIO(content)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        return self._content.readinto(memoryview(buffer)[:100])


def test_streams_are_read_from_where_they_stand_to_their_end(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    Image.fromarray(RGB).save(path)
    content = path.read_bytes()
    later = io.BytesIO(b"header" + content)
    later.seek(6)
    with path.open("rb") as file:
        for stream in (file, io.BytesIO(content), later, Dripping(content)):
            assert np.array_equal(pixels(stream), RGB)


def test_a_folder_is_no_picture_whatever_it_holds(tmp_path: Path) -> None:
    Image.fromarray(RGB).save(tmp_path / "a.png")
    with pytest.raises(ImageError, match="is a folder; give an image file"):
        open_picture(tmp_path)


def test_streams_that_give_nothing_useful_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    Image.fromarray(RGB).save(path)
    written = io.BytesIO()
    Image.fromarray(RGB).save(written, "PNG")
    with pytest.raises(ImageError, match=r"stream: nothing is left .* seek\(0\)"):
        open_picture(written)
    with (tmp_path / "notes.txt").open("w+") as text, pytest.raises(ArgumentError, match=r"gives str, .* with 'rb'"):
        open_picture(text)  # type: ignore[arg-type]
    with (
        path.open(encoding="utf-8") as text,
        pytest.raises(ArgumentError, match=r"a\.png: .* gives text, .* with 'rb'"),
    ):
        open_picture(text)  # type: ignore[arg-type]
    with path.open("rb") as file:
        pass
    with pytest.raises(ImageError, match=r"a\.png: cannot read the stream \(read of closed file\)"):
        open_picture(file)
    with pytest.raises(ImageError, match="stream: not a picture in a known format"):
        open_picture(io.BytesIO(b"words"))
    with pytest.raises(ImageTooLargeError, match="more than 99 bytes"):
        read_stream(Dripping(bytes(5000)), 99)


def test_one_picture_is_told_from_several() -> None:
    assert all(map(is_one_picture, ["a.jpg", Path("a.jpg"), b"", io.BytesIO(), RGB, torch.zeros(3, 4, 4)]))
    assert not any(map(is_one_picture, [["a.jpg"], np.zeros((2, 4, 4, 3)), torch.zeros(2, 3, 4, 4), iter(())]))
