"""One shard -> one Parquet file, one row per image. Both runners run this and nothing else.

A row carries what ``GazeMap.to_json`` says, under the same names; a bad image has only ``path`` and ``error``.
"""

import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from fastgaze.core.errors import FastGazeError, require
from fastgaze.core.jsonable import Json
from fastgaze.core.pictures import open_picture
from fastgaze.core.progress import Clock, Seconds
from fastgaze.core.sizes import format_size
from fastgaze.runtime.batch.job import BatchOptions, Shard
from fastgaze.runtime.batch.store import Folder, read_bytes
from fastgaze.runtime.card import parse_card
from fastgaze.runtime.cutting import pixels_needed
from fastgaze.runtime.engines import DEFAULT_ENGINE, make_engine
from fastgaze.runtime.predictor import Predictor

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow

DIED = "workers died again and again over this image; it is too large for the memory or crashes the decoder"

Row = dict[str, "Json | npt.NDArray[np.float32]"]
"""What Parquet stores of one image."""


@dataclass(frozen=True)
class WorkerSetup:
    """What a worker needs to begin; the model travels as bytes, so that other machines need no file."""

    output: str
    model: bytes
    options: BatchOptions
    engine: str = DEFAULT_ENGINE


@dataclass(frozen=True)
class ShardReport:
    """A shard whose file has been written."""

    name: str
    images: int
    """All of the shard, those with errors included."""
    errors: int
    steps: Mapping[str, Seconds]


class ShardWorker:
    """Does shards, with one thread."""

    def __init__(self, setup: WorkerSetup) -> None:
        card = parse_card(setup.model, "model")
        self._predictor = Predictor(card, make_engine(Path(card.name), setup.model, setup.engine, threads=1))
        self._options = setup.options
        self._schema = schema(setup.options, card.name)
        self._folder = Folder(setup.output)

    def __call__(self, shard: Shard, at: Callable[[int], None] | None = None) -> ShardReport:
        """Write the shard's file. at: called with the index of every image before it is opened."""
        clock = Clock()
        rows = []
        for index, path in enumerate(shard.paths):
            if at is not None:
                at(index)
            rows.append(failed(path, DIED) if index in shard.skip else self._row(path, clock))
        with clock("write"):
            self._folder.write(shard.name, self._encode(rows))
        return ShardReport(shard.name, len(rows), sum("error" in row for row in rows), clock.steps)

    def _row(self, path: str, clock: Clock) -> Row:
        """The row of one image; a bad image does not raise an error."""
        try:
            return {"path": path, **self._describe(path, clock)}
        except (FastGazeError, OSError) as error:
            return failed(path, _one_line(str(error).removeprefix("bytes: ")) or type(error).__name__)
        except Exception as error:  # one image must not stop a million others
            return failed(path, f"{type(error).__name__}: {_one_line(str(error))}")

    def _describe(self, path: str, clock: Clock) -> Row:
        options = self._options
        with clock("read"):
            content = read_bytes(path)
        picture = open_picture(content)
        view = self._predictor.look(picture, pixels_needed(picture.size, ()) if options.ratios else None)
        gaze = view.at(options.density)
        row: Row = dict(gaze.to_json(options.peaks, options.ratios, options.crops))
        if options.density is not None:
            row["log_density"] = gaze.log_density.ravel()
        clock.add(view.clock.steps)
        return row

    def _encode(self, rows: list[Row]) -> bytes:
        arrow, parquet = require("pyarrow", "batch"), require("pyarrow.parquet", "batch")
        buffer = io.BytesIO()
        parquet.write_table(arrow.Table.from_pylist(rows, schema=self._schema), buffer, compression="zstd")
        return buffer.getvalue()


def schema(options: BatchOptions, model: str) -> "pyarrow.Schema":
    """The Arrow schema of a job's files. Positions are in pixels of the upright picture."""
    arrow = require("pyarrow", "batch")
    real, whole, text = arrow.float32(), arrow.int32(), arrow.string()
    size = arrow.struct([("width", whole), ("height", whole)])
    peak = arrow.struct([(name, real) for name in ("x", "y", "mass", "density")])
    window = arrow.struct(
        [
            ("box", arrow.struct([(name, whole) for name in ("left", "top", "width", "height")])),
            ("mass", real),
            ("gain", real),
            ("focal_point", arrow.struct([("x", real), ("y", real)])),
            ("scale", real),
            ("object_position", text),
        ]
    )
    fields = [
        ("path", text),
        ("picture_size", size),
        ("screen", real),
        ("bits", real),
        ("peaks", arrow.list_(peak)),
        ("crops", arrow.list_(arrow.struct([("ratio", text), ("windows", arrow.list_(window))]))),
        *([] if options.density is None else [("log_density", arrow.list_(real))]),
        ("error", text),
    ]
    density = "" if options.density is None else format_size(options.density)
    return arrow.schema(fields, metadata={"fastgaze.model": model, "fastgaze.density": density})


def count_errors(file: BinaryIO) -> int:
    """Images with an error in one file of a job, from its footer alone."""
    facts = require("pyarrow.parquet", "batch").read_metadata(file)
    columns = [facts.row_group(index).column(facts.num_columns - 1) for index in range(facts.num_row_groups)]
    return sum(column.num_values - column.statistics.null_count for column in columns)


def failed(path: str, error: str) -> Row:
    """The row of an image that could not be used."""
    return {"path": path, "error": error}


def _one_line(text: str) -> str:
    """Without what Parquet cannot hold, such as bytes of a name that are not UTF-8."""
    return " ".join(text.encode("utf-8", "backslashreplace").decode("utf-8").split())[:500]
