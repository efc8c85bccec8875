"""From a file, bytes, a PIL image or an array to upright 8-bit RGB.

What is decided here, for every picture:

- EXIF orientation is applied; of an animation the first frame is used; colour profiles are ignored.
- Transparent pixels are laid over white, as on a web page.
- 16-bit samples keep their upper 8 bits; wider integer and float samples are scaled by the smallest of 1 (floats only),
  255, 65535 and their own maximum that holds them.
- A JPEG is decoded at 1/2, 1/4 or 1/8 when that is enough for the size asked for.
- A picture of more than ``MAX_PIXELS`` is refused before its pixels are read. Below that, decoding takes at most
  12 bytes a pixel (a palette picture with transparency), 4 for a plain one, and 1/16 of it for a large JPEG.
"""

import io
import os
import stat
import struct
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from PIL import Image, UnidentifiedImageError

from fastgaze.core.errors import ArgumentError, ImageError, ImageTooLargeError

MAX_PIXELS = 120_000_000
MAX_BYTES = 1 << 30
"""Of a file: as many as 120 megapixels take without compression at 16 bits a sample."""
# As in JPEG. Pillow handles rows one by one under the interpreter's lock: a PNG of 68 bytes with 49 million rows of one
# pixel takes half a minute.
MAX_SIDE = 65_535
# A fixed list: Pillow's others include formats that start programs (EPS) or that any bytes pass for (TGA).
COMMON = ("JPEG", "PNG", "GIF", "BMP", "PPM")
OTHERS = ("WEBP", "TIFF", "AVIF", "JPEG2000", "ICO")

Source: TypeAlias = str | os.PathLike[str] | bytes | bytearray | memoryview | Image.Image | npt.NDArray[np.uint8]
Size: TypeAlias = tuple[int, int]

_ORIENTATION_TAG = 0x0112
_TRANSPOSE = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


@dataclass(frozen=True)
class Picture:
    """A picture whose header has been read and whose pixels are decoded when they are asked for."""

    source: Image.Image | npt.NDArray[np.uint8]
    """An array is RGB (H, W, 3)."""
    size: Size
    """(height, width) as a viewer sees it, upright."""
    orientation: int
    label: str

    @cached_property
    def image(self) -> Image.Image:
        """The picture as Pillow has it, perhaps not yet decoded."""
        return _to_image(self.source) if isinstance(self.source, np.ndarray) else self.source

    def pixels(self, at_least: Size | None = None) -> npt.NDArray[np.uint8]:
        """``rgb`` as uint8 (H, W, 3), not to be written to: an array less than three times as large stays as it is."""
        if isinstance(self.source, np.ndarray) and (at_least is None or _factor(self.size, at_least) < 3):
            return self.source
        return np.asarray(self.rgb(at_least))

    def rgb(self, at_least: Size | None = None) -> Image.Image:
        """Upright 8-bit RGB; with ``at_least`` (height, width) it may be decoded smaller, but not below that size."""
        try:
            return self._decode(at_least)
        except MemoryError as error:
            raise ImageError(f"{self.label}: not enough memory for {self.size[1]}x{self.size[0]} pixels") from error
        except Exception as error:  # a decoder meets hostile bytes here, and Pillow's raise all kinds of errors
            raise ImageError(f"{self.label}: cannot decode the picture ({_reason(error)})") from error

    def _decode(self, at_least: Size | None) -> Image.Image:
        turned = self.orientation >= 5
        image = self.image
        if at_least is None:
            image.load()
            image = _to_rgb(image)
        else:
            stored = at_least if turned else (at_least[1], at_least[0])
            image.draft(None, stored)
            image.load()
            # Before the conversion where the mode allows it, to save memory, else after it.
            image = _reduced(_to_rgb(_reduced(image, stored)), stored)
        step = _TRANSPOSE.get(self.orientation)
        return image if step is None else image.transpose(step)


def open_picture(source: Source) -> Picture:
    """Read the header of ``source``: a path, the bytes of an image file, a PIL image or a uint8 array.

    Arrays are (H, W, 3) RGB, (H, W, 4) RGBA or (H, W) grey.
    """
    if isinstance(source, np.ndarray):
        return _from_array(source)
    if isinstance(source, Image.Image):
        return _picture(_own(source), "image")
    if isinstance(source, (bytes, bytearray, memoryview)):
        return _open(io.BytesIO(source), "bytes")
    if isinstance(source, (str, os.PathLike)):
        path = Path(source)
        return _open(io.BytesIO(_read(path)), str(path))
    raise ArgumentError(f"an image is a path, bytes, a PIL image or a uint8 array, not {type(source).__name__}")


def _read(path: Path) -> bytes:
    try:
        status = path.stat()
        # A pipe or a device could block for ever or never end.
        if not stat.S_ISREG(status.st_mode):
            kind = "a folder without pictures" if path.is_dir() else "no regular file"
            raise ImageError(f"{path} is {kind}; give an image file")
        if status.st_size > MAX_BYTES:
            raise ImageTooLargeError(
                f"{path}: {status.st_size} bytes are more than {MAX_BYTES}; scale the picture down"
            )
        return path.read_bytes()
    except (OSError, ValueError) as error:
        raise ImageError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from error


def _open(stream: io.BytesIO, label: str) -> Picture:
    try:
        image = _identify(stream)
    except UnidentifiedImageError as error:
        raise ImageError(f"{label}: not a picture in a known format ({', '.join(COMMON + OTHERS)})") from error
    except Image.DecompressionBombError as error:
        raise ImageTooLargeError(f"{label}: more than {MAX_PIXELS // 10**6} megapixels; scale it down") from error
    except Exception as error:  # see Picture.rgb
        raise ImageError(f"{label}: cannot read the picture ({_reason(error)})") from error
    return _picture(image, label)


