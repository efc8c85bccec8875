"""What decoding a picture costs, by its header: memory and time, measured for every kind that Pillow reads.

The figures are upper bounds for memory (`tests/core/test_picture_limits.py` measures them) and rough ones for time.
"""

import re
from dataclasses import dataclass

from PIL import Image

from fastgaze.core.errors import ImageTooLargeError

MOST_SCANS = 100
"""Of a progressive JPEG; encoders make about ten. Every scan passes over the whole picture, however short it is."""

MOST_CHUNKS = 20_000
"""Of a PNG's pixels, or strips of a TIFF; encoders put 8 kB or more into each. Pillow takes microseconds for one, also
when it is empty."""

_OVERHEAD = 8 << 20
"""What every decoder takes besides the pixels, including the picture at its working size."""
_MOST_BYTES_PER_PIXEL = 26.0
# Pillow's own picture (4 bytes per pixel of RGB), its conversions and numpy's copies, at the worst moment.
_BYTES_OF_MODE = {
    "1": 5.3,
    "L": 1.5,
    "P": 5.3,
    "RGB": 4.5,
    "CMYK": 4.5,
    "LA": 13.3,
    "PA": 13.3,
    "RGBA": 13.3,
    "I;16": 8.0,
    "I;16B": 8.0,
    "YCbCr": 8.5,
    "LAB": 8.5,
    "I": 23.5,
    "F": 23.5,
}
# Decoders that hold a frame, or its planes, besides Pillow's picture.
_BYTES_OF_FORMAT = {
    ("WEBP", "RGB"): 18.0,
    ("WEBP", "RGBA"): 23.0,
    ("AVIF", "RGB"): 16.0,
    ("AVIF", "RGBA"): 24.0,
}
_PALETTE_WITH_ALPHA = 13.3
_TIFF_STRIP = 8.0
_SECONDS_OF_FORMAT = {"PNG": 3.5e-8, "WEBP": 5e-8, "AVIF": 6e-8, "TIFF": 3e-8, "GIF": 2.2e-8, "BMP": 6e-9, "PPM": 6e-9}

_MARKER = re.compile(rb"\xff[^\x00\xd0-\xd7\xff]")
_START_OF_SCAN, _END = 0xDA, 0xD9
# Of sequential JPEGs with Huffman codes, which nearly all are that are not progressive.
_SEQUENTIAL = (0xC0, 0xC1)
_GIF_FRAME, _GIF_EXTENSION, _GIF_END = 0x2C, 0x21, 0x3B


@dataclass(frozen=True)
class DecodingCost:
    """What decoding one picture takes."""

    bytes: int
    """Memory at the worst moment, without the file itself."""
    seconds: float
    """Time of one core, roughly."""

    def __add__(self, other: "DecodingCost") -> "DecodingCost":
        return DecodingCost(self.bytes + other.bytes, self.seconds + other.seconds)


def decoding_cost(image: Image.Image, at_least: tuple[int, int]) -> DecodingCost:
    """Of an opened picture that has not been decoded, wanted at ``at_least`` (height, width) or larger."""
    pixels = image.width * image.height
    if image.format in ("JPEG", "MPO"):
        return _jpeg_cost(image, at_least)
    key = (image.format or "", image.mode)
    memory = _BYTES_OF_FORMAT.get(key) or _BYTES_OF_MODE.get(image.mode, _MOST_BYTES_PER_PIXEL)
    if image.mode == "P" and "transparency" in image.info:
        memory = _PALETTE_WITH_ALPHA
    if image.format == "TIFF" and image.info.get("compression", "raw") != "raw":
        memory += _TIFF_STRIP  # the file decides how much libtiff unpacks at once
    time = _SECONDS_OF_FORMAT.get(image.format or "", 4e-8) + (4e-8 if image.mode in ("F", "I", "LAB") else 0)
    return DecodingCost(int(memory * pixels) + _OVERHEAD, time * pixels)


