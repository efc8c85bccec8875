"""From a file to an answer: what the product adds to decoding and the network, on a 12-megapixel JPEG and one thread.

    python -m experiments.file_to_answer [--photo FILE] [--model NAME] [--rounds 15]

Paths, interleaved within every round: decoding the file at 1/8 and running the network, which is the least that any
answer needs; the path to the box of a 16:9 crop; the path to peaks and windows of three ratios; the path to the bytes of
an overlay PNG of 1600 pixels. CPU milliseconds; ratios are formed within a round. Without --photo a photograph of the
package is enlarged to 4000x3000 and given grain. The numbers go to results/file_to_answer.json.
"""

import os

os.environ.update({f"{library}_NUM_THREADS": "1" for library in ("OMP", "OPENBLAS", "MKL")})

import argparse
import io
import json
import platform
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from fastgaze.core.pictures import encode_png, open_picture
from fastgaze.core.sizes import format_size, shrunk, size_to_json
from fastgaze.runtime.gazemap import DISPLAY, GRID
from fastgaze.runtime.predictor import Predictor, load, prepare

EXAMPLE = Path(__file__).parents[1] / "src/fastgaze/app/server/examples/coffee.jpg"
SIZE = (3000, 4000)
GRAIN = 5.0
QUALITY = 88
LEAST = "decode and network"
BOUNDS = {"crop box": 1.4, "overlay PNG": 4.0}
"""The most that a path may take, in times of the least."""


def sample_photo() -> bytes:
    """A JPEG of 12 megapixels with grain, as a camera leaves it."""
    with Image.open(EXAMPLE) as photo:
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


def cpu_ms(work: Callable[[], None]) -> float:
    """CPU milliseconds of one call."""
    start = process_time()
    work()
    return 1e3 * (process_time() - start)


def measure(predictor: Predictor, content: bytes, rounds: int) -> dict[str, npt.NDArray[np.float64]]:
    """CPU milliseconds by path, (rounds,)."""
    picture = open_picture(content)
    working = predictor.card.working_size(picture.size)
    pixels = prepare(picture.pixels(working), working, predictor.card)
    paths: dict[str, Callable[[], None]] = {
        "decode at 1/8": lambda: np.asarray(open_picture(content).pixels(working)).size and None,
        "network": partial(network_alone, predictor, pixels),
        "crop box": partial(crop_box, predictor, content),
        "description": partial(description, predictor, content),
        "overlay PNG": partial(overlay_png, predictor, content),
    }
    for work in paths.values():  # the first calls build matrices and allocate
        work()
    found = [{name: cpu_ms(work) for name, work in paths.items()} for _ in range(rounds)]
    times = {name: np.array([row[name] for row in found]) for name in paths}
    return {LEAST: times.pop("decode at 1/8") + times.pop("network"), **times}


def figures(times: dict[str, npt.NDArray[np.float64]]) -> dict[str, Any]:
    """Medians and ranges of milliseconds and of their ratio to the least."""
    table = {}
    for name, values in times.items():
        ratio = values / times[LEAST]
        table[name] = {"cpu_ms": _spread(values), "times_the_least": _spread(ratio)}
        if name in BOUNDS:
            table[name]["bound"] = BOUNDS[name]
    return table


def _spread(values: npt.NDArray[np.float64]) -> dict[str, float]:
    low, middle, high = np.percentile(values, [10, 50, 90])
    return {"median": round(float(middle), 2), "p10": round(float(low), 2), "p90": round(float(high), 2)}


def machine() -> dict[str, Any]:
    """Processor, cores, versions and how busy the machine was when the run began."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").is_file() else []
    name = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "")
    packages = {package: version(package) for package in ("onnxruntime", "numpy", "pillow")}
    facts = {"processor": name or platform.processor(), "cores": os.cpu_count(), "load": round(os.getloadavg()[0], 2)}
    return facts | {"python": platform.python_version(), **packages}


def main() -> None:
    """Measure, print the table, keep it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--photo", type=Path, help="a large JPEG in place of the enlarged example")
    parser.add_argument("--model", help="a bundled model or an .onnx file")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--out", type=Path, default=Path("results/file_to_answer.json"))
    options = parser.parse_args()
    content = sample_photo() if options.photo is None else options.photo.read_bytes()
    predictor, size, about = load(options.model, threads=1), open_picture(content).size, machine()
    table = figures(measure(predictor, content, options.rounds))
    print(f"{predictor.name}, onnxruntime, 1 thread, {format_size(size)}, {len(content) / 1e6:.1f} MB, load {about['load']}")
    for name, row in table.items():
        time, ratio = row["cpu_ms"], row["times_the_least"]
        bound = f", at most {row['bound']:g}" if "bound" in row else ""
        print(
            f"{name:20} {time['median']:8.1f} ms ({time['p10']:.1f} to {time['p90']:.1f})   "
            f"{ratio['median']:5.2f} times ({ratio['p10']:.2f} to {ratio['p90']:.2f}){bound}"
        )
    facts = {"model": predictor.name, "engine": "onnxruntime", "threads": 1, "rounds": options.rounds, "grid": GRID}
    photo = {"picture": size_to_json(size), "bytes": len(content), "machine": about}
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps({**facts, **photo, "paths": table}, indent=2) + "\n")


if __name__ == "__main__":
    main()
