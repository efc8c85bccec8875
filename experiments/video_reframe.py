"""Does the reframed window keep what people look at, and how much does it move?

    python -m experiments.video_reframe [--peer runs/pyautoflip] [--sheet runs/reframe.png]

On the sequences with recorded gaze of 32 viewers: the share of fixations that lie in the window, counted at every frame
for every viewer whose eyes rest, at 9:16 and 1:1. Compared are a window in the middle, pyautoflip (the windows that
`experiments.video_pyautoflip` has noted, by its detection and its saliency method: cut to the ratio, and as it shows
them, often wider, with blurred bars above and below), and the optimum, the window that keeps most of each frame's own
fixations. Movement between cuts: speed in widths of the frame per second and jerk in widths per second cubed, means of
absolute values over time, four times per second, so that the rounding to pixels hardly counts.

Two settings of the camera, its price of a move and its share of the middle, are chosen by what is kept at both ratios.
Every sequence is scored with the settings chosen on all others ("ours"), so that none is judged by what was fitted to
it; what all of them choose together is what ships ("shipped"). What the network says of a sequence is kept in a folder
and not computed again. The numbers go to results/video_reframe.json, and a sheet of frames with their windows to the
PNG that --sheet names.
"""

import argparse
import json
import pickle
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw

from experiments import common
from experiments.common import RESULTS, RUNS
from experiments.video_sequences import Sequence as Gaze
from experiments.video_sequences import read_sequences
from fastgaze.core.sizes import Size
from fastgaze.runtime.crop import window_size
from fastgaze.runtime.predictor import Predictor, load
from fastgaze.runtime.video import Reader
from fastgaze.runtime.video.camera import DEFAULT, Steadiness
from fastgaze.runtime.video.reframe import Judgement, Reframing, judge

RATIOS = {"9:16": 9 / 16, "1:1": 1.0}
SETTINGS = [Steadiness(move=move, middle=middle) for move, middle in product((0.25, 0.5, 1.0), (0.2, 0.3, 0.4, 0.5))]
PEER_METHODS = ("detection", "saliency")
PER_SECOND = 4
COLOURS = {"ours": (90, 255, 90), "pyautoflip detection": (255, 80, 80)}
Windows = npt.NDArray[np.float64]
"""(left, top, right, bottom) of every frame in pixels, (n, 4)."""


def kept(gaze: Gaze, windows: Windows) -> float:
    """Share of fixations inside, over all frames and viewers."""
    inside = total = 0
    for index, (left, top, right, bottom) in enumerate(windows[: gaze.frames]):
        x, y = gaze.at((index + 0.5) / gaze.rate).T
        inside += int(((x >= left) & (x < right) & (y >= top) & (y < bottom)).sum())
        total += len(x)
    return inside / total


def movement(gaze: Gaze, windows: Windows, cuts: Sequence[int]) -> tuple[float, float]:
    """Speed and jerk of the window's middle between cuts, means over time."""
    middles = (windows[:, :2] + windows[:, 2:]) / 2 / gaze.size[1]
    speeds, jerks = [], []
    for start, end in zip(cuts, [*cuts[1:], len(windows)], strict=True):
        times = np.arange(start, end) / gaze.rate
        moments = np.arange(times[0], times[-1] + 1e-9, 1 / PER_SECOND)
        path = np.column_stack([np.interp(moments, times, middles[start:end, axis]) for axis in (0, 1)])
        speeds.append(np.abs(np.diff(path, axis=0)).sum(axis=1) * PER_SECOND)
        jerks.append(np.abs(np.diff(path, 3, axis=0)).sum(axis=1) * PER_SECOND**3)
    return float(np.concatenate(speeds).mean()), float(np.concatenate(jerks).mean())


def central(gaze: Gaze, window: Size) -> Windows:
    """The same window in the middle of every frame."""
    left, top = (gaze.size[1] - window[1]) / 2, (gaze.size[0] - window[0]) / 2
    return np.tile([left, top, left + window[1], top + window[0]], (gaze.frames, 1))


