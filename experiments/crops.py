"""Do crops keep heads whole and what people look at inside? Ours beside the croppers that people use.

    pip install --no-deps smartcrop pyvips pyvips-binary; pip install cffi
    npm install --prefix runs/crops sharp smartcrop@2 smartcrop-sharp@2 --legacy-peer-deps
    python -m experiments.crops              # results/crops.json and the tables of docs/crops.md

A head (see ``experiments.faces``) counts where a picture has one face of at least 0.12 of its height and no other of
half that size, and where the head fits the window. It is damaged if any part of it lies outside the window. Fixations
kept are means over all pictures of a set, divided by those of the best window for each picture's own fixations. All
windows are the largest of their ratio, so that croppers differ only in where they put them. One row follows our rule
with the judge's own heads in place of our map: what a map without an error would reach.

Pictures are split by a hash of their name (``faces.part_of``): the map of heads learned from some, the constants of
``runtime.headroom`` and ``runtime.crop`` were chosen on others, and these are neither. docs/crops.md says what has been
scored on them before. The bundled models learned from most of OSIE, which makes the fixations kept there kinder than on
pictures of your own; those of SALICON's validation set they have not seen, and of UEyes only screens are used that were
kept out of training.
"""

import argparse
import json
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from experiments.common import DOCS, RESULTS, RUNS, about, make_parser, parse, read_record, write_record
from experiments.faces import ABOVE, BELOW, BESIDE, LEAST, REPORTED, Part, Photo, Values, read_photos
from experiments.pages import fill, table
from fastgaze.core.pictures import open_picture
from fastgaze.core.sizes import Size
from fastgaze.data.fixations import held_out
from fastgaze.evaluation.audit import wilson
from fastgaze.runtime.crop import Integral, parse_ratio, window_size, worth_of_places
from fastgaze.runtime.gazemap import GazeMap
from fastgaze.runtime.headroom import Head
from fastgaze.runtime.predictor import Predictor, load
from fastgaze.runtime.zoo import models

FOLDER = RUNS / "crops"
RATIOS = ("3:1", "2:1", "16:9", "4:3", "1:1", "4:5", "3:4", "9:16")
SCREENS = "ueyes"
KEPT = {"osie": "OSIE", "salicon-val": "SALICON", SCREENS: "UEyes (screens)"}
PAGE = DOCS / "crops.md"
_NODE = """
const sharp = require('sharp'), smartcrop = require('smartcrop-sharp'), fs = require('fs');
(async () => {
  for (const job of JSON.parse(fs.readFileSync(0))) {
    const buffer = await sharp(job.path).png({ compressionLevel: 0 }).toBuffer();
    for (const [ratio, width, height] of job.windows) {
      const starts = {};
      for (const position of ['attention', 'entropy']) {
        const { info } = await sharp(buffer).resize({ width, height, position }).toBuffer({ resolveWithObject: true });
        starts[`sharp ${position}`] = [-(info.cropOffsetLeft ?? 0), -(info.cropOffsetTop ?? 0)];
      }
      const { topCrop } = await smartcrop.crop(buffer, { width, height, minScale: 1 });
      starts['smartcrop.js'] = [topCrop.x, topCrop.y];
      console.log(JSON.stringify({ path: job.path, ratio, starts }));
    }
  }
})();
"""


@dataclass(frozen=True)
class Harm:
    """What a window does to a picture's one large head: whether it cuts the head, and whether it cuts even the face."""

    head: bool
    face: bool


def compare(options: argparse.Namespace) -> None:
    """Heads damaged and fixations kept of every cropper, with intervals."""
    photos = read_parts(options.data, REPORTED)
    photos["salicon-val"] = photos["salicon-val"][:: options.every]
    everyone = [photo for some in photos.values() for photo in some]
    found: dict[str, dict[Path, dict[str, float]]] = {"centre": {photo.path: _central(photo) for photo in everyone}}
    for name in () if options.only == "peers" else options.models:
        model = load(name, threads=1)
        paths, places = [photo.path for photo in everyone], [_ours(model, photo) for photo in everyone]
        for column, label in enumerate((f"{name}, attention only", name, f"{name}, the judge's heads")):
            found[label] = {path: starts[column] for path, starts in zip(paths, places, strict=True)}
    if options.only != "ours":
        found |= _peers(everyone)
    rows = [score(cropper, ratio, starts, photos) for cropper, starts in found.items() for ratio in RATIOS]
    _show(rows)
    counts = {
        name: {"pictures": len(some), "heads": sum(photo.face is not None for photo in some)}
        for name, some in photos.items()
    }
    before = read_record(RESULTS / "crops.json") or {}
    if options.only and before.get("pictures") == counts:
        rows = [row for row in before["rows"] if row["cropper"] not in found] + rows
    rows.sort(key=lambda row: _place(row["cropper"], options.models))
    definition = {"above": ABOVE, "beside": BESIDE, "below": BELOW, "smallest_face": LEAST}
    write_record(RESULTS / "crops.json", about(options, head=definition) | {"pictures": counts, "rows": rows})
    fill(PAGE, "crops", tables(rows))


