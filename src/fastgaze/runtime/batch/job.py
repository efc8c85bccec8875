"""What a job is: settings and paths, frozen in the output folder at the first start, cut into shards."""

import hashlib
import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from fastgaze.core.errors import ArgumentError, DataError, require
from fastgaze.core.pictures import Size
from fastgaze.runtime.batch.store import Folder
from fastgaze.runtime.crop import parse_ratio

FORMAT = 1
SETTINGS = "_job.json"
_PATHS = "_paths-{:04d}.parquet"
_SHARD = "part-{:04d}-{:06d}.parquet"


@dataclass(frozen=True)
class Options:
    """What is asked of every image.

    ratios: of the crop windows, such as "16:9". peaks, crops: the most of each. density: (height, width) of the log
    density kept in the row, None for none. shard: images a file.
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
        if self.density is not None and not 1 <= self.density[0] * self.density[1] <= 1_000_000:
            raise ArgumentError(f"density {self.density} is not (height, width) with at most a million cells")

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "ratios": list(self.ratios),
            "peaks": self.peaks,
            "crops": self.crops,
            "density": None if self.density is None else list(self.density),
            "shard": self.shard,
        }


@dataclass(frozen=True)
class Shard:
    """A file to make: its name and the images whose rows it holds, in order."""

    name: str
    paths: tuple[str, ...]
    skip: frozenset[int] = frozenset()
    """Images not to be touched again, because workers died over them."""


def open_job(folder: Folder, found: Sequence[str], model: bytes, options: Options) -> list[Shard]:
    """All shards of the job in ``folder``: begun now, or gone on with; images that were not in it yet are added."""
    names = folder.names()
    settings = {"format": FORMAT, "model": hashlib.sha256(model).hexdigest(), **options.to_json()}
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
        # Last: without it the next start begins anew.
        folder.write(SETTINGS, json.dumps(settings, indent=2).encode() + b"\n")
    return [shard for index, part in enumerate(parts) for shard in _cut(index, part, options.shard)]


def _cut(part: int, paths: Sequence[str], length: int) -> Iterator[Shard]:
    for index, start in enumerate(range(0, len(paths), length)):
        yield Shard(_SHARD.format(part, index), tuple(paths[start : start + length]))


def _read_settings(folder: Folder) -> dict[str, Any]:
    try:
        settings: dict[str, Any] = dict(json.loads(folder.read(SETTINGS)))
    except (ValueError, TypeError) as error:
        raise _damaged(folder, SETTINGS) from error
    return settings


def _damaged(folder: Folder, name: str) -> DataError:
    return DataError(f"{folder.url}/{name} is damaged, so the job cannot go on; give a new folder")


def _compare(before: dict[str, Any], now: dict[str, Any], url: str) -> None:
    changed = [name for name in now if before.get(name) != now[name]]
    if changed:
        raise ArgumentError(
            f"{url} holds a job with another {', '.join(changed)}; go on with the same settings or give a new folder"
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
