"""Pictures that are not plain photographs: each training image changed in one of several ways, for a teacher to label.

A small student knows what its images showed it. Drawings, old prints, noise, low resolution, other distances, frames
and puzzles are cheap to make from photographs, and a larger student that stays right on them can say where people would
look.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageEnhance, ImageFilter, ImageOps

from fastgaze.core.files import new_array, remove_leftovers, replacing
from fastgaze.training.datasets import PreparedSet

Change = Callable[[Image.Image, np.random.Generator], Image.Image]


def grey(image: Image.Image, rng: np.random.Generator) -> Image.Image:
    """Black and white, with more or less contrast."""
    return ImageEnhance.Contrast(image.convert("L").convert("RGB")).enhance(rng.uniform(0.5, 1.5))


def coarse(image: Image.Image, rng: np.random.Generator) -> Image.Image:
    """Low resolution: 1/4 to 1/10 of the sides."""
    factor = rng.uniform(4, 10)
    small = image.resize((round(image.width / factor), round(image.height / factor)), Image.Resampling.BOX)
    return small.resize(image.size, Image.Resampling.BICUBIC)


def noisy(image: Image.Image, rng: np.random.Generator) -> Image.Image:
    """Gaussian noise of 20 to 60 grey levels."""
    noise = rng.standard_normal((image.height, image.width, 3)) * rng.uniform(20, 60)
    return Image.fromarray(np.clip(np.asarray(image) + noise, 0, 255).astype(np.uint8))


def drawn(image: Image.Image, rng: np.random.Generator) -> Image.Image:
    """Dark contours on white, as a pencil leaves them."""
    smooth = image.convert("L").filter(ImageFilter.GaussianBlur(rng.uniform(0.5, 2)))
    pixels = np.asarray(smooth, np.float32)
    edges = np.hypot(np.gradient(pixels, axis=0), np.gradient(pixels, axis=1))
    edges *= 255 / max(float(np.percentile(edges, 98)), 1)
    return Image.fromarray(np.clip(255 - edges, 0, 255).astype(np.uint8)).convert("RGB")


def flat(image: Image.Image, rng: np.random.Generator) -> Image.Image:
    """Few, strong colours, as in a cartoon."""
    smooth = image.filter(ImageFilter.MedianFilter(5))
    return ImageEnhance.Color(ImageOps.posterize(smooth, int(rng.integers(2, 4)))).enhance(rng.uniform(1, 2.5))


def tinted(image: Image.Image, rng: np.random.Generator) -> Image.Image:
    """Each colour brighter or darker by itself."""
    return Image.fromarray(np.clip(np.asarray(image) * rng.uniform(0.5, 1.4, 3), 0, 255).astype(np.uint8))


def upside_down(image: Image.Image, rng: np.random.Generator) -> Image.Image:
    """Turned by half."""
    del rng
    return image.transpose(Image.Transpose.ROTATE_180)


def zoomed(image: Image.Image, rng: np.random.Generator) -> Image.Image:
    """A window of 0.4 to 0.8 of the sides, as large as the whole was."""
    share = rng.uniform(0.4, 0.8)
    width, height = share * image.width, share * image.height
    left, top = rng.uniform(0, image.width - width), rng.uniform(0, image.height - height)
    return image.resize(image.size, Image.Resampling.BICUBIC, (left, top, left + width, top + height))


def framed(image: Image.Image, rng: np.random.Generator) -> Image.Image:
    """Smaller, 0.4 to 0.9 of each side, somewhere on a plain ground."""
    width, height = (round(side * rng.uniform(0.4, 0.9)) for side in image.size)
    ground = rng.choice(np.array([0, 127, 255])) if rng.uniform() < 0.7 else rng.integers(0, 256, 3)
    canvas = Image.new("RGB", image.size, tuple(np.broadcast_to(ground, 3).tolist()))
    place = (int(rng.integers(image.width - width + 1)), int(rng.integers(image.height - height + 1)))
    canvas.paste(image.resize((width, height), Image.Resampling.BICUBIC), place)
    return canvas


def jumbled(image: Image.Image, rng: np.random.Generator) -> Image.Image:
    """Cut into 2 to 4 tiles per side, put together in another order."""
    tiles = int(rng.integers(2, 5))
    width, height = image.width // tiles, image.height // tiles
    order = rng.permutation(tiles * tiles)
    canvas = image.copy()
    for place, tile in enumerate(order.tolist()):
        left, top = (tile % tiles) * width, (tile // tiles) * height
        cut = image.crop((left, top, left + width, top + height))
        canvas.paste(cut, ((place % tiles) * width, (place // tiles) * height))
    return canvas


IN_PLACE: tuple[Change, ...] = (grey, coarse, noisy, drawn, flat, tinted)
"""Changes that leave everything where it was."""
CHANGES: tuple[Change, ...] = (*IN_PLACE, upside_down, zoomed, framed, jumbled)
# In the names of files made from them: more kinds of changes make other pictures.
KEY = f"variants{len(CHANGES)}"


def variant(pixels: NDArray[np.uint8], index: int) -> NDArray[np.uint8]:
    """Image ``index`` of a set, uint8 (H, W, 3), in its one variant: always the same."""
    change = CHANGES[index % len(CHANGES)]
    return np.asarray(change(Image.fromarray(np.asarray(pixels)), np.random.default_rng(index)))


def variant_images(data: PreparedSet, cache: Path) -> NDArray[np.uint8]:
    """The variants of all images, uint8 (n, H, W, 3), memory-mapped, made now if they are not in ``cache``."""
    height, width = data.size
    file = cache / f"{data.name.replace('/', '-')}-{height}x{width}-{KEY}.npy"
    if not file.is_file():
        remove_leftovers(cache)
        with replacing(file) as part:
            made = new_array(part, np.uint8, data.images.shape)
            for index, pixels in enumerate(data.images):
                made[index] = variant(pixels, index)
            made.flush()
    stored: NDArray[np.uint8] = np.load(file, mmap_mode="r")
    return stored
