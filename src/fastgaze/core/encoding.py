"""From an image to the bytes of a file."""

import io
import struct
import zlib

import numpy as np
from PIL import Image

from fastgaze.core.deflate import compress

_PNG_SIGNATURE, _PNG_RGB, _PNG_UP = b"\x89PNG\r\n\x1a\n", 2, 2


def encode(image: Image.Image, suffix: str, quality: int = 90) -> bytes:
    """An 8-bit image as a file of the kind that ``suffix`` names. In memory: Pillow does not notice a full disk."""
    if suffix.lower() == ".png":
        return encode_png(image)
    buffer = io.BytesIO()
    Image.init()
    image.save(buffer, Image.EXTENSION[suffix.lower()], quality=quality)
    return buffer.getvalue()


def encode_png(image: Image.Image) -> bytes:
    """An 8-bit RGB image as a PNG file, in a quarter of Pillow's time at its fastest, for a fifth more bytes.

    Pillow tries five filters on every row. Here every row is the difference to the one above, which suits photographs.
    """
    height, width = image.height, image.width
    pixels = np.asarray(image).reshape(height, 3 * width)
    rows = np.empty((height, 1 + 3 * width), np.uint8)
    rows[:, 0] = _PNG_UP
    rows[0, 1:] = pixels[0]
    np.subtract(pixels[1:], pixels[:-1], out=rows[1:, 1:])
    header = struct.pack(">IIBBBBB", width, height, 8, _PNG_RGB, 0, 0, 0)
    chunks = (b"IHDR", header), (b"IDAT", compress(rows.ravel())), (b"IEND", b"")
    return _PNG_SIGNATURE + b"".join(_png_chunk(name, content) for name, content in chunks)


def _png_chunk(name: bytes, content: bytes) -> bytes:
    return b"".join(
        [struct.pack(">I", len(content)), name, content, struct.pack(">I", zlib.crc32(content, zlib.crc32(name)))]
    )
