"""MATLAB files of both kinds, v5 (scipy) and v7.3 (HDF5, h5py), as plain Python values.

A struct is a dict, a struct array or a cell array a list, text a str, numbers an array without axes of length 1.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fastgaze.core.errors import DataError, require
from fastgaze.data.formats.hdf5 import refuse_external
from fastgaze.data.formats.mat_process import READER, Struct

if TYPE_CHECKING:
    import h5py

_HDF5_SIGNATURE = b"\x89HDF\r\n\x1a\n"


def read_mat(path: Path) -> Struct:
    """The variables of a .mat file by name, read by a process of its own: a damaged file may crash its reader."""
    require("scipy.io", "data")
    if not path.is_file():
        raise DataError(f"cannot read {path}: there is no such file")
    return READER.read(path)


def read_here(path: Path) -> Struct:
    """The variables of a .mat file by name, read by this process; raises all kinds of errors."""
    with open(path, "rb") as file:
        head = file.read(520)
    # MATLAB writes 512 bytes of text before the HDF5 data.
    return _read_hdf5(path) if _HDF5_SIGNATURE in (head[:8], head[512:520]) else _read_v5(path)


def as_list(value: Any) -> list[Any]:
    """A struct or cell array of one element, which MATLAB files do not tell apart from the element, as a list."""
    return value if isinstance(value, list) else [value]


def _read_v5(path: Path) -> Struct:
    content = require("scipy.io", "data").loadmat(path, squeeze_me=True)
    return {name: _plain(value) for name, value in content.items() if not name.startswith("__")}


def _plain(value: Any) -> Any:
    if isinstance(value, np.void):
        return {name: _plain(value[name]) for name in value.dtype.names or ()}
    if isinstance(value, np.ndarray) and (value.dtype.names or value.dtype == object):
        return [_plain(item) for item in value.ravel()] if value.ndim else _plain(value[()])
    if isinstance(value, np.ndarray) and value.dtype.kind == "U" and value.ndim == 0:
        return str(value)
    return str(value) if isinstance(value, np.str_) else value


def _read_hdf5(path: Path) -> Struct:
    h5py = require("h5py", "data")
    with h5py.File(path, "r") as file:
        refuse_external(file, path)
        return {name: _hdf5_value(file, item) for name, item in file.items() if not name.startswith("#")}


def _hdf5_value(file: "h5py.File", item: "h5py.Group | h5py.Dataset") -> Any:
    if hasattr(item, "items"):  # a struct, or a struct array: its fields then hold references
        fields = dict(item.items())
        if fields and all(_holds_references(field) and "MATLAB_class" not in field.attrs for field in fields.values()):
            columns = {name: [_hdf5_value(file, file[r]) for r in field[()].ravel()] for name, field in fields.items()}
            return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        return {name: _hdf5_value(file, field) for name, field in fields.items()}
    if item.attrs.get("MATLAB_empty", 0):
        return "" if _kind(item) == "char" else np.empty(0)
    if _holds_references(item):
        return [_hdf5_value(file, file[reference]) for reference in item[()].T.ravel()]
    if _kind(item) == "char":
        return "".join(chr(code) for code in item[()].T.ravel())
    return np.squeeze(item[()].T)


def _holds_references(item: "h5py.Group | h5py.Dataset") -> bool:
    return not hasattr(item, "items") and item.dtype.kind == "O"


def _kind(item: "h5py.Group | h5py.Dataset") -> str:
    value = item.attrs.get("MATLAB_class", b"")
    return value.decode() if isinstance(value, bytes) else str(value)