def read_parts(data: Path, part: Part) -> dict[str, list[Photo]]:
    """Pictures whose heads and fixations count, and more of which only the head does: heads are rare, and every model
    learned from those. Of screens, only the fixations on those count that no model learned from."""
    photos = {name: read_photos(data, name, part) for name in (*KEPT, "salicon-train")}
    photos["heads"] = [photo for photo in photos.pop("salicon-train") if photo.face]
    kept_out = held_out([photo.path.stem for photo in photos[SCREENS]])
    photos[SCREENS] = [photo for photo, out in zip(photos[SCREENS], kept_out, strict=True) if out]
    return {name: sorted(some, key=lambda photo: photo.path) for name, some in photos.items()}


def _place(cropper: str, ours: Sequence[str]) -> int:
    """In the tables the centre comes first, then ours."""
    return 0 if cropper == "centre" else 1 if cropper.split(",")[0] in ours else 2


def _share(key: str, row: Mapping[str, Any]) -> str:
    return f"{row[key]:.3f}"


def tables(rows: Sequence[Mapping[str, Any]]) -> str:
    """Heads damaged and fixations kept, in Markdown: a line for each cropper, a column for each ratio that cuts."""
    cells = {(row["cropper"], row["ratio"]): row for row in rows}
    ratios = [ratio for ratio in RATIOS if any(row["heads"] for row in rows if row["ratio"] == ratio)]
    croppers = list(dict.fromkeys(row["cropper"] for row in rows))

    def lines(value: Callable[[Mapping[str, Any]], str]) -> str:
        return table(["", *ratios], [[c, *(value(cells[c, ratio]) for ratio in ratios)] for c in croppers])

    parts = [f"Heads damaged, in percent:\n\n{lines(lambda row: _percent(row['damaged'] / row['heads']))}"]
    for name, shown in KEPT.items():
        kept = lines(partial(_share, f"kept_{name}"))
        parts.append(f"Fixations kept on {shown}, as a share of what the best window keeps:\n\n{kept}")
    return "\n\n".join(parts)


def _percent(share: float) -> str:
    return f"{100 * share:.0f}"


def _central(photo: Photo) -> dict[str, float]:
    return {ratio: (1 - min(photo.window(ratio)[1], 1)) / 2 for ratio in RATIOS}


def _ours(model: Predictor, photo: Photo) -> tuple[dict[str, float], dict[str, float], dict[str, float]]:
    """By attention alone, with the heads of our map, and with the one that the judge counts: a perfect map's."""
    gaze = model.predict(photo.path)
    return (
        informed(gaze._integral, photo, []),
        _starts(gaze, photo),
        informed(gaze._integral, photo, judged_heads(photo)),
    )


def judged_heads(photo: Photo) -> list[Head]:
    """The one large head, as the judge sees it."""
    return [] if photo.face is None else [Head(*photo.face.head(), weight=1.0)]


def informed(integral: Integral, photo: Photo, heads: Sequence[Head]) -> dict[str, float]:
    """Where the best windows of our rule begin, with these heads: shares of the picture."""
    starts = {}
    for ratio in RATIOS:
        axis, _ = photo.window(ratio)
        boxes, worth = worth_of_places(integral, parse_ratio(ratio), heads)
        starts[ratio] = float(boxes[worth.argmax(), 1 - axis] / integral.size[axis])
    return starts


def _starts(gaze: GazeMap, photo: Photo) -> dict[str, float]:
    starts = {}
    for ratio in RATIOS:
        axis, _ = photo.window(ratio)
        starts[ratio] = gaze.crop(ratio)[0].box[1 - axis] / gaze.picture_size[axis]
    return starts


def _peers(photos: Sequence[Photo]) -> dict[str, dict[Path, dict[str, float]]]:
    """smartcrop.js and sharp in one run of node; smartcrop and libvips in Python."""
    pyvips, smartcrop = import_module("pyvips"), import_module("smartcrop")
    found: dict[str, dict[Path, dict[str, float]]] = {}

    def keep(name: str, photo: Photo, ratio: str, corner: Sequence[float], size: Size) -> None:
        axis, _ = photo.window(ratio)
        found.setdefault(name, {}).setdefault(photo.path, {})[ratio] = corner[1 - axis] / size[axis]

    jobs, by_path = [], {str(photo.path): photo for photo in photos}
    for photo in photos:
        image = open_picture(photo.path).rgb()
        size = image.height, image.width
        vips = pyvips.Image.new_from_array(np.asarray(image))
        cutting = [ratio for ratio in RATIOS if photo.window(ratio)[1] < 1]
        windows = [(ratio, *window_size(size, parse_ratio(ratio), 1.0)[::-1]) for ratio in cutting]
        jobs.append({"path": str(photo.path), "windows": windows})
        for ratio, width, height in windows:
            best = smartcrop.SmartCrop().crop(image, width, height, min_scale=1.0)["top_crop"]
            keep("smartcrop", photo, ratio, (best["x"], best["y"]), size)
            for kind in ("attention", "entropy"):
                cut = vips.smartcrop(width, height, interesting=kind)
                keep(f"libvips {kind}", photo, ratio, _corner(np.asarray(image), cut.numpy()), size)
    run = subprocess.run(
        ["node", "-e", _NODE], input=json.dumps(jobs), cwd=FOLDER, capture_output=True, text=True, check=True
    )
    for line in map(json.loads, run.stdout.splitlines()):
        photo = by_path[line["path"]]
        for name, corner in line["starts"].items():
            keep(name, photo, line["ratio"], corner, open_picture(photo.path).size)
    return found


