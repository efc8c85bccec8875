"""From a file to an answer: what the product adds to decoding and the network, on a 12-megapixel JPEG and one thread.

    python -m experiments.file_to_answer [--photo FILE] [--model NAME] [--rounds 15]

Paths, interleaved within every round: decoding the file at 1/8 and running the network, which is the least that any
answer needs; the path to the box of a 16:9 crop; the path to peaks and windows of three ratios; the path to the bytes
of an overlay PNG of 1600 pixels. CPU milliseconds; ratios are formed within a round. Without --photo a photograph of
the package is enlarged to 4000x3000 and given grain. The numbers go to results/file_to_answer.json.
"""

import argparse
import io
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from experiments import common
from experiments.common import EXAMPLES, RESULTS
from experiments.timing import cpu, interleave, timed
from fastgaze.core.encoding import encode_png
from fastgaze.core.pictures import open_picture
from fastgaze.core.sizes import format_size, shrunk, size_to_json
from fastgaze.runtime.gazemap import DISPLAY, GRID
from fastgaze.runtime.predictor import Predictor, load
from fastgaze.runtime.resize import prepare

SIZE = (3000, 4000)
GRAIN = 5.0
QUALITY = 88
LEAST = "decode and network"
BOUNDS = {"crop box": 1.4, "overlay PNG": 4.0}
"""The most that a path may take, in times of the least."""


def sample_photo() -> bytes:
    """A JPEG of 12 megapixels with grain, as a camera leaves it."""
    with Image.open(EXAMPLES / "coffee.jpg") as photo:
        large = np.asarray(photo.convert("RGB").resize(SIZE[::-1], Image.Resampling.LANCZOS), dtype=np.float32)
    grain = np.random.default_rng(0).normal(0, GRAIN, (*SIZE, 1)).astype(np.float32)
    buffer = io.BytesIO()
    Image.fromarray((large + grain).clip(0, 255).astype(np.uint8)).save(buffer, "JPEG", quality=QUALITY)
    return buffer.getvalue()


def least(predictor: Predictor, content: bytes) -> None:
    """Decode as small as the network allows, and run it."""
    predictor.look(content)


def network_alone(predictor: Predictor, pixels: npt.NDArray[np.float32]) -> None:
    """The network on pixels that are ready."""
    predictor.see(pixels)


def crop_box(predictor: Predictor, content: bytes) -> None:
    """The window that a thumbnail service asks for."""
    predictor.look(content).at().crop("16:9")


def description(predictor: Predictor, content: bytes) -> None:
    """All that the JSON of one picture says."""
    predictor.look(content).at().to_json(ratios=["16:9", "1:1", "4:5"], n=3)


def overlay_png(predictor: Predictor, content: bytes) -> None:
    """The heat map over the picture, as a file for the screen."""
    picture = open_picture(content)
    encode_png(predictor.look(picture, shrunk(picture.size, DISPLAY)).at().overlay())


def measure(predictor: Predictor, content: bytes, rounds: int) -> dict[str, npt.NDArray[np.float64]]:
    """CPU milliseconds by path, (rounds,)."""
    picture = open_picture(content)
    working = predictor.card.working_size(picture.size)
    pixels = prepare(picture.pixels(working), working, predictor.card)
    paths: dict[str, Callable[[], object]] = {
        "decode at 1/8": lambda: open_picture(content).pixels(working),
        "network": partial(network_alone, predictor, pixels),
        "crop box": partial(crop_box, predictor, content),
        "description": partial(description, predictor, content),
        "overlay PNG": partial(overlay_png, predictor, content),
    }
    found = interleave({name: timed(work) for name, work in paths.items()}, rounds, 1)
    times = {name: cpu(values) for name, values in found.items()}
    return {LEAST: times.pop("decode at 1/8") + times.pop("network"), **times}


def figures(times: dict[str, npt.NDArray[np.float64]]) -> dict[str, Any]:
    """Medians and ranges of milliseconds and of their ratio to the least."""
    table: dict[str, Any] = {}
    for name, values in times.items():
        ratio = values / times[LEAST]
        table[name] = {"cpu_ms": _spread(values), "times_the_least": _spread(ratio)}
        if name in BOUNDS:
            table[name]["bound"] = BOUNDS[name]
    return table


def _spread(values: npt.NDArray[np.float64]) -> dict[str, float]:
    low, middle, high = np.percentile(values, [10, 50, 90])
    return {"median": round(float(middle), 2), "p10": round(float(low), 2), "p90": round(float(high), 2)}


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = common.make_parser(__doc__, __file__, data=False, out=RESULTS / "file_to_answer.json", rounds=15)
    parser.add_argument("--photo", type=Path, help="a large JPEG in place of the enlarged example")
    parser.add_argument("--model", help="a bundled model or an .onnx file")
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print the table, keep it."""
    options = common.parse(make_parser(), arguments)
    content = sample_photo() if options.photo is None else options.photo.read_bytes()
    predictor, size = load(options.model, threads=1), open_picture(content).size
    record = common.about(options, engine="onnxruntime", threads=1, rounds=options.rounds, grid=GRID)
    table = figures(measure(predictor, content, options.rounds))
    load_then = record["machine"]["load"]
    print(f"{predictor.name}, 1 thread, {format_size(size)}, {len(content) / 1e6:.1f} MB, load {load_then}")
    for name, row in table.items():
        time, ratio = row["cpu_ms"], row["times_the_least"]
        bound = f", at most {row['bound']:g}" if "bound" in row else ""
        print(
            f"{name:20} {time['median']:8.1f} ms ({time['p10']:.1f} to {time['p90']:.1f})   "
            f"{ratio['median']:5.2f} times ({ratio['p10']:.2f} to {ratio['p90']:.2f}){bound}"
        )
    photo = {"model": predictor.name, "picture": size_to_json(size), "bytes": len(content)}
    common.write_record(options.out, {**record, **photo, "paths": table})


if __name__ == "__main__":
    main()
