"""How finely a JPEG is written that was cut from another picture: as its source, and never finer."""

from collections.abc import Mapping
from functools import lru_cache

from PIL import Image, JpegImagePlugin

DEFAULT_QUALITY = 90
"""Of a lossy file whose source does not tell its own quality."""
MOST_WITH_OWN_CODES = 1 << 18
"""Pixels of a JPEG up to which it gets Huffman codes of its own. They make thumbnails smaller by a tenth, large
pictures by a few percent, and take more time than all the rest of the encoding."""

# Annex K of the JPEG standard: the luminance table that libjpeg scales by the quality.
_LUMINANCE = (
    16, 11, 10, 16, 24, 40, 51, 61,
    12, 12, 14, 19, 26, 58, 60, 55,
    14, 13, 16, 24, 40, 57, 69, 56,
    14, 17, 22, 29, 51, 87, 80, 62,
    18, 22, 37, 56, 68, 109, 103, 77,
    24, 35, 55, 64, 81, 104, 113, 92,
    49, 64, 78, 87, 103, 121, 120, 101,
    72, 92, 95, 98, 112, 100, 103, 99,
)  # fmt: skip


def options(source: Image.Image, window: Image.Image, quality: int | None) -> dict[str, object]:
    """What Pillow writes a window of ``source`` with: tables, chroma sampling, the kind of codes and of scans.

    quality: 1..100; a JPEG source's own is never exceeded.
    """
    chosen: dict[str, object] = {
        "optimize": window.width * window.height <= MOST_WITH_OWN_CODES,
        "progressive": bool(source.info.get("progressive")),
    }
    own = quality_of(source)
    if own is None or (quality is not None and quality < own):
        return chosen | {"quality": DEFAULT_QUALITY if quality is None else quality}
    sampling = JpegImagePlugin.get_sampling(source)
    return chosen | {"qtables": _tables(source), "subsampling": sampling if sampling >= 0 else 2}


def quality_of(image: Image.Image) -> int | None:
    """1..100, by libjpeg's scale, of the quality whose luminance table is nearest; None if it is not a JPEG file."""
    tables = _tables(image)
    if 0 not in tables:
        return None
    coarseness = sum(tables[0])
    return min(range(1, 101), key=lambda quality: abs(_coarseness()[quality - 1] - coarseness))


def _tables(image: Image.Image) -> Mapping[int, list[int]]:
    tables: Mapping[int, list[int]] = getattr(image, "quantization", {})
    return tables


@lru_cache(maxsize=1)
def _coarseness() -> tuple[int, ...]:
    """Sums of libjpeg's luminance tables, for qualities 1 to 100."""
    scales = [5000 // quality if quality < 50 else 200 - 2 * quality for quality in range(1, 101)]
    return tuple(sum(min(max((entry * scale + 50) // 100, 1), 255) for entry in _LUMINANCE) for scale in scales)
