"""How much faster than DeepGaze II: every bundled model and the paper's line on one core, in one interleaved run.

    python -m experiments.speed            add a run to results/speed.json
    python -m experiments.speed --score    and score every engine

A 512x384 RGB array in, a 512x384 log density out, nothing decoded. DeepGaze II runs in eager torch with its network fed
512x384, as the paper measured it, and in onnxruntime at the size at which it is scored. The others run through the
runtime with one thread, at the size at which they are scored and with their network fed 512x384. So a model has two
ratios: to DeepGaze II in eager torch, and to DeepGaze II in the same engine, each at its own scored size. Ratios are
those of CPU time, formed within a round. The peer is Twitter's FastGaze at its own size, 640 wide.

Every run is kept with the load that the machine had: the report shows medians and ranges over all of them. --score adds
AUC, NSS and bits on salicon/val for every engine, from the model's card for onnxruntime unless --limit is given.
"""

import argparse
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from experiments import common, scoring
from experiments.common import PEER, RESULTS, RUNS, Record
from experiments.entries import REFERENCE
from experiments.reporting.speeds import bundled_speeds
from experiments.starts import LINE, model_file
from experiments.timing import STEPS, Timed, Times, cpu, interleave, median, spread, wall
from fastgaze.core.cost import flops
from fastgaze.core.progress import Clock, Seconds
from fastgaze.core.sizes import Size, size_to_json
from fastgaze.core.spec import GazeSpec
from fastgaze.evaluation.bench import PRODUCT, at_size, matrix_product, sample_picture, timed_prediction
from fastgaze.evaluation.models import RuntimeModel
from fastgaze.evaluation.peers import TwitterFastGaze
from fastgaze.networks import GazeModel, create_model, load_checkpoint
from fastgaze.onnx.write import Facts, export_onnx
from fastgaze.runtime.card import identity
from fastgaze.runtime.predictor import Predictor, load
from fastgaze.runtime.zoo import BUNDLED, models, write_times

SIZE = (384, 512)
METRICS = ("auc", "nss", "log_likelihood_bits")
TEACHER, PEER_NAME, LIMIT = "deepgaze2", "twitter-fastgaze", "matrix product"
PEER_GFLOP = 19.58  # at 640x480
Pixels = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Row:
    """One line of the table and the function that runs it once."""

    name: str
    engine: str
    precision: str
    network_size: Size
    gflop: float
    """Of one run."""
    run: Timed
    predictor: Predictor | None = None
    own_size: bool = False
    """Whether the network works at the size that the model chooses itself, at which it is scored."""
    identity: str = ""
    """Of the model file; times of another file of the same name do not count."""


def deepgaze2(checkpoint: Path, folder: Path, picture: Pixels) -> list[Row]:
    """The reference in both forms; without its checkpoint the weights are fresh, which takes the same time."""
    model = load_checkpoint(checkpoint)[0] if checkpoint.is_file() else create_model(TEACHER)
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

    assert isinstance(model.spec, GazeSpec)
    eager = Row(TEACHER, "torch eager", "fp32", SIZE, flops(model.spec, SIZE) / 1e9, run)
    file = folder / f"{TEACHER}.onnx"
    export_onnx(model, file, Facts(TEACHER))
    return [eager, _runtime(file, None, "onnxruntime", "fp32", picture)]


def bundled(picture: Pixels, only: Sequence[str] | None) -> list[Row]:
    """Every bundled file in every engine that this CPU has, at its own size, then with its network fed ``SIZE``."""
    files = [(model.name, model.precision) for model in models() if not only or model.name in only]
    rows = []
    for fed in (None, SIZE):
        for engine in ("onnxruntime", *_openvino_engines()):
            for name, precision in files:
                if engine == "openvino-bf16" and precision == "int8":
                    continue
                shown = "bf16" if engine == "openvino-bf16" else precision
                rows.append(_runtime(model_file(name), fed, engine, shown, picture))
    return rows


