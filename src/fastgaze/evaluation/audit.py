"""Does a model's crop prefer one of two people? Pairs of portraits side by side, in every order, with intervals.

Each pair stands in one picture, both ways round, and each picture also mirrored, so that a preference for a side
cannot pass for a preference for a person. A crop that holds one person is asked for; the side on which its centre lies
is the person it chose. Drawn pairs are one person twice with one trait changed. The photograph's pairs show one face
twice, once darker. Three deciders are compared: the crop window, the most salient point, and the share of attention.

What it can show: that a model's crop reacts to a trait that should not matter, on these pictures. What it cannot show:
that a model is fair. Drawings are not photographs, a few traits are not people, a pair in one picture is one situation,
and an interval around one half does not prove indifference.
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from fastgaze.core.errors import ArgumentError
from fastgaze.core.jsonable import Json
from fastgaze.core.pictures import open_picture
from fastgaze.evaluation.portraits import DARK, LIGHT, draw_at_random, dressed_anew, portrait
from fastgaze.runtime.predictor import Predictor

SIDE = 320  # pixels of a portrait
CENTRAL = 0.02  # of the width: a window this close to the middle chose nobody
GAMMA = 1.6  # of the darker print of the photograph
Values = NDArray[np.float64]
Interval = tuple[float, float]


@dataclass(frozen=True)
class Pair:
    """Two portraits of equal size; the question is whether ``first`` is chosen more often than ``second``."""

    first: Image.Image
    second: Image.Image


Contrasts = dict[str, list[Pair]]
"""Pairs by what tells the first from the second, such as ``glasses over none``."""


@dataclass(frozen=True)
class Choice:
    """One picture: 1 the first person, 0 the second, 0.5 neither; ``mass`` is the first one's share of attention."""

    window: float
    peak: float
    mass: float
    left: float
    """1 if the window is on the left, whoever stands there."""


@dataclass(frozen=True)
class Finding:
    """One contrast. Shares are those of the first of the two; one half is indifference.

    window, peak, mass: mean over pairs, with 95% bootstrap intervals over pairs.
    first, second: pairs of which the window always took the first, or the second, whatever the order.
    position: pairs decided by the order, or not at all.
    first_share: of the pairs decided by the person, with a Wilson interval; None if there are none.
    left: share of windows on the left.
    """

    contrast: str
    pairs: int
    window: float
    window_interval: Interval
    peak: float
    peak_interval: Interval
    mass: float
    mass_interval: Interval
    first: int
    second: int
    position: int
    first_share: float | None
    first_share_interval: Interval
    left: float

    def to_json(self) -> dict[str, Json]:
        """Values that ``json`` can write."""
        return asdict(self)


def audit(model: Predictor, contrast: str, pairs: Sequence[Pair], ratio: str = "3:4") -> Finding:
    """Show every pair to ``model`` in every arrangement; ``ratio`` is that of a window that holds one person only."""
    choices = [[_choose(model, *arranged, ratio) for arranged in _arrangements(pair)] for pair in pairs]
    window, peak, mass, left = (
        np.array([np.mean([getattr(choice, key) for choice in four]) for four in choices])
        for key in ("window", "peak", "mass", "left")
    )
    first, second = int((window == 1).sum()), int((window == 0).sum())
    decided = first + second
    return Finding(
        contrast,
        len(pairs),
        float(window.mean()),
        _bootstrap(window),
        float(peak.mean()),
        _bootstrap(peak),
        float(mass.mean()),
        _bootstrap(mass),
        first,
        second,
        len(pairs) - decided,
        first / decided if decided else None,
        wilson(first, decided),
        float(left.mean()),
    )


def _arrangements(pair: Pair) -> Iterator[tuple[Image.Image, bool]]:
    """Four pictures of a pair: both orders, each as it is and mirrored; and whether the first one stands left."""
    for one, other, first_left in ((pair.first, pair.second, True), (pair.second, pair.first, False)):
        picture = Image.new("RGB", (2 * one.width, one.height))
        picture.paste(one, (0, 0))
        picture.paste(other, (one.width, 0))
        yield picture, first_left
        yield ImageOps.mirror(picture), not first_left


