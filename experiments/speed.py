"""How much faster than DeepGaze II: every bundled model on one core, in one interleaved run.

    python -m experiments.speed [--rounds 15] [--score --data ../shared/data [--limit N]]

A 384x512 RGB array in, a 384x512 log density out, nothing decoded. DeepGaze II runs in eager torch (fp32, its input
already normalised: network and tail); the others run through the runtime with one thread, at their own working size and
with their network fed 384x512. Rounds go through all rows; within a round a row runs a few times and its median counts,
and ratios are formed within a round. Ratios are those of CPU time, which other processes disturb least; those of wall
time stand beside them. The peer is Twitter's FastGaze at its own size, 640 wide. --score adds AUC, NSS and bits on
salicon/val for every engine: measured for OpenVINO, from the model's card for onnxruntime unless --limit is given.
The numbers go to results/speed.json; those of every bundled model at its own size in onnxruntime also go beside the
models, to times.json, which `fastgaze models` shows.
"""

import os

os.environ.update({f"{library}_NUM_THREADS": "1" for library in ("OMP", "OPENBLAS", "MKL")})

import argparse
import json
import platform
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from fastgaze.core.progress import Clock, Seconds
from fastgaze.core.sizes import size_to_json
from fastgaze.data import formats
from fastgaze.evaluation.bench import PRODUCT, at_size, matrix_product, sample_picture, timed_prediction
from fastgaze.evaluation.evaluate import evaluate
from fastgaze.evaluation.models import RuntimeModel
from fastgaze.evaluation.peers import TwitterFastGaze
from fastgaze.networks import GazeModel, create_model, load_checkpoint
from fastgaze.runtime.predictor import Predictor, load
from fastgaze.runtime.zoo import BUNDLED, models, write_times

SIZE = (384, 512)
STEPS = ("prepare", "network", "tail")
SCORES = ("auc", "nss", "log_likelihood_bits")
TEACHER, PEER, LIMIT = "deepgaze2", "twitter-fastgaze", "matrix product"
Pixels = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Row:
    """One line of the table and the function that runs it once."""

    name: str
    engine: str
    precision: str
    network_size: tuple[int, int]
    gflop: float
    run: Callable[[], Clock]
    predictor: Predictor | None = None
    own_size: bool = False
    """Whether the network works at the size that the model chooses itself."""


def deepgaze2(checkpoint: Path) -> Row:
    """The reference; without its checkpoint the weights are fresh, which costs the same time."""
    model: Any = load_checkpoint(checkpoint)[0] if checkpoint.is_file() else create_model(TEACHER)
    assert isinstance(model, GazeModel)
    model.eval()
    image = torch.randn(1, 3, *SIZE, generator=torch.Generator().manual_seed(0))

    def run() -> Clock:
        clock = Clock()
        with torch.inference_mode():
            with clock("network"):
                saliency = model.network(image)
            with clock("tail"):
                model.tail(saliency, SIZE, SIZE)
        return clock

    return Row(TEACHER, "torch eager", "fp32", SIZE, 239.07 * SIZE[0] * SIZE[1] / (480 * 640), run)


def bundled(picture: Pixels) -> list[Row]:
    """Every bundled file in every engine that this CPU has, at its own size, then with its network fed ``SIZE``."""
    files = [(model.name, model.precision) for model in models()]
    engines = ["onnxruntime", *_openvino_engines()]
    rows = []
    for fed in (None, SIZE):
        for engine in engines:
            for name, precision in files:
                if engine == "openvino-bf16" and precision == "int8":
                    continue
                predictor = load(name, engine, threads=1)
                shown = "bf16" if engine == "openvino-bf16" else precision
                rows.append(_bundled(predictor, fed, engine, shown, picture))
    return rows


def _bundled(own: Predictor, fed: tuple[int, int] | None, engine: str, precision: str, picture: Pixels) -> Row:
    predictor = own if fed is None else at_size(own, fed)
    working = predictor.card.working_size(SIZE)
    gflop = predictor.card.gflop(working)
    return Row(
        own.name,
        engine.removesuffix("-bf16"),
        precision,
        working,
        gflop,
        partial(timed_prediction, predictor, picture),
        predictor,
        fed is None,
    )


def _openvino_engines() -> list[str]:
    try:
        import openvino
    except ImportError:
        return []
    has_bf16 = "BF16" in openvino.Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")
    return ["openvino", "openvino-bf16"] if has_bf16 else ["openvino"]


