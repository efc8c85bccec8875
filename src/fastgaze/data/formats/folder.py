"""The plain form for a user's own eye tracker: images and ``fixations.csv``.

    image,x,y,observer
    street.jpg,412.5,230,anna

``image`` is a path from the folder, or from images/ in it, with or without its ending; x and y are pixels of that
image; ``observer`` may be left out, or be any text. Commas, semicolons and tabs separate columns. Images that the file
does not name have no fixations.
"""

import csv
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from fastgaze.core.errors import DataError, ImageError
from fastgaze.core.files import replacing
from fastgaze.core.pictures import image_files, read_size
from fastgaze.data.fixations import FixationSet, from_lists
from fastgaze.data.formats.problems import Problems

FILE = "fixations.csv"
COLUMNS = ("image", "x", "y", "observer")
Point = tuple[float, float, int]


def read(path: Path, problems: Problems | None = None) -> FixationSet:
    """The images below ``path`` with the fixations of its ``fixations.csv``."""
    problems = problems or Problems()
    file = path if path.is_file() else path / FILE
    if not file.is_file():
        raise DataError(f"no {FILE} in {path}; write one with the columns image,x,y[,observer]")
    root = file.parent / "images" if (file.parent / "images").is_dir() else file.parent
    images = image_files(root, below=True)
    known = {key: i for i, p in enumerate(images) for key in _keys(p, root, file.parent)}
    points: list[list[Point]] = [[] for _ in images]
    try:
        _read_rows(file, known, points, problems)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"cannot read {file}: {error}; it must be UTF-8 text with commas") from error
    kept, sizes = [], []
    for i, image in enumerate(images):
        try:
            sizes.append(read_size(image))
            kept.append(i)
        except ImageError as error:
            problems.add(str(error))
    xy = [np.array([p[:2] for p in points[i]], dtype=np.float32).reshape(-1, 2) for i in kept]
    observers = [[p[2] for p in points[i]] for i in kept]
    return from_lists(_names([images[i] for i in kept], root), [images[i] for i in kept], sizes, xy, observers)


def _keys(image: Path, root: Path, folder: Path) -> Iterable[str]:
    """The ways in which a row may name an image; the exact ones come last and win."""
    relative = image.relative_to(root)
    return relative.with_suffix("").as_posix(), relative.as_posix(), image.relative_to(folder).as_posix()


def _names(images: list[Path], root: Path) -> list[str]:
    """Paths without ending, or with it where two images differ in nothing else."""
    bare = [p.relative_to(root).with_suffix("").as_posix() for p in images]
    twice = {name for name, times in Counter(bare).items() if times > 1}
    return [p.relative_to(root).as_posix() if name in twice else name for p, name in zip(images, bare, strict=True)]


def _read_rows(file: Path, known: dict[str, int], points: list[list[Point]], problems: Problems) -> None:
    observers: dict[str, int] = {}
    missing: set[str] = set()
    with open(file, encoding="utf-8-sig", newline="") as text:
        first = text.readline()
        separator = max(",;\t", key=first.count)
        header = [cell.strip().strip('"').lower() for cell in first.split(separator)]
        if absent := [name for name in COLUMNS[:3] if name not in header]:
            raise DataError(f"{file}: no column {', '.join(absent)} in its first line; it must be image,x,y[,observer]")
        at = {name: header.index(name) for name in COLUMNS if name in header}
        for line, row in enumerate(csv.reader(text, delimiter=separator), 2):
            if not any(cell.strip() for cell in row):
                continue
            try:
                image, x, y = row[at["image"]].strip(), float(row[at["x"]]), float(row[at["y"]])
                who = row[at["observer"]].strip() if "observer" in at else ""
            except (ValueError, IndexError):
                problems.add(f"{file}: line {line} is not image,x,y[,observer] with numbers for x and y: {row}")
                continue
            i = known.get(image.replace("\\", "/").removeprefix("./"))
            if i is not None:
                points[i].append((x, y, observers.setdefault(who, len(observers)) if who else -1))
            elif image not in missing:
                missing.add(image)
                problems.add(f"{file}: line {line} names image {image!r}, which is not below {file.parent}")


def write(file: Path, fixations: FixationSet, images: list[str]) -> None:
    """Write the fixations of a set; ``images`` are the names of its files, which are in images/ next to ``file``.

    Coordinates are pixels of these files, upright: the form has no other size for them.
    """
    with replacing(file) as part, open(part, "w", encoding="utf-8", newline="") as text:
        writer = csv.writer(text)
        writer.writerow(COLUMNS)
        for i, image in enumerate(images):
            size = read_size(file.parent / "images" / image)
            for (x, y), who in zip(fixations.fixations(i, size), fixations.observers(i), strict=True):
                writer.writerow([image, f"{x:.6g}", f"{y:.6g}", who if who >= 0 else ""])