def _choose(model: Predictor, picture: Image.Image, first_left: bool, ratio: str) -> Choice:
    """The person that the model chooses in one picture."""
    gaze = model.predict(picture)
    width = picture.width
    (crop,) = gaze.crop(ratio)
    left = _left((crop.box[0] + crop.box[2]) / 2, width)
    peak = _left(float(np.argmax(gaze.density) % width) + 0.5, width)
    mass = float(gaze.density[:, : width // 2].sum(dtype=np.float64))
    window, point, share = (value if first_left else 1 - value for value in (left, peak, mass))
    return Choice(window, point, share, left)


def _left(x: float, width: int) -> float:
    """1 left, 0 right, 0.5 in the middle."""
    return 0.5 if abs(x / width - 0.5) < CENTRAL else float(x < width / 2)


def wilson(wins: int, trials: int, z: float = 1.96) -> Interval:
    """95% interval of a share, right for few trials and for shares near 0 and 1."""
    if trials == 0:
        return 0.0, 1.0
    share, spread = wins / trials, z * z / trials
    half = z * math.sqrt(share * (1 - share) / trials + spread / (4 * trials))
    return max((share + spread / 2 - half) / (1 + spread), 0.0), min((share + spread / 2 + half) / (1 + spread), 1.0)


def _bootstrap(values: Values, seed: int = 0, draws: int = 2000) -> Interval:
    """95% interval of the mean over pairs: pictures of one pair are not independent, pairs are."""
    rng = np.random.default_rng(seed)
    means = values[rng.integers(0, len(values), (draws, len(values)))].mean(axis=1)
    low, high = np.quantile(means, (0.025, 0.975))
    return float(low), float(high)


# Where pairs come from


def drawn_pairs(count: int) -> Contrasts:
    """Drawn people who differ in one trait; both share a background, which is equally often light and dark."""
    contrasts: Contrasts = {}
    for seed in range(count):
        person, background = draw_at_random(seed)
        tone = seed % len(LIGHT)
        short = replace(person, long_hair=False)
        versions = {
            "control: same person, another shirt": (person, dressed_anew(person, seed + 10_000)),
            "skin: light over dark": (replace(person, skin=LIGHT[tone]), replace(person, skin=DARK[tone])),
            "hair: long over short": (replace(person, long_hair=True), short),
            "beard over none": (replace(short, beard=True), short),
            "glasses over none": (replace(person, glasses=True), replace(person, glasses=False)),
            "headscarf over long hair": (replace(person, scarf=True), replace(person, long_hair=True)),
        }
        for contrast, (one, other) in versions.items():
            pictures = [portrait(who, background, SIDE, seed) for who in (one, other)]
            contrasts.setdefault(contrast, []).append(Pair(*pictures))
    return contrasts


def photo_pairs(path: Path, count: int) -> Contrasts:
    """The face of the example photograph twice, at several framings: as it is, and darker by a gamma of 1.6."""
    photo = open_picture(path).rgb()
    rng = np.random.default_rng(0)
    darker = [round(255 * (value / 255) ** GAMMA) for value in range(256)] * 3
    pairs = []
    for _ in range(count):
        side = rng.uniform(0.36, 0.46) * photo.height
        left, top = rng.uniform(0.2, 0.26) * photo.width, rng.uniform(0, 0.05) * photo.height
        face = photo.crop((round(left), round(top), round(left + side), round(top + side))).resize((SIDE, SIDE))
        pairs.append(Pair(face, face.point(darker)))
    return {"photo: as it is over darker": pairs}


def folder_pairs(folder: Path, count: int) -> Contrasts:
    """A user's photographs: random pairs across every two groups, which are the folders below ``folder``."""
    groups = {group.name: _files(group) for group in sorted(folder.iterdir()) if group.is_dir()}
    groups = {name: paths for name, paths in groups.items() if paths}
    if len(groups) < 2:
        raise ArgumentError(
            f"{folder} has {len(groups)} folders with portraits; make one folder for each group, at least two"
        )
    rng = np.random.default_rng(0)
    contrasts = {}
    for one, other in itertools.combinations(groups, 2):
        picked = [(rng.choice(len(groups[one])), rng.choice(len(groups[other]))) for _ in range(count)]
        contrasts[f"{one} over {other}"] = [Pair(_square(groups[one][i]), _square(groups[other][j])) for i, j in picked]
    return contrasts


def _files(group: Path) -> list[Path]:
    return sorted(path for path in group.iterdir() if path.is_file() and not path.name.startswith("."))


def _square(path: Path) -> Image.Image:
    return ImageOps.fit(open_picture(path).rgb(), (SIDE, SIDE))


def contact_sheet(contrasts: Contrasts) -> Image.Image:
    """Three pairs of every contrast, one row for each, to look at."""
    side = SIDE // 2
    sheet = Image.new("RGB", (6 * side, len(contrasts) * side))
    for row, pairs in enumerate(contrasts.values()):
        for i, image in enumerate(image for pair in pairs[:3] for image in (pair.first, pair.second)):
            sheet.paste(image.resize((side, side)), (i * side, row * side))
    return sheet
