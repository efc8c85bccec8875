"""Figure 2 and Table 2: every model of a list scored on CAT2000 and SALICON val, and timed on one core.

    python -m experiments.front experiments/configs/front.toml --data ../shared/data            scores what is new
    python -m experiments.front experiments/configs/front.toml --times                          times all of them, on a quiet machine

Scores: `tuebingen` protocol, the set's own centre bias, at the working size of the model (240x320 unless the list says
otherwise); students exported and run by onnxruntime, the teacher's ensemble in torch. A file that has not changed is
not scored twice. Times: network and tail, a 384x512 input and output, one thread, every model in every round in
onnxruntime and in eager torch, and ratios to one DeepGaze II (not the ensemble) in eager torch formed within a round.
The numbers go to results/front.json.
"""

import os

os.environ.update({f"{library}_NUM_THREADS": "1" for library in ("OMP", "OPENBLAS", "MKL")})

import argparse
import json
import platform
import tempfile
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from time import perf_counter, process_time, strftime
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from experiments.front_entries import Entry, describe, exported, open_scored, read_entries, single_model
from fastgaze.core.errors import FastGazeError
from fastgaze.data import formats
from fastgaze.data.fixations import FixationSet
from fastgaze.evaluation.evaluate import LogDensityModel, evaluate
from fastgaze.evaluation.peers import TwitterFastGaze
from fastgaze.networks import GazeModel
from fastgaze.runtime.predictor import Predictor, load

SIZE = (384, 512)
# Name in the record, folder, protocol.
SETS = (
    ("cat2000", "cat2000", "tuebingen"),
    ("salicon-val", "salicon/val", "tuebingen"),
    ("cat2000-legacy", "cat2000", "mit-legacy"),
)
DIGITS = 4
Run = Callable[[], object]
Record = dict[str, Any]


# Scores


def score_all(entries: list[Entry], record: Record, data: Path, limit: int | None, out: Path, threads: int) -> None:
    """Add what is missing to ``record``, model by model, and keep it after each."""
    torch.set_num_threads(threads)
    fixations = {folder: formats.load("npz", data / folder) for _, folder, _ in SETS}
    for entry in entries:
        own = own_record(record, entry)
        with tempfile.TemporaryDirectory() as folder:
            model: LogDensityModel | None = None
            for name, source, protocol in SETS:
                wanted = min(limit or len(fixations[source]), len(fixations[source]))
                known = own["scores"].get(name, {}).get("asked") == wanted
                if known or (protocol == "mit-legacy" and not entry.legacy):
                    continue
                model = model or open_scored(entry, Path(folder), threads)
                own["scores"][name] = score(model, fixations[source], protocol, wanted, record, name)
                print(f"{entry.name} {name}: {shown(own['scores'][name]['means'])}", flush=True)
                write(record, out)
    write(record, out)


def own_record(record: Record, entry: Entry) -> Record:
    """The model's part of ``record``; an empty one if its file or its working size is new."""
    own: Record = record["models"].get(entry.name, {})
    digest = entry.sha256
    if (own.get("sha256"), own.get("pixels")) != (digest, entry.pixels):
        own = {"sha256": digest, "pixels": entry.pixels, **describe(entry), "scores": {}}
    own |= {"family": entry.family, "kind": entry.kind, "file": str(entry.path)}
    record["models"][entry.name] = own
    return own


def score(
    model: LogDensityModel, fixations: FixationSet, protocol: str, wanted: int, record: Record, name: str
) -> Record:
    """Means and intervals of every metric over ``wanted`` evenly spaced images; baselines go into ``record``."""
    only = np.unique(np.linspace(0, len(fixations) - 1, wanted).round().astype(int))
    result = evaluate(model, fixations, protocol, only=only)
    baselines = {base: rounded(means) for base, means in result.baselines.items()}
    record["baselines"][name] = {"images": result.images, **baselines}
    intervals = {metric: [round(edge, DIGITS) for edge in pair] for metric, pair in result.intervals.items()}
    facts = {"asked": wanted, "images": result.images, "protocol": protocol}
    return facts | {"means": rounded(result.means), "intervals": intervals}


def rounded(means: dict[str, float]) -> dict[str, float]:
    return {metric: round(value, DIGITS) for metric, value in means.items()}


def shown(means: dict[str, float]) -> str:
    return ", ".join(f"{metric} {value:.3f}" for metric, value in means.items())


# Times