def peer(path: Path, picture: Pixels) -> Row:
    """Twitter's FastGaze at the width that it is scored at; its blur and resampling count as tail."""
    model = TwitterFastGaze(path, threads=1)

    def run() -> Clock:
        clock = Clock()
        with clock("prepare"):
            pixels = model.prepare(picture)
        with clock("network"):
            output = model.network(pixels)
        with clock("tail"):
            model.finish(output, SIZE, None)
        return clock

    height, width = model.prepare(picture).shape[2:]
    return Row(PEER, "onnxruntime", "fp32", (height, width), 19.6 * height * width / (480 * 640), run)


def product() -> Row:
    """What one core can do in fp32, as a row whose network is a large matrix product."""
    return Row(LIMIT, "numpy", "fp32", (PRODUCT, PRODUCT), 2 * PRODUCT**3 / 1e9, matrix_product())


def interleave(rows: list[Row], rounds: int, repeats: int) -> npt.NDArray[np.float64]:
    """Milliseconds (rows, rounds, steps, 2: wall and CPU): every row in every round, the median of ``repeats``."""
    for row in rows:  # the first calls build matrices and allocate
        _once(row, 1 if row.name == TEACHER else 3)
    found = [[_once(row, 1 if row.name == TEACHER else repeats) for row in rows] for _ in range(rounds)]
    return np.array(found).transpose(1, 0, 2, 3)