def optimal(gaze: Gaze, window: Size) -> Windows:
    """The window that keeps most fixations of each frame, by itself."""
    found = central(gaze, window)
    places = np.linspace(0, gaze.size[1] - window[1], 65)
    for index in range(gaze.frames):
        x = gaze.at((index + 0.5) / gaze.rate)[:, 0]
        counts = ((x >= places[:, None]) & (x < places[:, None] + window[1])).sum(axis=1)
        if len(x):
            found[index, [0, 2]] = places[counts.argmax()] + np.array([0, window[1]])
    return found


def peer_windows(gaze: Gaze, ratio: str, folder: Path) -> Windows | None:
    """What pyautoflip did, None if it has not been run. A wider window than the ratio's is shown with bars above."""
    path = folder / f"{gaze.name}-{ratio.replace(':', 'x')}.json"
    if not path.is_file():
        return None
    left, top, width, height = np.array(json.loads(path.read_text())["windows"]).T
    scale = np.array([gaze.size[1], gaze.size[0], gaze.size[1], gaze.size[0]])
    windows: Windows = np.column_stack([left, top, left + width, top + height]) * scale
    return windows


def without_bars(gaze: Gaze, windows: Windows, window: Size) -> Windows:
    """Windows of the size ``window`` with the same middles, moved into the frame."""
    corners = (windows[:, :2] + windows[:, 2:]) / 2 - np.array([window[1], window[0]]) / 2
    corners = corners.clip(0, [gaze.size[1] - window[1], gaze.size[0] - window[0]])
    return np.column_stack([corners, corners + np.array([window[1], window[0]])])


def watched(gaze: Gaze, predictor: Predictor, folder: Path) -> tuple[Judgement, float]:
    """What the windows of every ratio are worth, and CPU milliseconds per frame. Kept in a file."""
    path = folder / f"{gaze.name}-{predictor.name}.pickle"
    if not path.exists():
        start = process_time()
        judged = judge(gaze.path, list(RATIOS), predictor, threads=1)
        folder.mkdir(parents=True, exist_ok=True)
        path.write_bytes(pickle.dumps((judged, 1e3 * (process_time() - start) / judged.plan(0).frames)))
    found: tuple[Judgement, float] = pickle.loads(path.read_bytes())
    return found


def boxes(planned: Reframing) -> Windows:
    """The windows of a plan."""
    corners = np.array(list(planned.corners()), np.float64)
    return np.column_stack([corners, corners + np.array(planned.window[::-1])])


def choose(scores: npt.NDArray[np.float64], left_out: int | None = None) -> int:
    """The settings that keep most, mean over sequences and ratios. scores: (settings, sequences, ratios)."""
    others = scores if left_out is None else np.delete(scores, left_out, axis=1)
    return int(others.mean(axis=(1, 2)).argmax())


def measure(
    gaze: Gaze, ratio: str, judged: Judgement, settings: Steadiness, shipped: Steadiness, peer: Path
) -> tuple[dict[str, Any], dict[str, Windows]]:
    """One sequence at one ratio: shares kept and movement of every method."""
    number = list(RATIOS).index(ratio)
    window = window_size(gaze.size, RATIOS[ratio], 1.0)
    windows = {"ours": boxes(judged.plan(number, settings)), "shipped": boxes(judged.plan(number, shipped))}
    windows |= {"center": central(gaze, window), "optimum": optimal(gaze, window)}
    for method in PEER_METHODS:
        if (other := peer_windows(gaze, ratio, peer / method)) is not None:
            windows[f"pyautoflip {method}"] = without_bars(gaze, other, window)
            windows[f"pyautoflip {method}, with bars"] = other
    starts = np.cumsum([0, *(len(shot.times) for shot in judged.plan(number).shots)])[:-1].tolist()
    row: dict[str, Any] = {"sequence": gaze.name, "ratio": ratio, "cuts": len(starts) - 1}
    row |= {"move": settings.move, "middle": settings.middle}
    for name, own in windows.items():
        speed, jerk = movement(gaze, own, starts)
        row[name] = {"kept": round(kept(gaze, own), 4), "speed": round(speed, 4), "jerk": round(jerk, 3)}
    return row, windows


