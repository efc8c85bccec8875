"""Pictures and what Python makes of them, for the tests of the JavaScript modules in Node and in a browser.

    python -m tests.app.cases js/cases [PHOTO ...]

writes NAME.png, NAME.rgba (the same pixels, four bytes each), cases.json with what was found in them, and maps.json:
made-up maps of attention and of heads, with the windows that follow from them. Without photos of your own the examples
of the package are used, whole and changed in ways that lead through other branches: large, narrow, small, transparent.
"""

import base64
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image

import fastgaze
from fastgaze.app.demo import EXAMPLES
from fastgaze.core.jsonable import Json
from fastgaze.core.sizes import Size, shrunk, size_to_json
from fastgaze.runtime.crop import Integral, find_crops
from fastgaze.runtime.gazemap import GRID
from fastgaze.runtime.peaks import find_peaks
from fastgaze.runtime.predictor import Predictor

RATIOS = ("1:1", "4:5", "9:16", "16:9", "3:1")
CANDIDATES = 3


def write_cases(folder: Path, photos: Sequence[Path] = ()) -> None:
    """The files named above, into ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    predictor = fastgaze.load(threads=1)
    pictures = ((photo.stem, Image.open(photo)) for photo in photos) if photos else _examples()
    cases = [_case(predictor, name, picture, folder) for name, picture in pictures]
    facts = {"model": predictor.name, "ratios": RATIOS, "candidates": CANDIDATES, "cases": cases}
    (folder / "cases.json").write_text(json.dumps(facts))
    (folder / "maps.json").write_text(json.dumps([_map(seed) for seed in range(8)]))


def _examples() -> Iterator[tuple[str, Image.Image]]:
    """Ten pictures by name."""
    photos = {path.stem: Image.open(path).convert("RGB") for path in sorted(EXAMPLES.glob("*.jpg"))}
    yield from photos.items()
    first, second, third, fourth = photos.values()
    yield "large", first.resize((1501, 1333), Image.Resampling.BICUBIC)
    yield "turned", second.transpose(Image.Transpose.ROTATE_90)
    yield "narrow", third.crop((0, 100, third.width, 190))
    yield "small", fourth.resize((97, 61), Image.Resampling.BICUBIC)
    yield "gray", first.convert("L").convert("RGB").crop((40, 0, 301, 401))
    yield "transparent", _faded(second)


def _faded(picture: Image.Image) -> Image.Image:
    """The picture with an opacity that falls from the left to the right."""
    opacity = np.linspace(255, 0, picture.width).astype(np.uint8)
    faded = picture.copy()
    faded.putalpha(Image.fromarray(np.tile(opacity, (picture.height, 1))))
    return faded


def _case(predictor: Predictor, name: str, picture: Image.Image, folder: Path) -> dict[str, Json]:
    path = folder / f"{name}.png"
    picture.convert("RGBA" if "A" in picture.mode else "RGB").save(path)
    (folder / f"{name}.rgba").write_bytes(np.asarray(Image.open(path).convert("RGBA")).tobytes())
    view = predictor.look(path)
    gaze, unbiased = view.at(), view.at(center_bias=None)
    height, width = gaze.picture_size
    regions = {"middle": (0.3 * width, 0.3 * height, 0.7 * width, 0.7 * height), "left": (-5, 0, 0.25 * width, height)}
    return {
        "name": name,
        "size": size_to_json(gaze.picture_size),
        "grid": _packed(gaze.grid),
        "unbiased": _packed(unbiased.grid),
        "regions": regions,
        "found": gaze.to_json(ratios=RATIOS, n=CANDIDATES, regions=regions),
    }


def _map(seed: int) -> dict[str, Json]:
    """A made-up picture: where people look, where heads are, and what follows."""
    random = np.random.default_rng(seed)
    size = (int(random.integers(90, 900)), int(random.integers(90, 900)))
    density = _blobs(random, shrunk(size, GRID), 6) + 1e-3
    density /= density.sum()
    heads = _blobs(random, (30, 40), seed % 4).clip(0, 1)
    integral = Integral(density, size)
    crops = [(ratio, find_crops(integral, ratio, CANDIDATES, heads=heads)) for ratio in RATIOS]
    return {
        "size": size_to_json(size),
        "density": _packed(density),
        "heads": _packed(heads),
        "peaks": [peak.to_json() for peak in find_peaks(density, size)[:5]],
        "crops": [{"ratio": ratio, "windows": [window.to_json() for window in windows]} for ratio, windows in crops],
    }


def _blobs(random: np.random.Generator, size: Size, count: int) -> npt.NDArray[np.float32]:
    """Round hills of different heights, float32 of ``size`` (height, width)."""
    rows, columns = np.mgrid[: size[0], : size[1]]
    found = np.zeros(size)
    for _ in range(count):
        row, column, spread = random.random(3) * (*size, max(size) / 6)
        square = (rows - row) ** 2 + (columns - column) ** 2
        found += (0.5 + random.random()) * np.exp(-0.5 * square / (spread + 1) ** 2)
    return found.astype(np.float32)


def _packed(grid: npt.NDArray[np.float32]) -> dict[str, Json]:
    height, width = grid.shape
    return {"width": width, "height": height, "data": base64.b64encode(grid.astype("<f4").tobytes()).decode()}


if __name__ == "__main__":
    write_cases(Path(sys.argv[1]), [Path(photo) for photo in sys.argv[2:]])
