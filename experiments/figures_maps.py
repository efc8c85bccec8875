"""Figures 3 and 4: widths of networks before and after pruning, and their saliency maps of the example photographs.

    python -m experiments.figures_maps experiments/configs/front.toml

Maps as the paper's caption describes them: gamma-corrected fixation probabilities, black and white at the 1% and 99%
percentiles of the map. The paper does not give its gamma; here it is 2.2. All models get the same centre bias, that of
the bundled default model. The photographs are those of examples/, which may be redistributed; the paper's are of
CAT2000. Writes results/maps.json and docs/images/results/maps/*.png; `experiments/report.py` draws with them.
"""

import argparse
import json
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image

from experiments.front_entries import Entry, Scaled, describe, read_entries
from fastgaze.evaluation.models import CheckpointModel
from fastgaze.runtime.card import read_card
from fastgaze.runtime.zoo import default_name, find

ROOT = Path(__file__).parents[1]
GAMMA = 2.2
PERCENTILES = (1.0, 99.0)
HEIGHT = 192  # pixels of a stored map


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
    model = Scaled(CheckpointModel(entry.path, threads=1), entry.pixels)
    files = {}
    for name, photo in photos.items():
        log_density = model.log_density(np.asarray(photo), map_size(photo), bias)
        files[name] = f"{entry.name}-{name}.png"
        Image.fromarray(intensity(log_density)).save(folder / files[name], optimize=True)
    return files


def store_photos(names: list[str], folder: Path) -> dict[str, Image.Image]:
    """The photographs, and a small copy of each for the figure."""
    photos = {}
    for name in names:
        with Image.open(ROOT / "examples" / f"{name}.jpg") as opened:
            photos[name] = opened.convert("RGB")
        height, width = map_size(photos[name])
        photos[name].resize((width, height), Image.Resampling.LANCZOS).save(folder / f"photo-{name}.jpg", quality=88)
    return photos


def main() -> None:
    """Draw every model that the list shows in a figure and whose file is there."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", type=Path, help="TOML: [figures] and a [[model]] each")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "results" / "maps.json")
    parser.add_argument("--images", type=Path, default=ROOT / "docs" / "images" / "results" / "maps")
    options = parser.parse_args()
    torch.set_num_threads(1)
    options.images.mkdir(parents=True, exist_ok=True)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    shown = tomllib.loads(options.models.read_text())["figures"]
    wanted = [name for key in ("fastgaze", "densegaze", "maps") for name in shown[key]]
    photos = store_photos(shown["pictures"], options.images)
    bias = read_card(find(default_name())).center_bias
    found: dict[str, Any] = {}
    for entry in read_entries(options.models, wanted):
        files = draw(entry, photos, bias, options.images)
        found[entry.name] = {"family": entry.family, "kind": entry.kind, **describe(entry), "files": files}
        print(f"{entry.name}: {found[entry.name]['gflop_640x480']:.2f} GFLOP, {len(files)} maps", flush=True)
    rule = {"gamma": GAMMA, "percentiles": list(PERCENTILES), "center_bias": default_name()}
    facts = {"figures": shown, "rule": rule, "models": found}
    options.out.write_text(json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    main()
