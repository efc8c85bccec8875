"""The one decoder: from a file, bytes, a stream, a PIL image or an array (``core.sources``) to upright 8-bit RGB.

What is decided here, for every picture, whether it is predicted, trained on or scored:

- EXIF orientation is applied; of an animation the first frame is used; colour profiles are ignored.
- Transparent pixels are laid over white, as on a web page.
- 16-bit samples keep their upper 8 bits; wider integer and float samples are scaled by the smallest of 1 (floats only),
  255, 65535 and their own maximum that holds them.
- A JPEG is decoded at 1/2, 1/4 or 1/8 when that is enough for the size asked for.
- HEIC pictures are read where pillow-heif is installed; elsewhere each of them is an error that says so.
- A picture of more than ``MAX_PIXELS``, or a JPEG of more scans than encoders make, is refused before its pixels are
  read. What decoding takes below that depends on the format: see ``Picture.cost``.
"""

import io
import os
import stat
import struct
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from threading import RLock
from typing import BinaryIO, TypeAlias

import numpy as np
import numpy.typing as npt
from PIL import Image, JpegImagePlugin, UnidentifiedImageError

from fastgaze.core.errors import ArgumentError, ImageError, ImageTooLargeError, MissingExtraError, require
from fastgaze.core.files import HEAT_MAP
from fastgaze.core.picture_limits import DecodingCost, check_parts, decoding_cost
from fastgaze.core.samples import to_rgb
from fastgaze.core.scaling import halvings, reduced, whole_factor
from fastgaze.core.sizes import Size, format_size
from fastgaze.core.sources import ByteStream, HasArray, picture_array, read_stream

