"""QP offsets in the forms that encoders and scripts read, written frame by frame in constant memory.

kvazaar  for every frame: columns and rows, then their offsets in raster order; text, or binary for a name in .bin
         (two 32-bit integers, then signed bytes), as ``kvazaar --roi`` documents
ffmpeg   a filter graph with ``addroi`` for libx264 and libx265, one map for every stretch of the video
csv      frame, time, row, column, offset
json     size, block and for every frame its time and rows of offsets
"""

import json
import struct
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import IO

import numpy as np
import numpy.typing as npt

from fastgaze.core.errors import ArgumentError, DataError
from fastgaze.core.pictures import Size
from fastgaze.runtime.video.roi import QP_RANGE, Blocks, Offsets, Roi

Rectangle = tuple[int, int, int, int, int]
"""(left, top, width, height) in pixels and the offset."""

INTERVAL = 1.0
"""Seconds of one map in FFmpeg's form; a cut begins a new one too."""
# Files round the times of frames, Matroska to milliseconds.
_TICK = 0.002


def write_kvazaar(frames: Iterable[Blocks], roi: Roi, out: IO[str]) -> None:
    """Text: a line ``columns rows``, then a line of columns * rows offsets, for every frame."""
    for blocks in _some(frames):
        offsets = blocks.offsets(roi)
        out.write(f"{offsets.shape[1]} {offsets.shape[0]}\n{' '.join(map(str, offsets.ravel()))}\n")


def write_kvazaar_binary(frames: Iterable[Blocks], roi: Roi, out: IO[bytes]) -> None:
    """Binary, little endian: int32 columns, int32 rows, then columns * rows int8 offsets, for every frame."""
    for blocks in _some(frames):
        offsets = blocks.offsets(roi)
        out.write(struct.pack("<ii", offsets.shape[1], offsets.shape[0]) + offsets.tobytes())


def write_csv(frames: Iterable[Blocks], roi: Roi, out: IO[str]) -> None:
    """One line a block."""
    some = _some(frames)
    out.write("frame,time,row,column,qp_offset\n")
    for index, blocks in enumerate(some):
        for (row, column), offset in np.ndenumerate(blocks.offsets(roi)):
            out.write(f"{index},{blocks.time:.6f},{row},{column},{offset}\n")


def write_json(frames: Iterable[Blocks], roi: Roi, out: IO[str]) -> None:
    """One document, one line a frame."""
    first, rest = _first(frames)
    head = {"block": roi.block, "range": [roi.low, roi.high], "neutral": roi.neutral, "size": list(first.size)}
    out.write(json.dumps(head)[:-1] + ', "frames": [')
    for index, blocks in enumerate(rest):
        line = {"time": round(blocks.time, 6), "qp_offset": blocks.offsets(roi).tolist()}
        out.write((",\n" if index else "\n") + json.dumps(line))
    out.write("\n]}\n")


def write_ffmpeg(frames: Iterable[Blocks], roi: Roi, out: IO[str], interval: float = INTERVAL) -> None:
    """A filter graph from [0:v] to [out].

    ``addroi`` takes no commands and knows no time, so every stretch is a branch of its own: cut out by frame numbers,
    marked, and put back together.
    """
    first, rest = _first(frames)
    branches: list[str] = []
    start = 0
    for stretch in stretches(rest, interval):
        marks = [_addroi(rectangle) for rectangle in rectangles(stretch.offsets(roi), first.size, roi.block)]
        name, end = len(branches), start + stretch.frames
        steps = [f"trim=start_frame={start}:end_frame={end}", "setpts=PTS-STARTPTS", *marks]
        branches.append(f"[s{name}]{','.join(steps)}[r{name}]")
        start = end
    every = range(len(branches))
    split = f"[0:v]split={len(branches)}{''.join(f'[s{name}]' for name in every)}"
    joined = f"{''.join(f'[r{name}]' for name in every)}concat=n={len(branches)}:v=1:a=0[out]"
    out.write(";\n".join([split, *branches, joined]) + "\n")


def stretches(frames: Iterable[Blocks], interval: float) -> Iterator[Blocks]:
    """Frames together that lie within ``interval`` seconds and within one shot."""
    if not interval > 0:
        raise ArgumentError(f"interval={interval} is not a time in seconds above 0")
    current: Blocks | None = None
    for blocks in frames:
        if current is None:
            current = blocks
        elif blocks.cut or blocks.time - current.time > interval - _TICK or blocks.mass.shape != current.mass.shape:
            yield current
            current = blocks
        else:
            current = current.plus(blocks)
    if current is not None:
        yield current


def rectangles(offsets: Offsets, size: Size, block: int) -> list[Rectangle]:
    """Rectangles of equal offset that cover all blocks whose offset is not 0, each block once."""
    left = offsets != 0
    found = []
    for row, column in np.argwhere(left):
        if not left[row, column]:
            continue
        offset = offsets[row, column]
        same = (offsets == offset) & left
        right = column + _run(same[row, column:])
        bottom = row + _run(same[row:, column:right].all(axis=1))
        left[row:bottom, column:right] = False
        x, y = int(column) * block, int(row) * block
        width, height = min(int(right) * block, size[1]) - x, min(int(bottom) * block, size[0]) - y
        found.append((x, y, width, height, int(offset)))
    return found


def _run(flags: npt.NDArray[np.bool_]) -> int:
    """How many are true from the start."""
    return len(flags) if flags.all() else int(flags.argmin())


def _addroi(rectangle: Rectangle) -> str:
    """FFmpeg's offsets are relative to the whole range of QP."""
    x, y, width, height, offset = rectangle
    return f"addroi=x={x}:y={y}:w={width}:h={height}:qoffset={offset}/{QP_RANGE}"


def _some(frames: Iterable[Blocks]) -> Iterator[Blocks]:
    """The same frames; an error if there is none."""
    return _first(frames)[1]


def _first(frames: Iterable[Blocks]) -> tuple[Blocks, Iterator[Blocks]]:
    """The first frame, and all of them; an error if there is none."""
    iterator = iter(frames)
    first = next(iterator, None)
    if first is None:
        raise DataError("the video holds no frame that can be decoded")
    return first, chain([first], iterator)


TEXT: dict[str, Callable[[Iterable[Blocks], Roi, IO[str]], None]] = {
    "kvazaar": write_kvazaar,
    "ffmpeg": write_ffmpeg,
    "csv": write_csv,
    "json": write_json,
}
"""Writers by the name of their form."""