def means(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Means over sequences, for each ratio and method that all of them have."""
    table: dict[str, Any] = {}
    for ratio in RATIOS:
        own = [row for row in rows if row["ratio"] == ratio]
        methods = [key for key in own[0] if isinstance(own[0][key], dict) and all(key in row for row in own)]
        table[ratio] = {
            method: {key: round(float(np.mean([row[method][key] for row in own])), 4) for key in own[0][method]}
            for method in methods
        }
    return table


def sheet(gaze: Gaze, windows: dict[str, Windows], count: int = 6) -> Image.Image:
    """A row of frames with the windows on them: ours green, pyautoflip's red, fixations as dots."""
    chosen = np.linspace(0.1, 0.95, count) * gaze.frames
    width, height = 320, round(320 * gaze.size[0] / gaze.size[1])
    row = Image.new("RGB", (width * count, height))
    with Reader(gaze.path, threads=1) as reader:
        for index, frame in enumerate(reader.frames()):
            places = np.flatnonzero(chosen.astype(int) == index)
            if len(places):
                picture = Image.fromarray(frame.reformat(width=width, height=height, format="rgb24").to_ndarray())
                draw, scale = ImageDraw.Draw(picture), width / gaze.size[1]
                for name, own in windows.items():
                    colour = COLOURS.get(name)
                    if colour is not None and index < len(own):
                        draw.rectangle([float(edge) * scale for edge in own[index]], outline=colour, width=2)
                for x, y in gaze.at((index + 0.5) / gaze.rate) * scale:
                    draw.ellipse([x - 2, y - 2, x + 2, y + 2], fill=(255, 255, 0))
                row.paste(picture, (int(places[0]) * width, 0))
    return row


def stacked(pictures: list[Image.Image]) -> Image.Image:
    """One below the other."""
    whole = Image.new("RGB", (max(item.width for item in pictures), sum(item.height for item in pictures)))
    top = 0
    for item in pictures:
        whole.paste(item, (0, top))
        top += item.height
    return whole


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = common.make_parser(__doc__, __file__, out=RESULTS / "video_reframe.json")
    parser.add_argument("--model", help="a bundled model or an .onnx file; the default model without it")
    parser.add_argument("--peer", type=Path, default=RUNS / "pyautoflip", help="folder of pyautoflip's windows")
    parser.add_argument("--keep", type=Path, default=RUNS / "video_reframe", help="folder for what the network says")
    parser.add_argument("--sheet", type=Path, default=RUNS / "reframe.png")
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure every sequence at both ratios, print, write."""
    options = common.parse(make_parser(), arguments)
    predictor = load(options.model, threads=1)
    record = common.about(options, model=predictor.name, engine="onnxruntime", threads=1)
    gazes = sorted(read_sequences(options.data / "video"), key=lambda gaze: gaze.name)
    judged, times = zip(*(watched(gaze, predictor, options.keep) for gaze in gazes), strict=True)
    scores = np.array(
        [
            [[kept(gaze, boxes(own.plan(number, how))) for number in range(len(RATIOS))] for gaze, own in found]
            for how in SETTINGS
            for found in [list(zip(gazes, judged, strict=True))]
        ]
    )
    shipped = SETTINGS[choose(scores)]
    if shipped != DEFAULT:
        print(f"all sequences together choose {shipped}; runtime/video/camera.py has {DEFAULT}")
    rows, pictures = [], []
    for index, gaze in enumerate(gazes):
        for ratio in RATIOS:
            settings = SETTINGS[choose(scores, index)]
            row, windows = measure(gaze, ratio, judged[index], settings, shipped, options.peer)
            rows.append(row)
            print(json.dumps(row), flush=True)
            if ratio == "9:16":
                pictures.append(sheet(gaze, windows))
    table = means(rows)
    print(json.dumps(table, indent=1))
    options.sheet.parent.mkdir(parents=True, exist_ok=True)
    stacked(pictures).save(options.sheet)
    record |= {"cpu_ms_per_frame_for_both_ratios": round(float(np.mean(times)), 2)}
    record |= {"chosen": {"move": shipped.move, "middle": shipped.middle}}
    common.write_record(options.out, {**record, "means": table, "sequences": rows})


if __name__ == "__main__":
    main()
