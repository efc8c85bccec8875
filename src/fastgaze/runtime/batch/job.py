"""What a job is: which images, which settings, frozen in the output folder at the first start and cut into shards."""

import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fastgaze.core.errors import ArgumentError, DataError, require
from fastgaze.core.jsonable import Document, Json
from fastgaze.core.pictures import SUFFIXES, is_picture
from fastgaze.core.sizes import Size, size_to_json
from fastgaze.runtime.batch.store import FileSystem, Folder, full_name, legible, split_url
from fastgaze.runtime.card import identity
from fastgaze.runtime.crop import parse_ratio
from fastgaze.runtime.engines import DEFAULT_ENGINE

FORMAT = 3
SETTINGS = "_job.json"
_PATHS = "_paths-{:04d}.parquet"
_SHARD = "part-{:04d}-{:06d}.parquet"
LISTS = (".txt", ".lst")
COLUMN = "path"
MOST_CELLS = 1_000_000
"""Of the log density that is kept in a row."""


@dataclass(frozen=True)
class BatchOptions:
    """What is wanted of every image.

    ratios: of the crop windows, such as "16:9". peaks, crops: the most of each. density: (height, width) of the log
    density kept in the row, None for none. shard: images per file.
    """

    ratios: tuple[str, ...] = ("1:1", "16:9")
    peaks: int = 3
    crops: int = 1
    density: Size | None = None
    shard: int = 256

    def __post_init__(self) -> None:
        for ratio in self.ratios:
            parse_ratio(ratio)
        for name, value, most in (("peaks", self.peaks, 64), ("crops", self.crops, 64), ("shard", self.shard, 100_000)):
            if not 1 <= value <= most:
                raise ArgumentError(f"{name}={value} is not between 1 and {most}")
        if self.density is not None and not 1 <= self.density[0] * self.density[1] <= MOST_CELLS:
            raise ArgumentError(f"density {self.density} is not (height, width) with at most a million cells")

    def to_json(self) -> dict[str, Json]:
        """Plain values."""
        return {
            "ratios": list(self.ratios),
            "peaks": self.peaks,
            "crops": self.crops,
            "density": None if self.density is None else size_to_json(self.density),
            "shard": self.shard,
        }


@dataclass(frozen=True)
class Shard:
    """A file to make: its name and the images whose rows it holds, in order."""

    name: str
    paths: tuple[str, ...]
    skip: frozenset[int] = frozenset()
    """Images that are not tried again, because workers died over them."""


def find_images(source: str) -> list[str]:
    """Absolute paths or URLs, each once: sorted for folders and globs, in their own order for lists.

    A folder is searched with all below it; hidden names and heat maps of an earlier run are left out. A list has one
    path per line. Relative paths in lists count from the current folder. Bytes of a name that are not UTF-8 are written
    as ``\\xe9``.
    """
    system, path = split_url(source)
    try:
        found = _find(system, path, source)
    except OSError as error:
        raise DataError(f"cannot read {source}: {' '.join(str(error.strerror or error).split())[:200]}") from error
    if not found:
        raise DataError(f"no images in {source}; images end in {', '.join(SUFFIXES)}")
    return list(dict.fromkeys(map(legible, found)))


def _find(system: FileSystem, path: str, source: str) -> list[str]:
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
    *folders, file = name[len(root) :].strip("/").split("/") if root else [name.rsplit("/", 1)[-1]]
    return is_picture(file) and not any(part.startswith(".") for part in folders)


def _named(path: str) -> str:
    """Where any process finds the image; an address that makes no sense stays as it is, and its row will say so."""
    try:
        return full_name(*split_url(path))
    except DataError:
        return path


def _column(system: FileSystem, path: str, source: str) -> list[str]:
    parquet = require("pyarrow.parquet", "batch")
    arrow = require("pyarrow", "batch")
    with system.open(path, "rb") as file:
        try:
            table = parquet.read_table(file, columns=[COLUMN])
        except arrow.ArrowException as error:
            reason = " ".join(str(error).split())[:200]
            raise DataError(f"{source} is not a Parquet file with a column {COLUMN!r} ({reason})") from error
    if COLUMN not in table.column_names:
        raise DataError(f"{source} has no column {COLUMN!r}")
    try:
        return [str(name) for name in table[COLUMN].to_pylist() if name]
    except UnicodeDecodeError as error:
        raise DataError(f"{source} has a path in column {COLUMN!r} that is not UTF-8 text ({error.reason})") from error


def open_job(
    folder: Folder, found: Sequence[str], model: bytes, options: BatchOptions, engine: str = DEFAULT_ENGINE
) -> list[Shard]:
    """All shards of the job in ``folder``, which is begun now or continued; images that were not in it yet are added.

    A job is continued with the same settings and engine, and a model that computes the same, however it was named,
    scored or timed.
    """
    names = folder.names()
    settings = {"format": FORMAT, "model": identity(model), "engine": engine, **options.to_json()}
    parts: list[list[str]] = []
    if SETTINGS in names:
        _compare(_read_settings(folder), settings, folder.url)
        while (name := _PATHS.format(len(parts))) in names:
            parts.append(_read_paths(folder, name))
    elif any(name.endswith(".parquet") and not name.startswith("_") for name in names):
        raise DataError(f"{folder.url} holds Parquet files of something else; give an empty or a new folder")
    known = {path for part in parts for path in part}
    if added := [path for path in found if path not in known]:
        folder.write(_PATHS.format(len(parts)), _write_paths(added))
        parts.append(added)
    if SETTINGS not in names:
        # Written last: without it, the next start begins the job again.
        folder.write(SETTINGS, json.dumps(settings, indent=2).encode() + b"\n")
    return [shard for index, part in enumerate(parts) for shard in _cut(index, part, options.shard)]


def _cut(part: int, paths: Sequence[str], length: int) -> Iterator[Shard]:
    for index, start in enumerate(range(0, len(paths), length)):
        yield Shard(_SHARD.format(part, index), tuple(paths[start : start + length]))


def _read_settings(folder: Folder) -> Document:
    try:
        settings: Document = dict(json.loads(folder.read(SETTINGS)))
    except (ValueError, TypeError) as error:
        raise _damaged(folder, SETTINGS) from error
    return settings


def _damaged(folder: Folder, name: str) -> DataError:
    return DataError(f"{folder.url}/{name} is damaged, so the job cannot be continued; give a new folder")


def _compare(before: Document, now: Document, url: str) -> None:
    before = {"engine": DEFAULT_ENGINE} | before  # jobs that were begun before there was a choice
    if before.get("format") != now["format"]:
        raise ArgumentError(f"{url} holds a job of another version of fastgaze, whose rows differ; give a new folder")
    changed = [name for name in now if before.get(name) != now[name]]
    if changed:
        other = ", ".join(changed)
        raise ArgumentError(
            f"{url} holds a job with other settings ({other}); continue with the same ones or give a new folder"
        )


def _write_paths(paths: Sequence[str]) -> bytes:
    arrow, parquet = require("pyarrow", "batch"), require("pyarrow.parquet", "batch")
    buffer = io.BytesIO()
    parquet.write_table(arrow.table({"path": arrow.array(paths, arrow.string())}), buffer)
    return buffer.getvalue()


def _read_paths(folder: Folder, name: str) -> list[str]:
    arrow, parquet = require("pyarrow", "batch"), require("pyarrow.parquet", "batch")
    try:
        paths: list[str] = parquet.read_table(io.BytesIO(folder.read(name)))["path"].to_pylist()
    except (arrow.ArrowException, KeyError) as error:
        raise _damaged(folder, name) from error
    return paths
