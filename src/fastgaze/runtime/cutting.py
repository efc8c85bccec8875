"""Windows of a picture as files of their own: exact pixels, and everything that belongs to the picture is kept.

- The format stays unless another one is asked for, and so do transparency, the frames and times of an animation, the
  colour profile, EXIF, XMP, IPTC and text chunks, with author and copyright.
- EXIF orientation is applied and then says 1. The preview inside EXIF is left out: it shows what was cut off.
- A JPEG is written with the quantisation tables and the chroma sampling of its source, so it is never finer, and never
  larger, than the source warrants. A quality that is asked for can only make it coarser.
- Scaling is antialiased (``core.scaling``). Where few of a JPEG's pixels are wanted, fewer are decoded.

JPEG has no transparency (it is laid over white) and no animation (the first frame is written).
"""

import io
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from PIL import Image, ImageCms, ImageSequence

from fastgaze.core.errors import ArgumentError, ImageError, ImageTooLargeError
from fastgaze.core.files import replacing
from fastgaze.core.picture_limits import count_frames
from fastgaze.core.pictures import MAX_PIXELS, MAX_SIDE, Source, open_picture
from fastgaze.core.scaling import resized
from fastgaze.core.sizes import Size, format_size
from fastgaze.runtime import headroom, jpegs, metadata
from fastgaze.runtime.crop import Box, parse_ratio, window_size

FORMATS = {"jpeg": ".jpg", "png": ".png", "webp": ".webp", "avif": ".avif", "gif": ".gif", "tiff": ".tif"}
"""Formats that can be asked for, with the suffix of each."""
MOST_FRAMES = 2000
"""Of an animation that is cut: every frame is decoded and encoded, however small it is."""

# Formats that are read but not written -> the nearest one that keeps what they hold.
_NEAREST = {"MPO": "jpeg", "HEIF": "jpeg"}
_ANIMATED = ("gif", "webp", "png", "avif")
_MODES = {
    "jpeg": ("RGB", "L", "CMYK"),
    "png": ("RGB", "RGBA", "L", "LA", "P", "1", "I;16"),
    "webp": ("RGB", "RGBA"),
    "avif": ("RGB", "RGBA"),
    "gif": ("RGB", "RGBA", "L", "P"),
    "tiff": ("RGB", "RGBA", "L", "LA", "1", "I;16", "CMYK", "F"),
}
Turns = tuple[bool, bool, bool]
# EXIF orientation -> the stored picture stands upright when it is transposed, then mirrored in x, then in y.
_TURNS = {
    2: (False, True, False),
    3: (False, True, True),
    4: (False, False, True),
    5: (True, False, False),
    6: (True, True, False),
    7: (True, True, True),
    8: (True, False, True),
}
_UPRIGHT = (False, False, False)


@dataclass(frozen=True)
class Cut:
    """One window as the content of a file."""

    content: bytes = field(repr=False)
    format: str
    """A key of ``FORMATS``."""
    box: Box
    """(left, top, right, bottom) in pixels of the upright picture."""
    size: Size
    """(height, width) of what is in the file."""
    frames: int
    """1, or the number of frames of an animation."""

    @property
    def suffix(self) -> str:
        """What the name of a file of this format ends with, such as ``.jpg``."""
        return FORMATS[self.format]

    @property
    def enlarged(self) -> bool:
        """Whether the file has more pixels than the window."""
        left, top, right, bottom = self.box
        return self.size[0] > bottom - top or self.size[1] > right - left

    def save(self, path: str | Path) -> None:
        """Write the file, whole or not at all; after a power cut it may have to be cut again."""
        with replacing(Path(path), durable=False) as part:
            part.write_bytes(self.content)


@dataclass(frozen=True, eq=False)
class _Frame:
    """One frame; of a JPEG it may have fewer pixels than the file."""

    image: Image.Image
    turns: Turns
    """What it takes to stand upright."""
    milliseconds: float = 0.0


