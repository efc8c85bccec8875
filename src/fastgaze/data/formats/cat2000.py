"""CAT2000 as published: images by category and a binary map of fixated pixels for each.

    Stimuli/<category>/NNN.jpg and FIXATIONLOCS/<category>/NNN.mat, in the folder or in trainSet/

A .mat file holds ``fixLocs`` (height, width), not zero where somebody fixated; observers are pooled, and several
fixations of one pixel are one. An image of the test set, which has no fixations, is read without any.
"""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fastgaze.core.errors import DataError, FastGazeError
from fastgaze.core.pictures import image_files, read_size
from fastgaze.core.sizes import Size
from fastgaze.data.fixations import FixationSet, from_lists
from fastgaze.data.formats.mat import read_mat
from fastgaze.data.formats.problems import Problems


def read(path: Path, problems: Problems | None = None) -> FixationSet:
    """Images are named <category>-NNN."""
    problems = problems or Problems()
    root = next((path / f for f in (".", "trainSet", "testSet") if (path / f / "Stimuli").is_dir()), None)
    if root is None:
        raise DataError(f"no Stimuli/ in {path}; CAT2000 has Stimuli/<category>/ and FIXATIONLOCS/<category>/")
    names, paths, sizes, points = [], [], [], []
    categories = sorted(folder for folder in (root / "Stimuli").iterdir() if folder.is_dir())
    for image in (image for category in categories for image in image_files(category)):
        file = root / "FIXATIONLOCS" / image.parent.name / f"{image.stem}.mat"
        try:
            size, xy = _fixations(file) if file.is_file() else (read_size(image), np.empty((0, 2), np.float32))
        except FastGazeError as error:
            problems.add(str(error))
            continue
        names.append(f"{image.parent.name}-{image.stem}")
        paths.append(image)
        sizes.append(size)
        points.append(xy)
    return from_lists(names, paths, sizes, points)


def _fixations(file: Path) -> tuple[Size, NDArray[np.float32]]:
    content = read_mat(file)
    fixated = content.get("fixLocs", next(iter(content.values()), None))
    if not isinstance(fixated, np.ndarray) or fixated.ndim != 2:
        raise DataError(f"{file} holds {', '.join(content) or 'nothing'}, but no map 'fixLocs' (height, width)")
    row, column = np.nonzero(fixated)
    return fixated.shape, np.stack([column, row], axis=1).astype(np.float32) + np.float32(0.5)
