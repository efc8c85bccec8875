"""Photographs and screens: how a model tells them apart, and what it is worth to know.

    python -m experiments.kinds          # results/kinds.json and a part of docs/models.md

People look at the middle of a photograph and at the top left of a page, by habit. A model that predicts gaze for both
has to know which of the two it sees. Its network knows already: a logistic regression on the mean of each of its
deepest feature maps tells the two apart. ``experiments.ship`` fits it for every file that ships, on pictures that the
network learned from (one of four of SALICON's), photographs and screens having the same weight together. It sees every
picture whole and cut to another shape, and photographs also drawn, noisy, framed and so on (``training.variants``):
without these, many drawings, patterns and wide photographs passed for screens. Its answer is that for pictures of which
one in five is a screen, so that in doubt a picture is a photograph.

Here it is scored: how many pictures of each set are told right, and how many bits per fixation a prediction gains over
one centre bias for all. Only pictures count that neither a network nor the regression learned from. Frames of videos
have another shape than all photographs that were learned from; one of the sequences shows slides, a screen.
"""

import argparse
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt
from PIL import Image

from experiments import common, scoring
from experiments.common import DOCS, RESULTS, Record
from experiments.pages import fill, table
from experiments.scoring import SETS, SHIPPED
from experiments.video_sequences import read_sequences
from fastgaze.core.center_bias import CenterBias, fade_border
from fastgaze.core.pictures import open_picture
from fastgaze.core.sizes import shrunk
from fastgaze.data import formats
from fastgaze.data.fixations import FixationSet, held_out
from fastgaze.evaluation.metrics import cells
from fastgaze.runtime.card import Kinds, ModelCard
from fastgaze.runtime.engines import Engine, make_engine
from fastgaze.runtime.predictor import Predictor, load
from fastgaze.runtime.resize import prepare
from fastgaze.runtime.video.reader import Reader
from fastgaze.runtime.zoo import models, read_model
from fastgaze.training.datasets import dataset_center_bias
from fastgaze.training.variants import variant

TRAINED_ON = ("salicon/train", "osie", "eyecrowd", "ueyes")
SCREENS = "ueyes"
EVERY = {"salicon/train": 4}  # of the large set one of so many pictures is enough
PRIOR = 0.2  # against one half, SALICON and OSIE gain .0003 and .006 bits and screens lose .001 (model default)
RIDGE = 3e-3  # a third or three times as much changes hardly anything on pictures that are kept out
SHAPES = 9 / 16, 21 / 9  # width over height of the parts that are cut from pictures
FRAMES, SLIDES = 60, "SlideShow"  # one of so many frames of a video is enough; the sequence that is a screen
LONGEST = 128  # cells along the longer side of the grid on which bits are counted
WAYS = {"mean": "one centre bias", "told": "that of its kind", "known": "if the kind were known"}
NAMES = {
    "salicon-val": "SALICON",
    "osie-held-out": "OSIE",
    "eyecrowd-held-out": "EyeCrowd",
    "ueyes-held-out": "UEyes (screens)",
    "cat2000": "CAT2000",
}

Array = npt.NDArray[np.float32]
Values = npt.NDArray[np.float64]


def learned(data: Path) -> dict[str, FixationSet]:
    """The sets that the models learned from, without the images that are kept out."""
    sets = {name: formats.load("npz", data / name) for name in TRAINED_ON}
    for scored in SETS.values():
        if scored.kept_out:
            sets[scored.folder] = sets[scored.folder].subset(~held_out(sets[scored.folder].names))
    return sets


def center_biases(sets: dict[str, FixationSet]) -> tuple[Array, Array, Array]:
    """That of a picture of any kind, the mean over the sets, and those of photographs and of screens.

    Means are means of densities; all fade at the border.
    """
    biases = {name: dataset_center_bias(fixations) for name, fixations in sets.items()}

    def mean(names: Sequence[str]) -> Array:
        return fade_border(np.log(np.mean([np.exp(biases[name]) for name in names], axis=0)))

    return mean(TRAINED_ON), mean([name for name in TRAINED_ON if name != SCREENS]), mean([SCREENS])


def fit_kinds(file: Path, sets: dict[str, FixationSet]) -> Kinds:
    """How the model of an ONNX file tells photographs from screens, with the centre biases of both."""
    summaries, screens = list[Array](), list[bool]()
    for name, fixations in sets.items():
        for index, path in enumerate(fixations.paths[:: EVERY.get(name, 1)]):
            seen = list(_summaries(file, views(path, index, name == SCREENS)))
            summaries.extend(seen)
            screens.extend([name == SCREENS] * len(seen))
    _, photograph, screen = center_biases(sets)
    weights, offset = regression(np.array(summaries, np.float64), np.array(screens))
    return Kinds(photograph, screen, weights, offset + float(np.log(PRIOR / (1 - PRIOR))))


def views(path: Path, index: int, screen: bool) -> Iterator[Image.Image]:
    """A picture whole and a part of it; of a photograph also a variant and a part of another one."""
    rng, image = np.random.default_rng(index), open_picture(path).rgb()
    yield image
    yield _part(image, rng)
    if not screen:
        yield Image.fromarray(variant(np.asarray(image), index))
        yield _part(Image.fromarray(variant(np.asarray(image), index + 1)), rng)


def _part(image: Image.Image, rng: np.random.Generator) -> Image.Image:
    """The largest window of a random shape, at a random place."""
    ratio = np.exp(rng.uniform(*np.log(SHAPES)))
    width, height = min(image.width, image.height * ratio), min(image.height, image.width / ratio)
    left, top = rng.uniform(0, image.width - width + 1e-6), rng.uniform(0, image.height - height + 1e-6)
    return image.crop((round(left), round(top), round(left + width), round(top + height)))


