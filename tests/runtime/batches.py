"""Pictures for batch jobs, and the rows that come out of one."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from PIL import Image


def make_picture(index: int, size: tuple[int, int] = (96, 128)) -> Image.Image:
    """Dark with one bright square, whose place follows from ``index``."""
    pixels = np.full((*size, 3), 40, np.uint8)
    x, y = 8 + 13 * index % (size[1] - 40), 8 + 7 * index % (size[0] - 40)
    pixels[y : y + 24, x : x + 24] = 255
    return Image.fromarray(pixels)


def fill(folder: Path, count: int) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for index in range(count):
        make_picture(index).save(folder / f"{index:05d}.jpg")
    return folder


def read_rows(output: str | Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(str(output)).to_pylist()
    return sorted(rows, key=lambda row: row["path"])
