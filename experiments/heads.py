"""The map of heads: how the product learned to leave heads whole.

    python -m experiments.heads          # runtime/bundled/parts/heads.onnx, from results/faces.json

The trunk of a small gaze network is tuned to the heads that a face detector found (``experiments.faces``), with a
readout that divides every cell of stride 16 in four. It sees each picture in many views: parts of it at several sizes,
mirrored, in other colours, half of them sharpened, since the pictures of SALICON are stored at 320x240 and softer than
a photograph that is scaled down, and often so that a face of any size becomes a large one. Half of the views are of
photographs with large heads, and one in six is of a screen. Two in five faces are made darker, since most of the faces
in these pictures have a light skin, and the map should not depend on that. The first layers stay as they are (edges are
edges).

What ships learned for 4,600 steps without darker faces, and for 1,500 more with them:

    python -m experiments.heads --steps 1500 --start EARLIER.onnx --rate 0.001

where EARLIER.onnx is the bundled file of commit 70bfc83.
"""

import argparse
import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from experiments.common import ROOT, make_parser, parse
from experiments.faces import LEARNED, SURE, Face, Photo, Shares, Values, read_photos
from fastgaze.core.files import replacing
from fastgaze.core.pictures import open_picture
from fastgaze.core.sizes import Size
from fastgaze.core.spec import LiteSpec
from fastgaze.networks.checkpoint import load_gaze_model
from fastgaze.networks.gaze import GazeModel, TwoScaleReadout
from fastgaze.networks.lite import LiteNet
from fastgaze.onnx.pad import padded
from fastgaze.onnx.read import fill
from fastgaze.onnx.write import Facts, make_card, network_bytes
from fastgaze.runtime.card import IMAGENET_MEAN, IMAGENET_STD, WorkingSize, with_card
from fastgaze.runtime.headroom import FILE

TRUNK = ROOT / "checkpoints" / "litegaze-small.safetensors"
PHOTOGRAPHS, SCREENS = ("salicon-train", "eyecrowd"), "ueyes"
WORKING = WorkingSize(pixels=288 * 384, stride=32)
# Sizes of views, and how often each is drawn: most are smaller than what the network sees later, parts of pictures in
# which heads are as large.
_SIZES: dict[Size, float] = {(192, 256): 0.45, (256, 320): 0.35, (320, 416): 0.2}
_KEPT_STAGES = 1
_FITTED = {"above": 0.4, "beside": 0.1, "below": 0.05}
_SMALLEST = 0.09
_READOUT = (32, 4)
_SHARPEN = 1.5
_DARKER, _DARKEST = 0.4, 0.25
_SKIN = (1.1, 1.0, 0.85)  # red, green and blue of dark skin, relative to light skin that is darkened evenly
_BATCH, _RATE, _TRUNK_SHARE, _DECAY = 24, 3e-3, 0.3, 0.02
_NOTED = 100
Batch = tuple[Tensor, Tensor, Tensor]
"""Views (n, 3, h, w), normalised; for their cells of stride 8 the share that lies in a head and whether that is known,
both (n, h / 8, w / 8)."""


