"""Which images: a folder, a glob, a list of paths, a Parquet file with a column of paths, or one image."""

from typing import Any

from fastgaze.core.errors import DataError, require
from fastgaze.runtime.batch.store import full_name, legible, split_url
from fastgaze.runtime.suffixes import SUFFIXES

LISTS = (".txt", ".lst")
COLUMN = "path"


def find_images(source: str) -> list[str]:
    """Absolute paths or URLs, each once: sorted for folders and globs, in their own order for lists.

    A folder is searched with all below it, hidden names left out. A list has one path a line. Relative paths in lists
    count from the current folder. Bytes of a name that are not UTF-8 are written as ``\\xe9``.
    """
    system, path = split_url(source)
    try:
        found = _find(system, path, source)
    except OSError as error:
        raise DataError(f"cannot read {source}: {error.strerror or error}") from error
    if not found:
        raise DataError(f"no images in {source}; images end in {', '.join(SUFFIXES)}")
    return list(dict.fromkeys(map(legible, found)))


def _find(system: Any, path: str, source: str) -> list[str]:
    if any(mark in source for mark in "*?[") and not system.exists(path):
        return sorted(full_name(system, name) for name in system.glob(path) if _is_image(name))
    if system.isdir(path):
        return sorted(full_name(system, name) for name in system.find(path) if _is_image(name, path))
    if not system.exists(path):
        raise DataError(f"no {source}; give a folder, a glob, a list ({', '.join(LISTS)}), a .parquet or an image")
    if path.lower().endswith(LISTS):
        return [_named(line) for line in _lines(system.cat_file(path), source)]
    if path.lower().endswith(".parquet"):
        return [_named(name) for name in _column(system, path, source)]
    return [full_name(system, path)]


def _lines(content: bytes, source: str) -> list[str]:
    try:
        lines = content.decode("utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise DataError(f"{source} is not a list in UTF-8 (byte {error.start}); save it as UTF-8") from error
    return [line.strip() for line in lines if line.strip()]


def _is_image(name: str, root: str = "") -> bool:
    below = name[len(root) :].strip("/").split("/") if root else [name.rsplit("/", 1)[-1]]
    return name.lower().endswith(SUFFIXES) and not any(part.startswith(".") for part in below)


def _named(path: str) -> str:
    return full_name(*split_url(path))


def _column(system: Any, path: str, source: str) -> list[str]:
    parquet = require("pyarrow.parquet", "batch")
    arrow = require("pyarrow", "batch")
    with system.open(path, "rb") as file:
        try:
            table = parquet.read_table(file, columns=[COLUMN])
        except arrow.ArrowException as error:
            raise DataError(f"{source} is not a Parquet file with a column {COLUMN!r} ({error})") from error
    if COLUMN not in table.column_names:
        raise DataError(f"{source} has no column {COLUMN!r}")
    return [str(name) for name in table[COLUMN].to_pylist() if name]