def _once(row: Row, repeats: int) -> npt.NDArray[np.float64]:
    """(steps, 2) of the run that took the median CPU time."""
    runs = 1e3 * np.array([_steps(row.run()) for _ in range(repeats)])
    middle = np.argsort(runs[:, :, 1].sum(axis=1))[repeats // 2]
    steps: npt.NDArray[np.float64] = runs[middle]
    return steps


def _steps(clock: Clock) -> list[tuple[float, float]]:
    """(wall, CPU) seconds of every one of ``STEPS``; what an array needs before it is scaled counts as preparation."""
    times = dict(clock.steps)
    times["prepare"] = times.get("prepare", Seconds()) + times.pop("decode", Seconds())
    return [(times.get(step, Seconds()).wall, times.get(step, Seconds()).cpu) for step in STEPS]


def figures(rows: list[Row], times: npt.NDArray[np.float64]) -> list[dict[str, Any]]:
    """The table: times (rows, rounds, steps, 2) as medians, spreads and ratios."""
    totals = times.sum(axis=2)  # (rows, rounds, 2)
    names = [row.name for row in rows]
    reference, other, limit = (names.index(name) if name in names else None for name in (TEACHER, PEER, LIMIT))
    table = []
    for index, row in enumerate(rows):
        entry = _facts(row) | _times(times[index])
        for key, base in (("deepgaze2", reference), ("peer", other)):
            if base is not None and index != limit:
                entry |= _ratio(f"ratio_to_{key}", totals[base] / totals[index])
        if limit is not None:
            rate, peak = (rows[i].gflop / times[i, :, 1, 1] for i in (index, limit))
            entry |= {"gflop_per_s": round(1e3 * float(np.median(rate)), 1), "peak_share": _median(rate / peak)}
        table.append(entry)
    return table


def _facts(row: Row) -> dict[str, Any]:
    facts = {key: getattr(row, key) for key in ("name", "engine", "precision", "own_size")}
    return facts | {"threads": 1, "network_size": list(row.network_size), "gflop": round(row.gflop, 4)}


def _times(steps: npt.NDArray[np.float64]) -> dict[str, Any]:
    wall, cpu = steps.sum(axis=1).T
    return {
        "median_ms": _median(wall),
        "spread_ms": [round(float(edge), 3) for edge in np.percentile(wall, [10, 90])],
        "cpu_ms": _median(cpu),
        "split_cpu_ms": {step: _median(steps[:, i, 1]) for i, step in enumerate(STEPS)},
    }


def _ratio(name: str, ratios: npt.NDArray[np.float64]) -> dict[str, Any]:
    """ratios (rounds, 2: wall and CPU)."""
    spread = [round(float(edge), 2) for edge in np.percentile(ratios[:, 1], [10, 90])]
    return {name: _median(ratios[:, 1]), f"{name}_spread": spread, f"{name}_wall": _median(ratios[:, 0])}


def _median(values: npt.NDArray[np.float64]) -> float:
    return round(float(np.median(values)), 3)


def scores(row: Row, data: Path, limit: int | None) -> dict[str, float]:
    """AUC, NSS and bits over uniform on salicon/val (tuebingen, own centre bias)."""
    assert row.predictor is not None
    known = row.predictor.card.scores.get("salicon-val", {}).get("means")
    if row.engine == "onnxruntime" and limit is None and known:
        means = known
    else:
        fixations = formats.load("npz", data / "salicon/val")
        only = None if limit is None else np.linspace(0, len(fixations) - 1, limit).astype(int)
        means = evaluate(RuntimeModel(row.predictor), fixations, resamples=1, only=only).means
    return {metric: round(float(means[metric]), 4) for metric in SCORES}


def machine() -> dict[str, Any]:
    """Processor, cores, versions and how busy the machine was when the run began."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").is_file() else []
    name = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "")
    packages = {package: version(package) for package in ("torch", "onnxruntime", "numpy")}
    if _openvino_engines():
        packages["openvino"] = version("openvino")
    facts = {"processor": name or platform.processor(), "cores": os.cpu_count(), "load": round(os.getloadavg()[0], 2)}
    return facts | {"python": platform.python_version(), **packages}


def line(entry: dict[str, Any]) -> str:
    """One printed line."""
    split = " ".join(f"{entry['split_cpu_ms'][step]:8.2f}" for step in STEPS)
    size = "x".join(str(side) for side in entry["network_size"])
    head = f"{entry['name']:18} {entry['engine']:12} {entry['precision']:5} {size:>9}"
    ratios = f"{entry.get('ratio_to_deepgaze2', 0):8.1f} {entry.get('ratio_to_peer', 0):7.2f}"
    tail = " ".join(f"{entry['scores'][metric]:.3f}" for metric in SCORES) if "scores" in entry else ""
    times = f"{entry['median_ms']:9.2f} {entry['cpu_ms']:9.2f}"
    return f"{head} {times} {split} {ratios} {entry.get('peak_share', 0):6.2f}  {tail}"


HEAD = (
    f"{'':18} {'':12} {'':5} {'network':>9} {'wall ms':>9} {'CPU ms':>9} {'prepare':>8} {'network':>8} {'tail':>8} "
    f"{'x teach':>8} {'x peer':>7} {'peak':>6}  {'AUC   NSS   bits':>17}"
)


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--repeats", type=int, default=5, help="runs of a row within a round")
    parser.add_argument("--checkpoint", type=Path, default=Path("runs/teacher/single.safetensors"))
    parser.add_argument("--peer", type=Path, default=Path("../shared/peers/twitter-fastgaze.vxm"))
    parser.add_argument("--only", nargs="*", help="bundled models to measure; all by default")
    parser.add_argument("--score", action="store_true")
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--limit", type=int, help="score only so many images, evenly spread")
    parser.add_argument("--out", type=Path, default=Path("results/speed.json"))
    return parser.parse_args()


def main() -> None:
    """Measure, print the table, keep it."""
    options = parse()
    torch.set_num_threads(1)
    picture, about = sample_picture(SIZE), machine()
    rows = [row for row in bundled(picture) if not options.only or row.name in options.only]
    if options.peer.is_file():
        rows.insert(0, peer(options.peer, picture))
    rows = [product(), deepgaze2(options.checkpoint), *rows]
    table = figures(rows, interleave(rows, options.rounds, options.repeats))
    print(HEAD, flush=True)
    for row, entry in zip(rows, table, strict=True):
        if options.score and row.own_size:
            entry["scores"] = scores(row, options.data, options.limit)
        print(line(entry), flush=True)
    result = {"picture": list(SIZE), "rounds": options.rounds, "machine": about, "rows": table}
    if options.score:
        result["scored_on"] = {"data": "salicon/val", "images": options.limit or "all"}
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(result, indent=2) + "\n")
    keep_times(table, about)


def keep_times(table: list[dict[str, Any]], about: dict[str, Any]) -> None:
    """CPU milliseconds of the bundled models at their own size, for `fastgaze models` and the README."""
    own = {row["name"]: row["cpu_ms"] for row in table if row["own_size"] and row["engine"] == "onnxruntime"}
    conditions = {"machine": about, "engine": "onnxruntime", "threads": 1, "picture": size_to_json(SIZE)}
    write_times(BUNDLED, own, conditions)


if __name__ == "__main__":
    main()
