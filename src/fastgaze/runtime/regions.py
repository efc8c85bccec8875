"""Areas of interest: how much attention named boxes of a picture draw.

A box's *share* is the part of all fixations that the model expects inside it; its *lift* is that share divided by the
box's share of the picture's area. *Seen* is the chance that at least one of the first n fixations lands in the box,

    seen = 1 - (1 - share)^n,

as if every fixation were drawn from the map by itself. Real viewers move on to where they have not been, so that small
boxes are seen somewhat more often than this says. People make about three fixations per second.

As text a region is ``name=left,top,width,height``, in pixels of the picture or in percent of its sides
(``cta=10%,80%,30%,8%``). Where pictures are compared, ``name@2=...`` is the box of the second picture alone. A JSON
file holds the same as ``{"name": [left, top, width, height]}``, as a list of objects with a name and a box, or as the
layers of a design tool: objects with ``name``, ``absoluteBoundingBox`` and ``children``.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fastgaze.core.errors import ArgumentError
from fastgaze.core.jsonable import Document, Json
from fastgaze.core.sizes import Size, box_to_json

FIXATIONS = 3
"""Fixations within which a region may be seen, unless another number is asked for: about the first second."""
MOST_FIXATIONS = 1000
MOST_REGIONS = 64
_MOST_NAME = 60
_MOST_TEXT = 200  # of a region in words, so that no text takes long to read
_MOST_DEPTH = 50
_NUMBER = r"\s*(-?\d{1,7}(?:\.\d{1,6})?)\s*(%?)\s*"
_TEXT = re.compile(rf"(?P<name>.+?)(?:@(?P<picture>\d{{1,3}}))?={_NUMBER},{_NUMBER},{_NUMBER},{_NUMBER}", re.DOTALL)
_NAME = re.compile(r"(?P<name>.+?)(?:@(?P<picture>\d{1,3}))?", re.DOTALL)
# Names that design tools give by themselves: nobody asked for these layers.
_UNNAMED = re.compile(
    r"(?:rectangle|group|frame|vector|line|ellipse|polygon|star|image|text|union|subtract|intersect|exclude|mask group"
    r"|component|instance|slice|arrow|boolean)(?:\s*\d+)?",
    re.IGNORECASE,
)

Box = tuple[int, int, int, int]


@dataclass(frozen=True)
class RegionAttention:
    """What a named box of the picture draws."""

    name: str
    box: Box
    """(left, top, right, bottom) in pixels of the picture."""
    share: float
    """Of all fixations, 0..1."""
    lift: float
    """Share divided by the box's share of the area: 1 is what an even spread of attention would give."""
    rank: int
    """1 for the region with the largest share."""
    seen: float
    """Chance that at least one of the first fixations lands in it, 0..1."""

    def to_json(self) -> dict[str, Json]:
        """Plain values."""
        return {
            "name": self.name,
            "box": box_to_json(self.box),
            "share": round(self.share, 6),
            "lift": round(self.lift, 4),
            "rank": self.rank,
            "seen": round(self.seen, 6),
        }


@dataclass(frozen=True)
class Region:
    """A box as it was asked for."""

    name: str
    left: float
    top: float
    width: float
    height: float
    percent: tuple[bool, bool, bool, bool] = (False, False, False, False)
    """Which of the four are percent of the picture's width or height rather than pixels."""
    picture: int | None = None
    """The one of several pictures that it belongs to, from 1; None for all of them."""

    def box(self, size: Size) -> tuple[float, float, float, float]:
        """(left, top, right, bottom) in pixels of a picture of ``size`` (height, width)."""
        height, width = size
        values = zip((self.left, self.top, self.width, self.height), self.percent, (width, height) * 2, strict=True)
        left, top, across, down = (value * side / 100 if share else value for value, share, side in values)
        return left, top, left + across, top + down


