"""MIT300, and any folder of images without fixations: a test set to submit predictions for."""

from pathlib import Path

from fastgaze.core.errors import DataError, ImageError
from fastgaze.core.pictures import image_files, read_size
from fastgaze.data.fixations import FixationSet, from_lists
from fastgaze.data.formats.problems import Problems

_FOLDERS = ("BenchmarkIMAGES", "images", "ALLSTIMULI", ".")


def read(path: Path, problems: Problems | None = None) -> FixationSet:
    """The images of the folder, or of BenchmarkIMAGES/ in it, each without fixations."""
    problems = problems or Problems()
    files = next((found for f in _FOLDERS if (path / f).is_dir() and (found := image_files(path / f))), [])
    if not files:
        raise DataError(f"no images in {path}; MIT300 is a folder of .jpg files, or BenchmarkIMAGES/ with them")
    paths, sizes = [], []
    for file in files:
        try:
            sizes.append(read_size(file))
            paths.append(file)
        except ImageError as error:
            problems.add(str(error))
    return from_lists([file.stem for file in paths], paths, sizes, [[] for _ in paths])
