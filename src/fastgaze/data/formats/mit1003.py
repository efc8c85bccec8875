"""MIT1003 as published (Judd 2009): raw gaze of fifteen observers, or the folder of fixation maps.

    ALLSTIMULI/*.jpeg and DATA/<observer>/*.mat                 raw gaze at 240 Hz
    ALLSTIMULI/*.jpeg and ALLFIXATIONMAPS/*_fixPts.jpg          white pixels where somebody fixated, pooled

Raw gaze is cut into fixations with the criteria of the set's own MATLAB code: a saccade begins where the speed rises
by more than 6 degrees (204 pixels) per second from one window of five samples to the next for three samples or more,
and ends where it no longer falls as fast; what lies between saccades for more than 50 ms is a fixation, at its
median. The first one, on the cross in the centre, is left out, as in the paper that published the set.
"""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from fastgaze.core.errors import DataError, ImageError
from fastgaze.core.pictures import image_files, read_size
from fastgaze.data.fixations import FixationSet, from_lists
from fastgaze.data.formats.mat import as_list, read_mat
from fastgaze.data.formats.problems import Problems

RATE = 240  # samples per second
CRITERION = 6 * 34  # degrees per second times pixels per degree
WINDOW = 4  # samples over which the speed is smoothed
SHORTEST = 12  # samples, 50 ms
PATIENCE = 25  # samples in which a saccade must slow down
_WHITE = 128  # the fixation maps are JPEG: a point has a grey fringe


def read(path: Path, problems: Problems | None = None) -> FixationSet:
    """All images of ALLSTIMULI; from DATA where it is there, else from ALLFIXATIONMAPS."""
    problems = problems or Problems()
    stimuli, data, maps = path / "ALLSTIMULI", path / "DATA", path / "ALLFIXATIONMAPS"
    if not stimuli.is_dir() or not (data.is_dir() or maps.is_dir()):
        raise DataError(f"{path} lacks ALLSTIMULI/ with DATA/<observer>/ or ALLFIXATIONMAPS/; unpack MIT1003 there")
    observers = sorted(p for p in data.iterdir() if p.is_dir()) if data.is_dir() else []
    names, paths, sizes, points, who = [], [], [], [], []
    for image in image_files(stimuli):
        try:
            sizes.append(read_size(image))
        except ImageError as error:
            problems.add(str(error))
            continue
        xy, numbers = _raw(image.stem, observers, problems) if observers else _pooled(image.stem, maps, problems)
        names.append(image.stem)
        paths.append(image)
        points.append(xy)
        who.append(numbers)
    return from_lists(names, paths, sizes, points, who)


def _raw(name: str, observers: list[Path], problems: Problems) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
    found: list[NDArray[np.float64]] = []
    for folder in observers:
        file = folder / f"{name}.mat"
        try:
            found.append(find_fixations(_gaze(file))[1:])
        except DataError as error:
            problems.add(str(error))
            found.append(np.empty((0, 2)))
    numbers = np.repeat(np.arange(len(found), dtype=np.int32), [len(xy) for xy in found])
    return np.concatenate(found).astype(np.float32), numbers


def _gaze(file: Path) -> NDArray[np.float64]:
    """Raw gaze (n, 2) of the one variable of a file, which is named after the image (cut to 63 letters)."""
    content: Any = next(iter(read_mat(file).values()), None)
    try:
        samples = np.asarray(as_list(content["DATA"])[0]["eyeData"], dtype=np.float64)
        return samples.reshape(len(samples), -1)[:, :2]
    except (TypeError, KeyError, IndexError, ValueError) as error:
        raise DataError(f"{file} holds no DATA.eyeData (n, 2 or 3); it is not raw gaze of MIT1003") from error


def _pooled(name: str, maps: Path, problems: Problems) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
    file = next((f for f in (maps / f"{name}_fixPts{suffix}" for suffix in (".jpg", ".png")) if f.is_file()), None)
    try:
        if file is None:
            raise OSError("no such file")
        with Image.open(file) as image:
            row, column = np.nonzero(np.asarray(image.convert("L")) > _WHITE)
    except OSError as error:
        problems.add(f"cannot read {maps / (name + '_fixPts.jpg')}: {error}")
        row = column = np.empty(0, np.int64)
    xy = np.stack([column, row], axis=1).astype(np.float32) + np.float32(0.5)
    return xy, np.full(len(xy), -1, dtype=np.int32)


def find_fixations(gaze: NDArray[np.float64]) -> NDArray[np.float64]:
    """Raw gaze (n, 2) in pixels at 240 Hz -> fixations (k, 2), the first one included."""
    saccades = _saccades(_acceleration(gaze), len(gaze))
    begins = [0, *(end + 1 for _, end in saccades)]
    ends = [*(begin for begin, _ in saccades), len(gaze)]
    pieces = [gaze[begin:end] for begin, end in zip(begins, ends, strict=True)]
    pieces = [piece for piece in pieces if len(piece) and not np.isnan(piece).any(axis=1).all()]
    return np.array([np.nanmedian(piece, axis=0) for piece in pieces]).reshape(-1, 2)


def _acceleration(gaze: NDArray[np.float64]) -> NDArray[np.float64]:
    """Change of speed from each window of five samples to the next, pixels per second, (n,)."""
    steps = np.concatenate([[0.0], np.hypot(*np.diff(gaze, axis=0).T)])
    padded = np.concatenate([np.zeros(WINDOW - 1), steps])
    smooth = np.convolve(padded, np.full(WINDOW, 1 / WINDOW), mode="valid")
    change = np.zeros(len(gaze))
    reach = WINDOW + 1
    # Two sums over five samples, one step apart, differ by their outermost terms.
    change[1 : len(gaze) - reach] = (smooth[1 + reach :] - smooth[1:-reach]) * RATE / WINDOW
    return change


def _saccades(change: NDArray[np.float64], samples: int) -> list[tuple[int, int]]:
    """(first, last) sample of each saccade, in order; fixations too short between two of them are part of them."""
    saccades: list[tuple[int, int]] = []
    for begin, end in _runs(change > CRITERION):
        if end - begin < 3 or (saccades and begin <= saccades[-1][1]):
            continue
        falling = _runs(change[end : end + PATIENCE + 2] < -CRITERION)
        if not falling:
            continue
        last = end + falling[0][1] - 1
        if saccades and begin - saccades[-1][1] <= SHORTEST:
            begin = saccades.pop()[0]
        saccades.append((begin, last))
    if saccades and samples - saccades[-1][1] - 1 <= SHORTEST:
        saccades[-1] = (saccades[-1][0], samples - 1)
    return saccades


def _runs(mask: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """(begin, end) of each run of true values, the end exclusive."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], mask, [False]])))
    return [(int(a), int(b)) for a, b in zip(edges[::2], edges[1::2], strict=True)]
