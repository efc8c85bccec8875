"""Windows of a picture as files of their own: exact pixels, and everything that belongs to the picture is kept.

- The format stays unless another one is asked for, and so do transparency, the frames and times of an animation, the
  colour profile, EXIF, XMP, IPTC and text chunks, with author and copyright.
- EXIF orientation is applied and then says 1. The preview inside EXIF is left out: it shows what was cut off.
- A JPEG is written with the quantisation tables and the chroma sampling of its source, so it is never finer, and never
  larger, than the source warrants. A quality that is asked for can only make it coarser.
- Scaling uses a Lanczos filter. Where few of a JPEG's pixels are wanted, fewer are decoded.

JPEG has no transparency (it is laid over white) and no animation (the first frame is written).
"""

import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from PIL import Image, ImageCms, ImageSequence, JpegImagePlugin, PngImagePlugin

from fastgaze.core.errors import ArgumentError, ImageError, ImageTooLargeError
from fastgaze.core.files import replacing
from fastgaze.core.pictures import MAX_PIXELS, MAX_SIDE, Source, open_picture
from fastgaze.core.sizes import Size
from fastgaze.runtime.crop import Box

FORMATS = {"jpeg": ".jpg", "png": ".png", "webp": ".webp", "avif": ".avif", "gif": ".gif", "tiff": ".tif"}
"""Formats that can be asked for, with the suffix of each."""
DEFAULT_QUALITY = 90
"""Of a lossy file whose source does not tell its own quality."""

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
# JPEG decodes to 1/2, 1/4 or 1/8 by itself; twice as many pixels as are wanted leave the filter enough to do.
_SPARE = 2
# Tags that describe how the source's pixels were stored, orientation among them; all others are about the picture.
_STRUCTURE = {*range(254, 267), 273, 274, *range(277, 282), 284, 317, *range(320, 326), 330, 338, 339, 347}
_STRUCTURE |= {*range(512, 522), 529, 530, 531, 532, 33723, 34377, 34675}
_EXIF_IFD, _MAKER_NOTE = 0x8769, 0x927C
_PIXELS_ACROSS, _PIXELS_DOWN = 0xA002, 0xA003
_ARTIST, _COPYRIGHT = 0x013B, 0x8298
_LONGEST_SEGMENT = 65_500
_PNG_XMP = "XML:com.adobe.xmp"
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

    content: bytes
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
        """Write the file, whole or not at all."""
        with replacing(Path(path)) as part:
            part.write_bytes(self.content)


@dataclass(frozen=True, eq=False)
class _Frame:
    """A frame as it is stored, not turned; ``size`` (width, height) is smaller than the file's if it was drafted."""

    image: Image.Image
    milliseconds: float


def cut_picture(
    source: Source, box: Box, size: Size | None = None, format: str = "keep", quality: int | None = None
) -> Cut:
    """The window ``box`` of a picture as a file, see ``Cutter.cut``; for several windows keep a ``Cutter``."""
    return Cutter(source).cut(box, size, format, quality)