def attention(
    boxes: Mapping[str, Box], mass: Callable[[Box], float], size: Size, fixations: int
) -> tuple[RegionAttention, ...]:
    """What each of ``boxes`` draws, in their order. mass: share of the fixations in a box. size: of the picture."""
    if not 1 <= fixations <= MOST_FIXATIONS:
        raise ArgumentError(f"fixations={fixations} is not between 1 and {MOST_FIXATIONS}")
    shares = {name: min(max(mass(box), 0.0), 1.0) for name, box in boxes.items()}
    ranks = {name: rank for rank, name in enumerate(sorted(shares, key=lambda name: -shares[name]), 1)}
    return tuple(
        RegionAttention(name, box, share, share / _area(box, size), ranks[name], 1 - (1 - share) ** fixations)
        for (name, box), share in zip(boxes.items(), shares.values(), strict=True)
    )


def _area(box: Box, size: Size) -> float:
    left, top, right, bottom = box
    return (right - left) * (bottom - top) / (size[0] * size[1])


def parse_region(text: str) -> Region:
    """``"cta=40,300,200,60"`` or ``"cta@2=10%,80%,30%,8%"`` -> a region."""
    match = _match(text)
    if match is None:
        raise ArgumentError(
            f"region {text[:80]!r} is not name=left,top,width,height in pixels or percent, such as cta=40,300,200,60"
        )
    groups = match.groups()[2:]
    values, percent = [float(value) for value in groups[::2]], [sign == "%" for sign in groups[1::2]]
    return _region(match["name"], match["picture"], values, percent)


def _match(text: str) -> re.Match[str] | None:
    return _TEXT.fullmatch(text.strip()) if len(text) <= _MOST_TEXT else None


def _region(name: str, picture: str | None, values: Sequence[float], percent: Sequence[bool]) -> Region:
    name = name.strip()
    if not 1 <= len(name) <= _MOST_NAME or not name.isprintable():
        raise ArgumentError(f"the name {name[:80]!r} of a region is not 1 to {_MOST_NAME} printable characters")
    left, top, width, height = values
    if width <= 0 or height <= 0:
        raise ArgumentError(f"region {name!r} has width {width:g} and height {height:g}; both must be above 0")
    signs = (percent[0], percent[1], percent[2], percent[3])
    return Region(name, left, top, width, height, signs, None if picture is None else int(picture))


def parse_regions(texts: Sequence[str]) -> tuple[Region, ...]:
    """Regions of a command line: each is one in words, or the path of a JSON file."""
    found: list[Region] = []
    for text in texts:
        if _match(text) is None and text.lower().endswith(".json"):
            found += read_regions(text)
        else:
            found.append(parse_region(text))
    return checked_regions(found)


def checked_regions(regions: Sequence[Region]) -> tuple[Region, ...]:
    """``regions`` themselves, if each is named once and they are not too many."""
    names = [(region.name, region.picture) for region in regions]
    doubled = sorted({name for name, picture in names if names.count((name, picture)) > 1})
    if doubled:
        raise ArgumentError(f"region {doubled[0]!r} is given twice; give each region a name of its own")
    if len(regions) > MOST_REGIONS:
        raise ArgumentError(f"{len(regions)} regions are given; at most {MOST_REGIONS} are measured at once")
    return tuple(regions)


def check_pictures(regions: Sequence[Region], count: int) -> None:
    """Refuse a region of one picture alone, if there is no such picture among ``count`` of them."""
    for region in regions:
        if region.picture is not None and not 1 <= region.picture <= count:
            name = f"{region.name}@{region.picture}"
            raise ArgumentError(f"there is no picture {region.picture} for region {name!r}; the last is {count}")


def boxes_in(regions: Sequence[Region], size: Size, picture: int = 1) -> dict[str, tuple[float, float, float, float]]:
    """Boxes by name in a picture of ``size`` (height, width), the one with this number.

    A box for this picture alone comes before one for all.
    """
    chosen = [region for region in regions if region.picture is None]
    chosen += [region for region in regions if region.picture == picture]
    return {region.name: region.box(size) for region in chosen}


