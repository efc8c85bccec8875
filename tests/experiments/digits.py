"""Files in the format of MNIST."""

import gzip
from pathlib import Path

import numpy as np


def write_idx(path: Path, array: np.ndarray) -> None:
    """An array of bytes; compressed if the name ends in .gz."""
    header = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes()
    content = header + array.astype(np.uint8).tobytes()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
