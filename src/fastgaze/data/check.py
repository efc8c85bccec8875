"""What is in a data set and what is wrong with it: ``fastgaze data check``."""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from fastgaze.core.center_bias import GRID, fit_center_bias, resample_log_density
from fastgaze.core.errors import ImageError
from fastgaze.core.jsonable import Json
from fastgaze.core.pictures import read_pixels, read_size
from fastgaze.core.sizes import format_size
from fastgaze.data.fixations import FixationSet
from fastgaze.data.formats import load, recognise
from fastgaze.data.formats.problems import Problems

PICTURE = (12, 16)  # cells of the centre bias as it is reported, (height, width)
_SHAPE_TOLERANCE = 0.02  # of height over width, between the original and the stored image


@dataclass(frozen=True)
class DataReport:
    """Counts, sizes, fixations per image, centre bias and defects of a data set.

    sizes: "WIDTHxHEIGHT" of the originals -> images, most frequent first.
    fixations_per_image: least, mean and most. observers: at most of one image, 0 where pooled.
    center_bias: share of the fixations in each cell, smoothed, rows from the top; empty without fixations.
    defects: {"kind", "where", "what"} each.
    """

    format: str
    path: str
    images: int
    fixations: int
    observers: int
    sizes: dict[str, int]
    fixations_per_image: dict[str, float]
    images_without_fixations: int
    points_outside: int
    center_bias: list[list[float]]
    defects: list[dict[str, str]]

    def to_json(self) -> dict[str, Json]:
        """Values that ``json`` can write."""
        return asdict(self)


def check(
    format: str,
    path: Path,
    pixels: bool = True,
    track: Callable[[Iterable[int]], Iterable[int]] = iter,
) -> DataReport:
    """Read the data set and look at every image; ``pixels`` decodes them in full, otherwise only headers are read."""
    name = recognise(path) if format == "auto" else format
    problems = Problems(lenient=True)
    data = load(name, path, problems)
    defects = [_defect("unreadable file", str(path), message) for message in problems.found]
    defects += _point_defects(data)
    defects += _duplicate_names(data)
    defects += _image_defects(data, pixels, track)
    inside = np.array([int(data.inside(i).sum()) for i in range(len(data))])
    sizes = Counter(format_size((height, width)) for height, width in data.sizes.tolist())
    return DataReport(
        format=name,
        path=str(path),
        images=len(data),
        fixations=int(inside.sum()),
        observers=max((len(np.unique(who[who >= 0])) for who in map(data.observers, range(len(data)))), default=0),
        sizes=dict(sizes.most_common()),
        fixations_per_image={
            "least": float(inside.min()) if len(inside) else 0.0,
            "mean": float(inside.mean()) if len(inside) else 0.0,
            "most": float(inside.max()) if len(inside) else 0.0,
        },
        images_without_fixations=int((inside == 0).sum()),
        points_outside=len(data.x) - int(inside.sum()),
        center_bias=_picture(data) if inside.any() else [],
        defects=defects,
    )


def _defect(kind: str, where: str, what: str) -> dict[str, str]:
    return {"kind": kind, "where": where, "what": what}


def _point_defects(data: FixationSet) -> Iterator[dict[str, str]]:
    for i, name in enumerate(data.names):
        outside = np.flatnonzero(~data.inside(i))
        if len(outside):
            own = data.points(i)
            x, y = data.x[own][outside[0]], data.y[own][outside[0]]
            size = format_size(data.size(i))
            what = f"{len(outside)} of {own.stop - own.start} points, such as ({x:g}, {y:g}) on {size}"
            yield _defect("point outside", name, what)


def _duplicate_names(data: FixationSet) -> list[dict[str, str]]:
    return [
        _defect("duplicate name", name, f"{times} images have this name")
        for name, times in Counter(data.names).items()
        if times > 1
    ]


def _image_defects(
    data: FixationSet, pixels: bool, track: Callable[[Iterable[int]], Iterable[int]]
) -> Iterator[dict[str, str]]:
    seen: dict[str, str] = {}
    for i in track(range(len(data))):
        name, path = data.names[i], data.paths[i]
        if not path.is_file():
            yield _defect("missing image", name, f"no file {path}")
            continue
        try:
            height, width = read_pixels(path).shape[:2] if pixels else read_size(path)
        except ImageError as error:
            yield _defect("unreadable image", name, str(error))
            continue
        original = data.size(i)
        if abs(height / width * original[1] / original[0] - 1) > _SHAPE_TOLERANCE:
            what = f"the file is {format_size((height, width))}, its fixations are for {format_size(original)}"
            yield _defect("other shape", name, what)
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        if digest in seen:
            yield _defect("duplicate image", name, f"the same file as {seen[digest]}")
        seen.setdefault(digest, name)


def _picture(data: FixationSet) -> list[list[float]]:
    counts = np.sum([data.counts(i, GRID) for i in range(len(data))], axis=0)
    density = np.exp(resample_log_density(fit_center_bias(counts), PICTURE))
    return [[round(float(share), 6) for share in row] for row in density]
