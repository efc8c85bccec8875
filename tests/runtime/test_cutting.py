"""A window as a file: exact pixels, and what belongs to the picture stays with it."""

import io
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageCms, ImageOps, JpegImagePlugin, PngImagePlugin

from fastgaze.core.errors import ArgumentError, ImageError, ImageTooLargeError
from fastgaze.core.pictures import open_picture
from fastgaze.runtime.cutting import Cut, Cutter, cut_picture, pixels_needed
from fastgaze.runtime.jpegs import quality_of
from fastgaze.runtime.predictor import load

ORIENTATION, COPYRIGHT, EXIF, ACROSS = 0x0112, 0x8298, 0x8769, 0xA002
FRAMES = 5


def noise(size: tuple[int, int] = (60, 80), seed: int = 0) -> Image.Image:
    """Squares of 10 pixels in random colours, RGB; size is (height, width)."""
    blocks = np.random.default_rng(seed).integers(0, 256, (size[0] // 10, size[1] // 10, 3), np.uint8)
    return Image.fromarray(blocks).resize((size[1], size[0]), Image.Resampling.NEAREST)


def smooth(size: tuple[int, int]) -> Image.Image:
    """Soft spots in random colours, which every codec keeps well."""
    return noise((60, 80)).resize((8, 6)).resize((size[1], size[0]), Image.Resampling.BICUBIC)


def encoded(image: Image.Image, format: str, **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, format, **options)
    return buffer.getvalue()


def opened(cut: Cut) -> Image.Image:
    return Image.open(io.BytesIO(cut.content))


def opened_jpeg(content: bytes) -> JpegImagePlugin.JpegImageFile:
    image = Image.open(io.BytesIO(content))
    assert isinstance(image, JpegImagePlugin.JpegImageFile)
    return image


PROFILE = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()


@pytest.mark.parametrize("orientation", range(1, 9))
def test_the_window_is_cut_from_the_upright_picture_which_then_needs_no_turning(orientation: int) -> None:
    exif = Image.Exif()
    exif[ORIENTATION], exif[COPYRIGHT] = orientation, "A. Photographer"
    exif.get_ifd(EXIF)[ACROSS] = 80
    content = encoded(noise(), "PNG", exif=exif.tobytes(), icc_profile=PROFILE)
    upright = ImageOps.exif_transpose(Image.open(io.BytesIO(content)))
    box = (5, 7, upright.width - 9, upright.height - 11)
    cut = opened(cut_picture(content, box))
    assert np.array_equal(np.asarray(cut), np.asarray(upright.crop(box)))
    assert cut.getexif().get(ORIENTATION, 1) == 1
    assert cut.getexif()[COPYRIGHT] == "A. Photographer"
    assert cut.getexif().get_ifd(EXIF)[ACROSS] == cut.width
    assert cut.info["icc_profile"] == PROFILE


@pytest.mark.parametrize("orientation", [1, 6])
def test_exact_pixels_come_out_whatever_the_window(orientation: int) -> None:
    exif = Image.Exif()
    exif[ORIENTATION] = orientation
    content = encoded(smooth((600, 800)), "JPEG", quality=95, exif=exif.tobytes())
    upright = ImageOps.exif_transpose(Image.open(io.BytesIO(content)))
    for box, size in (((0, 0, 400, 210), (63, 120)), ((10, 20, 110, 80), (630, 1200)), ((1, 2, 4, 5), (1, 1))):
        cut = cut_picture(content, box, size)
        expected = upright.resize((size[1], size[0]), Image.Resampling.BICUBIC, box=box)
        assert opened(cut).size == expected.size
        assert cut.enlarged == (size[0] > box[3] - box[1])
        difference = np.abs(np.asarray(opened(cut), np.float64) - np.asarray(expected, np.float64)).mean()
        assert difference < 6


@pytest.mark.parametrize("quality", [30, 75, 95])
def test_a_jpeg_is_written_as_finely_as_its_source_and_no_finer(quality: int) -> None:
    content = encoded(smooth((300, 400)), "JPEG", quality=quality, subsampling=0)
    source = opened_jpeg(content)
    assert quality_of(source) == quality
    cut = cut_picture(content, (0, 0, 400, 300))
    assert opened_jpeg(cut.content).quantization == source.quantization
    assert opened_jpeg(cut.content).layer == source.layer  # chroma sampling
    assert len(cut.content) <= 1.02 * len(content)
    assert quality_of(opened(cut_picture(content, (0, 0, 400, 300), quality=100))) == quality
    assert quality_of(opened(cut_picture(content, (0, 0, 400, 300), quality=20))) == 20


def described_colours(profile: bytes | None) -> bytes | None:
    return None if profile is None else profile[16:20]


@pytest.mark.parametrize("format", ["keep", "jpeg", "png", "webp", "avif", "tiff"])
def test_a_profile_goes_with_the_colours_that_it_describes_and_with_no_others(format: str) -> None:
    lab = ImageCms.ImageCmsProfile(ImageCms.createProfile("LAB")).tobytes()
    sources = [
        encoded(noise(), "JPEG", icc_profile=PROFILE),
        encoded(noise().convert("L"), "JPEG", icc_profile=PROFILE),
        encoded(noise().convert("LAB"), "TIFF", icc_profile=lab),
        encoded(noise().convert("CMYK"), "JPEG", icc_profile=PROFILE),
    ]
    expected = {"RGB": b"RGB ", "L": None, "CMYK": None}
    for number, source in enumerate(sources):
        cut = opened(cut_picture(source, (0, 0, 40, 40), format=format))
        found = described_colours(cut.info.get("icc_profile"))
        assert found in (None, expected[cut.mode])
        assert (found is not None) == (number == 0 or (number == 1 and cut.mode == "RGB"))


@pytest.mark.parametrize("format", ["png", "webp", "gif"])
def test_print_colours_with_a_wrong_or_damaged_profile_are_converted_without_it(format: str) -> None:
    picture = Image.new("CMYK", (80, 60), (0, 255, 255, 0))
    cmyk_by_name = b"\x00" * 16 + b"CMYK" + b"x" * 300
    for profile in (PROFILE, b"x" * 300, cmyk_by_name):
        content = encoded(picture, "JPEG", icc_profile=profile, quality=95)
        cut = opened(cut_picture(content, (0, 0, 40, 40), format=format)).convert("RGB")
        assert np.abs(np.asarray(cut)[20, 20].astype(int) - (255, 0, 0)).max() < 25


def test_credits_stay_wherever_they_are_kept() -> None:
    packet = b'<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf tiff:Orientation="6" dc:rights="B. Agency"/></x:xmpmeta>'
    press = b"Photoshop 3.0\x008BIM\x04\x04\x00\x00\x00\x00\x00\x0e\x1c\x02t\x00\x09C. Writer"
    segment = b"\xff\xed" + (len(press) + 2).to_bytes(2, "big") + press
    content = encoded(noise(), "JPEG", xmp=packet, extra=segment, comment=b"a comment")
    cut = cut_picture(content, (0, 0, 40, 40))
    assert press in cut.content
    assert b"B. Agency" in opened(cut).info["xmp"]
    assert b'tiff:Orientation="1"' in opened(cut).info["xmp"]
    png = opened(cut_picture(content, (0, 0, 40, 40), format="png"))
    assert "B. Agency" in png.info["XML:com.adobe.xmp"]


def test_text_of_a_png_stays() -> None:
    text = PngImagePlugin.PngInfo()
    text.add_text("Copyright", "D. Owner")
    cut = opened(cut_picture(encoded(noise(), "PNG", pnginfo=text), (0, 0, 40, 40)))
    assert isinstance(cut, PngImagePlugin.PngImageFile)
    assert cut.text["Copyright"] == "D. Owner"


def test_the_preview_inside_exif_does_not_show_what_was_cut_off() -> None:
    preview = encoded(noise((10, 10)), "JPEG")
    # A TIFF block with no entry and a second directory that points to the preview: 8 + 6 + 30 bytes before it.
    second = b"\x00\x02" + b"\x02\x01\x00\x04\x00\x00\x00\x01\x00\x00\x00\x2c"
    second += b"\x02\x02\x00\x04\x00\x00\x00\x01" + len(preview).to_bytes(4, "big") + b"\x00\x00\x00\x00"
    block = b"Exif\x00\x00MM\x00\x2a\x00\x00\x00\x08\x00\x00\x00\x00\x00\x0e" + second + preview
    content = encoded(noise(), "JPEG", exif=block)
    assert preview in content
    assert preview not in cut_picture(content, (0, 0, 40, 40)).content


def animation(format: str, **options: object) -> bytes:
    frames = []
    for index in range(FRAMES):
        frame = Image.new("RGBA", (60, 40), (0, 0, 0, 0))
        frame.paste((255, 50 * index, 0, 255), (5 + 5 * index, 5, 20 + 5 * index, 30))
        frames.append(frame)
    times = [40 + 10 * index for index in range(FRAMES)]
    return encoded(frames[0], format, save_all=True, append_images=frames[1:], duration=times, loop=3, **options)


@pytest.mark.parametrize("format", ["GIF", "WEBP", "PNG"])
@pytest.mark.parametrize("size", [None, (20, 20)])
def test_an_animation_keeps_frames_times_loops_and_transparency(format: str, size: tuple[int, int] | None) -> None:
    options: dict[str, dict[str, int]] = {"GIF": {"disposal": 2}, "WEBP": {"lossless": True}, "PNG": {}}
    cut = cut_picture(animation(format, **options[format]), (10, 0, 50, 40), size)
    moving = opened(cut)
    assert moving.format == format
    assert cut.frames == getattr(moving, "n_frames", 1) == FRAMES
    assert moving.info["loop"] == 3
    for index in range(FRAMES):
        moving.seek(index)
        moving.load()
        assert moving.info["duration"] == 40 + 10 * index
        pixels = np.asarray(moving.convert("RGBA").resize((40, 40), Image.Resampling.NEAREST)).astype(int)
        inside = (5 + 5 * index) + 8 - 10  # the middle of the square, in the window
        assert pixels[16, inside] == pytest.approx((255, 50 * index, 0, 255), abs=8)
        assert pixels[36, 36, 3] == 0


def test_a_jpeg_of_an_animation_is_its_first_frame_over_white() -> None:
    cut = cut_picture(animation("WEBP", lossless=True), (0, 0, 60, 40), format="jpeg")
    pixels = np.asarray(opened(cut)).astype(int)
    assert cut.frames == 1
    assert pixels[38, 58] == pytest.approx((255, 255, 255), abs=3)
    assert pixels[16, 12] == pytest.approx((255, 0, 0), abs=12)


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGBA", "I;16", "CMYK", "F"])
@pytest.mark.parametrize("format", ["keep", "jpeg", "png", "webp", "gif", "tiff"])
def test_every_kind_of_pixels_can_be_written_in_every_format(mode: str, format: str) -> None:
    levels = np.linspace(0, 1, 80)[None] * np.ones((60, 1))
    if mode == "I;16":
        image = Image.fromarray((levels * 65535).astype(np.uint16))
    elif mode == "F":
        image = Image.fromarray((levels * 255).astype(np.float32))
    else:
        image = Image.fromarray((levels * 255).astype(np.uint8)).convert("RGB").convert(mode)
    content = encoded(image, "TIFF")
    for size in (None, (15, 20)):
        cut = opened(cut_picture(content, (0, 0, 80, 60), size, format))
        assert cut.size == ((80, 60) if size is None else (20, 15))
        grey = np.asarray(cut.convert("F") if cut.mode != "I;16" else cut, np.float64)
        left, right = grey[:, :4].mean(), grey[:, -4:].mean()
        assert left < 0.2 * right


def test_one_cutter_gives_many_sizes_and_a_larger_one_after_a_smaller_one_is_as_sharp() -> None:
    content = encoded(noise((800, 1200)), "JPEG", quality=95)
    cutter, box = Cutter(content), (0, 0, 1200, 800)
    small, large = cutter.cut(box, (80, 120)), cutter.cut(box)
    assert (opened(small).size, opened(large).size) == ((120, 80), (1200, 800))
    assert large.content == Cutter(content).cut(box).content


def test_a_large_jpeg_of_odd_size_is_cut_to_its_last_pixel_although_fewer_are_decoded() -> None:
    picture = smooth((1501, 2003))
    content = encoded(picture, "JPEG", quality=95)
    box, size = (1003, 501, 2003, 1501), (100, 100)
    cut = opened(cut_picture(content, box, size))
    expected = picture.resize((100, 100), Image.Resampling.BICUBIC, box=box)
    assert np.abs(np.asarray(cut, np.float64) - np.asarray(expected, np.float64)).mean() < 3


@pytest.mark.parametrize("side", [1200, 2600, 3264])
@pytest.mark.parametrize("size", [(60, 80), (700, 900), None])
def test_a_jpeg_is_decoded_once_to_find_a_window_and_to_cut_it(
    side: int, size: tuple[int, int] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    picture = open_picture(encoded(smooth((side * 3 // 4, side)), "JPEG"))
    decoded, draft = [], JpegImagePlugin.JpegImageFile.draft

    def counted(image: JpegImagePlugin.JpegImageFile, mode: str | None, wanted: tuple[int, int] | None) -> object:
        decoded.append(wanted)
        return draft(image, mode, wanted)

    monkeypatch.setattr(JpegImagePlugin.JpegImageFile, "draft", counted)
    gaze = load("tiny", threads=1).look(picture, pixels_needed(picture.size, [("16:9", size)])).at()
    gaze.cut(gaze.crop("16:9")[0], size)
    assert len(decoded) == 1


def test_a_cut_is_saved_whole(tmp_path: Path) -> None:
    cut = cut_picture(noise(), (0, 0, 40, 30))
    cut.save(tmp_path / f"window{cut.suffix}")
    assert (tmp_path / "window.png").read_bytes() == cut.content
    assert len(list(tmp_path.iterdir())) == 1


def test_what_cannot_be_cut_is_refused() -> None:
    cutter = Cutter(noise())
    for box in ((0, 0, 81, 60), (-1, 0, 40, 60), (40, 0, 40, 60)):
        with pytest.raises(ArgumentError, match="80x60"):
            cutter.cut(box)
    with pytest.raises(ArgumentError, match="million"):
        cutter.cut((0, 0, 80, 60), (0, 5))
    with pytest.raises(ArgumentError, match="keep, jpeg"):
        cutter.cut((0, 0, 80, 60), format="bmp")
    with pytest.raises(ArgumentError, match="between 1 and 100"):
        cutter.cut((0, 0, 80, 60), quality=0)
    damaged = encoded(noise((400, 600)), "PNG")
    with pytest.raises(ImageError, match="bytes"):
        Cutter(damaged[: len(damaged) // 2]).cut((0, 0, 80, 60))


def test_a_gif_of_a_hundred_thousand_frames_is_refused_by_its_first_headers() -> None:
    frame = b",\0\0\0\0\1\0\1\0\0\2\2D\1\0"
    source = Cutter(b"GIF89a\1\0\1\0\x80\0\0" + bytes(6) + 100_000 * frame + b";")
    begun = time.process_time()
    with pytest.raises(ImageTooLargeError, match="more than 2000 frames"):
        source.cut((0, 0, 1, 1))
    assert time.process_time() - begun < 0.5


def test_a_photograph_that_was_predicted_is_not_read_again(tmp_path: Path) -> None:
    exif, path = Image.Exif(), tmp_path / "photo.jpg"
    exif[COPYRIGHT] = "A. Photographer"
    path.write_bytes(encoded(smooth((480, 640)), "JPEG", quality=85, exif=exif.tobytes(), icc_profile=PROFILE))
    gaze = load("tiny", threads=1).look(path, (480, 640)).at()
    window = gaze.crop("1:1")[0]
    path.unlink()
    cut = opened(gaze.cut(window, (120, 120)))
    assert cut.size == (120, 120)
    assert cut.getexif()[COPYRIGHT] == "A. Photographer"
    assert cut.info["icc_profile"] == PROFILE


def code_bytes(content: bytes) -> int:
    """Length of the Huffman tables of a JPEG file, before its first scan."""
    place, total = 2, 0
    while content[place + 1] != 0xDA:
        length = int.from_bytes(content[place + 2 : place + 4], "big")
        total += length if content[place + 1] == 0xC4 else 0
        place += 2 + length
    return total


def test_only_thumbnails_get_huffman_codes_of_their_own() -> None:
    photo = encoded(smooth((900, 1200)), "JPEG", quality=85)
    standard = code_bytes(photo)
    assert code_bytes(cut_picture(photo, (0, 0, 1200, 900), (300, 400)).content) < standard
    assert code_bytes(cut_picture(photo, (0, 0, 1200, 900), (600, 800)).content) == standard


@pytest.mark.parametrize("quality", [1, 10, 49, 50, 75, 90, 100])
def test_the_quality_of_a_file_is_known(quality: int) -> None:
    assert quality_of(opened_jpeg(encoded(noise(), "JPEG", quality=quality))) == quality
