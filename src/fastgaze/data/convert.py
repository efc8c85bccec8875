"""Write a data set in another layout: ``fastgaze data convert``."""

import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

from PIL import Image

from fastgaze.core.encoding import encode
from fastgaze.core.errors import ArgumentError, DataError
from fastgaze.core.files import replacing, write_whole
from fastgaze.core.pictures import read_pixels, read_size
from fastgaze.core.sizes import shrunk
from fastgaze.data.fixations import FixationSet, file_name
from fastgaze.data.formats import folder, hdf5, npz

TARGETS = ("npz", "folder", "hdf5")
_QUALITY = 90  # of re-encoded WebP


def convert(
    data: FixationSet,
    target: str,
    path: Path,
    longest: int | None = None,
    track: Callable[[Iterable[int]], Iterable[int]] = iter,
) -> None:
    """Write ``data`` to the new folder ``path`` as npz, folder or hdf5.

    npz and folder get copies of the images; with ``longest`` those with a longer side are scaled down to it and
    stored as WebP. hdf5 points at the images where they are.
    """
    if target not in TARGETS:
        raise ArgumentError(f"cannot write {target!r}; choose from {', '.join(TARGETS)}")
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        what = "is not empty" if path.is_dir() else "is a file"
        raise DataError(f"{path} {what}; give a new folder, nothing is overwritten")
    if target == "hdf5":
        hdf5.write(path, data)
        return
    names = file_names(data)
    (path / "images").mkdir(parents=True, exist_ok=True)
    files = [_store(data.paths[i], path / "images" / names[i], longest) for i in track(range(len(data)))]
    if target == "npz":
        npz.write_arrays(path / npz.FILE, data, names)
    else:
        folder.write(path / folder.FILE, data, [file.name for file in files])


def file_names(data: FixationSet) -> list[str]:
    """Names that can be files of one folder: slashes become dashes, and a name that occurs again gets a number."""
    taken: set[str] = set()
    names = []
    for name in data.names:
        plain = candidate = file_name(name)
        number = 2
        while candidate in taken:
            candidate, number = f"{plain}-{number}", number + 1
        taken.add(candidate)
        names.append(candidate)
    return names


def _store(source: Path, stem: Path, longest: int | None) -> Path:
    size = read_size(source)
    if longest is None or max(size) <= longest:
        target = stem.with_name(stem.name + source.suffix.lower())
        with replacing(target) as part:
            shutil.copyfile(source, part)
        return target
    pixels = read_pixels(source, shrunk(size, longest))
    target = stem.with_name(f"{stem.name}.webp")
    write_whole(target, encode(Image.fromarray(pixels), ".webp", _QUALITY))
    return target
