"""What do regions for FFmpeg cost at 60 seconds, and is --neutral neutral?

    python -m experiments.video_roi [--rounds 2]

Cost: a clip of 60 s is made of the sequences with recorded gaze (416x240, 25 frames per second, a shot of four seconds
after the other) and encoded by ffmpeg with libx264, plain and with the filter graph of `fastgaze roi --format ffmpeg
--block 16`, in turn, one thread; the ratio of CPU times counts, the median over rounds. Neutral: three clips of ten
seconds, each encoded plain and with `--neutral --crf N` at two qualities; the ratio of sizes counts, and the gain of
PSNR weighted by the model's density and by where people looked. The numbers go to results/video_roi.json.
"""

import argparse
import json
import math
import os
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from experiments import common
from experiments.common import RESULTS
from experiments.roi_quality import encode, luma
from experiments.video_sequences import Sequence as Gaze
from experiments.video_sequences import read_sequences
from fastgaze.core.operators import gaussian_matrix
from fastgaze.runtime.predictor import Array, Predictor, load
from fastgaze.runtime.video import Reader, Watch, maps
from fastgaze.runtime.video.addroi import write_ffmpeg
from fastgaze.runtime.video.roi import Roi, watch_blocks

SHOT = 4
SECONDS = 60
SIZE = (240, 416)
CLIPS = ("BlowingBubbles", "Keiba", "RaceHorsesD")
WATCH = Watch(smooth=0.2)
ROI = Roi(block=16)


def make_minute(folder: Path, data: Path) -> Path:
    """Pieces of four seconds of all sequences in turn, at one size and rate, until the minute is full."""
    names = sorted((data / "video").glob("*.avi"))
    pieces = []
    for index in range(SECONDS // SHOT):
        source, target = names[index % len(names)], folder / f"{index}.mkv"
        shape = f"scale={SIZE[1]}:{SIZE[0]},fps=25,setsar=1"
        command = ["ffmpeg", "-v", "error", "-y", "-i", str(source), "-t", str(SHOT), "-vf", shape]
        subprocess.run([*command, "-c:v", "libx264", "-preset", "ultrafast", "-qp", "8", str(target)], check=True)
        pieces.append(f"file '{target}'")
    (folder / "list.txt").write_text("\n".join(pieces))
    clip = folder / "minute.mkv"
    joined = ["-f", "concat", "-safe", "0", "-i", str(folder / "list.txt"), "-c", "copy", str(clip)]
    subprocess.run(["ffmpeg", "-v", "error", "-y", *joined], check=True)
    return clip


def write_script(clip: Path, predictor: Predictor, roi: Roi, path: Path) -> Path:
    """The same as ``fastgaze roi CLIP --format ffmpeg --block 16 --out PATH``."""
    with Reader(clip, threads=1) as reader, path.open("w") as out:
        write_ffmpeg(watch_blocks(reader, predictor, roi, WATCH), roi, out, source=clip)
    return path


def cost(clip: Path, script: Path, rounds: int, folder: Path, crf: float) -> dict[str, Any]:
    """CPU and wall seconds of both encodes in every round."""
    seconds: dict[str, list[tuple[float, float]]] = {"plain": [], "roi": []}
    for _ in range(rounds):
        for name, graph in (("plain", None), ("roi", script)):
            before, start = os.times(), perf_counter()
            encode(clip, folder / f"{name}.h264", crf, graph, "veryfast")
            after = os.times()
            used = after.children_user + after.children_system - before.children_user - before.children_system
            seconds[name].append((used, perf_counter() - start))
    ratios = np.array(seconds["roi"]) / np.array(seconds["plain"])
    text = script.read_text()
    return {
        "stretches": text.count("trim="),
        "rectangles": text.count("addroi="),
        "cpu_seconds": {
            name: round(float(np.median([pair[0] for pair in values])), 2) for name, values in seconds.items()
        },
        "ratio_of_cpu_times": [round(float(value), 3) for value in ratios[:, 0]],
        "median_ratio": round(float(np.median(ratios[:, 0])), 3),
    }


def gaze_density(gaze: Gaze, frames: int) -> Iterator[Array]:
    """Where people looked in every frame: all fixations within half a second, blurred by a thirtieth of the width."""
    height, width = gaze.size
    rows, columns = (gaussian_matrix(side, width / 30) for side in gaze.size)
    for index in range(frames):
        counts = np.zeros(gaze.size)
        points = gaze.around(index / gaze.rate, 0.25).astype(int)
        np.add.at(counts, (points[:, 1].clip(0, height - 1), points[:, 0].clip(0, width - 1)), 1)
        blurred = rows @ counts @ columns.T + 1e-12
        yield (blurred / blurred.sum()).astype(np.float32)


def psnr(clip: Any, coded: Any, weights: list[Array]) -> float:
    """10 log10(255^2 / mean over frames of sum_p weight_p * error_p^2)."""
    errors = [
        float((weight * np.square(a.astype(np.float32) - b)).sum(dtype=np.float64))
        for a, b, weight in zip(clip, coded, weights, strict=False)
    ]
    return 10 * math.log10(255**2 / float(np.mean(errors)))


def neutrality(gaze: Gaze, predictor: Predictor, crfs: Sequence[float], folder: Path) -> list[dict[str, Any]]:
    """One clip with and without neutral regions, at every quality."""
    rows = []
    original = luma(gaze.path)
    seen = list(gaze_density(gaze, len(original)))
    expected = [found.density for _, found in maps(gaze.path, predictor, watching=WATCH, threads=1)]
    for crf in crfs:
        script = write_script(gaze.path, predictor, replace(ROI, neutral=True, crf=crf), folder / "neutral.ffmpeg")
        sizes = [
            encode(gaze.path, folder / f"{index}.h264", crf, graph, "veryfast")
            for index, graph in enumerate((None, script))
        ]
        row: dict[str, Any] = {"clip": gaze.name, "crf": crf, "bits": round(sizes[1] / sizes[0], 4)}
        coded = [luma(folder / f"{index}.h264") for index in range(2)]
        for name, weights in (("model", expected), ("people", seen)):
            plain, roi = (psnr(original, frames, weights) for frames in coded)
            row[f"psnr_{name}"] = {"plain": round(plain, 2), "roi": round(roi, 2), "gain": round(roi - plain, 2)}
        rows.append(row)
        print(json.dumps(row), flush=True)
    return rows


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = common.make_parser(__doc__, __file__, out=RESULTS / "video_roi.json", rounds=2)
    parser.add_argument("--model", help="a bundled model or an .onnx file; the default model without it")
    parser.add_argument("--crf", type=float, nargs="+", default=[23, 30])
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure both and write."""
    options = common.parse(make_parser(), arguments)
    predictor = load(options.model, threads=1)
    record = common.about(options, model=predictor.name, encoder="ffmpeg libx264 veryfast", threads=1, size=list(SIZE))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        minute = make_minute(folder, options.data)
        script = write_script(minute, predictor, ROI, folder / "roi.ffmpeg")
        costs = cost(minute, script, options.rounds, folder, 27)
        print(json.dumps(costs), flush=True)
        rows: list[dict[str, Any]] = []
        for gaze in read_sequences(options.data / "video"):
            if gaze.name in CLIPS:
                rows += neutrality(gaze, predictor, options.crf, folder)
                common.write_record(options.out, {**record, "at_60_seconds": costs, "neutral": rows})


if __name__ == "__main__":
    main()
