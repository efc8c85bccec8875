"""From any of Pillow's modes to 8-bit RGB, as core/pictures.py says."""

import numpy as np
import numpy.typing as npt
from PIL import Image


def to_rgb(image: Image.Image) -> Image.Image:
    """8-bit RGB, over white where the image is transparent."""
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
