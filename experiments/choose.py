"""Which snapshot of a pruning run to tune: the largest one that is fast enough as an exported file.

    python -m experiments.choose runs/default-pruned --pixels 64512 --than fastgaze-m --limit 0.97

Every snapshot is exported, and all files and the other model predict the same 512x384 picture in turn on one core. The
latency table that pruning goes by sums up single layers, so the whole file is timed before hours go into tuning it.
Prints the path of the snapshot, the smallest one if none is fast enough; the times go to stderr.
"""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from experiments import common
from experiments.starts import model_file
from experiments.timing import Timed, cpu, interleave, median
from fastgaze.evaluation.bench import sample_picture, timed_prediction
from fastgaze.networks.checkpoint import load_gaze_model
from fastgaze.onnx.write import Facts, export_onnx
from fastgaze.runtime.predictor import load

SIZE = (384, 512)


def snapshots(run: Path) -> list[Path]:
    """The snapshots of a pruning run, largest mark first."""
    found = [path for path in run.glob("*.safetensors") if path.stem.replace(".", "", 1).isdigit()]
    return sorted(found, key=lambda path: -float(path.stem))


def time_shares(paths: Sequence[Path], pixels: int | None, than: str, rounds: int) -> dict[Path, float]:
    """CPU time of each snapshot relative to the model ``than``, as the median of ratios within a round."""
    picture = sample_picture(SIZE)
    with tempfile.TemporaryDirectory() as folder:
        runs: dict[Path | None, Timed] = {None: partial(timed_prediction, load(model_file(than), threads=1), picture)}
        for path in paths:
            model, record = load_gaze_model(path)
            file = Path(folder) / f"{path.stem}.onnx"
            export_onnx(model, file, Facts.of(path.stem, record, pixels))
            runs[path] = partial(timed_prediction, load(file, threads=1), picture)
        times = interleave(runs, rounds, 3)
    return {path: median(cpu(times[path]) / cpu(times[None])) for path in paths}


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = common.make_parser(__doc__, __file__, data=False, rounds=25)
    parser.add_argument("run", type=Path, help="folder of a pruning run")
    parser.add_argument("--pixels", type=int, help="area at which the network will work, if not that of its training")
    parser.add_argument("--than", required=True, help="a bundled model or one of the paper's line")
    parser.add_argument("--limit", type=float, default=1.0, help="largest share of its time")
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    """Time them all, print one."""
    options = common.parse(make_parser(), arguments)
    paths = snapshots(options.run)
    if not paths:
        raise SystemExit(f"no snapshots in {options.run}")
    shares = time_shares(paths, options.pixels, options.than, options.rounds)
    for path, share in shares.items():
        print(f"{path}: {share:.2f} of the time of {options.than}", file=sys.stderr)
    print(next((path for path in paths if shares[path] <= options.limit), paths[-1]))


if __name__ == "__main__":
    main()