def time_all(entries: list[Entry], record: Record, rounds: int, repeats: int) -> None:
    """Time every model anew, all in turn within each round, and put it into ``record``."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        runs: dict[tuple[str, str], Run] = {}
        for entry in entries:
            runs |= {(entry.name, engine): run for engine, run in engines(entry, Path(folder)).items()}
        teacher = next((entry.name for entry in entries if entry.kind == "teacher"), None)
        times = interleave(runs, rounds, repeats)
    for entry in entries:
        own_record(record, entry)["times"] = {
            engine: figures(key, times, teacher) for key in times if key[0] == entry.name for engine in [key[1]]
        }
    record["timing"] = {"size": list(SIZE), "rounds": rounds, "threads": 1, "machine": machine()}


def engines(entry: Entry, folder: Path) -> dict[str, Run]:
    """What is timed of a model, by engine; ``own size`` is onnxruntime at the model's working size."""
    photo = np.random.default_rng(0).integers(0, 256, (*SIZE, 3), dtype=np.uint8)
    if entry.path.suffix == ".vxm":
        peer = TwitterFastGaze(entry.path, None, threads=1)
        return {"onnxruntime": lambda: peer.log_density(photo, SIZE, None)}
    model = single_model(entry.path)
    try:
        predictor = load(exported(entry, folder, half=False), threads=1)
    except FastGazeError as error:
        print(f"{entry.name}: timed in torch only, {error}", flush=True)
        return {"torch": in_torch(model)}
    working = predictor.card.working_size(SIZE)
    small = at(predictor, working)
    return {"torch": in_torch(model), "onnxruntime": at(predictor, SIZE), "own size": small}


def in_torch(model: GazeModel) -> Run:
    """One forward pass of network and tail in eager torch, channels first, fp32."""
    image = torch.randn(1, 3, *SIZE, generator=torch.Generator().manual_seed(0))

    def run() -> None:
        with torch.inference_mode():
            model(image)

    return run


def at(predictor: Predictor, working: tuple[int, int]) -> Run:
    """Network at ``working`` and tail to ``SIZE`` as the product runs them."""
    image = np.random.default_rng(0).standard_normal((3, *working)).astype(np.float32)
    return lambda: predictor.see(image).at(SIZE).log_density


def interleave(
    runs: dict[tuple[str, str], Run], rounds: int, repeats: int
) -> dict[tuple[str, str], npt.NDArray[np.float64]]:
    """Milliseconds (rounds, 2: wall and CPU) of each; within a round the median of ``repeats``, one if it is slow."""
    slow = {key: once(run)[0] + once(run)[0] > 400 for key, run in runs.items()}  # also warms up
    found: dict[tuple[str, str], list[npt.NDArray[np.float64]]] = {key: [] for key in runs}
    for _ in range(rounds):
        for key, run in runs.items():
            found[key].append(np.median([once(run) for _ in range(1 if slow[key] else repeats)], axis=0))
    return {key: np.array(values) for key, values in found.items()}


def once(run: Run) -> tuple[float, float]:
    """(wall, CPU) milliseconds of one call."""
    wall, cpu = perf_counter(), process_time()
    run()
    return 1e3 * (perf_counter() - wall), 1e3 * (process_time() - cpu)


def figures(
    key: tuple[str, str], times: dict[tuple[str, str], npt.NDArray[np.float64]], teacher: str | None
) -> dict[str, float]:
    """Medians, and ratios of CPU time to DeepGaze II in eager torch and in the same engine."""
    wall, cpu = times[key].T
    facts = {"cpu_ms": round(float(np.median(cpu)), 3), "wall_ms": round(float(np.median(wall)), 3)}
    for name, engine in (("ratio_to_deepgaze2", "torch"), ("ratio_same_engine", key[1])):
        if (teacher, engine) in times and teacher is not None:
            facts[name] = round(float(np.median(times[teacher, engine][:, 1] / cpu)), 3)
    return facts


def machine() -> Record:
    """Processor, cores, versions, date, and how busy the machine was."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").is_file() else []
    name = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "")
    packages = {package: version(package) for package in ("torch", "onnxruntime", "numpy")}
    facts = {"processor": name or platform.processor(), "cores": os.cpu_count(), "load": round(os.getloadavg()[0], 2)}
    return facts | {"date": strftime("%Y-%m-%d"), **packages}


# The record


def read(path: Path) -> Record:
    if path.is_file():
        record: Record = json.loads(path.read_text())
        return record
    return {"models": {}, "baselines": {}}


def write(record: Record, path: Path) -> None:
    """Replace the file in one step."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    part.write_text(json.dumps(record, indent=1) + "\n")
    part.replace(path)


def main() -> None:
    """Score or time."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", type=Path, help="TOML: a [[model]] each with name, path, family and kind")
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--limit", type=int, help="score only so many images a set, evenly spaced")
    parser.add_argument("--only", nargs="*", help="names; all by default")
    parser.add_argument("--times", action="store_true", help="time, and score nothing")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2, help="while scoring")
    parser.add_argument("--out", type=Path, default=Path("results/front.json"))
    options = parser.parse_args()
    entries, record = read_entries(options.models, options.only), read(options.out)
    if options.times:
        time_all(entries, record, options.rounds, options.repeats)
        write(record, options.out)
    else:
        score_all(entries, record, options.data, options.limit, options.out, options.threads)
    for entry in entries:
        print(json.dumps({"name": entry.name, **record["models"][entry.name].get("times", {})}))


if __name__ == "__main__":
    main()