def _identify(stream: io.BytesIO) -> Image.Image:
    """As ``Image.open``, without its own limit on pixels: that one warns from 89 megapixels on, and ours decides."""
    prefix = stream.read(16)
    for names, load_decoders in ((COMMON, Image.preinit), (OTHERS, Image.init)):
        # Pillow loads all its decoders for the others, which takes longer than a prediction: only when needed.
        load_decoders()
        for name in names:
            image = _read_header(stream, name, prefix)
            if image is not None:
                return image
    raise UnidentifiedImageError


def _read_header(stream: io.BytesIO, name: str, prefix: bytes) -> Image.Image | None:
    if name not in Image.OPEN:
        return None
    factory, accepts = Image.OPEN[name]
    accepted = accepts is None or accepts(prefix)
    if not accepted or isinstance(accepted, str):  # a string says which decoder is missing
        return None
    stream.seek(0)
    try:
        return factory(stream, "")
    except (SyntaxError, IndexError, TypeError, struct.error):  # how Pillow's decoders say: not mine
        return None


def _own(image: Image.Image) -> Image.Image:
    """A copy, which decodes: draft() and load() change an image in place, and another thread may hold the same one."""
    _check_size(*image.size, "image")
    try:
        return image.copy()
    except Exception as error:  # see Picture.rgb
        raise ImageError(f"image: cannot decode the picture ({_reason(error)})") from error


def _picture(image: Image.Image, label: str) -> Picture:
    width, height = image.size
    _check_size(width, height, label)
    orientation = _orientation(image)
    size = (width, height) if orientation >= 5 else (height, width)
    return Picture(image, size, orientation, label)


def _check_size(width: int, height: int, label: str) -> None:
    if width * height > MAX_PIXELS:
        raise ImageTooLargeError(
            f"{label}: {width}x{height} pixels are more than {MAX_PIXELS // 10**6} megapixels; scale it down"
        )
    if max(width, height) > MAX_SIDE:
        raise ImageTooLargeError(f"{label}: {width}x{height} pixels are more than {MAX_SIDE} a side; scale it down")
    if width == 0 or height == 0:
        raise ImageError(f"{label}: the picture has no pixels")


def _orientation(image: Image.Image) -> int:
    # Pillow turns TIFF files upright by itself, and its size is the upright one.
    if image.format == "TIFF":
        return 1
    # Pillow decodes the whole of a PNG to look for EXIF behind the pixels, where nobody puts it.
    if image.format == "PNG" and not {"exif", "Raw profile type exif"} & set(image.info):
        return 1
    try:
        value = image.getexif().get(_ORIENTATION_TAG, 1)
    except Exception:  # damaged EXIF: the picture itself may be whole
        return 1
    return value if isinstance(value, int) and 1 <= value <= 8 else 1


def _from_array(array: npt.NDArray[np.uint8]) -> Picture:
    if array.dtype != np.uint8:
        raise ArgumentError(f"an image array is uint8 with values 0..255, not {array.dtype}")
    if array.ndim == 3 and array.shape[2] == 1:
        array = array[:, :, 0]
    if array.size == 0 or not (array.ndim == 2 or (array.ndim == 3 and array.shape[2] in (3, 4))):
        raise ArgumentError(f"an image array is (H, W, 3), (H, W, 4) or (H, W), not {array.shape}")
    height, width = array.shape[:2]
    _check_size(width, height, "array")
    return Picture(array if array.ndim == 3 and array.shape[2] == 3 else _to_image(array), (height, width), 1, "array")


def _to_image(array: npt.NDArray[np.uint8]) -> Image.Image:
    return Image.fromarray(np.ascontiguousarray(array))


def _reduced(image: Image.Image, at_least: tuple[int, int]) -> Image.Image:
    """Average whole blocks of pixels while the result stays at least (width, height): much cheaper than a resize."""
    factor = _factor(image.size, at_least)
    if factor < 2 or image.mode not in ("RGB", "L", "CMYK"):
        return image
    return image.reduce(factor)


def _factor(size: tuple[int, int], at_least: tuple[int, int]) -> int:
    return min(size[0] // at_least[0], size[1] // at_least[1])


def cut(image: Image.Image, box: tuple[int, int, int, int]) -> Image.Image:
    """The window (left, top, right, bottom) of an RGB image, without Pillow's warning about large ones."""
    left, top, right, bottom = box
    return _to_image(np.asarray(image)[top:bottom, left:right])


def _to_rgb(image: Image.Image) -> Image.Image:
    if image.mode == "RGB":
        return image
    if image.mode.startswith("I;16"):
        return Image.fromarray((np.asarray(image) >> 8).astype(np.uint8)).convert("RGB")
    if image.mode in ("I", "F"):
        return Image.fromarray(_to_8_bits(np.asarray(image))).convert("RGB")
    if image.mode in ("RGBA", "LA", "PA", "RGBa", "La") or "transparency" in image.info:
        return _over_white(image.convert("RGBA"))
    return image.convert("RGB")


def _to_8_bits(samples: npt.NDArray[np.int32] | npt.NDArray[np.float32]) -> npt.NDArray[np.uint8]:
    values = np.nan_to_num(samples.astype(np.float32), nan=0.0, posinf=0.0, neginf=0.0).clip(min=0.0)
    top = float(values.max())
    ranges = (1.0, 255.0, 65535.0) if samples.dtype.kind == "f" else (255.0, 65535.0)
    full = next((limit for limit in ranges if top <= limit), top)
    return (values * (255.0 / full) + 0.5).astype(np.uint8)


def _over_white(image: Image.Image) -> Image.Image:
    white = Image.new("RGB", image.size, (255, 255, 255))
    white.paste(image, mask=image.getchannel("A"))
    return white


def _reason(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
