"""Figures 3 and 4: saliency maps of the example photographs, by the models that these figures show.

    python -m experiments.saliency_maps

Maps as the paper's caption describes them: gamma-corrected fixation probabilities, black and white at the 1% and 99%
percentiles of the map. The paper does not give its gamma; here it is 2.2. All models get the same centre bias, that of
`fastgaze-m`. The photographs are the package's examples, which may be redistributed; the paper's are of
CAT2000. Writes results/maps.json and docs/images/results/maps/*.png; `experiments.report` draws with them.
"""

import argparse
import tempfile
import tomllib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image

from experiments import common
from experiments.common import CONFIGS, DOCS, EXAMPLES, RESULTS, Record
from experiments.entries import Entry, describe, open_scored, read_entries
from experiments.starts import model_file
from fastgaze.runtime.card import read_card

GAMMA = 2.2
PERCENTILES = (1.0, 99.0)
HEIGHT = 192  # pixels of a stored map
BIAS = "fastgaze-m"  # whose centre bias all models get


def intensity(log_density: npt.NDArray[np.floating]) -> npt.NDArray[np.uint8]:
    """A log density (h, w) as grey levels: probabilities between the percentiles, to the power of 1 / gamma."""
    density = np.exp(log_density)
    black, white = np.percentile(density, PERCENTILES)
    stretched = ((density - black) / (white - black)).clip(0, 1)
    grey: npt.NDArray[np.uint8] = (255 * stretched ** (1 / GAMMA)).round().astype(np.uint8)
    return grey


def map_size(photo: Image.Image) -> tuple[int, int]:
    """(height, width) of the stored map of a photograph."""
    return HEIGHT, round(photo.width * HEIGHT / photo.height)


def draw(entry: Entry, photos: dict[str, Image.Image], bias: npt.NDArray[np.float32], folder: Path) -> dict[str, str]:
    """Store the maps of one model; file names by photograph."""
    files = {}
    with tempfile.TemporaryDirectory() as exported:
        model = open_scored(entry, Path(exported), threads=1)
        for name, photo in photos.items():
            log_density = model.log_density(np.asarray(photo), map_size(photo), bias)
            files[name] = f"{entry.name}-{name}.png"
            Image.fromarray(intensity(log_density)).save(folder / files[name], optimize=True)
    return files


def store_photos(names: list[str], folder: Path) -> dict[str, Image.Image]:
    """The photographs, and a small copy of each for the figure."""
    photos = {}
    for name in names:
        with Image.open(EXAMPLES / f"{name}.jpg") as opened:
            photos[name] = opened.convert("RGB")
        height, width = map_size(photos[name])
        photos[name].resize((width, height), Image.Resampling.LANCZOS).save(folder / f"photo-{name}.jpg", quality=88)
    return photos


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = common.make_parser(__doc__, __file__, data=False, out=RESULTS / "maps.json", tiny="one photograph")
    parser.add_argument("--models", type=Path, default=CONFIGS / "front.toml", help="TOML: [figures] and [[model]]")
    parser.add_argument("--images", type=Path, default=DOCS / "images" / "results" / "maps")
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    """Draw every model that the list shows and whose file is there; what was drawn before by the same rule stays."""
    options = common.parse(make_parser(), arguments)
    torch.set_num_threads(1)
    options.images.mkdir(parents=True, exist_ok=True)
    shown = tomllib.loads(options.models.read_text())["figures"]
    shown["pictures"] = shown["pictures"][:1] if options.tiny else shown["pictures"]
    photos = store_photos(shown["pictures"], options.images)
    bias = read_card(model_file(BIAS)).center_bias
    rule = {"gamma": GAMMA, "percentiles": list(PERCENTILES), "center_bias": BIAS}
    record = common.read_record(options.out) or {}
    found: dict[str, Record] = record["models"] if record.get("rule") == rule else {}
    for entry in read_entries(options.models, shown["maps"]):
        if found.get(entry.name, {}).get("sha256") != entry.sha256:
            files = draw(entry, photos, bias, options.images)
            facts = {"family": entry.family, "kind": entry.kind, "sha256": entry.sha256, **describe(entry)}
            found[entry.name] = facts | {"files": files}
            print(f"{entry.name}: {facts['gflop_640x480']:.2f} GFLOP, {len(files)} maps", flush=True)
    about = common.about(options, **rule)
    common.write_record(options.out, about | {"figures": shown, "rule": rule, "models": found})


if __name__ == "__main__":
    main()
