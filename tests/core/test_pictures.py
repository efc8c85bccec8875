"""Every kind of picture comes out upright, in 8-bit RGB, or as one clear error."""

import io
import os
import struct
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, TiffImagePlugin

from fastgaze.core import pictures as image_module
from fastgaze.core.encoding import encode_png
from fastgaze.core.errors import ArgumentError, ImageError, ImageTooLargeError
from fastgaze.core.pictures import Source, image_files, open_picture, read_pixels, read_size
from fastgaze.data.fixations import from_lists


def gradient(height: int = 40, width: int = 60) -> np.ndarray:
    """Red grows to the right, green downwards; no symmetry, so every wrong turn shows."""
    y, x = np.mgrid[0:height, 0:width]
    return np.stack([x * 255 // width, y * 255 // height, np.full_like(x, 90)], axis=2).astype(np.uint8)


def encode(image: Image.Image, format: str, **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, format, **options)
    return buffer.getvalue()


def rgb(source: Source, at_least: tuple[int, int] | None = None) -> np.ndarray:
    return np.asarray(open_picture(source).rgb(at_least)).astype(int)


TURNS = {
    1: lambda a: a,
    2: lambda a: a[:, ::-1],
    3: lambda a: a[::-1, ::-1],
    4: lambda a: a[::-1],
    5: lambda a: a.transpose(1, 0, 2),
    6: lambda a: np.rot90(a, 1),
    7: lambda a: a[::-1, ::-1].transpose(1, 0, 2),
    8: lambda a: np.rot90(a, -1),
}


@pytest.mark.parametrize("format", ["JPEG", "PNG", "WEBP", "TIFF"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation_is_undone(format: str, orientation: int) -> None:
    upright = gradient()
    stored = Image.fromarray(np.ascontiguousarray(TURNS[orientation](upright)))
    options: dict[str, object] = {"quality": 95} if format in ("JPEG", "WEBP") else {}
    if format == "TIFF":
        tags = TiffImagePlugin.ImageFileDirectory_v2()
        tags[0x0112] = orientation
        options["tiffinfo"] = tags
    else:
        exif = Image.Exif()
        exif[0x0112] = orientation
        options["exif"] = exif
    content = encode(stored, format, **options)
    picture = open_picture(content)
    assert picture.size == (40, 60)
    assert np.abs(np.asarray(picture.rgb()).astype(int) - upright).mean() < 6
    small = open_picture(content).rgb(at_least=(20, 30))
    assert small.width >= 30
    assert small.height >= 20


@pytest.mark.parametrize("mode", ["RGB", "L", "CMYK", "YCbCr", "P", "1", "RGBA", "LA", "I;16", "I", "F"])
def test_every_mode_gives_the_same_picture(mode: str) -> None:
    grey = np.where(np.mgrid[0:32, 0:32][1] < 16, 20, 230).astype(np.uint8)
    image = Image.fromarray(grey)
    if mode == "I;16":
        image = Image.fromarray(grey.astype(np.uint16) * 257)
    elif mode == "F":
        image = Image.fromarray(grey.astype(np.float32) / 255)
    elif mode == "CMYK":
        image = image.convert("RGB").convert("CMYK")
    else:
        image = image.convert(mode, dither=Image.Dither.NONE)
    expected = np.where(grey > 128, 255, 0) if mode == "1" else grey
    assert np.abs(rgb(image) - expected[:, :, None]).max() <= (12 if mode == "P" else 2)


def test_16_bit_png_keeps_its_upper_bits() -> None:
    samples = np.linspace(0, 65535, 256, dtype=np.uint16).reshape(16, 16)
    content = encode(Image.fromarray(samples), "PNG")
    assert np.array_equal(rgb(content)[:, :, 0], samples >> 8)


def test_transparency_is_laid_over_white() -> None:
    clear = np.zeros((8, 8, 4), np.uint8)
    clear[:, 4:] = (10, 20, 30, 255)
    for source in (clear, encode(Image.fromarray(clear), "PNG"), encode(Image.fromarray(clear), "GIF")):
        found = rgb(source)
        assert (found[:, :4] >= 250).all()
        assert np.abs(found[:, 4:] - (10, 20, 30)).max() <= 40


def test_half_transparent_pixels_mix_with_white() -> None:
    array = np.zeros((4, 4, 4), np.uint8)
    array[:, :, 3] = 128
    assert np.abs(rgb(array) - 127).max() <= 1


def test_of_an_animation_the_first_frame_is_used() -> None:
    frames = [Image.new("RGB", (16, 16), color) for color in ("red", "lime")]
    for format in ("GIF", "WEBP", "PNG"):
        content = encode(frames[0], format, save_all=True, append_images=frames[1:])
        assert np.abs(rgb(content)[8, 8] - (255, 0, 0)).max() <= 3


def test_a_large_jpeg_is_decoded_smaller_but_not_below_the_size_asked_for() -> None:
    content = encode(Image.fromarray(gradient(800, 1200)), "JPEG")
    picture = open_picture(content)
    small = picture.rgb(at_least=(240, 320))
    assert picture.size == (800, 1200)
    assert small.height < 480
    assert small.height >= 240
    assert small.width >= 320
    full = Image.fromarray(gradient(800, 1200)).resize(small.size, Image.Resampling.BOX)
    assert np.abs(np.asarray(small).astype(int) - np.asarray(full)).mean() < 2


def test_arrays_are_rgb_rgba_or_grey() -> None:
    array = gradient()
    assert np.array_equal(rgb(array), array)
    assert np.array_equal(rgb(array[:, :, 0])[:, :, 2], array[:, :, 0])
    assert np.array_equal(rgb(array[:, :, :1])[:, :, 1], array[:, :, 0])
    assert np.array_equal(rgb(array[::2, ::-1]), array[::2, ::-1])


@pytest.mark.parametrize("format", ["JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM", "AVIF", "JPEG2000", "ICO"])
def test_every_format_is_read(format: str) -> None:
    array = gradient(64, 64)
    try:
        content = encode(Image.fromarray(array), format)
    except (KeyError, OSError):
        pytest.skip(f"this Pillow writes no {format}")
    assert np.abs(rgb(content) - array).mean() < 12


def test_noise_is_no_picture() -> None:
    generator = np.random.default_rng(0)
    for _ in range(200):
        with pytest.raises(ImageError, match="known format"):
            open_picture(generator.bytes(500))


def test_the_image_given_is_left_as_it_was() -> None:
    content = encode(Image.fromarray(gradient(800, 800)), "JPEG")
    image = Image.open(io.BytesIO(content))
    open_picture(image).rgb(at_least=(50, 50))
    assert image.size == (800, 800)


def test_what_is_no_picture_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty.jpg").write_bytes(b"")
    (tmp_path / "text.png").write_text("hello")
    (tmp_path / "loop.jpg").symlink_to(tmp_path / "loop.jpg")
    (tmp_path / "gone.jpg").symlink_to(tmp_path / "nothing")
    (tmp_path / "zero.jpg").symlink_to("/dev/zero")
    os.mkfifo(tmp_path / "pipe.jpg")
    for name in ("empty.jpg", "text.png", "loop.jpg", "gone.jpg", "zero.jpg", "pipe.jpg", "absent.jpg", ".", "a\0b"):
        with pytest.raises(ImageError) as caught:
            open_picture(f"{tmp_path}/{name}").rgb()
        assert "\n" not in str(caught.value)
    with pytest.raises(ArgumentError, match="not int"):
        open_picture(3)  # type: ignore[arg-type]


def test_a_file_of_a_terabyte_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "sparse.jpg"
    path.touch()
    os.truncate(path, 1 << 40)
    with pytest.raises(ImageError, match="bytes are more than"):
        open_picture(path)


def test_a_postscript_file_starts_no_program() -> None:
    with pytest.raises(ImageError, match="known format"):
        open_picture(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n")


def bomb(side: int) -> bytes:
    """A PNG that says it has side x side pixels."""
    header = encode(Image.new("1", (8, 8)), "PNG")
    chunk = b"IHDR" + struct.pack(">IIBBBBB", side, side, 1, 0, 0, 0, 0)
    return header[:12] + chunk + struct.pack(">I", zlib.crc32(chunk)) + header[33:]


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
@pytest.mark.parametrize("side", [11_000, 20_000, 60_000])
def test_a_bomb_is_refused_before_its_pixels_are_read(side: int) -> None:
    with pytest.raises(ImageError, match=r"megapixels|exceeds limit"):
        open_picture(bomb(side))


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
def test_an_opened_image_is_refused_as_its_file_is() -> None:
    with Image.open(io.BytesIO(bomb(11_000))) as large, pytest.raises(ImageTooLargeError, match="megapixels"):
        open_picture(large)
    half = encode(Image.fromarray(gradient()), "JPEG")[:-60]
    with Image.open(io.BytesIO(half)) as truncated, pytest.raises(ImageError, match=r"cannot decode .*truncated"):
        open_picture(truncated)


def decoded(content: bytes) -> str:
    """The mode of the picture, or the error that names what is wrong with it."""
    try:
        return open_picture(content).rgb((16, 16)).mode
    except ImageError as error:
        return f"error: {error}"


@pytest.mark.filterwarnings("ignore")
def test_truncated_and_flipped_files_are_errors_or_pictures() -> None:
    generator = np.random.default_rng(0)
    outcomes = []
    for format in ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM"):
        whole = encode(Image.fromarray(gradient()), format)
        for _ in range(30):
            content = bytearray(whole[: generator.integers(1, len(whole))] if generator.random() < 0.5 else whole)
            content[generator.integers(len(content))] ^= 1 << generator.integers(8)
            outcomes.append(decoded(bytes(content)))
    assert all(outcome == "RGB" or outcome.startswith("error: bytes: ") for outcome in outcomes)
    assert not any("\n" in outcome for outcome in outcomes)
    assert sum(outcome != "RGB" for outcome in outcomes) > 60


def test_the_limit_lets_100_megapixels_through() -> None:
    assert image_module.MAX_PIXELS >= 100_000_000


def test_our_own_limit_decides_without_a_warning_from_pillow() -> None:
    """Warnings are errors here; 100 megapixels is between Pillow's first limit and ours."""
    content = io.BytesIO()
    Image.new("1", (10_000, 10_000)).save(content, "PNG")
    picture = open_picture(content.getvalue())
    assert picture.size == (10_000, 10_000)
    with pytest.raises(ImageTooLargeError, match="more than 120 megapixels"):
        open_picture(_header_of_a_png(11_000, 11_000))


def _header_of_a_png(width: int, height: int) -> bytes:
    content = io.BytesIO()
    Image.new("1", (8, 8)).save(content, "PNG")
    start, end = content.getvalue()[:16], content.getvalue()[33:]
    chunk = b"IHDR" + struct.pack(">II", width, height) + content.getvalue()[24:29]
    return start[:12] + chunk + struct.pack(">I", zlib.crc32(chunk)) + end


def test_a_picture_that_is_open_stays_itself() -> None:
    picture = open_picture(gradient())
    assert open_picture(picture) is picture


@pytest.mark.parametrize("format", ["JPEG", "PNG"])
def test_a_file_is_decoded_once_for_every_size_that_what_was_decoded_is_enough_for(
    format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    decodings = []
    decode = image_module.Picture._decode

    def counted(self: image_module.Picture, at_least: tuple[int, int] | None) -> Image.Image:
        decodings.append(at_least)
        return decode(self, at_least)

    monkeypatch.setattr(image_module.Picture, "_decode", counted)
    picture = open_picture(encode(Image.fromarray(gradient(800, 1200)), format))
    large = picture.rgb(at_least=(400, 600))
    small = picture.pixels(at_least=(100, 150))
    assert decodings == [(400, 600)]
    assert 150 <= small.shape[1] < 300
    assert large.width >= 600
    assert picture.rgb().size == (1200, 800)
    assert picture.rgb(at_least=(700, 900)).width >= 900
    assert len(decodings) == 2, "the larger one was decoded anew, and serves the rest"


def test_what_a_file_holds_is_let_go_of_once_it_is_decoded(tmp_path: Path) -> None:
    path = tmp_path / "photo.jpg"
    path.write_bytes(encode(Image.fromarray(gradient(800, 1200)), "JPEG"))
    picture = open_picture(path)
    picture.rgb(at_least=(100, 150))
    path.unlink()
    assert picture.rgb(at_least=(100, 150)).width >= 150
    with pytest.raises(ImageError, match="cannot read"):
        picture.rgb()


ODD = {
    "float.tif": lambda: encode(Image.fromarray(np.linspace(0, 1, 4096, dtype=np.float32).reshape(64, 64)), "TIFF"),
    "dark.png": lambda: encode(Image.fromarray(np.arange(4096, dtype=np.uint16).reshape(64, 64) // 21), "PNG"),
    "photo.avif": lambda: encode(Image.fromarray(gradient(64, 64)), "AVIF"),
    "photo.jp2": lambda: encode(Image.fromarray(gradient(64, 64)), "JPEG2000"),
    "icon.ico": lambda: encode(Image.fromarray(gradient(64, 64)), "ICO", sizes=[(64, 64)]),
}


@pytest.mark.parametrize("name", ODD)
def test_odd_files_are_the_same_for_predicting_and_for_training(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "images"
    folder.mkdir()
    try:
        (folder / name).write_bytes(ODD[name]())
    except (KeyError, OSError):
        pytest.skip("this Pillow writes no such file")
    assert image_files(folder) == [folder / name], "a training set sees the file"
    assert read_size(folder / name) == (64, 64)
    trained_on = from_lists(["x"], [folder / name], [(64, 64)], [np.zeros((0, 2))]).image(0)
    assert np.array_equal(trained_on, open_picture(folder / name).pixels())
    mean = {"float.tif": 127.5, "dark.png": 0.0}.get(name, float(gradient(64, 64).mean()))
    assert trained_on.mean() == pytest.approx(mean, abs=4)


def test_a_postscript_file_in_a_training_set_starts_no_program(tmp_path: Path) -> None:
    path = tmp_path / "drawing.png"
    path.write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n")
    for read in (read_pixels, read_size):
        with pytest.raises(ImageError, match="known format"):
            read(path)


def heic(array: np.ndarray) -> bytes:
    pytest.importorskip("pillow_heif").register_heif_opener()
    return encode(Image.fromarray(array), "HEIF", quality=90)


def test_heic_is_read_where_pillow_heif_is_installed(tmp_path: Path) -> None:
    (tmp_path / "photo.heic").write_bytes(heic(gradient(64, 96)))
    assert image_files(tmp_path) == [tmp_path / "photo.heic"]
    assert read_size(tmp_path / "photo.heic") == (64, 96)
    assert np.abs(rgb(tmp_path / "photo.heic") - gradient(64, 96)).mean() < 6


def test_heic_without_pillow_heif_is_an_error_that_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    content = heic(gradient(64, 96))
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    with pytest.raises(ImageError, match=r"HEIC picture.*pip install 'fastgaze\[heic\]'"):
        open_picture(content)


@pytest.mark.parametrize("size", [(1, 1), (1, 7), (9, 1), (64, 48)])
def test_a_png_holds_every_pixel(size: tuple[int, int]) -> None:
    array = np.random.default_rng(0).integers(0, 256, (*size, 3), dtype=np.uint8)
    with Image.open(io.BytesIO(encode_png(Image.fromarray(array)))) as image:
        assert image.format == "PNG"
        assert np.array_equal(np.asarray(image), array)


def test_two_working_sizes_share_what_was_made_smaller() -> None:
    picture = open_picture(Image.new("RGB", (2000, 1500), "red"))
    picture.rgb()
    small = picture.rgb((200, 300))
    assert small.size == (500, 375)
    assert picture.rgb((300, 400)) is small
    assert picture.rgb((700, 900)).size == (1000, 750)
    assert picture.rgb().size == (2000, 1500)
