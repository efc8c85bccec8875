"""One shard -> one Parquet file. Both engines run this and nothing else."""

import io
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastgaze.core.errors import require
from fastgaze.runtime.batch.job import Options, Shard
from fastgaze.runtime.batch.rows import RowMaker, failed, schema
from fastgaze.runtime.batch.store import Folder
from fastgaze.runtime.card import parse_card
from fastgaze.runtime.clock import Clock
from fastgaze.runtime.engines import make_engine
from fastgaze.runtime.predictor import Predictor

DIED = "the worker died twice while it had this image; it is too large for the memory or damages the decoder"


@dataclass(frozen=True)
class Setup:
    """What a worker needs to begin; the model travels as bytes, so that other machines need no file."""

    output: str
    model: bytes
    options: Options


@dataclass(frozen=True)
class Done:
    """A shard that is on the disk."""

    name: str
    images: int
    errors: int
    seconds: str
    """JSON: seconds by step."""

    @property
    def split(self) -> dict[str, float]:
        """Seconds by step."""
        split: dict[str, float] = json.loads(self.seconds)
        return split


class Worker:
    """Does shards, with one thread."""

    def __init__(self, setup: Setup) -> None:
        card = parse_card(setup.model, "model")
        self._predictor = Predictor(card, make_engine(Path(card.name), setup.model, threads=1))
        self._options = setup.options
        self._schema = schema(setup.options, card.name)
        self._folder = Folder(setup.output)

    def __call__(self, shard: Shard, at: Callable[[int], None] | None = None) -> Done:
        """Write the shard's file. at: told the index of every image before it is opened."""
        clock = Clock()
        make_row = RowMaker(self._predictor, self._options, clock)
        rows = []
        for index, path in enumerate(shard.paths):
            if at is not None:
                at(index)
            rows.append(failed(path, DIED) if index in shard.skip else make_row(path))
        with clock("write"):
            self._folder.write(shard.name, self._encode(rows))
        errors = sum("error" in row for row in rows)
        return Done(shard.name, len(rows), errors, json.dumps(clock.seconds))

    def _encode(self, rows: list[dict[str, Any]]) -> bytes:
        arrow, parquet = require("pyarrow", "batch"), require("pyarrow.parquet", "batch")
        buffer = io.BytesIO()
        parquet.write_table(arrow.Table.from_pylist(rows, schema=self._schema), buffer, compression="zstd")
        return buffer.getvalue()
