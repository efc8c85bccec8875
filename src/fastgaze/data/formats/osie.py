"""OSIE and EyeCrowd as published (NUS-VIP): images and one ``fixations.mat`` with all fixations.

    stimuli/*.jpg and fixations.mat           or data/stimuli/ and data/eye/fixations.mat as in the repositories

``fixations`` is a cell array of structs with ``img``, the file's name, and ``subjects``, a cell array of structs
with ``fix_x`` and ``fix_y``.
"""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fastgaze.core.errors import DataError, ImageError
from fastgaze.core.pictures import image_files, read_size
from fastgaze.data.fixations import FixationSet, from_lists
from fastgaze.data.formats.mat import as_list, read_mat
from fastgaze.data.formats.mat_process import Struct
from fastgaze.data.formats.problems import Problems

_FILES = ("fixations.mat", "eye/fixations.mat", "data/eye/fixations.mat", "data/fixations.mat")
_FOLDERS = ("stimuli", "images", "data/stimuli", "../stimuli", "data/images", ".")


def read(path: Path, problems: Problems | None = None) -> FixationSet:
    """All images that ``fixations.mat`` names; one that is missing gets the size that holds its fixations."""
    problems = problems or Problems()
    root = path.parent if path.is_file() else path
    file = path if path.is_file() else next((path / f for f in _FILES if (path / f).is_file()), None)
    if file is None:
        raise DataError(f"no fixations.mat in {path}; OSIE and EyeCrowd have stimuli/ and fixations.mat")
    folder = next(root / f for f in _FOLDERS if _has_images(root / f) or f == ".")
    content = read_mat(file)
    if "fixations" not in content:
        raise DataError(f"{file} holds {', '.join(content)}, but no variable 'fixations'; give OSIE's fixations.mat")
    names, paths, sizes, points, observers = [], [], [], [], []
    for number, entry in enumerate(as_list(content["fixations"]), 1):
        try:
            image, (xy, who) = folder / str(entry["img"]), _fixations(entry)
        except (KeyError, TypeError, ValueError) as error:
            problems.add(f"{file}: entry {number} has no img and subjects with fix_x and fix_y ({error!r})")
            continue
        names.append(image.stem)
        paths.append(image)
        sizes.append(_size(image, xy))
        points.append(xy)
        observers.append(who)
    return from_lists(names, paths, sizes, points, observers)


def _has_images(folder: Path) -> bool:
    return folder.is_dir() and bool(image_files(folder))


def _fixations(entry: Struct) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
    xy = [
        np.stack([np.atleast_1d(one["fix_x"]).ravel(), np.atleast_1d(one["fix_y"]).ravel()], axis=1)
        for one in as_list(entry["subjects"])
    ]
    observers = np.repeat(np.arange(len(xy), dtype=np.int32), [len(p) for p in xy])
    return np.concatenate([*xy, np.empty((0, 2))]).astype(np.float32), observers


def _size(image: Path, xy: NDArray[np.float32]) -> tuple[int, int]:
    try:
        return read_size(image)
    except ImageError:
        x, y = np.nan_to_num(xy).max(axis=0, initial=0)
        return max(1, int(y) + 1), max(1, int(x) + 1)
