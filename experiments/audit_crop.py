"""Does the crop prefer one of two people? Pairs of portraits side by side, in every order, with intervals.

    python -m experiments.audit_crop --model fastgaze-s --json results/crop_audit.json
    python -m experiments.audit_crop --model my.onnx --portraits folder      # folder/GROUP/*.jpg, two groups or more

Each pair stands in one picture, both ways round, and each picture also mirrored, so that a preference for a side
cannot pass for a preference for a person. A crop that holds one person is asked for; the side its centre is on is the
person it chose. Drawn pairs are one person twice with one trait changed. The photograph's pairs show one face twice,
once darker. Three deciders are compared: the crop window, the most salient point, and the share of attention.

What it can show: that a model's crop reacts to a trait that should not matter, on these pictures. What it cannot show:
that a model is fair. Drawings are no photographs, a few traits are not people, a pair in one picture is one situation,
and an interval around one half is no proof of indifference. Use photographs of your own domain before you rely on it.
"""

import argparse
import itertools
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from experiments.portraits import DARK, LIGHT, draw_at_random, dressed_anew, portrait
from fastgaze.runtime.predictor import Predictor, load

SIDE = 320  # pixels of a portrait
CENTRAL = 0.02  # of the width: a window this near to the middle chose nobody
ASTRONAUT = Path(__file__).parents[1] / "src" / "fastgaze" / "app" / "server" / "examples" / "astronaut.jpg"
Values = NDArray[np.float64]


@dataclass(frozen=True)
class Pair:
    """Two portraits of equal size; the question is whether ``first`` is chosen more often than ``second``."""

    first: Image.Image
    second: Image.Image


@dataclass(frozen=True)
class Choice:
    """One picture: 1 the first person, 0 the second, 0.5 neither; ``mass`` is the first one's share of attention."""

    window: float
    peak: float
    mass: float
    left: float
    """1 if the window is on the left, whoever stands there."""


def arrangements(pair: Pair) -> Iterator[tuple[Image.Image, bool]]:
    """Four pictures of a pair: both orders, each as it is and mirrored; and whether the first one stands left."""
    for one, other, first_left in ((pair.first, pair.second, True), (pair.second, pair.first, False)):
        picture = Image.new("RGB", (2 * one.width, one.height))
        picture.paste(one, (0, 0))
        picture.paste(other, (one.width, 0))
        yield picture, first_left
        yield ImageOps.mirror(picture), not first_left


def choose(model: Predictor, picture: Image.Image, first_left: bool, ratio: str) -> Choice:
    """What the model makes of one picture."""
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


def wilson(wins: int, trials: int, z: float = 1.96) -> tuple[float, float]:
    """95% interval of a share, right for few trials and shares near 0 and 1."""
    if trials == 0:
        return 0.0, 1.0
    share, spread = wins / trials, z * z / trials
    half = z * math.sqrt(share * (1 - share) / trials + spread / (4 * trials))
    return max((share + spread / 2 - half) / (1 + spread), 0.0), min((share + spread / 2 + half) / (1 + spread), 1.0)


def bootstrap(values: Values, seed: int = 0, draws: int = 2000) -> tuple[float, float]:
    """95% interval of the mean over pairs: pictures of one pair are not independent, pairs are."""
    rng = np.random.default_rng(seed)
    means = values[rng.integers(0, len(values), (draws, len(values)))].mean(axis=1)
    low, high = np.quantile(means, (0.025, 0.975))
    return float(low), float(high)


@dataclass(frozen=True)
class Finding:
    """One contrast. Shares for the first of the two; one half is indifference.

    window, peak, mass: mean over pairs, with bootstrap intervals over pairs.
    first, second: pairs of which the window always took the first, or the second, whatever the order.
    position: pairs decided by order, or not at all; first_share: of the decided ones, with a Wilson interval.
    left: share of windows on the left.
    """

    contrast: str
    pairs: int
    window: float
    window_interval: tuple[float, float]
    peak: float
    peak_interval: tuple[float, float]
    mass: float
    mass_interval: tuple[float, float]
    first: int
    second: int
    position: int
    first_share: float | None
    first_share_interval: tuple[float, float]
    left: float


def audit(model: Predictor, contrast: str, pairs: Sequence[Pair], ratio: str) -> Finding:
    """Every pair in every arrangement."""
    choices = [[choose(model, *arranged, ratio) for arranged in arrangements(pair)] for pair in pairs]
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
        bootstrap(window),
        float(peak.mean()),
        bootstrap(peak),
        float(mass.mean()),
        bootstrap(mass),
        first,
        second,
        len(pairs) - decided,
        first / decided if decided else None,
        wilson(first, decided),
        float(left.mean()),
    )


