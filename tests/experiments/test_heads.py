"""Faces that a judge found, the parts that pictures belong to, the views that heads are learned from, and prices."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch

from experiments import crop_prices
from experiments.crops import informed, judged_heads
from experiments.dark_faces import darkened
from experiments.faces import CHOSEN, LEARNED, REPORTED, SETS, Face, Photo, part_of, read_faces
from experiments.heads import View, _darker, batches
from fastgaze.app.demo import EXAMPLES
from fastgaze.runtime.crop import HEAD, Integral

ASTRONAUT = Face(left=0.3, top=0.12, width=0.28, height=0.25, sure=1.0)
PHOTO = Photo(EXAMPLES / "astronaut.jpg", (512, 512), (ASTRONAUT,), np.zeros((0, 2)))


def test_the_judged_faces_are_kept_with_the_repository() -> None:
    found = read_faces()
    assert {name: len(pictures) for name, pictures in found.items()} == {
        "osie": 347,
        "salicon-val": 800,
        "eyecrowd": 500,
        "salicon-train": 9995,
        "ueyes": 1418,
    }
    faces = np.array([face for pictures in found.values() for some in pictures.values() for face in some])
    assert (faces[:, 2:4] > 0).all()
    assert (faces[:, 2:4] < 1.5).all()
    assert (faces[:, 4] > 0.5).all()
    assert (faces[:, 4] <= 1).all()


def test_every_picture_is_for_one_thing() -> None:
    parts = {name: Counter(part_of(name, stem) for stem in pictures) for name, pictures in read_faces().items()}
    assert set(parts) == set(SETS)
    assert parts["osie"].keys() == parts["salicon-val"].keys() == {CHOSEN, REPORTED}
    assert parts["eyecrowd"].keys() == parts["ueyes"].keys() == {LEARNED, REPORTED}
    assert parts["salicon-train"][LEARNED] > 7 * parts["salicon-train"][CHOSEN]
    assert parts["salicon-train"][REPORTED] > 900


@pytest.mark.parametrize("seed", range(20))
def test_a_view_stays_inside_its_picture_and_knows_where_the_face_is(seed: int) -> None:
    view = View.drawn(np.random.default_rng(seed), [ASTRONAUT])
    assert 0 <= view.left < view.right <= 1 + 1e-9
    assert 0 <= view.top < view.bottom <= 1 + 1e-9
    seen = view.face(ASTRONAUT)
    assert seen.height * (view.bottom - view.top) == pytest.approx(ASTRONAUT.height)
    middle = seen.left + seen.width / 2
    there = view.left + (1 - middle if view.mirrored else middle) * (view.right - view.left)
    assert there == pytest.approx(ASTRONAUT.left + ASTRONAUT.width / 2)


def test_faces_are_darkened_and_nothing_else() -> None:
    light = np.full((100, 200, 3), 200, np.uint8)
    dark = darkened(light, ASTRONAUT, 0.25)
    middle = int(100 * (ASTRONAUT.top + ASTRONAUT.height / 2)), int(200 * (ASTRONAUT.left + ASTRONAUT.width / 2))
    assert np.abs(dark[middle].astype(int) - 50).max() <= 1
    assert np.array_equal(dark[60:], light[60:])
    view = torch.full((3, 100, 200), 0.8)
    some = [_darker(view, [ASTRONAUT], np.random.default_rng(seed)) for seed in range(40)]
    depths = [float(image[1][middle]) for image in some]
    assert 5 < sum(depth < 0.79 for depth in depths) < 30
    assert min(depths) >= 0.2 - 0.01
    assert all(torch.allclose(image[:, 60:], view[:, 60:]) for image in some)


def test_heads_are_marked_where_they_are_seen() -> None:
    plain = Photo(EXAMPLES / "coffee.jpg", (400, 600), (), np.zeros((0, 2)))
    images, targets, known = next(batches([PHOTO, plain], [plain], np.random.default_rng(0)))
    assert targets.shape == known.shape == (len(images), images.shape[2] // 8, images.shape[3] // 8)
    assert targets[1::2].max() == 0
    assert (targets[2::2].amax((1, 2)) > 0.9).float().mean() > 0.8
    assert torch.isfinite(images).all()
    # The first view is of nothing: it has no rows that differ.
    assert torch.equal(images[0], images[0][:, :1].expand_as(images[0]))
    assert targets[0].max() == 0


def test_a_head_is_kept_from_some_price_on() -> None:
    # Attention is below the head, and whoever keeps the head loses most of it at 2:1.
    density = np.zeros((100, 100), np.float32)
    density[40:85] = 1 / 4500
    face = Face(left=0.4, top=0.06, width=0.2, height=0.15, sure=1.0)
    photo = Photo(Path("nobody.webp"), (100, 100), (face,), np.zeros((0, 2)))
    integral, heads = Integral(density), judged_heads(photo)
    starts = [informed(integral, photo, crop_prices.weighed(heads, price / HEAD))["2:1"] for price in (0.0, 0.9)]
    assert starts[0] >= 0.3
    assert starts[1] <= face.head()[1]


def test_the_table_of_prices_has_a_line_for_each() -> None:
    rows = [
        {"cropper": kind, "price": price, "ratio": ratio, "heads": 50, "damaged": 4, "kept_osie": 0.98}
        for kind in crop_prices.MAPS
        for price in crop_prices.PRICES
        for ratio in crop_prices.RATIOS
    ]
    lines = crop_prices.shown(rows).splitlines()
    assert len(lines) == 2 + len(crop_prices.PRICES)
    assert lines[2].count("8%, 0.980") == len(crop_prices.MAPS) * len(crop_prices.RATIOS)
