"""What belongs to a picture beside its pixels, for a file with a part of them: profile, EXIF, XMP, IPTC, text.

``source`` is a picture as Pillow opened it, ``window`` the part of it that is written, upright.
"""

import re

from PIL import Image, PngImagePlugin

# Tags that describe how the source's pixels were stored, orientation among them; all others are about the picture.
_STRUCTURE = {*range(254, 267), 273, 274, *range(277, 282), 284, 317, *range(320, 326), 330, 338, 339, 347}
_STRUCTURE |= {*range(512, 522), 529, 530, 531, 532, 33723, 34377, 34675}
_EXIF_IFD, _MAKER_NOTE = 0x8769, 0x927C
_PIXELS_ACROSS, _PIXELS_DOWN = 0xA002, 0xA003
_ARTIST, _COPYRIGHT = 0x013B, 0x8298
_LONGEST_SEGMENT = 65_500
# Those of printers have up to 3 MB. Pillow copies the rest of a profile for every 64 kB that it writes.
_LONGEST_PROFILE = 8 << 20
# Where a profile says which colours it describes, and the modes that hold such colours.
_COLOUR_SPACE = slice(16, 20)
_DESCRIBED = {b"RGB ": ("RGB", "RGBA", "P"), b"GRAY": ("L", "LA", "1", "I;16"), b"CMYK": ("CMYK",)}
_PNG_XMP = "XML:com.adobe.xmp"


def profile(source: Image.Image, window: Image.Image) -> bytes | None:
    """The colour profile, if it describes the kind of colours that the window has: converted pixels have others."""
    profile: bytes | None = source.info.get("icc_profile")
    if profile is None or len(profile) > _LONGEST_PROFILE or (source.mode == "CMYK") != (window.mode == "CMYK"):
        return None
    return profile if window.mode in _DESCRIBED.get(profile[_COLOUR_SPACE], ()) else None


def exif(source: Image.Image, window: Image.Image) -> bytes | None:
    """EXIF without orientation and preview, with the window's size; author and copyright alone if it is too long."""
    try:
        exif = source.getexif()
        if not exif:
            return None
        for tag in _STRUCTURE & set(exif):
            del exif[tag]
        details = exif.get_ifd(_EXIF_IFD) if _EXIF_IFD in exif else {}  # asking would make one, which libtiff refuses
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


def xmp(source: Image.Image) -> bytes | None:
    """The XMP packet with orientation 1, if there is one that fits a segment."""
    found = source.info.get("xmp") or source.info.get(_PNG_XMP)
    if not found:
        return None
    packet = found.encode() if isinstance(found, str) else bytes(found)
    upright = re.sub(rb'(tiff:Orientation(?:="|>))\d', rb"\g<1>1", packet)
    return upright if len(upright) <= _LONGEST_SEGMENT else None


def texts(source: Image.Image) -> PngImagePlugin.PngInfo:
    """Text chunks for a PNG: those of the source, and XMP of any format."""
    info = PngImagePlugin.PngInfo()
    for key, text in getattr(source, "text", {}).items():
        if key != _PNG_XMP:
            info.add_itxt(key, str(text))
    packet = xmp(source)
    if packet is not None:
        info.add_itxt(_PNG_XMP, packet.decode(errors="replace"))
    return info


def iptc(source: Image.Image) -> bytes:
    """The JPEG segments in which press agencies put credits, as they are; empty without them."""
    segments = [content for marker, content in getattr(source, "applist", []) if marker == "APP13"]
    return b"".join(b"\xff\xed" + (len(content) + 2).to_bytes(2, "big") + content for content in segments)