def paper_line(picture: Pixels, only: Sequence[str] | None) -> list[Row]:
    """The models that were bundled before, in onnxruntime at their own size."""
    names = [name for name in LINE if not only or name in only]
    return [_runtime(model_file(name), None, "onnxruntime", "fp32", picture) for name in names]


def _runtime(file: Path, fed: Size | None, engine: str, precision: str, picture: Pixels) -> Row:
    own = load(file, engine, threads=1)
    predictor = own if fed is None else at_size(own, fed)
    run = partial(timed_prediction, predictor, picture)
    working = predictor.card.working_size(SIZE)
    gflop, computes = predictor.card.gflop(working), identity(file.read_bytes())
    return Row(own.name, engine.removesuffix("-bf16"), precision, working, gflop, run, predictor, fed is None, computes)


def _openvino_engines() -> list[str]:
    try:
        import openvino
    except ImportError:
        return []
    has_bf16 = "BF16" in openvino.Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")
    return ["openvino", "openvino-bf16"] if has_bf16 else ["openvino"]


def peer(path: Path, picture: Pixels) -> Row:
    """Twitter's FastGaze at the width at which it is scored; its blur and resampling count as tail."""
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
    gflop = PEER_GFLOP * height * width / (REFERENCE[0] * REFERENCE[1])
    return Row(PEER_NAME, "onnxruntime", "fp32", (height, width), gflop, run, own_size=True)


def product() -> Row:
    """What one core can do in fp32, as a row whose network is a large matrix product."""
    multiply = matrix_product()

    def run() -> Clock:
        clock = Clock()
        clock.add({"network": sum(multiply().steps.values(), Seconds())})
        return clock

    return Row(LIMIT, "numpy", "fp32", (PRODUCT, PRODUCT), 2 * PRODUCT**3 / 1e9, run)


def figures(rows: list[Row], times: list[Times]) -> list[Record]:
    """The table, as medians over rounds, spreads and ratios."""
    bases = {
        "ratio_to_deepgaze2": _find(rows, times, TEACHER, own_size=False),
        "ratio_same_engine": _find(rows, times, TEACHER, own_size=True),
        "ratio_to_peer": _find(rows, times, PEER_NAME, own_size=True),
    }
    limit = next((i for i, row in enumerate(rows) if row.name == LIMIT), None)
    table = []
    for index, row in enumerate(rows):
        entry = _facts(row) | _times(times[index])
        for key, base in bases.items():
            if base is not None and row.name != LIMIT and (key != "ratio_same_engine" or _comparable(row)):
                ratios = cpu(base) / cpu(times[index])
                entry |= {key: median(ratios), f"{key}_spread": spread(ratios, 2)}
        if limit is not None:
            rate, peak = (rows[i].gflop / times[i][:, 1, 1] for i in (index, limit))
            entry |= {"gflop_per_s": round(1e3 * float(np.median(rate)), 1), "peak_share": median(rate / peak)}
        table.append(entry)
    return table


def _find(rows: list[Row], times: list[Times], name: str, own_size: bool) -> Times | None:
    return next((t for row, t in zip(rows, times, strict=True) if (row.name, row.own_size) == (name, own_size)), None)


def _comparable(row: Row) -> bool:
    """Whether the ratio to DeepGaze II in onnxruntime is one of the same engine, each at its scored size."""
    return row.engine == "onnxruntime" and row.own_size


def _facts(row: Row) -> Record:
    facts = {key: getattr(row, key) for key in ("name", "engine", "precision", "own_size", "identity")}
    return facts | {"threads": 1, "network_size": list(row.network_size), "gflop": round(row.gflop, 4)}


def _times(times: Times) -> Record:
    steps = {step: median(times[:, i, 1]) for i, step in enumerate(STEPS)}
    return {
        "median_ms": median(wall(times)),
        "spread_ms": spread(wall(times)),
        "cpu_ms": median(cpu(times)),
        "split_cpu_ms": steps,
    }


