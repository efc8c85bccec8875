"""Image files to RGB arrays: upright, three channels, eight bits."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from fastgaze.core.errors import ImageError

SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".webp", ".bmp", ".tif", ".tiff", ".gif"})
_ORIENTATION = 0x0112  # the EXIF tag; 5 to 8 mean that height and width are swapped


def read_image(path: Path, size: tuple[int, int] | None = None) -> NDArray[np.uint8]:
    """RGB, uint8 (H, W, 3); EXIF orientation applied, transparency laid on white; resized (antialiased) to ``size``."""
    try:
        with Image.open(path) as file:
            image = to_rgb(ImageOps.exif_transpose(file))
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise ImageError(f"cannot read image {path}: {error}; give a readable image file") from error
    if size is not None and size != (image.height, image.width):
        image = image.resize((size[1], size[0]), Image.Resampling.BILINEAR)
    return np.asarray(image)


def to_rgb(image: Image.Image) -> Image.Image:
    """Grey, 16-bit grey, palette, CMYK and transparent pictures as RGB."""
    if image.mode.startswith("I") or image.mode == "F":
        grey = np.asarray(image, dtype=np.float64)
        image = Image.fromarray(np.clip(grey / (257 if grey.max(initial=0) > 255 else 1), 0, 255).astype(np.uint8))
    if image.mode in ("RGBA", "LA", "PA", "La", "RGBa") or "transparency" in image.info:
        image = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", image.size, "white"), image).convert("RGB")
    return image.convert("RGB")


def image_size(path: Path) -> tuple[int, int]:
    """(height, width) of an image file as ``read_image`` gives it, from its header alone."""
    try:
        with Image.open(path) as file:
            # Pillow turns TIFF files upright by itself, and its size is the upright one.
            swapped = file.format != "TIFF" and file.getexif().get(_ORIENTATION, 1) in (5, 6, 7, 8)
            return (file.width, file.height) if swapped else (file.height, file.width)
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise ImageError(f"cannot read image {path}: {error}; give a readable image file") from error


def image_files(folder: Path) -> list[Path]:
    """The image files directly inside ``folder``, by name."""
    return sorted(p for p in folder.iterdir() if p.suffix.lower() in SUFFIXES and not p.name.startswith("."))
