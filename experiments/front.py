"""Figure 2 and Table 2: every model of a list scored on CAT2000 and SALICON val, and timed on one core.

    python -m experiments.front            score what is new
    python -m experiments.front --times    time all of them, on a machine that does nothing else

Scores: the set's own centre bias, at the working size of the model; students run by onnxruntime as they ship, the
teacher's ensemble in torch. A file that has not changed is not scored twice, and the scores of every image are kept in
results/rows for paired intervals. Times: network and tail for a picture of 512x384, one thread, every model in every
round: in eager torch and in onnxruntime with the network fed 512x384, and in onnxruntime at the size at which the model
is scored (``own size``). Ratios to one DeepGaze II, not to the ensemble, are formed within a round: to eager torch, as
the paper measured, and to the same engine. The numbers go to results/front.json.
"""

import argparse
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import torch

from experiments import common, scoring, timing
from experiments.common import CONFIGS, RESULTS, Record
from experiments.entries import Entry, describe, exported, open_scored, read_entries, single_model
from experiments.timing import Timed, Times, cpu, interleave, median, wall
from fastgaze.core.errors import FastGazeError
from fastgaze.core.progress import Clock
from fastgaze.data.fixations import FixationSet
from fastgaze.evaluation.bench import at_size, sample_picture, timed_prediction
from fastgaze.evaluation.evaluate import LogDensityModel
from fastgaze.evaluation.peers import TwitterFastGaze
from fastgaze.networks import GazeModel
from fastgaze.runtime.predictor import load

SIZE = (384, 512)
SETS = ("cat2000", "salicon-val", "cat2000-legacy")
OWN = "own size"


# Scores


def score_all(entries: list[Entry], record: Record, options: argparse.Namespace) -> None:
    """Add what is missing to ``record``, model by model, and keep it after each."""
    loaded: dict[str, FixationSet] = {}
    for entry in entries:
        own = own_record(record, entry)
        with tempfile.TemporaryDirectory() as folder:
            model: LogDensityModel | None = None
            for name in _wanted(entry, options.sets):
                fixations = loaded.setdefault(scoring.SETS[name].folder, scoring.load_set(name, options.data))
                asked = len(scoring.chosen(name, fixations, options.limit))
                if own["scores"].get(name, {}).get("asked") == asked and _rows(options.out, entry, name).is_file():
                    continue
                model = model or open_scored(entry, Path(folder), options.threads)
                _score(model, name, fixations, entry, record, options)
    common.write_record(options.out, record)


def _wanted(entry: Entry, sets: Sequence[str]) -> list[str]:
    return [name for name in sets if entry.legacy or scoring.SETS[name].protocol != "mit-legacy"]


def _score(
    model: LogDensityModel, name: str, fixations: FixationSet, entry: Entry, record: Record, options: argparse.Namespace
) -> None:
    found = scoring.score(model, name, options.data, options.limit, fixations)
    baselines = {base: scoring.rounded(means) for base, means in found.baselines.items()}
    record["baselines"][name] = {"images": found.images, **baselines}
    facts = {"asked": found.images, "protocol": found.protocol, "engine": entry.engine} | scoring.facts(found)
    record["models"][entry.name]["scores"][name] = facts
    common.write_record(_rows(options.out, entry, name), scoring.columns(found))
    common.write_record(options.out, record)
    print(f"{entry.name} {name}: {scoring.shown(found.means)}", flush=True)


def _rows(out: Path, entry: Entry, name: str) -> Path:
    """Where the scores of every image are kept."""
    return out.parent / "rows" / f"{entry.name}.{name}.json"


def own_record(record: Record, entry: Entry) -> Record:
    """The model's part of ``record``; one without scores if its file or its working size is new."""
    own: Record = record["models"].get(entry.name, {})
    digest = entry.sha256
    if (own.get("sha256"), own.get("pixels")) != (digest, entry.pixels):
        new: Record = {"sha256": digest, "pixels": entry.pixels, **describe(entry), "scores": {}}
        same_time = "times" in own and all(own[key] == new[key] for key in ("pixels", "layers"))
        own = new | ({"times": own["times"]} if same_time else {})  # other weights take no other time
    own |= {"family": entry.family, "kind": entry.kind, "source": entry.source, "found": entry.found}
    record["models"][entry.name] = own
    return own


def forget(entries: list[Entry], record: Record) -> None:
    """Drop networks of an experiment that has been run again since: those of its last run take their place."""
    names, sources = {entry.name for entry in entries}, {entry.source for entry in entries if entry.source}
    gone = [name for name, own in record["models"].items() if own.get("source") in sources and name not in names]
    for name in gone:
        del record["models"][name]