def scores(row: Row, data: Path, limit: int | None) -> dict[str, float]:
    """AUC, NSS and bits over uniform on salicon/val."""
    assert row.predictor is not None
    known = row.predictor.card.scores.get("salicon-val", {}).get("means")
    if row.engine == "onnxruntime" and limit is None and known:
        means = known
    else:
        means = scoring.score(RuntimeModel(row.predictor), "salicon-val", data, limit).means
    return {metric: round(float(means[metric]), scoring.DIGITS) for metric in METRICS}


def line(entry: Record) -> str:
    """One printed line."""
    height, width = entry["network_size"]
    ratios = " ".join(f"{entry.get(key, 0):8.1f}" for key in ("ratio_to_deepgaze2", "ratio_same_engine"))
    tail = " ".join(f"{entry['scores'][metric]:.3f}" for metric in METRICS) if "scores" in entry else ""
    size = f"{width}x{height}"
    head = f"{entry['name']:18} {entry['engine']:12} {entry['precision']:5} {size:>9}"
    return f"{head} {entry['cpu_ms']:9.2f} {ratios} {entry.get('peak_share', 0):6.2f}  {tail}"


HEAD = f"{'':18} {'':12} {'':5} {'network':>9} {'CPU ms':>9} {'x torch':>8} {'x same':>8} {'peak':>6}  AUC   NSS   bits"


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = common.make_parser(__doc__, __file__, out=RESULTS / "speed.json", tiny="two models, 2 rounds", rounds=15)
    parser.add_argument("--repeats", type=int, default=5, help="runs of a row within a round")
    parser.add_argument("--checkpoint", type=Path, default=RUNS / "teacher" / "single.safetensors")
    parser.add_argument("--peer", type=Path, default=PEER)
    parser.add_argument("--only", nargs="*", help="models to measure; all by default")
    parser.add_argument("--score", action="store_true")
    parser.add_argument("--limit", type=int, help="score only this many images, evenly spread")
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print the table, keep it."""
    options = common.parse(make_parser(), arguments)
    if options.tiny:
        options.rounds, options.repeats, options.only, options.limit = 2, 1, ["tiny", "fastgaze-xs"], 4
    torch.set_num_threads(1)
    run = common.about(options, picture=list(SIZE), rounds=options.rounds, repeats=options.repeats, threads=1)
    picture = sample_picture(SIZE)
    with tempfile.TemporaryDirectory() as folder:
        rows = [product(), *deepgaze2(options.checkpoint, Path(folder), picture)]
        rows += [peer(options.peer, picture)] if options.peer.is_file() else []
        rows += bundled(picture, options.only) + paper_line(picture, options.only)
        times = interleave({i: row.run for i, row in enumerate(rows)}, options.rounds, options.repeats)
    table = figures(rows, list(times.values()))
    run["machine"]["load_at_end"] = common.machine()["load"]
    print(HEAD, flush=True)
    for row, entry in zip(rows, table, strict=True):
        if options.score and row.own_size and row.name not in (TEACHER, PEER_NAME):
            entry["scores"] = scores(row, options.data, options.limit)
        print(line(entry), flush=True)
    if options.score:
        run["scored_on"] = {"data": "salicon/val", "images": options.limit or "all"}
    record = common.read_record(options.out) or {"runs": []}
    record = {"runs": [*record["runs"], run | {"rows": table}]}
    common.write_record(options.out, record)
    if options.out == RESULTS / "speed.json":
        keep_times(record)


def keep_times(record: Record) -> None:
    """Median CPU milliseconds of the bundled models over all runs, for `fastgaze models` and the README."""
    shipped = {name: round(speed.cpu_ms.median, 3) for name, speed in bundled_speeds(record).items()}
    conditions = {"runs": len(record["runs"]), "machine": record["runs"][-1]["machine"], "engine": "onnxruntime"}
    write_times(BUNDLED, shipped, conditions | {"threads": 1, "picture": size_to_json(SIZE)})


if __name__ == "__main__":
    main()