@lru_cache(maxsize=1)
def _network(file: Path) -> tuple[ModelCard, Engine]:
    path, content, card = read_model(file)
    return card, make_engine(path, content, threads=1)


def _summaries(file: Path, images: Iterable[Image.Image]) -> Iterator[Array]:
    """The second output of a model's file for every image, (k,)."""
    card, engine = _network(file)
    for picture in map(open_picture, images):
        working = card.working_size(picture.size)
        _, summary = engine(prepare(picture.pixels(working), working, card, picture.size)[None])
        yield summary[0]


def regression(summaries: Values, screens: npt.NDArray[np.bool_]) -> tuple[Array, float]:
    """Weights (k,) and offset of the logistic regression with a ridge, by Newton's method.

    summaries (n, k); screens (n,). Both kinds have the same weight together.
    """
    mean, spread = summaries.mean(axis=0), summaries.std(axis=0)
    spread = np.where(spread > 0, spread, 1.0)  # a map that is always zero
    X = np.column_stack([(summaries - mean) / spread, np.ones(len(summaries))])
    share = np.where(screens, 0.5 / screens.sum(), 0.5 / (~screens).sum())
    ridge = 2 * RIDGE * np.append(np.ones(X.shape[1] - 1), 0.0)
    theta = np.zeros(X.shape[1])
    for _ in range(100):
        p = 1 / (1 + np.exp(-np.clip(X @ theta, -50, 50)))
        gradient = X.T @ (share * (p - screens)) + ridge * theta
        curvature = X.T @ (X * (share * p * (1 - p))[:, None]) + np.diag(ridge + 1e-12)
        step = np.linalg.solve(curvature, gradient)
        theta -= step
        if np.abs(step).max() < 1e-8:
            break
    weights = theta[:-1] / spread
    return weights.astype(np.float32), float(theta[-1] - weights @ mean)


def measure(name: str, options: argparse.Namespace) -> Record:
    """One model on every set: share of pictures told right, and bits per fixation with each centre bias."""
    row: Record = {"model": name}
    model = load(name, threads=1)
    assert model.card.kinds is not None
    for each in SHIPPED:
        fixations = scoring.load_set(each, options.data)
        right, bits = [], []
        truth: Literal["screen", "photograph"] = "screen" if SETS[each].folder == SCREENS else "photograph"
        for i in map(int, scoring.chosen(each, fixations, options.limit)):
            view = model.look(fixations.paths[i])
            assert view.screen is not None
            right.append((view.screen > 0.5) == (truth == "screen"))
            grid = shrunk(view.picture_size, LONGEST)
            fixated = cells(grid, fixations.fixations(i, grid))
            biases: tuple[CenterBias, ...] = (model.card.center_bias, "model", truth)
            maps = [view.at(grid, bias).log_density for bias in biases]
            bits.append([(one.ravel()[fixated].mean() + np.log(one.size)) / np.log(2) for one in maps])
        means = np.mean(bits, axis=0)
        facts = {"images": len(right), "right": round(float(np.mean(right)), scoring.DIGITS)}
        row[each] = facts | {way: round(float(mean), scoring.DIGITS) for way, mean in zip(WAYS, means, strict=True)}
        print(name, each, row[each], flush=True)
    row["video"] = _told(model, frames(options.data / "video"))
    print(name, row["video"], flush=True)
    return row


def frames(folder: Path) -> Iterator[tuple[Image.Image, bool]]:
    """Some frames of every video, and whether it shows a screen."""
    for sequence in read_sequences(folder):
        with Reader(sequence.path) as video:
            for frame in islice(video.frames(), 0, None, FRAMES):
                yield Image.fromarray(frame.to_ndarray(format="rgb24")), sequence.name == SLIDES


def _told(model: Predictor, images: Iterable[tuple[Image.Image, bool]]) -> Record:
    right = [((model.look(image).screen or 0.0) > 0.5) == screen for image, screen in images]
    return {"images": len(right), "right": round(float(np.mean(right)), scoring.DIGITS)}


def shown(record: Record) -> str:
    """The part of the page: for each set what share is told right, and bits with one centre bias and with two."""
    rows = [
        [f"`{row['model']}`", *(_cell(row[name]) for name in NAMES), f"{100 * row['video']['right']:.0f}%"]
        for row in record["rows"]
    ]
    counts = {NAMES[name]: record["rows"][0][name]["images"] for name in NAMES}
    about = (
        "Percent of the pictures that are told right; then bits per fixation over a uniform density, with one centre "
        "bias for all pictures and with that of the picture's kind. "
        f"{', '.join(f'{count} of {name}' for name, count in counts.items())}: pictures that neither the networks nor "
        "the regression learned from. CAT2000 has photographs, drawings and patterns, which all count as photographs "
        f"here. The last column has {record['rows'][0]['video']['images']} frames of 13 videos, of which one shows "
        "slides (`python -m experiments.kinds`)."
    )
    return f"{table(['model', *NAMES.values(), 'frames of videos'], rows)}\n\n{about}"


def _cell(facts: Record) -> str:
    return f"{100 * facts['right']:.0f}%; {facts['mean']:.3f}, {facts['told']:.3f}"


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = common.make_parser(__doc__, __file__, out=RESULTS / "kinds.json")
    parser.add_argument("--limit", type=int, help="score only this many images of each set, evenly spread")
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    """Score every bundled model, write the figures and the page."""
    options = common.parse(make_parser(), arguments)
    rows = [measure(card.name, options) for card in models()]
    record = common.about(options, threads=1, longest=LONGEST) | {"rows": rows}
    common.write_record(options.out, record)
    fill(DOCS / "models.md", "kinds", shown(record))


if __name__ == "__main__":
    main()
