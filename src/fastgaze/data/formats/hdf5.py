"""pysaliency's HDF5 form: ``stimuli.hdf5`` with the images' paths and ``fixations.hdf5``."""

import json
import os
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fastgaze.core.errors import DataError, require
from fastgaze.core.files import replacing
from fastgaze.core.pictures import read_size
from fastgaze.core.sizes import Size
from fastgaze.data.fixations import FixationSet, from_lists
from fastgaze.data.formats.problems import Problems

if TYPE_CHECKING:
    import h5py
    from h5py import Group

Column = NDArray[np.float64] | NDArray[np.int64]


def read(path: Path, problems: Problems | None = None) -> FixationSet:
    """A folder with stimuli.hdf5 and fixations.hdf5, or one of the two files next to the other."""
    del problems  # one file each: it can be read or not
    folder = path if path.is_dir() else path.parent
    stimuli, fixations = (_find(folder, name) for name in ("stimuli", "fixations"))
    h5py = require("h5py", "data")
    try:
        with h5py.File(stimuli, "r") as file:
            refuse_external(file, stimuli)
            paths, sizes = _stimuli(file, stimuli)
        with h5py.File(fixations, "r") as file:
            refuse_external(file, fixations)
            x, y, n, who = _fixations(file, fixations)
    except DataError:
        raise
    except Exception as error:  # h5py raises all kinds over damaged files
        raise DataError(f"{folder}: not a data set as pysaliency writes it ({' '.join(str(error).split())})") from error
    if not len(x) == len(y) == len(n) == len(who):
        raise DataError(f"{fixations} has {len(x)} x, {len(y)} y, {len(n)} n and {len(who)} subjects; it is damaged")
    order = np.argsort(n, kind="stable")
    cuts = np.searchsorted(n[order], np.arange(len(paths) + 1))
    if len(n) and not 0 <= n.min() <= n.max() < len(paths):
        named = f"{fixations} has fixations on images {n.min()} to {n.max()}"
        raise DataError(f"{named}, but {stimuli} has images 0 to {len(paths) - 1}")
    parts = [order[a:b] for a, b in pairwise(cuts)]
    points = [np.stack([x[part], y[part]], axis=1) for part in parts]
    return from_lists([p.stem for p in paths], paths, sizes, points, [who[part] for part in parts])


def refuse_external(file: "h5py.File", path: Path) -> None:
    """DataError for a file whose data are, in part, those of other files: it could name any that this user may read."""
    h5py = require("h5py", "data")
    seen: set[int] = set()

    def check(group: "Group") -> None:
        address = int(h5py.h5o.get_info(group.id).addr)
        if address in seen:  # groups may hold each other
            return
        seen.add(address)
        for name in group:
            link = group.get(name, getlink=True)
            if isinstance(link, h5py.ExternalLink):
                raise DataError(f"{path} links to another file ({name}), which is not followed; copy the data into it")
            item = group[name]
            if isinstance(item, h5py.Dataset) and (item.external or item.is_virtual):
                raise DataError(f"{path} keeps {name} in another file, which is not read; copy the data into it")
            if isinstance(item, h5py.Group):
                check(item)

    check(file)


def _find(folder: Path, name: str) -> Path:
    for suffix in (".hdf5", ".h5"):
        if (folder / f"{name}{suffix}").is_file():
            return folder / f"{name}{suffix}"
    raise DataError(f"no {name}.hdf5 in {folder}; pysaliency's form is stimuli.hdf5 and fixations.hdf5")


def _text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _stimuli(file: "h5py.File", path: Path) -> tuple[list[Path], list[Size]]:
    kind = _text(file.attrs["type"])
    if kind != "FileStimuli":
        raise DataError(f"{path} holds {kind}; only FileStimuli, images by path, can be read: save it as that")
    relative = _text(file.attrs["version"]) >= "2.0"
    names = [Path(_text(name)) for name in file["filenames"][()]]
    sizes = [(int(shape[0]), int(shape[1])) for shape in file["shapes"][()]]
    return [path.parent / name if relative else name for name in names], sizes


def _fixations(file: "h5py.File", path: Path) -> tuple[Column, Column, Column, Column]:
    kind = _text(file.attrs["type"])
    if kind == "Fixations":
        subjects = file["subjects"][()] if "subjects" in file else np.full(len(file["x"]), -1)
        return file["x"][()], file["y"][()], file["n"][()].astype(np.int64), subjects
    if kind == "FixationTrains":
        x, y = file["train_xs"][()], file["train_ys"][()]
        there = ~np.isnan(x)
        n, subjects = (np.broadcast_to(file[k][()][:, None], x.shape)[there] for k in ("train_ns", "train_subjects"))
        return x[there], y[there], n.astype(np.int64), subjects
    raise DataError(f"{path} holds {kind}; Fixations and FixationTrains can be read")


def write(folder: Path, fixations: FixationSet) -> None:
    """Write stimuli.hdf5, which points at the images where they are, and fixations.hdf5 (points inside only).

    Sizes and fixations are those of the stored files, which the form has no other size for.
    """
    h5py = require("h5py", "data")
    folder.mkdir(parents=True, exist_ok=True)
    sizes = [read_size(path) for path in fixations.paths]
    with replacing(folder / "stimuli.hdf5") as part, h5py.File(part, "w") as file:
        _write_stimuli(h5py, file, [os.path.relpath(path, folder) for path in fixations.paths], sizes)
    points = [fixations.fixations(i, size) for i, size in enumerate(sizes)]
    observers = [fixations.observers(i) for i in range(len(fixations))]
    xy = np.concatenate([*points, np.empty((0, 2), np.float32)]).astype(np.float64)
    with replacing(folder / "fixations.hdf5") as part, h5py.File(part, "w") as file:
        _attributes(file, "Fixations", "1.0", ["subjects"])
        nothing = np.full((len(xy), 1), np.nan)
        columns = {"x": xy[:, 0], "y": xy[:, 1], "t": np.zeros(len(xy))}
        columns |= {"x_hist": nothing, "y_hist": nothing, "t_hist": nothing}
        columns["n"] = np.repeat(np.arange(len(points)), [len(p) for p in points])
        columns["subjects"] = np.concatenate([*observers, np.empty(0, np.int32)]).astype(np.int64)
        for name, values in columns.items():
            file.create_dataset(name, data=values)


def _write_stimuli(h5py: ModuleType, file: "h5py.File", names: list[str], sizes: list[Size]) -> None:
    _attributes(file, "FileStimuli", "2.1", [])
    file.create_dataset("filenames", data=np.array(names, dtype=object), dtype=h5py.special_dtype(vlen=str))
    shapes = file.create_dataset("shapes", (len(names),), dtype=h5py.special_dtype(vlen=np.dtype("int64")))
    for i, size in enumerate(sizes):
        shapes[i] = np.array([*size, 3])
    file.attrs["size"] = len(names)


def _attributes(file: "h5py.File", kind: str, version: str, names: list[str]) -> None:
    for key, value in {"type": kind, "version": version, "__attributes__": json.dumps(names)}.items():
        file.attrs[key] = np.bytes_(value)
