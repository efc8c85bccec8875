"""How hot the border of a map is above a logo near the top of a plain page, and how often people look at the border.

    python -m experiments.border

A white page with one logo whose middle is 36 pixels below the top is predicted in several sizes: the top row's largest
density, as a share of the map's maximum. Beside it, from the fixations of each set: the density in the outermost
hundredth of the picture at each side, relative to an even spread. The centre bias of the bundled models is faded at the
border (`fastgaze.core.center_bias.fade_border`): what that gains or costs on the images kept out is measured with
several strengths of it. Writes results/border.json and a part of docs/models.md.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from experiments import common, scoring
from experiments.common import DOCS, RESULTS, Record
from experiments.pages import fill, table
from fastgaze.core.center_bias import FADE, CenterBias, fade_border
from fastgaze.core.sizes import Size, format_size, shrunk
from fastgaze.data import formats
from fastgaze.data.fixations import FixationSet
from fastgaze.runtime.predictor import Predictor, load

PAGES: tuple[Size, ...] = ((300, 400), (480, 640), (800, 1280), (1000, 1000))
MODELS = ("large", "default", "small", "tiny")
SETS = ("salicon/train", "osie", "eyecrowd", "ueyes")
SIDES = ("top", "bottom", "left", "right")
OUTERMOST = 0.01  # of the picture's height or width
SCORED = ("salicon-val", "osie-held-out", "eyecrowd-held-out", "ueyes-held-out")
STRENGTHS = (0.0, 2 / 3, 1.0, 4 / 3)  # of the fade that the models ship with
IMAGES = 150  # of each set at most
LONGEST = 256  # side of the maps that are scored, in pixels


def page(size: Size) -> NDArray[np.uint8]:
    """A white page of ``size`` with a red frame of 120x24 pixels, in the middle of its width and 36 below its top."""
    height, width = size
    pixels, middle = np.full((height, width, 3), 255, np.uint8), width // 2
    pixels[24:48, middle - 60 : middle + 60] = (200, 30, 30)
    pixels[30:42, middle - 45 : middle + 45] = 255
    return pixels


def top_row(model: Predictor, size: Size, bias: CenterBias = "model") -> float:
    """The largest density of the top row, as a share of the map's maximum."""
    density = model.predict(page(size), center_bias=bias).density
    return float(density[0].max() / density.max())


def biases(model: Predictor) -> dict[float, NDArray[np.float32]]:
    """The model's centre bias with its fade in several strengths, 1 being its own, by strength."""
    own = model.card.center_bias
    fade = fade_border(np.zeros_like(own))
    return {strength: own + np.float32(strength - 1) * fade for strength in STRENGTHS}


def gains(model: Predictor, name: str, data: Path) -> dict[float, float]:
    """Mean log-likelihood per fixation with each strength of the fade, in nats above that without one."""
    fixations = scoring.load_set(name, data)
    found: dict[float, list[float]] = {strength: [] for strength in STRENGTHS}
    for i in map(int, scoring.chosen(name, fixations, IMAGES)):
        size = shrunk(fixations.size(i), LONGEST)
        x, y = fixations.fixations(i, size).astype(int).T
        look = model.look(fixations.image(i))
        for strength, bias in biases(model).items():
            density = look.at(size, bias).log_density
            found[strength].append(float(density[y.clip(0, size[0] - 1), x.clip(0, size[1] - 1)].mean()))
    return {strength: float(np.mean(found[strength]) - np.mean(found[0.0])) for strength in STRENGTHS}


def fades(model: Predictor, data: Path) -> list[Record]:
    """One row for each strength: the top row on every page, and the gain on every set."""
    gained = {name: gains(model, name, data) for name in SCORED}
    return [
        {
            "nats": strength * FADE,
            "pages": {format_size(size): top_row(model, size, bias) for size in PAGES},
            "gains": {name: gained[name][strength] for name in SCORED},
        }
        for strength, bias in biases(model).items()
    ]


def at_the_border(data: FixationSet) -> dict[str, float]:
    """Density of fixations in the outermost part at each side, relative to an even spread."""
    unit = np.concatenate([data.fixations(i, (1, 1)) for i in range(len(data))])  # (x, y) from 0 to 1
    x, y = unit[:, 0], unit[:, 1]
    distances = dict(zip(SIDES, (y, 1 - y, x, 1 - x), strict=True))
    return {side: float((distance < OUTERMOST).mean() / OUTERMOST) for side, distance in distances.items()}


def shown(record: Record) -> str:
    """The part of the page: both tables."""
    pages = [format_size(size) for size in PAGES]
    maps = [[f"`{name}`", *(f"{shares[size]:.0%}" for size in pages)] for name, shares in record["pages"].items()]
    looked = [[name, *(f"{found[side]:.2f}" for side in SIDES)] for name, found in record["fixations"].items()]
    tried = [
        [
            f"{row['nats']:.0f} nats",
            *(f"{row['pages'][size]:.0%}" for size in pages),
            *(f"{row['gains'][name]:+.3f}" for name in SCORED),
        ]
        for row in record["fades"]
    ]
    parts = [
        "A white page with a logo 36 pixels below its top: the largest density of the top row, as a share of the map's "
        "maximum (`python -m experiments.border`).",
        table(["model", *pages], maps),
        "Where people look: density of the recorded fixations in the outermost hundredth of the pictures, relative to "
        "an even spread.",
        table(["set", *SIDES], looked),
        f"The centre bias of the bundled models drops by {FADE:.0f} nats at the border. Other drops, with the default "
        "model: the top row, and nats per fixation gained over no drop. Scores with a set's own centre bias do not "
        "depend on it.",
        table(["drop", *pages, *SCORED], tried),
    ]
    return "\n\n".join(parts)


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    return common.make_parser(__doc__, __file__, out=RESULTS / "border.json")


def main(arguments: Sequence[str] | None = None) -> None:
    """Predict the pages, count the fixations, and write both down."""
    options = common.parse(make_parser(), arguments)
    models = {name: load(name, threads=1) for name in MODELS}
    record = common.about(options, outermost=OUTERMOST)
    record["pages"] = {
        name: {format_size(size): top_row(model, size) for size in PAGES} for name, model in models.items()
    }
    record["fades"] = fades(models["default"], options.data)
    record["fixations"] = {name: at_the_border(formats.load("npz", options.data / name)) for name in SETS}
    common.write_record(options.out, record)
    models_page = DOCS / "models.md"
    fill(models_page, "border", shown(record))


if __name__ == "__main__":
    main()
