"""Does the reframed window keep what people look at, and how much does it move?

    python -m experiments.video_reframe [--peer runs/pyautoflip] [--sheet runs/reframe.png]

On the sequences with recorded gaze of 32 viewers: the share of fixations that lie in the window, counted at every frame
for every viewer whose eyes rest, at 9:16 and 1:1. Compared are a window in the middle, pyautoflip (the windows that
`experiments.video_pyautoflip` has noted, by its detection and its saliency method: cut to the ratio, and as it shows
them, often wider, with blurred bars above and below), and the optimum, the window that keeps most of each frame's own
fixations. Movement between cuts: speed in widths of the frame per second and jerk in widths per second cubed, means of
absolute values over time, four times per second, so that the rounding to pixels hardly counts. Settings of the camera
were chosen on the half `choosing`. The numbers go to results/video_reframe.json, and a sheet of frames with their
windows to the PNG that --sheet names.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw

from experiments import common
from experiments.common import RESULTS, RUNS
from experiments.video_sequences import Sequence as Gaze
from experiments.video_sequences import halves, read_sequences
from fastgaze.core.sizes import Size
from fastgaze.runtime.crop import window_size
from fastgaze.runtime.predictor import Predictor, load
from fastgaze.runtime.video import Reader
from fastgaze.runtime.video.reframe import plan_all

RATIOS = {"9:16": 9 / 16, "1:1": 1.0}
PEER_METHODS = ("detection", "saliency")
PER_SECOND = 4
COLOURS = {"ours": (90, 255, 90), "pyautoflip": (255, 80, 80)}
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
    return np.column_stack([left, top, left + width, top + height]) * scale


def without_bars(gaze: Gaze, windows: Windows, window: Size) -> Windows:
    """Windows of the size ``window`` with the same middles, moved into the frame."""
    corners = (windows[:, :2] + windows[:, 2:]) / 2 - np.array([window[1], window[0]]) / 2
    corners = corners.clip(0, [gaze.size[1] - window[1], gaze.size[0] - window[0]])
    return np.column_stack([corners, corners + np.array([window[1], window[0]])])


def ours(gaze: Gaze, predictor: Predictor, folder: Path) -> dict[str, Any]:
    """For every ratio the windows; the frames at which shots begin, and CPU milliseconds per frame. Kept in a file."""
    path = folder / f"{gaze.name}-{predictor.name}.json"
    if not path.exists():
        start = process_time()
        plans = plan_all(gaze.path, list(RATIOS), predictor, threads=1)
        found = {
            "milliseconds": round(1e3 * (process_time() - start) / plans[0].frames, 2),
            "starts": np.cumsum([0, *(len(shot.times) for shot in plans[0].shots)])[:-1].tolist(),
            "corners": {ratio: list(one.corners()) for ratio, one in zip(RATIOS, plans, strict=True)},
            "windows": {ratio: one.window for ratio, one in zip(RATIOS, plans, strict=True)},
        }
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(found))
    kept_plan: dict[str, Any] = json.loads(path.read_text())
    return kept_plan


def measure(gaze: Gaze, ratio: str, planned: dict[str, Any], peer: Path) -> tuple[dict[str, Any], dict[str, Windows]]:
    """One sequence at one ratio: shares kept and movement of every method."""
    corners = np.array(planned["corners"][ratio], np.float64)
    height, width = planned["windows"][ratio]
    window = window_size(gaze.size, RATIOS[ratio], 1.0)
    windows = {"ours": np.column_stack([corners, corners + np.array([width, height])])}
    windows |= {"center": central(gaze, window), "optimum": optimal(gaze, window)}
    for method in PEER_METHODS:
        if (other := peer_windows(gaze, ratio, peer / method)) is not None:
            windows[f"pyautoflip {method}"] = without_bars(gaze, other, window)
            windows[f"pyautoflip {method}, with bars"] = other
    row: dict[str, Any] = {"sequence": gaze.name, "ratio": ratio, "cuts": len(planned["starts"]) - 1}
    for name, own in windows.items():
        speed, jerk = movement(gaze, own, planned["starts"])
        row[name] = {"kept": round(kept(gaze, own), 4), "speed": round(speed, 4), "jerk": round(jerk, 3)}
    return row, windows


def means(rows: list[dict[str, Any]], names: list[str]) -> dict[str, Any]:
    """Means over sequences, for each ratio and method that all of them have."""
    table: dict[str, Any] = {}
    for ratio in RATIOS:
        own = [row for row in rows if row["ratio"] == ratio and row["sequence"] in names]
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
                picture = frame.reformat(width=width, height=height, format="rgb24").to_image()
                draw, scale = ImageDraw.Draw(picture), width / gaze.size[1]
                for name, own in windows.items():
                    colour = COLOURS.get(name.split()[0])
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
    parser.add_argument("--keep", type=Path, default=RUNS / "video_reframe", help="folder for our windows")
    parser.add_argument("--sheet", type=Path, default=RUNS / "reframe.png")
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure every sequence at both ratios, print, write."""
    options = common.parse(make_parser(), arguments)
    predictor = load(options.model, threads=1)
    record = common.about(options, model=predictor.name, engine="onnxruntime", threads=1)
    halved = dict(zip(("choosing", "reporting"), halves(read_sequences(options.data / "video")), strict=True))
    rows, pictures, times = [], [], []
    for gaze in (gaze for half in halved.values() for gaze in half):
        planned = ours(gaze, predictor, options.keep)
        times.append(planned["milliseconds"])
        for ratio in RATIOS:
            row, windows = measure(gaze, ratio, planned, options.peer)
            rows.append(row)
            print(json.dumps(row), flush=True)
            if ratio == "9:16":
                pictures.append(sheet(gaze, windows))
    table = {half: means(rows, [gaze.name for gaze in own]) for half, own in halved.items()}
    table["all"] = means(rows, [gaze.name for own in halved.values() for gaze in own])
    print(json.dumps(table, indent=1))
    options.sheet.parent.mkdir(parents=True, exist_ok=True)
    stacked(pictures).save(options.sheet)
    speed = {"cpu_ms_per_frame_for_both_ratios": round(float(np.mean(times)), 2)}
    common.write_record(options.out, {**record, **speed, "means": table, "sequences": rows})


if __name__ == "__main__":
    main()
