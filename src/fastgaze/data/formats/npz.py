"""The npz folder: ``images/NAME.*`` and one ``fixations.npz`` with the fixations of all images.

Arrays of the file: ``name`` (n,), ``width`` and ``height`` (n,) of the original images, ``start`` (n + 1,),
``x``, ``y`` and ``observer`` (m,). It is the fastest form to read and the one that training uses.
"""

import io
from pathlib import Path

import numpy as np

from fastgaze.core.errors import DataError
from fastgaze.core.files import write_whole
from fastgaze.core.pictures import image_files
from fastgaze.data.fixations import FixationSet
from fastgaze.data.formats.problems import Problems

FILE = "fixations.npz"
_ARRAYS = ("name", "width", "height", "start", "x", "y", "observer")


def read(folder: Path, problems: Problems | None = None) -> FixationSet:
    """The set in ``folder``; an image that is missing keeps the path at which it was looked for."""
    del problems  # one file: it can be read or not
    file = folder / FILE
    if not file.is_file():
        raise DataError(f"no {FILE} in {folder}; the npz form is a folder with {FILE} and images/")
    try:
        return _build(folder, file)
    except DataError:
        raise
    except Exception as error:  # numpy, zipfile and zlib raise all kinds over damaged files
        reason = " ".join(str(error).split()) or type(error).__name__
        raise DataError(f"cannot read {file}: {reason}; write it with numpy.savez_compressed") from error


def _build(folder: Path, file: Path) -> FixationSet:
    with file.open("rb") as stream, np.load(stream, allow_pickle=False) as archive:
        if missing := [name for name in _ARRAYS if name not in archive]:
            raise DataError(f"{file} lacks {', '.join(missing)}; it must hold {', '.join(_ARRAYS)}")
        array = {name: archive[name] for name in _ARRAYS}
    lengths = {name: array[name].shape for name in ("name", "width", "height")}
    if len(set(lengths.values())) != 1:
        raise DataError(f"{file}: {lengths} must be one-dimensional and of one length; write the file again")
    names = tuple(str(name) for name in array["name"])
    images = folder / "images"
    found = {p.stem: p for p in image_files(images)} if images.is_dir() else {}
    return FixationSet(
        names=names,
        paths=tuple(found.get(name, images / f"{name}.webp") for name in names),
        sizes=np.stack((array["height"], array["width"]), axis=1).astype(np.int32),
        start=array["start"].astype(np.int64),
        x=array["x"].astype(np.float32),
        y=array["y"].astype(np.float32),
        observer=array["observer"].astype(np.int32),
    )


def write_arrays(file: Path, fixations: FixationSet, names: list[str]) -> None:
    """Write the fixations of a set under other ``names`` (those of the image files next to it)."""
    buffer = io.BytesIO()
    np.savez_compressed(
        buffer,
        name=np.array(names, dtype=np.str_),
        width=fixations.sizes[:, 1],
        height=fixations.sizes[:, 0],
        start=fixations.start,
        x=fixations.x,
        y=fixations.y,
        observer=fixations.observer,
    )
    write_whole(file, buffer.getvalue())
