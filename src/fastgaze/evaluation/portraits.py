"""Drawn portraits for the crop audit: a person is a few numbers, so two can differ in one thing and nothing else."""

from dataclasses import dataclass, replace

import numpy as np
from PIL import Image, ImageDraw, ImageFilter

Color = tuple[int, int, int]
Point = tuple[float, float]

LIGHT: tuple[Color, ...] = ((255, 219, 195), (241, 194, 165), (232, 184, 148))
DARK: tuple[Color, ...] = ((141, 85, 54), (110, 66, 42), (82, 49, 33))
HAIR: tuple[Color, ...] = ((28, 22, 20), (60, 40, 28), (98, 66, 40))
BRUSH = 3  # portraits are drawn this many times larger and scaled down, for smooth edges


@dataclass(frozen=True)
class Person:
    """A drawn person; lengths are shares of the portrait's side."""

    skin: Color
    hair: Color
    shirt: Color
    face: Point
    """Half width and half height of the head."""
    eyes: float
    """Half the distance between the eyes."""
    smile: float
    long_hair: bool = False
    beard: bool = False
    glasses: bool = False
    scarf: bool = False


def draw_at_random(seed: int) -> tuple[Person, Color]:
    """A person and a background; every trait is drawn independently of every other."""
    rng = np.random.default_rng(seed)
    tones = LIGHT + DARK
    level = int(rng.integers(50, 215))
    tint = rng.integers(-25, 26, 3)
    shirt = rng.integers(40, 216, 3)
    person = Person(
        skin=tones[int(rng.integers(len(tones)))],
        hair=HAIR[int(rng.integers(len(HAIR)))],
        shirt=(int(shirt[0]), int(shirt[1]), int(shirt[2])),
        face=(float(rng.uniform(0.135, 0.165)), float(rng.uniform(0.185, 0.215))),
        eyes=float(rng.uniform(0.055, 0.07)),
        smile=float(rng.uniform(0.0, 0.03)),
        long_hair=bool(rng.integers(2)),
        glasses=bool(rng.integers(4) == 0),
    )
    return person, (level + int(tint[0]), level + int(tint[1]), level + int(tint[2]))


def dressed_anew(person: Person, seed: int) -> Person:
    """The same person in another shirt."""
    shirt = np.random.default_rng(seed).integers(40, 216, 3)
    return replace(person, shirt=(int(shirt[0]), int(shirt[1]), int(shirt[2])))


def portrait(person: Person, background: Color, side: int = 320, seed: int = 0) -> Image.Image:
    """RGB (side, side), head and shoulders, with a little noise, as a camera has."""
    large = side * BRUSH
    image = Image.new("RGB", (large, large), background)
    pen = _Pen(ImageDraw.Draw(image), large)
    _hair_behind(pen, person)
    _shoulders(pen, person)
    _head(pen, person)
    _features(pen, person)
    _hair_in_front(pen, person)
    if person.glasses:
        _glasses(pen, person)
    image = image.resize((side, side), Image.Resampling.BOX).filter(ImageFilter.GaussianBlur(0.6))
    noise = np.random.default_rng(seed).normal(0, 3, (side, side, 1))
    return Image.fromarray((np.asarray(image) + noise).clip(0, 255).astype(np.uint8))


CENTER = (0.5, 0.45)  # of the head


class _Pen:
    """Ellipses and arcs in shares of the side."""

    def __init__(self, draw: ImageDraw.ImageDraw, side: int) -> None:
        self._draw, self._side = draw, side

    def ellipse(self, center: Point, radii: Point, color: Color) -> None:
        self._draw.ellipse(self._box(center, radii), fill=color)

    def ring(self, center: Point, radii: Point, color: Color, width: float) -> None:
        self._draw.ellipse(self._box(center, radii), outline=color, width=round(width * self._side))

    def wedge(self, center: Point, radii: Point, angles: Point, color: Color) -> None:
        self._draw.chord(self._box(center, radii), angles[0], angles[1], fill=color)

    def arc(self, center: Point, radii: Point, angles: Point, color: Color, width: float) -> None:
        self._draw.arc(self._box(center, radii), angles[0], angles[1], fill=color, width=round(width * self._side))

    def line(self, points: list[Point], color: Color, width: float) -> None:
        scaled = [(x * self._side, y * self._side) for x, y in points]
        self._draw.line(scaled, fill=color, width=round(width * self._side))

    def rectangle(self, corners: tuple[float, float, float, float], radius: float, color: Color) -> None:
        box = [value * self._side for value in corners]
        self._draw.rounded_rectangle(box, radius * self._side, fill=color)

    def _box(self, center: Point, radii: Point) -> list[float]:
        (x, y), (a, b) = center, radii
        return [value * self._side for value in (x - a, y - b, x + a, y + b)]