def pixels_needed(size: Size, windows: Iterable[tuple[str, Size | None]]) -> Size:
    """(height, width) at which a picture of ``size`` is decoded once, to find windows in it and to cut them out.

    windows: the ratio of each, and the size (height, width) of what is made of it, None for all its pixels.
    """
    share = 0.0
    for ratio, wanted in windows:
        height, width = window_size(size, parse_ratio(ratio), 1.0)
        share = max(share, 1.0 if wanted is None else min(max(wanted[0] / height, wanted[1] / width), 1.0))
    least = headroom.pixels_needed(size)
    return max(math.ceil(size[0] * share), least[0]), max(math.ceil(size[1] * share), least[1])


def cut_picture(
    source: Source, box: Box, size: Size | None = None, format: str = "keep", quality: int | None = None
) -> Cut:
    """The window ``box`` of a picture as a file, see ``Cutter.cut``; for several windows keep a ``Cutter``."""
    return Cutter(source).cut(box, size, format, quality)


class Cutter:
    """A picture that windows are cut from. It is decoded once, unless a later window needs more of its pixels."""

    def __init__(self, source: Source) -> None:
        self._picture = open_picture(source)
        self._header = self._picture.described()
        self._format = _written_as(self._header)
        self._lossless = _is_lossless(self._header)
        self._decoded: list[_Frame] = []
        self._decoded_share = 0.0

    @property
    def size(self) -> Size:
        """(height, width) of the upright picture."""
        return self._picture.size

    def cut(self, box: Box, size: Size | None = None, format: str = "keep", quality: int | None = None) -> Cut:
        """The window ``box`` (left, top, right, bottom), in pixels of the upright picture.

        size: (height, width) of the result, that of the window by default. format: a key of ``FORMATS``, or "keep" for
        the one of the source. quality: 1..100 for JPEG, WebP and AVIF; a JPEG source's own is never exceeded.
        """
        name = self._format if format == "keep" else format
        size = size or (box[3] - box[1], box[2] - box[0])
        self._check(name, box, size, quality)
        try:
            frames = self._frames(box, size, name in _ANIMATED)
            windows = [self._window(frame, box, size, name) for frame in frames]
            options = _options(name, self._header, windows[0], quality, self._lossless)
            content = _encode(name, windows, [frame.milliseconds for frame in frames], options)
        except MemoryError as error:
            raise ImageError(f"{self._picture.label}: not enough memory to cut the picture") from error
        except (ArgumentError, ImageError):
            raise
        except Exception as error:  # decoders meet hostile bytes here, and Pillow's raise all kinds of errors
            raise ImageError(f"{self._picture.label}: cannot cut the picture ({error})") from error
        return Cut(content, name, box, size, len(windows))

    def _check(self, name: str, box: Box, size: Size, quality: int | None) -> None:
        left, top, right, bottom = box
        if name not in FORMATS:
            raise ArgumentError(f"format {name!r} is not one of keep, {', '.join(FORMATS)}")
        if quality is not None and not 1 <= quality <= 100:
            raise ArgumentError(f"quality {quality} is not between 1 and 100")
        if not (0 <= left < right <= self.size[1] and 0 <= top < bottom <= self.size[0]):
            raise ArgumentError(f"box {box} is not (left, top, right, bottom) inside {format_size(self.size)} pixels")
        if min(size) < 1 or max(size) > MAX_SIDE or size[0] * size[1] > MAX_PIXELS:
            raise ArgumentError(f"size {size} is not (height, width) with 1 to {MAX_PIXELS // 10**6} million pixels")

    def _frames(self, box: Box, size: Size, animated: bool) -> list[_Frame]:
        """Every frame, or the first one, decoded with at least the pixels that ``box`` at ``size`` needs."""
        share = max(size[0] / (box[3] - box[1]), size[1] / (box[2] - box[0]))
        needed = min(share, 1.0)
        if needed > self._decoded_share:
            self._decode(needed)
        if not animated:
            return self._decoded[:1]
        if len(self._decoded) * size[0] * size[1] > MAX_PIXELS:
            raise ArgumentError(f"{len(self._decoded)} frames of {format_size(size)} are more than {MAX_PIXELS} pixels")
        return self._decoded

    def _decode(self, share: float) -> None:
        if self._decoded:  # what has been decoded once cannot be decoded at another size
            self._header = self._picture.stored()
        image = self._header
        stored, turns = image.size, _TURNS.get(self._picture.orientation, _UPRIGHT)
        if is_animated(image):
            count = count_frames(image, MOST_FRAMES)
            if count > MOST_FRAMES:
                raise ImageTooLargeError(
                    f"{self._picture.label}: an animation of more than {MOST_FRAMES} frames is not cut; shorten it"
                )
            if count * stored[0] * stored[1] > MAX_PIXELS:
                raise ImageTooLargeError(
                    f"{self._picture.label}: {count} frames of {format_size((stored[1], stored[0]))} pixels are "
                    f"more than {MAX_PIXELS // 10**6} megapixels; scale it down"
                )
            self._decoded = [_Frame(frame.copy(), turns, _duration(frame)) for frame in ImageSequence.Iterator(image)]
        elif image.format in ("JPEG", "MPO") and image.mode == "RGB":
            # Shared with the prediction, which has turned it already.
            needed = math.ceil(self.size[0] * share), math.ceil(self.size[1] * share)
            self._decoded = [_Frame(self._picture.rgb(needed), _UPRIGHT)]
            share = self._decoded[0].image.height / self.size[0]
        else:
            image.load()
            self._decoded = [_Frame(image, turns)]
            share = 1.0
        self._decoded_share = share

    def _window(self, frame: _Frame, box: Box, size: Size, name: str) -> Image.Image:
        """The window of one frame, upright and scaled, in a mode that the format can hold."""
        image, (transposed, mirrored_x, mirrored_y) = frame.image, frame.turns
        left, top, right, bottom = place = _stored_box(box, self.size, frame.turns)
        stored_width, stored_height = self.size if transposed else (self.size[1], self.size[0])
        wanted = size if transposed else (size[1], size[0])
        if image.width == stored_width and wanted == (right - left, bottom - top):
            window = _in_mode(image.crop(place), name)
        else:
            across, down = image.width / stored_width, image.height / stored_height
            spot = (left * across, top * down, right * across, bottom * down)
            window = resized(_in_mode(_smooth(image), name), wanted, spot)
        for needed, step in (
            (transposed, Image.Transpose.TRANSPOSE),
            (mirrored_x, Image.Transpose.FLIP_LEFT_RIGHT),
            (mirrored_y, Image.Transpose.FLIP_TOP_BOTTOM),
        ):
            window = window.transpose(step) if needed else window
        return window