class Cutter:
    """A picture that windows are cut from. It is decoded once, unless a later window needs more of its pixels."""

    def __init__(self, source: Source) -> None:
        self._picture = open_picture(source)
        self._header = self._picture.stored()
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
        if name not in FORMATS:
            raise ArgumentError(f"format {format!r} is not one of keep, {', '.join(FORMATS)}")
        if quality is not None and not 1 <= quality <= 100:
            raise ArgumentError(f"quality {quality} is not between 1 and 100")
        _check_box(box, self.size)
        size = size or (box[3] - box[1], box[2] - box[0])
        _check_output(size)
        try:
            frames = self._frames(box, size, name in _ANIMATED)
            windows = [self._window(frame.image, box, size, name) for frame in frames]
            options = _options(name, self._header, windows[0], quality, self._lossless)
            content = _encode(name, windows, [frame.milliseconds for frame in frames], options)
        except MemoryError as error:
            raise ImageError(f"{self._picture.label}: not enough memory to cut the picture") from error
        except ImageError:
            raise
        except Exception as error:  # decoders meet hostile bytes here, and Pillow's raise all kinds of errors
            raise ImageError(f"{self._picture.label}: cannot cut the picture ({error})") from error
        return Cut(content, name, box, size, len(windows))

    def _frames(self, box: Box, size: Size, animated: bool) -> list[_Frame]:
        """Every frame, or the first one, decoded with at least the pixels that ``box`` at ``size`` needs."""
        share = max(size[0] / (box[3] - box[1]), size[1] / (box[2] - box[0]))
        needed = min(_SPARE * share, 1.0)
        if needed > self._decoded_share:
            self._decode(needed)
        return self._decoded if animated else self._decoded[:1]

    def _decode(self, share: float) -> None:
        image = self._header = self._picture.stored()
        stored = image.size
        if _is_animated(image):
            count = getattr(image, "n_frames", 1)
            if count * stored[0] * stored[1] > MAX_PIXELS:
                raise ImageTooLargeError(
                    f"{self._picture.label}: {count} frames of {stored[0]}x{stored[1]} pixels are "
                    f"more than {MAX_PIXELS // 10**6} megapixels; scale it down"
                )
            self._decoded = [_Frame(frame.copy(), _duration(frame)) for frame in ImageSequence.Iterator(image)]
        else:
            if image.format in ("JPEG", "MPO"):
                image.draft(None, (int(stored[0] * share), int(stored[1] * share)))
            image.load()
            self._decoded = [_Frame(image, 0.0)]
        self._decoded_share = self._decoded[0].image.width / stored[0]

    def _window(self, image: Image.Image, box: Box, size: Size, name: str) -> Image.Image:
        """The window of one stored frame, upright and scaled, in a mode that the format can hold."""
        transposed, mirrored_x, mirrored_y = _TURNS.get(self._picture.orientation, _UPRIGHT)
        place = _stored_box(box, self.size, (transposed, mirrored_x, mirrored_y))
        per_pixel = image.width / (self.size[0] if transposed else self.size[1])
        width, height = size if transposed else (size[1], size[0])
        if per_pixel == 1 and (width, height) == (place[2] - place[0], place[3] - place[1]):
            window = _in_mode(image.crop(place), name)
        else:
            spot = tuple(edge * per_pixel for edge in place)
            window = _in_mode(_smooth(image), name).resize((width, height), Image.Resampling.LANCZOS, box=spot)
        for wanted, step in (
            (transposed, Image.Transpose.TRANSPOSE),
            (mirrored_x, Image.Transpose.FLIP_LEFT_RIGHT),
            (mirrored_y, Image.Transpose.FLIP_TOP_BOTTOM),
        ):
            window = window.transpose(step) if wanted else window
        return window


def _written_as(image: Image.Image) -> str:
    name = image.format or "PNG"
    return _NEAREST.get(name, name.lower() if name.lower() in FORMATS else "png")


def _is_animated(image: Image.Image) -> bool:
    # The pages of a TIFF and the views of an MPO are not frames.
    return image.format in ("GIF", "WEBP", "PNG", "AVIF") and getattr(image, "is_animated", False)


def _duration(frame: Image.Image) -> float:
    return float(frame.info.get("duration", 0) or 0)


def _check_box(box: Box, size: Size) -> None:
    left, top, right, bottom = box
    if not (0 <= left < right <= size[1] and 0 <= top < bottom <= size[0]):
        raise ArgumentError(f"box {box} is not (left, top, right, bottom) inside {size[1]}x{size[0]} pixels")


def _check_output(size: Size) -> None:
    if min(size) < 1 or max(size) > MAX_SIDE or size[0] * size[1] > MAX_PIXELS:
        raise ArgumentError(f"size {size} is not (height, width) with 1 to {MAX_PIXELS // 10**6} million pixels")


def _stored_box(box: Box, size: Size, turns: tuple[bool, bool, bool]) -> Box:
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
    profile = image.info.get("icc_profile")
    if profile is None:
        return image.convert("RGB")
    source = ImageCms.ImageCmsProfile(io.BytesIO(profile))
    converted = ImageCms.profileToProfile(image, source, ImageCms.createProfile("sRGB"), outputMode="RGB")
    assert converted is not None  # it is only in place that nothing is returned
    converted.info.pop("icc_profile", None)
    return converted


def _encode(name: str, windows: Sequence[Image.Image], milliseconds: Sequence[float], options: dict[str, Any]) -> bytes:
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
) -> dict[str, Any]:
    """What Pillow writes beside the pixels: profile, EXIF, XMP and the like, and how finely."""
    options: dict[str, Any] = {"icc_profile": _profile(source, window), "exif": _exif(source, window)}
    if "dpi" in source.info:
        options["dpi"] = source.info["dpi"]
    match name:
        case "jpeg":
            options |= _jpeg_options(source, quality) | {"xmp": _xmp(source), "extra": _iptc(source)}
        case "png":
            options |= {"pnginfo": _texts(source), "loop": source.info.get("loop", 0), "disposal": 0, "blend": 0}
        case "webp":
            options |= {"xmp": _xmp(source) or b"", "loop": source.info.get("loop", 0), "method": 4}
            options |= {"lossless": True} if lossless and quality is None else {"quality": _quality(source, quality)}
        case "avif":
            options |= {"xmp": _xmp(source), "quality": _quality(source, quality)}
        case "gif":
            options |= {key: source.info[key] for key in ("loop", "comment") if key in source.info}
            # A frame in which something becomes transparent again must not lie over the one before it.
            options |= {"disposal": 2} if window.has_transparency_data else {}
        case "tiff":
            options["compression"] = source.info.get("compression", "tiff_lzw")
    return {key: value for key, value in options.items() if value is not None}