def _jpeg_cost(image: Image.Image, at_least: tuple[int, int]) -> DecodingCost:
    """libjpeg can decode at 1/2, 1/4 and 1/8; a progressive file's coefficients are held in full all the same."""
    pixels, bands = image.width * image.height, len(image.getbands())
    side = max(min(image.width // at_least[1], image.height // at_least[0]), 1)
    scale = next(step for step in (8, 4, 2, 1) if step <= side)
    memory, time = 5.0 / scale**2, (2e-9 + 1e-8 / scale**2) * max(bands / 3, 1)
    if image.info.get("progressive"):
        memory, time = memory + 2.1 * bands, time + 1.5e-8 * max(bands / 3, 1)
    return DecodingCost(int(memory * pixels) + _OVERHEAD, time * pixels)


def count_scans(content: bytes | bytearray) -> int:
    """Scans of a JPEG file that are decoded; counting ends one above ``MOST_SCANS``."""
    scans, place, components = 0, 2, 0
    while scans <= MOST_SCANS:
        found = _MARKER.search(content, place)
        if found is None:
            break
        marker, place = content[found.start() + 1], found.end()
        if marker == _END:
            break
        length = int.from_bytes(content[place : place + 2], "big")
        if marker in _SEQUENTIAL and components == 0:
            components = _byte(content, place + 7)
        if marker == _START_OF_SCAN:
            # With all components in the first scan of a sequential file, the decoder asks for no other.
            if scans == 0 and _byte(content, place + 2) == components > 0:
                return 1
            # Perhaps too many, as some may lie in a thumbnail; it is quick, and enough for nearly all.
            if scans == 0 and content.count(b"\xff\xda") <= MOST_SCANS:
                return content.count(b"\xff\xda")
            scans += 1
        place += max(length, 2) if 0xC0 <= marker <= 0xFE and marker != 0xD8 else 0
    return scans


def _byte(content: bytes | bytearray, place: int) -> int:
    """0 behind the end."""
    return content[place] if place < len(content) else 0


def check_parts(content: bytes | bytearray, image: Image.Image, label: str) -> None:
    """ImageTooLargeError for a file of more scans, chunks or strips than an encoder makes."""
    if image.format == "PNG" and content.count(b"IDAT") > MOST_CHUNKS:
        raise ImageTooLargeError(f"{label}: a PNG of more than {MOST_CHUNKS} chunks is not decoded; save it again")
    if image.format in ("JPEG", "MPO") and count_scans(content) > MOST_SCANS:
        raise ImageTooLargeError(f"{label}: a JPEG of more than {MOST_SCANS} scans is not decoded; save it again")
    if len(getattr(image, "tile", ())) > MOST_CHUNKS:
        kind = f"{image.format} of more than {MOST_CHUNKS} strips"
        raise ImageTooLargeError(f"{label}: a {kind} is not decoded; save it again")


def count_frames(image: Image.Image, most: int) -> int:
    """Frames of an opened animation that has not been decoded; counting ends one above ``most``."""
    stream = getattr(image, "fp", None)
    if image.format != "GIF" or stream is None:  # the headers of other formats say it
        return int(getattr(image, "n_frames", 1))
    place = stream.tell()
    stream.seek(0)
    content = stream.read()
    stream.seek(place)
    return _count_gif_frames(content, most)


def _count_gif_frames(content: bytes, most: int) -> int:
    """Pillow counts to the end of the file and takes 60 microseconds for each: a frame may have 15 bytes."""
    frames, place = 0, 13 + _colour_bytes(content[10])
    while frames <= most and place < len(content):
        kind = content[place]
        if kind == _GIF_END:
            break
        if kind == _GIF_FRAME:
            place += 11 + _colour_bytes(content[place + 9] if place + 9 < len(content) else 0)
            frames += 1
        elif kind == _GIF_EXTENSION:
            place += 2
        else:  # between blocks nothing has a meaning, and decoders pass over it
            place += 1
            continue
        while place < len(content) and content[place]:
            place += content[place] + 1
        place += 1
    return frames


def _colour_bytes(flags: int) -> int:
    """Length of the colour table that the flags of a GIF's screen or frame announce."""
    return 3 << (flags & 7) + 1 if flags & 0x80 else 0