SUFFIXES = (
    ".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff", ".ppm", ".pgm", ".pnm", ".avif", ".jp2", ".ico",
    ".heic", ".heif",
)  # fmt: skip
"""How the names of picture files end, in lower case."""
MAX_PIXELS = 120_000_000
MAX_BYTES = 1 << 30
"""The largest file: 120 megapixels without compression at 16 bits per sample."""
# As in JPEG. Pillow handles rows one by one under the interpreter's lock: a PNG of 68 bytes with 49 million rows of one
# pixel takes half a minute.
MAX_SIDE = 65_535
# A fixed list: Pillow's others include formats that start programs (EPS) or that accept any bytes (TGA).
COMMON = ("JPEG", "PNG", "GIF", "BMP", "PPM")
OTHERS = ("WEBP", "TIFF", "AVIF", "JPEG2000", "ICO")
_HEIF = "HEIF"
_HEIF_BRANDS = (b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1")

Content: TypeAlias = bytes | bytearray | memoryview

# Bytes of a JPEG that its decoder gets at a time. It slows down towards the end of each piece; Pillow's have 64 kB.
_PIECE = 1 << 20
_HUSH = RLock()
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


class Picture:
    """A picture whose header has been read. Its pixels are decoded when they are asked for, and kept.

    size: (height, width) as a viewer sees it, upright.
    format: Pillow's name of the file's format; None for an array and for a PIL image that was made in memory.
    orientation: as EXIF has it, 1 to 8: how the stored pixels are turned. label: names the picture in errors.
    slow: whether its decoder is written in Python, which takes minutes for a large file.
    """

    def __init__(
        self,
        source: Path | Content | Image.Image | npt.NDArray[np.uint8],
        label: str,
        size: Size,
        orientation: int = 1,
        header: Image.Image | None = None,
    ) -> None:
        """header: the picture as Pillow has it, perhaps not decoded yet."""
        self.size = size
        self.format = None if header is None else header.format
        self.slow = any(tile[0] in Image.DECODERS for tile in getattr(header, "tile", ()))
        self.label, self.orientation, self._source = label, orientation, source
        # The encoded file is released once it has been decoded; list.pop is safe between threads.
        self._unread = [] if header is None else [header]
        self._kept: Image.Image | None = None
        # What the pixels were reduced from last, by which factor, and the result.
        self._smaller: tuple[Image.Image, int, Image.Image] | None = None

    def __getstate__(self) -> dict[str, object]:
        """The state without what can be read again."""
        return self.__dict__ | {"_unread": [], "_kept": None, "_smaller": None}

    def cost(self, at_least: Size) -> DecodingCost:
        """What decoding to ``at_least`` (height, width) takes; nothing for what is decoded already."""
        stored = at_least if self.orientation < 5 else (at_least[1], at_least[0])
        return decoding_cost(self._unread[0], stored) if self._unread else DecodingCost(0, 0.0)

    def pixels(self, at_least: Size | None = None) -> npt.NDArray[np.uint8]:
        """``rgb`` as uint8 (H, W, 3), not to be changed: an array less than three times as large stays as it is."""
        small = at_least is None or whole_factor(self.size, at_least) < 3
        if small and isinstance(self._source, np.ndarray) and self._source.shape[2:] == (3,):
            return self._source
        return np.asarray(self.rgb(at_least))

    def rgb(self, at_least: Size | None = None) -> Image.Image:
        """Upright 8-bit RGB; with ``at_least`` (height, width) it may be decoded smaller, but not below that size.

        What has been decoded serves every later call that it is large enough for, and so does what was made smaller:
        two networks of different working sizes often take the same pixels.
        """
        kept = self._kept
        if kept is None or not self._is_enough(kept, at_least):
            kept = self._kept = self._decode(at_least)
        return kept if at_least is None else self._shrunk(kept, (at_least[1], at_least[0]))

    def _shrunk(self, kept: Image.Image, at_least: tuple[int, int]) -> Image.Image:
        factor = halvings(kept.size, at_least)
        if factor < 2:
            return kept
        smaller = self._smaller
        if smaller is None or smaller[0] is not kept or smaller[1] != factor:
            smaller = self._smaller = (kept, factor, kept.reduce(factor))
        return smaller[2]

    def _is_enough(self, image: Image.Image, at_least: Size | None) -> bool:
        height, width = self.size if at_least is None else at_least
        return (image.height, image.width) == self.size or (image.height >= height and image.width >= width)

    def _decode(self, at_least: Size | None) -> Image.Image:
        image = self._unread.pop() if self._unread else self.stored()
        try:
            with _hushed() if image.format == "TIFF" else nullcontext():
                return self._upright(image, at_least)
        except MemoryError as error:
            message = f"{self.label}: not enough memory for {format_size(self.size)} pixels"
            raise ImageError(message) from error
        except Exception as error:  # a decoder meets hostile bytes here, and Pillow's raise all kinds of errors
            raise ImageError(f"{self.label}: cannot decode the picture ({_reason(error)})") from error

    def _upright(self, image: Image.Image, at_least: Size | None) -> Image.Image:
        if at_least is None:
            image.load()
            image = to_rgb(image)
        else:
            stored = at_least if self.orientation >= 5 else (at_least[1], at_least[0])
            image.draft(None, stored)
            if isinstance(image, JpegImagePlugin.JpegImageFile):
                image.decodermaxblock = _PIECE
            image.load()
            # Before the conversion where the mode allows it, to save memory, else after it.
            image = reduced(to_rgb(reduced(image, stored)), stored)
        step = _TRANSPOSE.get(self.orientation)
        return image if step is None else image.transpose(step)

    def described(self) -> Image.Image:
        """``stored`` where only format, mode and metadata matter: pixels that were decoded already may be fewer."""
        kept = self._kept  # still the opened file where it needed no conversion
        return kept if kept is not None and kept.format == self.format == "JPEG" else self.stored()

    def stored(self) -> Image.Image:
        """The picture as Pillow has it, with its own mode, frames and metadata, not turned: a file is opened again.

        An image that lives in memory is given as it is and must not be changed.
        """
        if isinstance(self._source, np.ndarray):
            return _to_image(self._source)
        if isinstance(self._source, Image.Image):
            return self._source
        content = _read(self._source) if isinstance(self._source, Path) else self._source
        with _refusing(self.label):
            return _identify(io.BytesIO(content))


_FILES = (Picture, Image.Image, bytes, bytearray, memoryview, str, os.PathLike, ByteStream)
Source: TypeAlias = str | os.PathLike[str] | Content | ByteStream | Image.Image | HasArray | Picture


def open_picture(source: Source, bgr: bool = False) -> Picture:
    """Read the header of ``source``: a path, a file's bytes, a stream of them, a PIL image, an array or a tensor.

    A stream is read from where it stands. ``core.sources`` says which arrays and tensors are pictures; with ``bgr``
    their channels come as blue, green, red. A picture that is open already stays itself.
    """
    if isinstance(source, _FILES):
        if bgr:
            raise ArgumentError(
                f"bgr=True is for arrays and tensors; {type(source).__name__} has its own order of channels"
            )
        return _open_file(source)
    if isinstance(source, HasArray):
        array = picture_array(source, bgr)
        _check_size(array.shape[1], array.shape[0], "array")
        return Picture(array, "array", (array.shape[0], array.shape[1]))
    raise ArgumentError(
        "a picture is a path, the bytes of an image file, a file opened with 'rb', a PIL image, an array or a tensor, "
        f"not {type(source).__name__}"
    )


def is_one_picture(source: object) -> bool:
    """Whether ``source`` is of a kind that ``open_picture`` takes; an array of four axes holds several pictures."""
    return isinstance(source, _FILES) or (isinstance(source, HasArray) and getattr(source, "ndim", 0) != 4)


def _open_file(source: str | os.PathLike[str] | Content | ByteStream | Image.Image | Picture) -> Picture:
    if isinstance(source, Picture):
        return source
    if isinstance(source, Image.Image):
        image = _own(source)
        return _picture(image, image, "image")
    if isinstance(source, (bytes, bytearray, memoryview)):
        return _open(source, source, "bytes")
    if isinstance(source, (str, os.PathLike)):
        path = Path(source)
        return _open(path, _read(path), str(path))
    content, label = read_stream(source, MAX_BYTES)
    return _open(content, content, label)


def read_pixels(path: Path, size: Size | None = None) -> npt.NDArray[np.uint8]:
    """RGB, uint8 (H, W, 3), decoded in full and then resized (antialiased) to ``size`` (height, width)."""
    photo = open_picture(path).rgb()
    if size is not None and size != (photo.height, photo.width):
        photo = photo.resize((size[1], size[0]), Image.Resampling.BILINEAR)
    return np.asarray(photo)


def read_size(path: Path) -> Size:
    """(height, width) of a picture file as a viewer sees it, from its header alone."""
    _check_file(path)
    with _reading(path), path.open("rb") as file, _refusing(str(path)):
        return _picture(path, _identify(file), str(path)).size


def image_files(folder: Path, below: bool = False) -> list[Path]:
    """The picture files inside ``folder`` by name, see ``is_picture``; ``below``: in its folders too."""
    found = folder.rglob("*") if below else folder.iterdir()
    return sorted(path for path in found if is_picture(path.name))


def is_picture(name: str) -> bool:
    """Whether a file in a folder of pictures is one, by its name; hidden files and heat maps are not."""
    stem, suffix = os.path.splitext(name)
    return suffix.lower() in SUFFIXES and not name.startswith(".") and not stem.endswith(HEAT_MAP)


def _read(path: Path) -> bytes:
    _check_file(path)
    with _reading(path):
        return path.read_bytes()


def _check_file(path: Path) -> None:
    with _reading(path):
        status = path.stat()
    # A pipe or a device could block for ever or never end.
    if not stat.S_ISREG(status.st_mode):
        kind = "a folder" if path.is_dir() else "no regular file"
        raise ImageError(f"{path} is {kind}; give an image file")
    if status.st_size > MAX_BYTES:
        raise ImageTooLargeError(f"{path}: {status.st_size} bytes are more than {MAX_BYTES}; scale the picture down")


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:
        raise ImageError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from error


def _open(source: Path | Content, content: Content, label: str) -> Picture:
    with _refusing(label):
        image = _identify(io.BytesIO(content))
    check_parts(bytes(content), image, label)
    return _picture(source, image, label)


def _picture(source: Path | Content | Image.Image, header: Image.Image, label: str) -> Picture:
    _check_size(header.width, header.height, label)
    orientation = _orientation(header)
    size = (header.width, header.height) if orientation >= 5 else (header.height, header.width)
    return Picture(source, label, size, orientation, header)


@contextmanager
def _refusing(label: str) -> Iterator[None]:
    """What Pillow raises over a header becomes an error of ours that names the picture."""
    try:
        yield
    except UnidentifiedImageError as error:
        raise ImageError(f"{label}: not a picture in a known format ({', '.join(COMMON + OTHERS)})") from error
    except Image.DecompressionBombError as error:
        raise ImageTooLargeError(f"{label}: more than {MAX_PIXELS // 10**6} megapixels; scale it down") from error
    except MissingExtraError as error:
        raise ImageError(f"{label}: a HEIC picture, and {error}") from error
    except ImageError:
        raise
    except Exception as error:  # see Picture._decode
        raise ImageError(f"{label}: cannot read the picture ({_reason(error)})") from error


def _identify(stream: BinaryIO) -> Image.Image:
    """As ``Image.open``, without its own limit on pixels: that one warns from 89 megapixels on, and ours decides."""
    prefix = stream.read(16)
    for names, load_decoders in ((COMMON, Image.preinit), (OTHERS, Image.init)):
        # Pillow loads all its decoders for the others, which takes longer than a prediction: only when needed.
        load_decoders()
        for name in names:
            image = _read_header(stream, name, prefix)
            if image is not None:
                return image
    if prefix[4:8] == b"ftyp" and prefix[8:12] in _HEIF_BRANDS:
        require("pillow_heif", "heic").register_heif_opener()
        image = _read_header(stream, _HEIF, prefix)
        if image is not None:
            return image
    raise UnidentifiedImageError


def _read_header(stream: BinaryIO, name: str, prefix: bytes) -> Image.Image | None:
    if name not in Image.OPEN:
        return None
    factory, accepts = Image.OPEN[name]
    accepted = accepts is None or accepts(prefix)
    if not accepted or isinstance(accepted, str):  # a string says which decoder is missing
        return None
    stream.seek(0)
    try:
        return factory(stream, "")
    except (SyntaxError, IndexError, TypeError, struct.error):  # how Pillow's decoders say that a file is not theirs
        return None


def _own(image: Image.Image) -> Image.Image:
    """A copy, which decodes: draft() and load() change an image in place, and another thread may hold the same one."""
    _check_size(*image.size, "image")
    try:
        return image.copy()
    except Exception as error:  # see Picture._decode
        raise ImageError(f"image: cannot decode the picture ({_reason(error)})") from error


def _check_size(width: int, height: int, label: str) -> None:
    if width * height > MAX_PIXELS:
        raise ImageTooLargeError(
            f"{label}: {width}x{height} pixels are more than {MAX_PIXELS // 10**6} megapixels; scale it down"
        )
    if max(width, height) > MAX_SIDE:
        raise ImageTooLargeError(f"{label}: {width}x{height} pixels are more than {MAX_SIDE} per side; scale it down")
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


def _to_image(array: npt.NDArray[np.uint8]) -> Image.Image:
    return Image.fromarray(np.ascontiguousarray(array))


@contextmanager
def _hushed() -> Iterator[None]:
    """libtiff writes what it thinks of a file to the process's stderr, past Python; what matters is raised as well."""
    with _HUSH:
        kept, nothing = os.dup(2), os.open(os.devnull, os.O_WRONLY)
        try:
            os.dup2(nothing, 2)
            yield
        finally:
            os.dup2(kept, 2)
            os.close(kept)
            os.close(nothing)


def _reason(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
