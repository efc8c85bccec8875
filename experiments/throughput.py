"""Images per second of `fastgaze batch` against workers, for both engines, and where the time goes.

    python -m experiments.throughput [--model NAME_OR_ONNX] [--photos FOLDER] [--images 2000] [--engines local ray]

`steady` leaves out what happens before the first file is written: starting processes, loading the model. Runs of
different numbers of workers take turns, and the best of each counts. The numbers go to results/throughput.json.
"""

import argparse
import json
import os
import tempfile
from pathlib import Path
from time import perf_counter
from typing import Any

from experiments.stand_in import choose
from fastgaze.runtime.batch import BatchOptions, run


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


def main() -> None:
    """Measure every engine with every number of workers, in turns."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="a bundled model or an .onnx file")
    parser.add_argument("--photos", type=Path, default=Path("../shared/data/cat2000/images"))
    parser.add_argument("--images", type=int, default=2000)
    parser.add_argument("--shard", type=int, default=25)
    parser.add_argument("--engines", nargs="+", default=["local", "ray"])
    parser.add_argument("--workers", type=int, nargs="+", default=list(range(1, len(os.sched_getaffinity(0)) + 1)))
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("results/throughput.json"))
    options = parser.parse_args()
    best: dict[tuple[str, int], dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = choose(options.model, folder)
        paths = write_list(options.photos, options.images, folder / "images.txt")
        for _ in range(options.repeats):
            for engine in options.engines:
                for workers in options.workers:
                    found = measure(paths, model, engine, workers, options.shard)
                    key = (engine, workers)
                    best[key] = max(best.get(key, found), found, key=lambda row: row["steady"])
    rows = []
    for (engine, workers), row in best.items():
        row["speedup"] = row["steady"] / best[engine, min(options.workers)]["steady"]
        rows.append(row)
        split = ", ".join(f"{step} {time:.1f}" for step, time in row["milliseconds_per_image"].items())
        print(f"{engine} {workers}: {row['steady']:.1f} images/s ({row['speedup']:.2f}x), ms a worker: {split}")
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps({"model": Path(model).stem, "results": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