@dataclass(frozen=True)
class View:
    """A part of a picture, (left, top, right, bottom) in shares of it, perhaps mirrored."""

    left: float
    top: float
    right: float
    bottom: float
    mirrored: bool

    @classmethod
    def drawn(cls, rng: np.random.Generator, faces: Sequence[Face]) -> "View":
        """A seventh of the views is the whole picture. Of the others with faces, most have one of them inside, between
        an eighth and seven tenths of their height; the rest shows between half and all of each side."""
        if rng.random() < 1 / 7:
            return cls._around(rng, 1.0, None)
        if faces and rng.random() < 0.6:
            face = faces[int(rng.integers(len(faces)))]
            wanted = np.exp(rng.uniform(np.log(1 / 8), np.log(0.7)))
            return cls._around(rng, float(np.clip(face.height / wanted, 0.3, 1)), face)
        return cls._around(rng, rng.uniform(0.55, 1), None)

    @classmethod
    def _around(cls, rng: np.random.Generator, scale: float, face: Face | None) -> "View":
        corner = []
        sides = np.minimum(scale * (rng.uniform(0.9, 1.1, 2) if scale < 1 else 1), 1) * np.ones(2)
        for axis, side in enumerate(sides):
            low, high = 0.0, 1 - side
            if face is not None:
                middle = face.left + face.width / 2 if axis == 0 else face.top + face.height / 2
                low, high = np.clip((middle - 0.85 * side, middle - 0.15 * side), 0, 1 - side)
            corner.append(rng.uniform(low, high))
        (left, top), (width, height) = corner, sides
        return cls(left, top, left + width, top + height, bool(rng.random() < 0.5))

    def seen(self, pixels: Tensor, size: Size, rng: np.random.Generator) -> Tensor:
        """Bytes (3, h, w) -> RGB 0..1 (3, *size), in other colours and another light."""
        _, height, width = pixels.shape
        rows = slice(round(self.top * height), max(round(self.bottom * height), 1))
        columns = slice(round(self.left * width), max(round(self.right * width), 1))
        part = pixels[None, :, rows, columns].float() / 255
        image = F.interpolate(part, size, mode="bilinear", antialias=True)[0]
        image = image.flip(2) if self.mirrored else image
        grey = image.mean(0, keepdim=True)
        image = grey + (image - grey) * (0.0 if rng.random() < 0.1 else float(rng.uniform(0.6, 1.3)))
        tint = torch.tensor(rng.uniform(0.8, 1.2, (3, 1, 1)), dtype=torch.float32)
        contrast, level = float(rng.uniform(0.7, 1.2)), image.mean()
        return (((image - level) * contrast + level) * tint).clamp(0, 1) ** float(rng.uniform(0.6, 1.6))

    def face(self, face: Face) -> Face:
        """A face of the picture in shares of this part, which it may leave."""
        width, height = self.right - self.left, self.bottom - self.top
        left, size = (face.left - self.left) / width, face.width / width
        left = 1 - left - size if self.mirrored else left
        return Face(left, (face.top - self.top) / height, size, face.height / height, face.sure)


