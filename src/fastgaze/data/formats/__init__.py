"""Readers for the layouts in which eye-tracking data sets are published, by name.

A reader is imported when its format is asked for; those of .mat and .hdf5 files need the extra ``data``.
"""

from importlib import import_module
from pathlib import Path

from fastgaze.core.errors import ArgumentError, DataError
from fastgaze.data.fixations import FixationSet
from fastgaze.data.formats.problems import Problems

LAYOUTS = {
    "npz": "fixations.npz and images/",
    "folder": "fixations.csv (image,x,y[,observer]) and the images, anywhere below",
    "salicon": "images/{train,val}/*.jpg and fixations/{train,val}/*.mat",
    "mit1003": "ALLSTIMULI/*.jpeg with DATA/<observer>/*.mat, or with ALLFIXATIONMAPS/*_fixPts.jpg",
    "cat2000": "Stimuli/<category>/*.jpg and FIXATIONLOCS/<category>/*.mat (or trainSet/ with both)",
    "mit300": "images only, in the folder or in BenchmarkIMAGES/",
    "osie": "stimuli/*.jpg and fixations.mat (or eye/fixations.mat)",
    "eyecrowd": "stimuli/*.jpg and fixations.mat, as OSIE",
    "hdf5": "stimuli.hdf5 and fixations.hdf5 as pysaliency writes them",
}
FORMATS = tuple(LAYOUTS)
_MODULES = {"eyecrowd": "osie"}


def load(format: str, path: str | Path, problems: Problems | None = None) -> FixationSet:
    """Read the data set at ``path``; format "auto" recognises the layout.

    problems: collects files that cannot be read; without it the first one is an error.
    """
    path = Path(path)
    name = recognise(path) if format == "auto" else format
    if name not in LAYOUTS:
        raise ArgumentError(f"no layout {format!r}; choose from auto, {', '.join(FORMATS)}")
    if not path.exists():
        raise _absent(path)
    reader = import_module(f"fastgaze.data.formats.{_MODULES.get(name, name)}")
    data: FixationSet = reader.read(path, problems)
    return data


def recognise(path: Path) -> str:
    """The format of the data set at ``path``, from the names of what is in it."""
    if not path.exists():
        raise _absent(path)
    for name, marks in _MARKS.items():
        if any(any(path.glob(mark)) for mark in marks):
            return name
    if path.suffix in (".hdf5", ".h5"):
        return "hdf5"
    layouts = "; ".join(f"{name}: {layout}" for name, layout in LAYOUTS.items())
    raise DataError(f"{path} has no known layout; arrange it as one of these, or name its format: {layouts}")


def _absent(path: Path) -> DataError:
    return DataError(f"no data at {path}; give the folder of a data set")


# In this order: the first layout of which one mark is found.
_MARKS = {
    "npz": ("fixations.npz",),
    "folder": ("fixations.csv",),
    "hdf5": ("fixations.hdf5", "fixations.h5"),
    "osie": ("fixations.mat", "eye/fixations.mat", "data/eye/fixations.mat"),
    "mit1003": ("ALLSTIMULI",),
    "cat2000": ("FIXATIONLOCS", "trainSet/FIXATIONLOCS"),
    "salicon": ("fixations/train", "fixations/val", "fixations/*.mat", "train/*.mat", "val/*.mat"),
    "mit300": ("BenchmarkIMAGES", "*.jpg", "*.jpeg", "*.png", "*.webp"),
}
