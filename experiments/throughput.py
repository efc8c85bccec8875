"""Images per second of `fastgaze batch` against workers, for both engines, and where the time goes.

    python -m experiments.throughput [--model NAME_OR_ONNX] [--photos FOLDER] [--images 2000] [--engines local ray]

`steady` leaves out what happens before the first file is written: starting processes, loading the model. Runs of
different numbers of workers take turns, and the best of each counts. The numbers go to results/throughput.json.
"""

import argparse
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

from experiments import common
from experiments.common import RESULTS
from fastgaze.runtime.batch import BatchOptions, run
from fastgaze.runtime.zoo import default_name


def measure(photos: Path, model: str, engine: str, workers: int, shard: int) -> dict[str, Any]:
    """One run into a new folder."""
    times: list[tuple[float, int]] = []
    with tempfile.TemporaryDirectory() as output:
        summary = run(
            str(photos),
            output,
            model,
            BatchOptions(shard=shard),
            engine,
            workers,
            progress=lambda done, *_: times.append((perf_counter(), done)),
        )
    seconds, images = times[-1][0] - times[0][0], times[-1][1] - times[0][1]
    return summary.to_json() | {"output": "", "steady": images / seconds, "load": os.getloadavg()[0]}


def write_list(photos: Path, images: int, path: Path) -> Path:
    """A list of ``images`` different paths: links to the photographs, over and over."""
    found = sorted(file for file in photos.iterdir() if file.suffix in (".webp", ".jpg", ".jpeg", ".png"))
    links = path.with_name("links")
    links.mkdir()
    names = []
    for index in range(images):
        source = found[index % len(found)]
        link = links / f"{index:06d}{source.suffix}"
        link.symlink_to(source.resolve())
        names.append(str(link))
    path.write_text("\n".join(names) + "\n")
    return path


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = common.make_parser(__doc__, __file__, out=RESULTS / "throughput.json")
    parser.add_argument("--model", default=default_name(), help="a bundled model or an .onnx file")
    parser.add_argument("--photos", type=Path, help="folder of pictures; those of CAT2000 by default")
    parser.add_argument("--images", type=int, default=2000)
    parser.add_argument("--shard", type=int, default=25)
    parser.add_argument("--engines", nargs="+", default=["local", "ray"])
    parser.add_argument("--workers", type=int, nargs="+", default=list(range(1, len(os.sched_getaffinity(0)) + 1)))
    parser.add_argument("--repeats", type=int, default=2)
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure every engine with every number of workers, in turns."""
    options = common.parse(make_parser(), arguments)
    record = common.about(options, model=Path(options.model).stem, images=options.images, shard=options.shard)
    best: dict[tuple[str, int], dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        photos = options.photos or options.data / "cat2000" / "images"
        paths = write_list(photos, options.images, folder / "images.txt")
        for _ in range(options.repeats):
            for engine in options.engines:
                for workers in options.workers:
                    found = measure(paths, options.model, engine, workers, options.shard)
                    key = (engine, workers)
                    best[key] = max(best.get(key, found), found, key=lambda row: row["steady"])
    rows = []
    for (engine, workers), row in best.items():
        row["speedup"] = row["steady"] / best[engine, min(options.workers)]["steady"]
        rows.append(row)
        split = ", ".join(f"{step} {time:.1f}" for step, time in row["milliseconds_per_image"].items())
        print(f"{engine} {workers}: {row['steady']:.1f} images/s ({row['speedup']:.2f}x), ms per image: {split}")
    common.write_record(options.out, record | {"results": rows})


if __name__ == "__main__":
    main()