def batches(photos: Sequence[Photo], screens: Sequence[Photo], rng: np.random.Generator) -> Iterator[Batch]:
    """Views without end, of one size in a batch: half of them of photographs with large heads, one in six of a screen,
    and one of nothing."""
    with_heads = [photo for photo in photos if any(map(_is_large, photo.faces))]
    without = [photo for photo in photos if not any(map(_is_large, photo.faces))]
    turns = [_shuffled(some, rng) for some in (with_heads, without, with_heads, without, with_heads, screens)]
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in (IMAGENET_MEAN, IMAGENET_STD))
    sizes = list(_SIZES)
    while True:
        size = sizes[rng.choice(len(sizes), p=list(_SIZES.values()))]
        rows = []
        for number in range(_BATCH):
            photo = next(turns[number % len(turns)])
            pixels = torch.from_numpy(np.array(open_picture(photo.path).rgb())).permute(2, 0, 1)
            view = View.drawn(rng, [face for face in photo.faces if face.sure > SURE])
            faces = [view.face(face) for face in photo.faces]
            target = _target(faces, (size[0] // 8, size[1] // 8))
            rows.append(((_darker(view.seen(pixels, size, rng), faces, rng) - mean) / std, *target))
        rows[0] = ((_plain(size, rng) - mean) / std, torch.zeros_like(rows[0][1]), torch.ones_like(rows[0][2]))
        images, targets, known = (torch.stack(column) for column in zip(*rows, strict=True))
        amounts = rng.uniform(-_SHARPEN, _SHARPEN, _BATCH).clip(0)
        yield _sharpened(images, torch.from_numpy(amounts).float()), targets, known


def _darker(image: Tensor, faces: Sequence[Face], rng: np.random.Generator) -> Tensor:
    """RGB 0..1 (3, h, w) with some of the faces darker."""
    height, width = image.shape[1:]
    for face in faces:
        if rng.random() >= _DARKER:
            continue
        inside = torch.from_numpy(face.ellipse((height, width))).float()
        darkness = torch.tensor(_SKIN).view(3, 1, 1) * float(np.exp(rng.uniform(np.log(_DARKEST), 0)))
        image = image * (1 - inside * (1 - darkness))
    return image.clamp(0, 1)


def _plain(size: Size, rng: np.random.Generator) -> Tensor:
    """RGB 0..1 (3, *size) from one colour to another, often nearly the same: a picture without anything in it."""
    start, end = (torch.tensor(rng.uniform(0, 1, (3, 1, 1)), dtype=torch.float32) for _ in range(2))
    slope = float(rng.choice([0.0, 0.1, 1.0])) * torch.linspace(0, 1, size[1]).expand(1, *size)
    return start + (end - start) * slope


def _sharpened(images: Tensor, amounts: Tensor) -> Tensor:
    """Images (n, 3, h, w), each with its difference from a soft copy added ``amounts`` (n,) times.

    The soft copy is that of the binomial filter (1, 2, 1) / 4 along both axes: two means of two by two pixels.
    """
    soft = F.avg_pool2d(F.avg_pool2d(F.pad(images, (1, 1, 1, 1), mode="replicate"), 2, stride=1), 2, stride=1)
    return torch.lerp(soft, images, 1 + amounts[:, None, None, None])


def _shuffled(photos: Sequence[Photo], rng: np.random.Generator) -> Iterator[Photo]:
    """All of them in random order, again and again."""
    while True:
        for index in rng.permutation(len(photos)):
            yield photos[index]


def fit(options: argparse.Namespace) -> None:
    """Train on the pictures that are neither for choosing nor reported."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    model = _untrained(options.trunk)
    if options.start:
        model = padded(model)
        fill(model, options.start.read_bytes(), options.start)
    photos = [photo for name in PHOTOGRAPHS for photo in read_photos(options.data, name, LEARNED)]
    screens = read_photos(options.data, SCREENS, LEARNED)
    print(f"{len(photos)} photographs, {len(screens)} screens", flush=True)
    trunk = model.trunk
    assert isinstance(trunk, LiteNet)
    early = nn.Sequential(trunk.stem, trunk.first, *trunk.stages[:_KEPT_STAGES]).requires_grad_(False)
    later = trunk.stages[_KEPT_STAGES:]
    optimizer = torch.optim.AdamW(
        [{"params": model.readout.parameters()}, {"params": later.parameters()}], weight_decay=_DECAY
    )
    rates = [options.rate, _TRUNK_SHARE * options.rate]
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rates, total_steps=options.steps, pct_start=0.1)
    losses = []
    views = batches(photos, screens, rng)
    for step, (images, targets, known) in zip(range(1, options.steps + 1), views, strict=False):
        with torch.autocast("cpu", torch.bfloat16):
            maps = early(images.contiguous(memory_format=torch.channels_last))
            quarters = model.readout(trunk.late(maps, _KEPT_STAGES))
        heads = F.pixel_shuffle(quarters.float(), 2)[:, 0]
        loss = F.binary_cross_entropy_with_logits(heads, targets, known)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
        if step % _NOTED == 0 or step == options.steps:
            print(f"step {step}: loss {np.mean(losses[-_NOTED:]):.4f}", flush=True)
            _write(model, len(photos) + len(screens), options.out)


def _untrained(trunk: Path) -> GazeModel:
    """A gaze network with a readout of four maps: the quarters of each cell."""
    model, _ = load_gaze_model(trunk)
    spec = model.spec.trunk
    assert isinstance(spec, LiteSpec)
    near, deep = spec.taps
    model.network.set_submodule("readout", TwoScaleReadout((near, deep), _READOUT, "prelu"))
    return model.eval()  # statistics of the normalisation stay


def _write(model: GazeModel, pictures: int, path: Path) -> None:
    """The network with the quarters of every cell in their places and the logistic function behind it."""
    facts = Facts(
        "heads", data=f"{pictures} pictures of SALICON, EyeCrowd and UEyes, judged by MTCNN", working_size=WORKING
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
    """Fit."""
    parser = make_parser(__doc__, __file__, out=FILE)
    parser.add_argument("--trunk", type=Path, default=TRUNK, help="the checkpoint whose trunk is tuned")
    parser.add_argument("--steps", type=int, default=4600, help="steps of the training")
    parser.add_argument("--start", type=Path, help="an earlier file of this script to continue from")
    parser.add_argument("--rate", type=float, default=_RATE, help="learning rate at its highest")
    fit(parse(parser, arguments))


if __name__ == "__main__":
    main()
