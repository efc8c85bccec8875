"""SALICON as published: images and one .mat file for each, with the fixations of every observer.

    images/{train,val,test}/COCO_*.jpg        or images/COCO_*.jpg
    fixations/{train,val}/COCO_*.mat          or {train,val}/*.mat, or .mat files directly in the folder

A .mat file holds ``gaze``, a struct array with ``fixations`` (k, 2), and ``resolution`` (height, width). Ten thousand
of them take a minute to read: convert them once with ``fastgaze data convert`` and the npz form takes 0.3 s.
"""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fastgaze.core.errors import DataError
from fastgaze.core.pictures import image_files
from fastgaze.data.fixations import FixationSet, from_lists
from fastgaze.data.formats.mat import as_list, read_mat
from fastgaze.data.formats.mat_process import Struct
from fastgaze.data.formats.problems import Problems

_PATTERNS = ("fixations/*/*.mat", "fixations/*.mat", "train/*.mat", "val/*.mat", "*.mat")
_RESOLUTION = (480, 640)


def read(path: Path, problems: Problems | None = None) -> FixationSet:
    """All splits below ``path`` that have fixations; give ``fixations/train`` to read one."""
    problems = problems or Problems()
    files = next((found for pattern in _PATTERNS if (found := sorted(path.glob(pattern)))), [])
    if not files:
        raise DataError(f"no .mat files in {path}; SALICON has fixations/train/*.mat and images/train/*.jpg")
    images = _images(path)
    names, paths, sizes, points, observers = [], [], [], [], []
    for file in files:
        try:
            size, xy, who = _fixations(read_mat(file))
        except (DataError, KeyError, TypeError, ValueError) as error:
            problems.add(str(error) if isinstance(error, DataError) else f"{file}: no gaze struct array ({error!r})")
            continue
        names.append(file.stem)
        paths.append(images.get(file.stem, path / "images" / f"{file.stem}.jpg"))
        sizes.append(size)
        points.append(xy)
        observers.append(who)
    return from_lists(names, paths, sizes, points, observers)


def _images(path: Path) -> dict[str, Path]:
    folders = (path / "images", path.parent / "images", path.parent.parent / "images", path)
    folder = next(folder for folder in folders if folder.is_dir())
    # Given one split's fixations, only that split's images need to be looked through.
    folder = folder / path.name if (folder / path.name).is_dir() else folder
    return {p.stem: p for p in image_files(folder, below=True)}


def _fixations(content: Struct) -> tuple[tuple[int, int], NDArray[np.float32], NDArray[np.int32]]:
    per_observer = [np.asarray(gaze["fixations"], dtype=np.float32).reshape(-1, 2) for gaze in as_list(content["gaze"])]
    height, width = np.asarray(content.get("resolution", _RESOLUTION)).ravel()[:2]
    observers = np.repeat(np.arange(len(per_observer), dtype=np.int32), [len(p) for p in per_observer])
    points = np.concatenate([*per_observer, np.empty((0, 2), np.float32)])
    # Columns and rows counted from 1; column c covers c - 1 to c, its centre is c - 0.5.
    return (int(height), int(width)), points - np.float32(0.5), observers