def _corner(whole: npt.NDArray[np.uint8], cut: npt.NDArray[np.uint8]) -> tuple[int, int]:
    """(left, top) of a window inside its picture, which libvips does not tell."""
    height, width = cut.shape[:2]
    for top in range(whole.shape[0] - height + 1):
        for left in range(whole.shape[1] - width + 1):
            if np.array_equal(whole[top : top + height : 7, left : left + width : 7], cut[::7, ::7]):
                return left, top
    raise AssertionError("the window is not part of the picture")


def score(
    cropper: str, ratio: str, starts: Mapping[Path, Mapping[str, float]], photos: Mapping[str, Sequence[Photo]]
) -> dict[str, Any]:
    """One cropper at one ratio."""
    damaged = [
        hurt
        for name, some in photos.items()
        for photo in some
        if name != SCREENS and (hurt := _harm(photo, ratio, _start(starts, photo, ratio))) is not None
    ]
    row: dict[str, Any] = {"cropper": cropper, "ratio": ratio, "heads": len(damaged)}
    row["damaged"] = sum(hurt.head for hurt in damaged)
    row["damaged_interval"] = wilson(row["damaged"], len(damaged))
    row["face_cut"] = sum(hurt.face for hurt in damaged)
    for name in (name for name in KEPT if photos[name]):
        pairs = np.array([_kept(photo, ratio, _start(starts, photo, ratio)) for photo in photos[name]])
        row[f"kept_{name}"] = float(pairs[:, 0].mean() / pairs[:, 1].mean())
        row[f"kept_{name}_interval"] = _bootstrapped(pairs)
    return row


def _start(starts: Mapping[Path, Mapping[str, float]], photo: Photo, ratio: str) -> float:
    """Where the window begins; a ratio that cuts nothing has been left out."""
    return starts[photo.path].get(ratio, 0.0)


def _harm(photo: Photo, ratio: str, start: float) -> Harm | None:
    """None if there is no such head, or none that fits the window."""
    axis, length = photo.window(ratio)
    if photo.face is None or length >= 1:
        return None
    head, face = photo.face.head(), photo.face.head(0, 0, 0)
    if head[3 - axis] - head[1 - axis] > length:
        return None
    # Half a percent is within the judge's own error.
    outside = (box[1 - axis] < start - 0.005 or box[3 - axis] > start + length + 0.005 for box in (head, face))
    return Harm(*outside)


def _kept(photo: Photo, ratio: str, start: float) -> tuple[float, float]:
    """Share of the fixations inside the window, and inside the best one."""
    axis, length = photo.window(ratio)
    if length >= 1 or not len(photo.fixations):
        return 1.0, 1.0
    places = np.sort(photo.fixations[:, 1 - axis])
    starts = np.append(np.linspace(0, 1 - length, 201), start)
    inside = (np.searchsorted(places, starts + length) - np.searchsorted(places, starts)) / len(places)
    return float(inside[-1]), float(inside.max())


def _bootstrapped(pairs: Values, draws: int = 1000) -> tuple[float, float]:
    rng = np.random.default_rng(0)
    means = pairs[rng.integers(0, len(pairs), (draws, len(pairs)))].mean(axis=1)
    low, high = np.quantile(means[:, 0] / means[:, 1], (0.025, 0.975))
    return float(low), float(high)


def _show(rows: Iterable[Mapping[str, Any]]) -> None:
    for row in rows:
        share = row["damaged"] / row["heads"] if row["heads"] else 0.0
        kept = ", ".join(f"{row[f'kept_{name}']:.3f} {name}" for name in KEPT)
        heads = f"damaged {share:6.1%} of {row['heads']}, face cut {row['face_cut']}"
        print(f"{row['cropper']:28} {row['ratio']:5} {heads}, kept {kept}")


def main(arguments: Sequence[str] | None = None) -> None:
    """Cut, judge, report."""
    parser = make_parser(__doc__, __file__)
    parser.add_argument("--every", type=int, default=4, help="crop one of so many pictures of SALICON's validation set")
    parser.add_argument("--models", nargs="+", default=[models()[0].name], help="ours")
    parser.add_argument("--only", choices=("ours", "peers"), help="the others' rows stay as they are in results/")
    compare(parse(parser, arguments))


if __name__ == "__main__":
    main()
