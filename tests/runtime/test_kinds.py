"""Models tell screens from photographs, and expect people to look where they do by habit in each."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageDraw

import fastgaze.app
from experiments.kinds import regression
from fastgaze.core.errors import ArgumentError, ModelError
from fastgaze.runtime.card import Kinds
from fastgaze.runtime.predictor import Predictor, load
from fastgaze.runtime.video.watch import _mixed
from fastgaze.training.variants import CHANGES
from tests.photos import photo

PHOTOGRAPHS = sorted((Path(fastgaze.app.__file__).parent / "server" / "examples").glob("*.jpg"))
MODELS = ("default", "default.int8", "tiny")


@pytest.fixture(scope="module")
def page() -> Image.Image:
    """A page as a browser shows it: a bar with a menu, lines of text, a picture's place and a button."""
    image = Image.new("RGB", (1280, 800), "white")
    draw = ImageDraw.Draw(image)
    draw.rectangle((0, 0, 1280, 70), fill=(30, 60, 110))
    for column in range(5):
        draw.rectangle((40 + 160 * column, 28, 130 + 160 * column, 42), fill="white")
    for row in range(18):
        draw.rectangle((60, 130 + 32 * row, 560 + 37 * (row * 7 % 5), 142 + 32 * row), fill=(70, 70, 70))
    draw.rectangle((800, 130, 1220, 410), fill=(225, 228, 232))
    draw.rectangle((800, 450, 980, 500), fill=(220, 80, 40))
    return image


@pytest.mark.parametrize("name", MODELS)
def test_photographs_are_told_from_a_page(name: str, page: Image.Image) -> None:
    model = load(name, threads=1)
    for path in PHOTOGRAPHS:
        screen = model.predict(path).screen
        assert screen is not None
        assert screen < 0.25, path.name
    on_page = model.predict(page).screen
    assert on_page is not None
    assert on_page > 0.75


def test_photographs_stay_photographs_whatever_is_done_to_them() -> None:
    model = load(threads=1)
    rng = np.random.default_rng(0)
    images = [Image.open(path).convert("RGB") for path in PHOTOGRAPHS]
    screens = [model.look(change(image, rng)).screen or 0.0 for change in CHANGES for image in images]
    wide = [model.look(image.crop((0, 90, image.width, 270))).screen or 0.0 for image in images]
    assert np.mean(np.array([*screens, *wide]) < 0.5) > 0.9


def test_readers_of_a_page_begin_at_its_top_left(page: Image.Image) -> None:
    view = load(threads=1).look(page)
    corner = (0, 0, 640, 400)
    own, screen, photograph = (view.at(center_bias=bias) for bias in ("model", "screen", "photograph"))
    assert own.mass(corner) > photograph.mass(corner) + 0.05
    assert own.mass(corner) == pytest.approx(screen.mass(corner), abs=0.02)
    assert [gaze.center_bias for gaze in (own, screen, photograph)] == ["model", "screen", "photograph"]
    assert own.screen == photograph.screen
    assert own.to_json()["screen"] == round(own.screen or 0.0, 4)


def test_viewers_of_a_photograph_look_at_its_middle() -> None:
    view = load(threads=1).look(PHOTOGRAPHS[0])
    height, width = view.picture_size
    middle = (width / 4, height / 4, 3 * width / 4, 3 * height / 4)
    assert view.at().mass(middle) > view.at(center_bias="screen").mass(middle) + 0.02


def test_a_model_that_knows_one_kind_refuses_to_be_told_another(bright: Predictor) -> None:
    gaze = bright.predict(photo())
    assert gaze.screen is None
    assert gaze.to_json()["screen"] is None
    with pytest.raises(ArgumentError, match=r"one centre bias for all kinds of pictures; use 'model', None or"):
        bright.predict(photo(), center_bias="screen")


def test_a_card_that_does_not_fit_the_summary_is_refused(bright: Predictor) -> None:
    even = np.zeros((48, 64), np.float32)
    card = replace(bright.card, kinds=Kinds(even, even, np.zeros(5, np.float32), 0.0))
    with pytest.raises(ModelError, match="no summary of the picture that fits its card"):
        Predictor(card, bright._engine).predict(photo())
    with pytest.raises(ModelError, match="no summary of the picture that fits its card"):
        Predictor(card, lambda images: bright._engine(images)[:1]).predict(photo())


def test_the_probability_is_logistic_and_does_not_overflow() -> None:
    even = np.zeros((1, 1), np.float32)
    kinds = Kinds(even, even, np.array([1.0, -2.0], np.float32), 0.5)
    for summary in ([0.3, 0.1], [5.0, 1.0], [-3.0, 2.0]):
        expected = 1 / (1 + np.exp(-(summary[0] - 2 * summary[1] + 0.5)))
        assert kinds.is_screen(np.array(summary, np.float32)) == pytest.approx(expected)
    assert kinds.is_screen(np.array([1e6, 0], np.float32)) == 1
    assert kinds.is_screen(np.array([-1e6, 0], np.float32)) == 0
    huge = replace(kinds, weights=np.array([3e38, -3e38], np.float32))
    assert huge.is_screen(np.array([3e38, 3e38], np.float32)) == pytest.approx(1 / (1 + np.exp(-0.5)))


def test_between_two_frames_the_kind_changes_as_slowly_as_the_map() -> None:
    model = load(threads=1)
    first, second = (replace(model.look(photo()), screen=screen) for screen in (0.0, 0.8))
    assert _mixed(first, second, 0.25).screen == pytest.approx(0.2)
    assert _mixed(first, replace(second, screen=None), 0.25).screen is None


def test_the_regression_finds_what_separates_two_kinds_of_unequal_number() -> None:
    rng = np.random.default_rng(0)
    screens = np.arange(600) % 6 == 0
    values = rng.normal(size=(600, 4)) * [1, 10, 0.1, 0] + [5, 0, 0, 0]  # the last map is always zero
    values[screens, 1] += 25
    weights, offset = regression(values, screens)
    told = values @ weights + offset > 0
    assert (told == screens).mean() > 0.85
    assert weights[3] == 0
    assert abs(weights[1] * 10) > 5 * abs(weights[0])
