"""Pictures and what Python makes of them, for the tests of the JavaScript modules in Node and in a browser.

    python -m tests.app.cases js/cases [PHOTO ...]

writes NAME.png, NAME.rgba (the same pixels, four bytes each) and cases.json. Without photos of your own the examples of
the package are used, whole and changed in ways that lead through other branches: large, narrow, small, transparent.
"""

import base64
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from PIL import Image

import fastgaze
from fastgaze.app.demo import EXAMPLES
from fastgaze.core.jsonable import Json
from fastgaze.core.sizes import size_to_json
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
    return {
        "name": name,
        "size": size_to_json(gaze.picture_size),
        "grid": _packed(gaze.grid),
        "unbiased": _packed(unbiased.grid),
        "found": gaze.to_json(ratios=RATIOS, n=CANDIDATES),
    }


def _packed(grid: np.ndarray) -> dict[str, Json]:
    height, width = grid.shape
    return {"width": width, "height": height, "data": base64.b64encode(grid.astype("<f4").tobytes()).decode()}


if __name__ == "__main__":
    write_cases(Path(sys.argv[1]), [Path(photo) for photo in sys.argv[2:]])