def _profile(source: Image.Image, window: Image.Image) -> bytes | None:
    """The colour profile, if the window still has the kind of colours that it describes."""
    profile: bytes | None = source.info.get("icc_profile")
    if profile is None or (source.mode == "CMYK") != (window.mode == "CMYK"):
        return None
    grey = profile[16:20] == b"GRAY"
    return profile if grey == (window.mode in ("L", "LA", "1", "I;16")) else None


def _exif(source: Image.Image, window: Image.Image) -> bytes | None:
    try:
        exif = source.getexif()
        if not exif:
            return None
        for tag in _STRUCTURE & set(exif):
            del exif[tag]
        details = exif.get_ifd(_EXIF_IFD)
        for tag, length in ((_PIXELS_ACROSS, window.width), (_PIXELS_DOWN, window.height)):
            if tag in details:
                details[tag] = length
        content = exif.tobytes()
        if len(content) > _LONGEST_SEGMENT:
            details.pop(_MAKER_NOTE, None)
            content = exif.tobytes()
    except Exception:  # damaged EXIF: the picture itself is whole
        return None
    return content if len(content) <= _LONGEST_SEGMENT else _credits(exif)


def _credits(exif: Image.Exif) -> bytes:
    short = Image.Exif()
    for tag in (_ARTIST, _COPYRIGHT):
        if tag in exif:
            short[tag] = exif[tag]
    return short.tobytes()


def _xmp(source: Image.Image) -> bytes | None:
    found = source.info.get("xmp") or source.info.get(_PNG_XMP)
    if not found:
        return None
    packet = found.encode() if isinstance(found, str) else bytes(found)
    upright = re.sub(rb'(tiff:Orientation(?:="|>))\d', rb"\g<1>1", packet)
    return upright if len(upright) <= _LONGEST_SEGMENT else None


def _texts(source: Image.Image) -> PngImagePlugin.PngInfo:
    """Text chunks of a PNG, or XMP of another format as one."""
    info = PngImagePlugin.PngInfo()
    for key, text in getattr(source, "text", {}).items():
        if key != _PNG_XMP:
            info.add_itxt(key, str(text))
    packet = _xmp(source)
    if packet is not None:
        info.add_itxt(_PNG_XMP, packet.decode(errors="replace"))
    return info


def _iptc(source: Image.Image) -> bytes:
    """The segments in which press agencies put credits, as they are."""
    segments = [content for marker, content in getattr(source, "applist", []) if marker == "APP13"]
    return b"".join(b"\xff\xed" + (len(content) + 2).to_bytes(2, "big") + content for content in segments)


def _jpeg_options(source: Image.Image, quality: int | None) -> dict[str, Any]:
    options: dict[str, Any] = {"optimize": True, "progressive": bool(source.info.get("progressive"))}
    own = jpeg_quality(source)
    if own is None or (quality is not None and quality < own):
        return options | {"quality": DEFAULT_QUALITY if quality is None else quality}
    sampling = JpegImagePlugin.get_sampling(source)
    return options | {"qtables": _tables(source), "subsampling": sampling if sampling >= 0 else 2}


def _tables(image: Image.Image) -> Mapping[int, list[int]]:
    tables: Mapping[int, list[int]] = getattr(image, "quantization", {})
    return tables


def jpeg_quality(image: Image.Image) -> int | None:
    """1..100, by libjpeg's scale, of the quality whose luminance table is nearest; None if it is no JPEG file."""
    tables = _tables(image)
    if 0 not in tables:
        return None
    coarseness = sum(tables[0])
    return min(range(1, 101), key=lambda quality: abs(_coarseness()[quality - 1] - coarseness))


@lru_cache(maxsize=1)
def _coarseness() -> tuple[int, ...]:
    """Sums of libjpeg's luminance tables, for qualities 1 to 100."""
    return tuple(sum(_tables(_tiny_jpeg(quality))[0]) for quality in range(1, 101))


def _tiny_jpeg(quality: int) -> Image.Image:
    buffer = io.BytesIO()
    Image.new("L", (8, 8)).save(buffer, "JPEG", quality=quality)
    return Image.open(buffer)


def _quality(source: Image.Image, quality: int | None) -> int:
    return min(quality or DEFAULT_QUALITY, jpeg_quality(source) or 100)


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