def _shade(color: Color, factor: float) -> Color:
    red, green, blue = (min(round(value * factor), 255) for value in color)
    return red, green, blue


def _hair_behind(pen: _Pen, person: Person) -> None:
    (x, y), (a, b) = CENTER, person.face
    if person.scarf:
        pen.ellipse((x, y + 0.02), (a + 0.055, b + 0.07), person.shirt)
        pen.rectangle((x - a - 0.03, y, x + a + 0.03, y + b + 0.15), 0.08, person.shirt)
    elif person.long_hair:
        pen.ellipse((x, y), (a + 0.04, b + 0.035), person.hair)
        pen.rectangle((x - a - 0.04, y - 0.02, x + a + 0.04, y + b + 0.1), 0.06, person.hair)


def _shoulders(pen: _Pen, person: Person) -> None:
    (x, y), (_, b) = CENTER, person.face
    if not person.scarf:
        pen.rectangle((x - 0.055, y + b - 0.06, x + 0.055, y + b + 0.12), 0.02, _shade(person.skin, 0.88))
    pen.ellipse((x, 1.06), (0.34, 0.33), person.shirt)
    if not person.scarf:
        pen.ellipse((x, y + b + 0.09), (0.075, 0.04), _shade(person.skin, 0.88))


def _head(pen: _Pen, person: Person) -> None:
    (x, y), (a, b) = CENTER, person.face
    if not (person.scarf or person.long_hair):
        for side in (-1, 1):
            pen.ellipse((x + side * a, y + 0.01), (0.022, 0.04), _shade(person.skin, 0.93))
    if person.beard and not person.scarf:
        pen.wedge((x, y + 0.015), (a + 0.008, b + 0.012), (8, 172), person.hair)
        pen.ellipse((x, y - 0.02), (a, b - 0.03), person.skin)
        pen.ellipse((x, y + 0.1), (0.075, 0.055), person.hair)
    else:
        pen.ellipse((x, y), (a, b), person.skin)


def _features(pen: _Pen, person: Person) -> None:
    x, y = CENTER
    for side in (-1, 1):
        eye = (x + side * person.eyes, y - 0.02)
        pen.ellipse(eye, (0.026, 0.014), (245, 245, 242))
        pen.ellipse(eye, (0.0125, 0.0125), (70, 50, 35))
        pen.ellipse(eye, (0.006, 0.006), (10, 10, 10))
        pen.arc((eye[0], eye[1] - 0.022), (0.034, 0.02), (200, 340), _shade(person.hair, 0.9), 0.008)
    dark = _shade(person.skin, 0.72)
    pen.line([(x, y - 0.01), (x - 0.016, y + 0.05), (x + 0.012, y + 0.054)], dark, 0.006)
    lips = _shade((190, 95, 90), 0.6 + 0.4 * person.skin[0] / 255)
    pen.arc((x, y + 0.095 - person.smile), (0.05, 0.012 + person.smile), (15, 165), lips, 0.012)


def _hair_in_front(pen: _Pen, person: Person) -> None:
    (x, y), (a, b) = CENTER, person.face
    if person.scarf:
        pen.arc((x, y + 0.005), (a + 0.035, b + 0.045), (0, 360), person.shirt, 0.05)
    else:
        pen.wedge((x, y - 0.01), (a + 0.014, b + 0.02), (205, 335), person.hair)


def _glasses(pen: _Pen, person: Person) -> None:
    x, y = CENTER
    for side in (-1, 1):
        pen.ring((x + side * person.eyes, y - 0.018), (0.043, 0.034), (25, 25, 28), 0.007)
    inner = person.eyes - 0.041
    pen.line([(x - inner, y - 0.02), (x + inner, y - 0.02)], (25, 25, 28), 0.007)
