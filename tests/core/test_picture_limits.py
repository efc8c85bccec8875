"""What decoding takes is never more than its header lets expect, and JPEGs of endless scans are refused."""

import io
import os
from pathlib import Path
from time import process_time

import numpy as np
import pytest
from PIL import Image

from fastgaze.core.errors import ImageError
from fastgaze.core.picture_limits import MOST_SCANS, count_frames, count_scans
from fastgaze.core.pictures import open_picture

SIDE = 1800
WORKING = (240, 320)


def noise(mode: str) -> Image.Image:
    pixels = np.random.default_rng(0).integers(0, 256, (SIDE // 20, SIDE // 20, 3), dtype=np.uint8)
    image = Image.fromarray(pixels).resize((SIDE, SIDE))
    if mode in ("F", "I"):
        return Image.fromarray(np.asarray(image.convert("L")).astype(np.float32 if mode == "F" else np.int32))
    if mode == "I;16":
        return Image.fromarray(np.asarray(image.convert("L")).astype(np.uint16) * 257)
    return image.convert(mode)


def measured(content: bytes) -> int:
    """Bytes by which a process grows while it decodes, in a fork that sees nothing else."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        Path("/proc/self/clear_refs").write_text("5")
        before = peak()
        open_picture(content).pixels(WORKING)
        os.write(writing, str(peak() - before).encode())
        os._exit(0)
    os.close(writing)
    with open(reading, "rb") as answer:
        grown = int(answer.read())
    os.waitpid(child, 0)
    return grown


def peak() -> int:
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="memory is measured through Linux's /proc")
@pytest.mark.parametrize(
    ("mode", "format", "options"),
    [
        ("RGB", "JPEG", {}),
        ("RGB", "JPEG", {"progressive": True, "subsampling": 0}),
        ("CMYK", "JPEG", {"progressive": True}),
        ("RGB", "PNG", {"compress_level": 1}),
        ("RGBA", "PNG", {"compress_level": 1}),
        ("LA", "PNG", {"compress_level": 1}),
        ("I;16", "PNG", {"compress_level": 1}),
        ("P", "GIF", {}),
        ("RGB", "WEBP", {"method": 0}),
        ("RGBA", "WEBP", {"method": 0}),
        ("F", "TIFF", {}),
        ("I", "TIFF", {"compression": "tiff_lzw"}),
        ("RGBA", "TIFF", {"compression": "tiff_adobe_deflate"}),
        ("RGB", "BMP", {}),
        ("RGB", "AVIF", {"speed": 10, "subsampling": "4:4:4"}),
    ],
    ids=str,
)
def test_decoding_takes_no_more_memory_than_is_expected(mode: str, format: str, options: dict[str, object]) -> None:
    buffer = io.BytesIO()
    try:
        noise(mode).save(buffer, format, **options)
    except (KeyError, OSError):
        pytest.skip(f"this Pillow cannot write {format}")
    expected = open_picture(buffer.getvalue()).cost(WORKING)
    grown = measured(buffer.getvalue())
    assert grown <= expected.bytes
    assert expected.seconds > 0


def test_scans_are_counted_and_too_many_are_refused() -> None:
    buffer = io.BytesIO()
    noise("RGB").resize((200, 200)).save(buffer, "JPEG", progressive=True)
    content = buffer.getvalue()
    assert 5 < count_scans(content) < 20
    last = content.rindex(b"\xff\xda")
    bomb = content[:last] + content[last:-2] * 500 + content[-2:]
    assert count_scans(bomb) > MOST_SCANS
    with pytest.raises(ImageError, match="scans"):
        open_picture(bomb)


def test_marks_inside_other_segments_are_not_scans() -> None:
    buffer = io.BytesIO()
    noise("RGB").resize((64, 64)).save(buffer, "JPEG")
    content = buffer.getvalue()
    comment = b"\xff\xfe" + (2 + 2 * 300).to_bytes(2, "big") + b"\xff\xda" * 300
    assert count_scans(content[:2] + comment + content[2:]) == 1
    assert open_picture(content[:2] + comment + content[2:]).size == (64, 64)


def segment(marker: int, content: bytes) -> bytes:
    return bytes([0xFF, marker]) + (2 + len(content)).to_bytes(2, "big") + content


@pytest.mark.parametrize(("frame", "components", "expected"), [(0xC0, 3, 1), (0xC0, 1, 200), (0xC2, 3, 200)])
def test_scans_count_unless_the_first_has_all_of_a_sequential_file(frame: int, components: int, expected: int) -> None:
    scan = segment(0xDA, bytes([components, *(1, 0) * components, 0, 63, 0])) + b"pixels"
    content = b"\xff\xd8" + segment(frame, bytes([8, 0, 64, 0, 64, 3]) + bytes(9)) + scan * 200 + b"\xff\xd9"
    assert min(count_scans(content), 101) == min(expected, 101)


def test_scans_behind_a_whole_picture_are_not_decoded() -> None:
    buffer = io.BytesIO()
    noise("RGB").resize((800, 800)).save(buffer, "JPEG", quality=20)
    content = buffer.getvalue()
    last = content.rindex(b"\xff\xda")
    picture = open_picture(content[:-2] + content[last:-2] * 300 + content[-2:])
    start = process_time()
    with pytest.raises(ImageError, match="cannot decode"):
        picture.rgb()
    assert process_time() - start < 1


def test_what_libtiff_thinks_of_a_file_does_not_reach_the_terminal(capfd: pytest.CaptureFixture[str]) -> None:
    buffer = io.BytesIO()
    noise("RGB").resize((64, 64)).save(buffer, "TIFF", compression="tiff_lzw")
    content = bytearray(buffer.getvalue())
    content[40:80] = bytes(range(40))
    with pytest.raises(ImageError):
        open_picture(bytes(content)).rgb()
    assert capfd.readouterr().err == ""


def gif_of(count: int, tail: bytes = b";") -> bytes:
    return b"GIF89a\1\0\1\0\x80\0\0" + bytes(6) + b",\0\0\0\0\1\0\1\0\0\2\2D\1\0" * count + tail


def test_the_frames_of_a_gif_are_counted_as_pillow_counts_them() -> None:
    drawn = [noise("RGB").resize((40, 30)).rotate(10 * n) for n in range(7)]
    buffer = io.BytesIO()
    drawn[0].save(buffer, "GIF", save_all=True, append_images=drawn[1:], duration=20, loop=2, comment="with a comment")
    whole = buffer.getvalue()
    for content in (whole, whole[:-1], gif_of(3), gif_of(3, b""), gif_of(2, b"\0\0;")):
        image = Image.open(io.BytesIO(content))
        assert count_frames(image, 100) == getattr(image, "n_frames", 1)
    assert count_frames(Image.open(io.BytesIO(whole)), 3) == 4  # counting ends there