def drawn_pairs(count: int) -> dict[str, list[Pair]]:
    """Contrasts of drawn people; the background is shared, and light and dark backgrounds are equally likely."""
    contrasts: dict[str, list[Pair]] = {}
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


def photo_pairs(path: Path, count: int) -> dict[str, list[Pair]]:
    """One photographed face twice, at several framings: as it is, and darker by a gamma of 1.6."""
    with Image.open(path) as file:
        photo = file.convert("RGB")
    rng = np.random.default_rng(0)
    pairs = []
    for _ in range(count):
        side = rng.uniform(0.36, 0.46) * photo.height
        left, top = rng.uniform(0.2, 0.26) * photo.width, rng.uniform(0, 0.05) * photo.height
        face = photo.crop((round(left), round(top), round(left + side), round(top + side))).resize((SIDE, SIDE))
        pairs.append(Pair(face, face.point([round(255 * (v / 255) ** 1.6) for v in range(256)] * 3)))
    return {"photo: as it is over darker": pairs}


def folder_pairs(folder: Path, count: int) -> dict[str, list[Pair]]:
    """Photographs of a user: random pairs across every two groups, which are the folders below ``folder``."""
    suffixes = (".jpg", ".jpeg", ".png", ".webp")
    groups = {
        group.name: sorted(path for path in group.iterdir() if path.suffix.lower() in suffixes)
        for group in sorted(folder.iterdir())
        if group.is_dir()
    }
    groups = {name: paths for name, paths in groups.items() if paths}
    if len(groups) < 2:
        raise SystemExit(f"{folder} needs two folders or more with .jpg, .png or .webp portraits, one a group")
    rng = np.random.default_rng(0)
    contrasts = {}
    for one, other in itertools.combinations(groups, 2):
        picked = [(rng.choice(len(groups[one])), rng.choice(len(groups[other]))) for _ in range(count)]
        contrasts[f"{one} over {other}"] = [Pair(_square(groups[one][i]), _square(groups[other][j])) for i, j in picked]
    return contrasts


def _square(path: Path) -> Image.Image:
    with Image.open(path) as image:
        return ImageOps.fit(ImageOps.exif_transpose(image).convert("RGB"), (SIDE, SIDE))


def contact_sheet(contrasts: dict[str, list[Pair]], path: Path) -> None:
    """Three pairs of every contrast, a row each, to look at."""
    sheet = Image.new("RGB", (6 * SIDE // 2, len(contrasts) * SIDE // 2))
    for row, pairs in enumerate(contrasts.values()):
        for i, image in enumerate(image for pair in pairs[:3] for image in (pair.first, pair.second)):
            sheet.paste(image.resize((SIDE // 2, SIDE // 2)), (i * SIDE // 2, row * SIDE // 2))
    sheet.save(path)


def _row(finding: Finding) -> str:
    def part(value: float, interval: tuple[float, float]) -> str:
        return f"{value:.3f} [{interval[0]:.3f}, {interval[1]:.3f}]"

    counts = f"{finding.first}/{finding.second}/{finding.position}"
    cells = (
        finding.contrast,
        part(finding.window, finding.window_interval),
        counts,
        part(finding.peak, finding.peak_interval),
        part(finding.mass, finding.mass_interval),
    )
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="a bundled name or an .onnx file; the default model without it")
    parser.add_argument("--pairs", type=int, default=40, help="pairs of each contrast, each in four pictures")
    parser.add_argument("--ratio", default="3:4", help="of the crop; a window must hold one person only")
    parser.add_argument("--portraits", type=Path, help="your own photographs instead of the drawn ones")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=Path, help="file for the findings")
    parser.add_argument("--sheet", type=Path, help="file for a picture of some pairs")
    options = parser.parse_args()
    model = load(options.model, threads=options.threads)
    if options.portraits:
        contrasts = folder_pairs(options.portraits, options.pairs)
    else:
        contrasts = drawn_pairs(options.pairs) | photo_pairs(ASTRONAUT, max(options.pairs // 2, 1))
    if options.sheet:
        contact_sheet(contrasts, options.sheet)
    print("| contrast | window | always first/second/neither | peak | attention |\n|---|---|---|---|---|")
    findings = []
    for contrast, pairs in contrasts.items():
        findings.append(audit(model, contrast, pairs, options.ratio))
        print(_row(findings[-1]), flush=True)
    if options.json:
        facts: dict[str, Any] = {
            "model": model.name,
            "engine": "onnxruntime",
            "ratio": options.ratio,
            "picture": [SIDE, 2 * SIDE],
            "portraits": "photographs" if options.portraits else "drawn, and one photograph",
            "findings": [asdict(finding) for finding in findings],
        }
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(facts, indent=2) + "\n")


if __name__ == "__main__":
    main()