def read_regions(path: str | Path) -> list[Region]:
    """The regions in a JSON file; the module says which shapes it may have."""
    try:
        found = json.loads(Path(path).read_bytes())
    except (ValueError, RecursionError) as error:
        raise ArgumentError(f"{path} is not a JSON file: {error}") from error
    layers = _first_frame(found)
    regions = list(_named_layers(layers)) if layers is not None else list(_listed(found, str(path)))
    if not regions:
        raise ArgumentError(f'{path} names no region; write {{"name": [left, top, width, height]}}')
    return regions


def _listed(found: object, path: str) -> Iterator[Region]:
    """From ``{"name": box}`` or ``[{"name": ..., box}]``."""
    if isinstance(found, dict):
        entries = [(name, box) for name, box in found.items()]
    elif isinstance(found, list):
        entries = [
            (entry.get("name"), entry.get("box", entry)) if isinstance(entry, dict) else (None, entry)
            for entry in found
        ]
    else:
        entries = []
    for name, box in entries:
        values = _four(box)
        match = _NAME.fullmatch(name) if isinstance(name, str) else None
        if match is None or values is None:
            raise ArgumentError(
                f"{path}: {str(name)[:80]!r} is not a named box; write [left, top, width, height], or an object with "
                "left, top, width and height"
            )
        yield _region(match["name"], match["picture"], values, (False,) * 4)


def _four(box: object) -> list[float] | None:
    """left, top, width and height of a list or an object with such keys (or x and y); None for anything else."""
    if isinstance(box, dict):
        box = [box.get("left", box.get("x")), box.get("top", box.get("y")), box.get("width"), box.get("height")]
    if not isinstance(box, list) or len(box) != 4:
        return None
    fits = all(isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e7 for value in box)
    return [float(value) for value in box] if fits else None


def _first_frame(found: object, depth: int = 0) -> Document | None:
    """The outermost layer with a place and layers inside, in an export of a design tool; None if it is none."""
    if not isinstance(found, dict) or depth > _MOST_DEPTH:
        return None
    if isinstance(found.get("children"), list) and _place(found) is not None:
        return found
    inside = found.get("children") if isinstance(found.get("children"), list) else list(found.values())
    candidates = (_first_frame(child, depth + 1) for child in inside or [])
    return next((frame for frame in candidates if frame is not None), None)


def _place(layer: Document) -> list[float] | None:
    return _four(layer.get("absoluteBoundingBox"))


def _named_layers(frame: Document) -> Iterator[Region]:
    """The layers inside ``frame`` that somebody has named, in percent of it, whatever size it was exported at."""
    outer = _place(frame)
    assert outer is not None
    taken: dict[str, int] = {}
    for layer, box in _inside(frame):
        left, top = max(box[0], outer[0]), max(box[1], outer[1])
        right, bottom = min(box[0] + box[2], outer[0] + outer[2]), min(box[1] + box[3], outer[1] + outer[3])
        if left >= right or top >= bottom:
            continue
        corner = 100 * (left - outer[0]) / outer[2], 100 * (top - outer[1]) / outer[3]
        extent = 100 * (right - left) / outer[2], 100 * (bottom - top) / outer[3]
        name = " ".join(str(layer["name"]).split())[: _MOST_NAME - 5]
        taken[name] = taken.get(name, 0) + 1
        unique = name if taken[name] == 1 else f"{name} {taken[name]}"
        yield _region(unique, None, (*corner, *extent), (True,) * 4)


def _inside(layer: Document, depth: int = 0) -> Iterator[tuple[Document, list[float]]]:
    children = layer.get("children")
    if not isinstance(children, list) or depth > _MOST_DEPTH:
        return
    for child in children:
        if not isinstance(child, dict) or child.get("visible") is False:
            continue
        box, name = _place(child), child.get("name")
        if box is not None and isinstance(name, str) and name.strip() and not _UNNAMED.fullmatch(name.strip()):
            yield child, box
        yield from _inside(child, depth + 1)