def _written_as(image: Image.Image) -> str:
    name = image.format or "PNG"
    return _NEAREST.get(name, name.lower() if name.lower() in FORMATS else "png")


def is_animated(image: Image.Image) -> bool:
    """Whether an open file has several frames that are shown one after another."""
    # The pages of a TIFF and the views of an MPO are not frames.
    return image.format in ("GIF", "WEBP", "PNG", "AVIF") and getattr(image, "is_animated", False)


def _duration(frame: Image.Image) -> float:
    return float(frame.info.get("duration", 0) or 0)


def _stored_box(box: Box, size: Size, turns: Turns) -> Box:
    """``box`` of the upright picture of ``size`` as it lies in the stored one."""
    transposed, mirrored_x, mirrored_y = turns
    left, top, right, bottom = box
    if mirrored_x:
        left, right = size[1] - right, size[1] - left
    if mirrored_y:
        top, bottom = size[0] - bottom, size[0] - top
    return (top, left, bottom, right) if transposed else (left, top, right, bottom)


def _smooth(image: Image.Image) -> Image.Image:
    """In a mode that can be scaled: no palette, no single bits."""
    if image.mode == "P" or (image.mode in ("L", "RGB") and "transparency" in image.info):
        return image.convert("RGBA" if "transparency" in image.info else "RGB")
    return image.convert("L") if image.mode == "1" else image


