"""One image -> one row: size, peaks, crop windows, confidence, and a low-resolution log density if wanted."""

from typing import Any

import numpy as np

from fastgaze.core.errors import FastGazeError, require
from fastgaze.core.pictures import Size, open_picture
from fastgaze.runtime.batch.job import Options
from fastgaze.runtime.batch.store import read_bytes
from fastgaze.runtime.clock import Clock
from fastgaze.runtime.crop import Crop, Integral, parse_ratio, window_size
from fastgaze.runtime.gazemap import GazeMap, Peak
from fastgaze.runtime.predictor import Predictor

MAP_SIDE = 128
"""Longer side of the map that peaks and windows are found on: six times what the network puts out, and blurred at that.
Twice as many would double the time of a row."""

Row = dict[str, Any]


def schema(options: Options, model: str) -> Any:
    """The Arrow schema of a job's files. Positions are in pixels of the upright picture."""
    arrow = require("pyarrow", "batch")
    real, whole = arrow.float32(), arrow.int32()
    peak = arrow.struct([(name, real) for name in ("x", "y", "mass", "density")])
    edges = [(name, whole) for name in ("left", "top", "right", "bottom")]
    worth = [(name, real) for name in ("mass", "confidence", "focal_x", "focal_y", "scale")]
    window = arrow.struct([("ratio", arrow.string()), *edges, *worth])
    fields = [
        ("path", arrow.string()),
        ("height", whole),
        ("width", whole),
        ("peaks", arrow.list_(peak)),
        ("crops", arrow.list_(window)),
        ("confidence", real),
        ("bits", real),
        *([] if options.density is None else [("log_density", arrow.list_(real))]),
        ("error", arrow.string()),
    ]
    density = "" if options.density is None else "{}x{}".format(*options.density)
    return arrow.schema(fields, metadata={"fastgaze.model": model, "fastgaze.density": density})


class RowMaker:
    """Makes rows with one model; never raises over an image."""

    def __init__(self, predictor: Predictor, options: Options, clock: Clock) -> None:
        self._predictor, self._options, self._clock = predictor, options, clock

    def __call__(self, path: str) -> Row:
        """The row of one image; a bad one has only ``path`` and ``error``."""
        try:
            return {"path": path, **self._describe(path)}
        except (FastGazeError, OSError) as error:
            return failed(path, _one_line(str(error).removeprefix("bytes: ")) or type(error).__name__)
        except Exception as error:  # one image must not stop a million others
            return failed(path, f"{type(error).__name__}: {_one_line(str(error))}")

    def _describe(self, path: str) -> Row:
        predictor, clock = self._predictor, self._clock
        with clock("read"):
            content = read_bytes(path)
        with clock("decode"):
            picture = open_picture(content)
            photo = picture.pixels(at_least=predictor.card.working_size(picture.size))
        with clock("prepare"):
            prepared = predictor.prepare(photo, picture.size)
        with clock("network"):
            saliency = predictor.engine(prepared.pixels[None])[0, 0]
        with clock("tail"):
            log_density = predictor.finish(saliency, prepared.working, _map_size(picture.size), predictor.bias())
        with clock("describe"):
            row = self._found(GazeMap(log_density), picture.size)
        if self._options.density is not None:
            with clock("tail"):
                low = predictor.finish(saliency, prepared.working, self._options.density, predictor.bias())
                row["log_density"] = low.ravel()
        return row

    def _found(self, gaze: GazeMap, size: Size) -> Row:
        crops = [
            _window(crop, ratio, gaze.integral, size)
            for ratio in self._options.ratios
            for crop in gaze.crop(ratio, self._options.crops)
        ]
        return {
            "height": size[0],
            "width": size[1],
            "peaks": [_peak(peak, gaze.size, size) for peak in gaze.peaks(self._options.peaks)],
            "crops": crops,
            "confidence": crops[0]["confidence"] if crops else None,
            "bits": gaze.bits,
        }


def failed(path: str, error: str) -> Row:
    """The row of an image that could not be used."""
    return {"path": path, "error": error}


def _map_size(size: Size) -> Size:
    scale = min(MAP_SIDE / max(size), 1.0)
    return max(round(size[0] * scale), 1), max(round(size[1] * scale), 1)


def _peak(peak: Peak, grid: Size, size: Size) -> Row:
    """A peak of the map in pixels of the picture; its density is that of one pixel."""
    down, across = size[0] / grid[0], size[1] / grid[1]
    return {"x": peak.x * across, "y": peak.y * down, "mass": peak.mass, "density": peak.density / (down * across)}


def _window(crop: Crop, ratio: str, integral: Integral, size: Size) -> Row:
    """A window of the map in pixels of the picture, with the exact ratio, around the same centre, weighed anew."""
    down, across = size[0] / integral.size[0], size[1] / integral.size[1]
    height, width = window_size(size, parse_ratio(ratio), crop.scale)
    left, top, right, bottom = crop.box
    x = _inside((left + right) / 2 * across - width / 2, size[1] - width)
    y = _inside((top + bottom) / 2 * down - height / 2, size[0] - height)
    edges = ([y / down], [(y + height) / down], [x / across], [(x + width) / across])
    mass, area = float(integral.mass(*edges)[0, 0]), height * width / (size[0] * size[1])
    return {
        "ratio": ratio,
        "left": x,
        "top": y,
        "right": x + width,
        "bottom": y + height,
        "mass": mass,
        "confidence": max((mass - area) / (1 - area), 0.0) if area < 1 else 1.0,
        "focal_x": crop.focal_point[0] * across,
        "focal_y": crop.focal_point[1] * down,
        "scale": crop.scale,
    }


def _inside(position: float, most: int) -> int:
    return int(np.clip(round(position), 0, most))


def _one_line(text: str) -> str:
    """Without what Parquet cannot hold, such as bytes of a name that are not UTF-8."""
    return " ".join(text.encode("utf-8", "backslashreplace").decode("utf-8").split())[:500]