# Times


def time_all(entries: list[Entry], record: Record, options: argparse.Namespace) -> None:
    """Time every model again, all in turn within each round, and put it into ``record``."""
    torch.set_num_threads(1)
    machine = common.machine()
    with tempfile.TemporaryDirectory() as folder:
        runs: dict[tuple[str, str], Timed] = {}
        for entry in entries:
            runs |= {(entry.name, engine): run for engine, run in engines(entry, Path(folder)).items()}
        teacher = next((entry.name for entry in entries if entry.kind == "teacher"), None)
        times = interleave(runs, options.rounds, options.repeats, ("network", "tail"))
    for entry in entries:
        own_record(record, entry)["times"] = {
            engine: figures((name, engine), times, teacher) for name, engine in times if name == entry.name
        }
    names = [entry.name for entry in entries]
    settings = {"models": names, "size": list(SIZE), "rounds": options.rounds, "repeats": options.repeats, "threads": 1}
    record["timing"] = {**settings, "precision": "fp32", "machine": machine, "command": options.command}


def engines(entry: Entry, folder: Path) -> dict[str, Timed]:
    """What is timed of a model, by engine."""
    picture = sample_picture(SIZE)
    if entry.path.suffix == ".vxm":
        return {"onnxruntime": _peer(entry.path, None), OWN: _peer(entry.path, 640)}
    runs: dict[str, Timed] = {}
    try:
        runs["torch"] = in_torch(single_model(entry.path))
    except FastGazeError as error:
        print(f"{entry.name}: not timed in torch ({error})", flush=True)
    try:
        own = load(exported(entry, folder), threads=1)
    except FastGazeError as error:
        print(f"{entry.name}: not timed in onnxruntime ({error})", flush=True)
        return runs
    runs["onnxruntime"] = partial(timed_prediction, at_size(own, SIZE), picture)
    runs[OWN] = partial(timed_prediction, own, picture)
    return runs


def _peer(path: Path, width: int | None) -> Timed:
    model = TwitterFastGaze(path, width, threads=1)
    pixels = model.prepare(sample_picture(SIZE))
    return timing.timed(lambda: model.finish(model.network(pixels), SIZE, None))


def in_torch(model: GazeModel) -> Timed:
    """One forward pass of network and tail in eager torch, channels first, fp32."""
    image = torch.randn(1, 3, *SIZE, generator=torch.Generator().manual_seed(0))
    forward = timing.timed(lambda: model(image))

    def run() -> Clock:
        with torch.inference_mode():
            return forward()

    return run


def figures(
    key: tuple[str, str], times: dict[tuple[str, str], Times], teacher: str | None
) -> dict[str, float | list[float]]:
    """Medians over rounds, and CPU times of DeepGaze II over them, in eager torch and in the same engine."""
    facts: dict[str, float | list[float]] = {"cpu_ms": median(cpu(times[key])), "wall_ms": median(wall(times[key]))}
    for name, engine in (("ratio_to_deepgaze2", "torch"), ("ratio_same_engine", key[1])):
        if teacher is not None and (teacher, engine) in times:
            ratios = cpu(times[teacher, engine]) / cpu(times[key])
            facts |= {name: median(ratios), f"{name}_spread": timing.spread(ratios)}
    return facts


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = common.make_parser(__doc__, __file__, out=RESULTS / "front.json", tiny="4 images, 2 rounds", rounds=11)
    parser.add_argument("--models", type=Path, default=CONFIGS / "front.toml", help="the list of models")
    parser.add_argument("--only", nargs="*", help="names; all by default")
    parser.add_argument("--sets", nargs="+", choices=SETS, default=SETS)
    parser.add_argument("--limit", type=int, help="score only this many images of each set, evenly spread")
    parser.add_argument("--threads", type=int, default=1, help="while scoring")
    parser.add_argument("--times", action="store_true", help="time, and score nothing")
    parser.add_argument("--repeats", type=int, default=3, help="runs of a model within a round")
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    """Score or time."""
    options = common.parse(make_parser(), arguments)
    if options.tiny:
        options.limit, options.rounds, options.repeats = 4, 2, 1
    entries = read_entries(options.models, options.only)
    record = common.read_record(options.out) or {"models": {}, "baselines": {}}
    if not options.only:
        forget(entries, record)
    if options.times:
        time_all(entries, record, options)
        common.write_record(options.out, record)
    else:
        score_all(entries, record, options)


if __name__ == "__main__":
    main()