def _in_mode(image: Image.Image, name: str) -> Image.Image:
    """In a mode that the format holds: print colours are converted by their profile, transparency stays if it can."""
    if image.mode in _MODES[name]:
        return image
    if image.mode == "CMYK":
        return _from_cmyk(image)
    if image.mode.startswith("I"):
        image = image.convert("I").point(lambda level: level / 256).convert("L")
    if name == "jpeg" and image.has_transparency_data:
        overlaid = Image.new("RGBA", image.size, "white")
        overlaid.alpha_composite(image.convert("RGBA"))
        return overlaid.convert("RGB")
    if image.mode in ("F", "L") and "L" in _MODES[name]:
        return image.convert("L")
    return image.convert("RGBA" if image.has_transparency_data else "RGB")


def _from_cmyk(image: Image.Image) -> Image.Image:
    profile = metadata.profile(image, image)
    if profile is None:
        return image.convert("RGB")
    try:
        source = ImageCms.ImageCmsProfile(io.BytesIO(profile))
        converted = ImageCms.profileToProfile(image, source, ImageCms.createProfile("sRGB"), outputMode="RGB")
    except (OSError, ImageCms.PyCMSError):  # a damaged profile: the picture itself is whole
        return image.convert("RGB")
    assert converted is not None  # it is only in place that nothing is returned
    converted.info.pop("icc_profile", None)
    return converted


def _encode(
    name: str, windows: Sequence[Image.Image], milliseconds: Sequence[float], options: dict[str, object]
) -> bytes:
    buffer = io.BytesIO()
    if len(windows) > 1:
        options = options | {
            "save_all": True,
            "append_images": windows[1:],
            "duration": [round(t) for t in milliseconds],
        }
    windows[0].save(buffer, format=name, **options)
    return buffer.getvalue()


def _options(
    name: str, source: Image.Image, window: Image.Image, quality: int | None, lossless: bool
) -> dict[str, object]:
    """What Pillow writes beside the pixels: profile, EXIF, XMP and the like, and how finely."""
    options: dict[str, object] = {
        "icc_profile": metadata.profile(source, window),
        "exif": metadata.exif(source, window),
    }
    if "dpi" in source.info:
        options["dpi"] = source.info["dpi"]
    match name:
        case "jpeg":
            options |= jpegs.options(source, window, quality)
            options |= {"xmp": metadata.xmp(source), "extra": metadata.iptc(source)}
        case "png":
            options |= {
                "pnginfo": metadata.texts(source),
                "loop": source.info.get("loop", 0),
                "disposal": 0,
                "blend": 0,
            }
        case "webp":
            options |= {"xmp": metadata.xmp(source) or b"", "loop": source.info.get("loop", 0), "method": 4}
            options |= {"lossless": True} if lossless and quality is None else {"quality": _quality(source, quality)}
        case "avif":
            options |= {"xmp": metadata.xmp(source), "quality": _quality(source, quality)}
        case "gif":
            options |= {key: source.info[key] for key in ("loop", "comment") if key in source.info}
            # A frame in which something becomes transparent again must not lie over the one before it.
            options |= {"disposal": 2} if window.has_transparency_data else {}
        case "tiff":
            options["compression"] = source.info.get("compression", "tiff_lzw")
    # Where no profile is named, Pillow writes the one of the source into PNG, TIFF and AVIF.
    return {key: value for key, value in options.items() if value is not None or key == "icc_profile"}


def _quality(source: Image.Image, quality: int | None) -> int:
    return min(quality or jpegs.DEFAULT_QUALITY, jpegs.quality_of(source) or 100)


def _is_lossless(image: Image.Image) -> bool:
    """Whether an open file is a WebP whose first frame lost nothing."""
    stream = getattr(image, "fp", None)
    if image.format != "WEBP" or not isinstance(stream, io.BytesIO):
        return False
    content, place = stream.getbuffer(), 12
    while place + 8 <= len(content):
        kind, length = bytes(content[place : place + 4]), int.from_bytes(content[place + 4 : place + 8], "little")
        if kind in (b"VP8L", b"VP8 "):
            return kind == b"VP8L"
        # The frame of an animation is a chunk around others, with a header of 16 bytes.
        place += 24 if kind == b"ANMF" else 8 + length + length % 2
    return False
