"""Are cuts found, and is camera work left alone?

    python -m experiments.video_cuts [--minutes 10]

Cuts: 41 shots of one to two seconds, from the sequences with recorded gaze and from photographs under a moving window,
joined into one H.264 clip with 40 hard cuts. Camera work: clips of 20 seconds without a cut, in which a window pans,
zooms, shakes or whips over a photograph, with and without flashes (one to five frames of white, of black or of twice
the brightness, and stroboscopes). `fastgaze.video.cuts` is compared with FFmpeg's scdet at its default threshold. The
numbers go to results/video_cuts.json.
"""

import argparse
import json
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from fractions import Fraction
from pathlib import Path
from time import process_time

import av
import numpy as np
import numpy.typing as npt
from PIL import Image

from experiments import common
from experiments.common import RESULTS
from fastgaze.runtime import video
from fastgaze.runtime.video import Reader

RATE = 25
SIZE = (234, 416)
NEAR = 1.5 / RATE
"""Seconds within which a cut counts as found."""
SECONDS = 20
Pixels = npt.NDArray[np.uint8]
Camera = Callable[[float], tuple[float, float, float]]
"""Seconds -> (x, y, zoom): the middle of the window, -1..1 of the way to the edge, and its size, 0..1 of the whole."""

CAMERAS: dict[str, Camera] = {
    "slow pan": lambda t: (np.sin(0.4 * t), 0.0, 0.6),
    "fast pan": lambda t: (np.sin(2.5 * t), 0.3 * np.sin(1.7 * t), 0.4),
    "whip pan": lambda t: (np.tanh(12 * np.sin(1.3 * t)), 0.0, 0.5),
    "zoom": lambda t: (0.2, -0.2, 0.6 + 0.38 * np.sin(0.8 * t)),
    "crash zoom": lambda t: (0.0, 0.1, 0.6 + 0.38 * np.tanh(6 * np.sin(1.1 * t))),
    "shake": lambda t: (0.15 * np.sin(31 * t), 0.15 * np.sin(23 * t + 1), 0.7),
}
FLASHES = ("none", "white", "black", "bright", "strobe")
KINDS = [(camera, flash) for flash in FLASHES for camera in CAMERAS]


def write_clip(frames: Iterable[Pixels], path: Path) -> Path:
    """H.264 as a phone or an editor would leave it."""
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=RATE, options={"crf": "25", "preset": "ultrafast"})
        stream.height, stream.width, stream.pix_fmt = *SIZE, "yuv420p"
        for index, pixels in enumerate(frames):
            frame = av.VideoFrame.from_ndarray(pixels, format="rgb24")
            frame.pts, frame.time_base = index, Fraction(1, RATE)
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return path


def under_camera(photo: Image.Image, camera: Camera, count: int) -> Iterator[Pixels]:
    """``count`` frames of a window that moves over the photograph."""
    scale = min(photo.width / SIZE[1], photo.height / SIZE[0])
    for index in range(count):
        x, y, zoom = camera(index / RATE)
        width, height = (scale * zoom * side for side in (SIZE[1], SIZE[0]))
        left, top = (1 + x) / 2 * (photo.width - width), (1 + y) / 2 * (photo.height - height)
        window = photo.resize((SIZE[1], SIZE[0]), Image.Resampling.BILINEAR, (left, top, left + width, top + height))
        yield np.asarray(window)


def flashed(frames: Iterable[Pixels], kind: str, generator: np.random.Generator) -> Iterator[Pixels]:
    """The frames with flashes of this kind, about one in two seconds."""
    left = 0
    for index, frame in enumerate(frames):
        left = int(generator.integers(1, 6)) if left == 0 and generator.random() < 0.5 / RATE else max(left - 1, 0)
        lit = index % 4 < 2 if kind == "strobe" else left > 0
        if not lit or kind == "none":
            yield frame
        elif kind == "bright":
            yield np.minimum(2 * frame.astype(np.uint16), 255).astype(np.uint8)
        else:
            yield np.full_like(frame, 0 if kind == "black" else 250)


def shots(options: argparse.Namespace, photos: list[Path], generator: np.random.Generator) -> Iterator[list[Pixels]]:
    """41 shots: by turns a piece of a sequence and a photograph under a moving camera."""
    sequences = sorted((options.data / "video").glob("*.avi"))
    cameras = [CAMERAS[name] for name in ("slow pan", "fast pan", "zoom", "shake")]
    for index in range(41):
        count = int(generator.integers(RATE, 2 * RATE))
        if index % 3 < 2:
            path = sequences[(index * 5) % len(sequences)]
            yield piece(path, int(generator.integers(0, 60)), count)
        else:
            with Image.open(photos[index]) as photo:
                yield list(under_camera(photo.convert("RGB"), cameras[index % len(cameras)], count))


def piece(path: Path, start: int, count: int) -> list[Pixels]:
    """``count`` frames from ``start`` on, as RGB of the clip's size."""
    found: list[Pixels] = []
    with Reader(path, threads=1) as reader:
        for index, frame in enumerate(reader.frames()):
            if index >= start:
                shown = frame.reformat(width=SIZE[1], height=SIZE[0], format="rgb24")
                found.append(np.asarray(shown.to_ndarray(), np.uint8))
            if len(found) == count:
                break
    return found


def scdet(path: Path) -> list[float]:
    """The cuts that FFmpeg finds."""
    command = ["ffmpeg", "-hide_banner", "-threads", "1", "-i", str(path), "-vf", "scdet", "-f", "null", "-"]
    shown = subprocess.run(command, check=True, capture_output=True, text=True).stderr
    return [float(time) for time in re.findall(r"lavfi\.scd\.time: ([0-9.]+)", shown)]


def ours(path: Path) -> list[float]:
    """The cuts that are found here, without the first frame."""
    return list(video.cuts(path, threads=1))[1:]


METHODS: dict[str, Callable[[Path], list[float]]] = {"fastgaze": ours, "scdet": scdet}


def judge(found: Sequence[float], true: Sequence[float]) -> dict[str, int]:
    """How many of the true cuts were found, and how many found ones are not true."""
    near = [[abs(time - cut) <= NEAR for cut in true] for time in found]
    hits = sum(any(row[index] for row in near) for index in range(len(true)))
    return {"cuts": len(true), "found": hits, "false": sum(not any(row) for row in near)}


def on_cuts(options: argparse.Namespace, photos: list[Path], folder: Path) -> dict[str, dict[str, int]]:
    """Every method on the clip with 40 cuts."""
    lengths: list[int] = []

    def joined() -> Iterator[Pixels]:
        for shot in shots(options, photos, np.random.default_rng(options.seed)):
            lengths.append(len(shot))
            yield from shot

    clip = write_clip(joined(), folder / "cuts.mp4")
    true = [int(start) / RATE for start in np.cumsum(lengths)[:-1]]
    return {name: judge(method(clip), true) for name, method in METHODS.items()}


def on_camera_work(number: int, photo: Path, seed: int) -> dict[str, object]:
    """False cuts of every method in one clip; its number says which camera and which flashes."""
    camera, flash = KINDS[number % len(KINDS)]
    with tempfile.TemporaryDirectory() as folder, Image.open(photo) as picture:
        moved = under_camera(picture.convert("RGB"), CAMERAS[camera], SECONDS * RATE)
        lit = flashed(moved, flash, np.random.default_rng((seed, number)))
        clip = write_clip(lit, Path(folder) / "calm.mp4")
        row: dict[str, object] = {"camera": camera, "flash": flash}
        start = process_time()
        row |= {name: len(method(clip)) for name, method in METHODS.items()}
        row["ms_per_frame"] = round(1e3 * (process_time() - start) / (SECONDS * RATE), 3)
    print(json.dumps(row), flush=True)
    return row


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = common.make_parser(__doc__, __file__, out=RESULTS / "video_cuts.json")
    parser.add_argument("--minutes", type=float, default=10, help="of camera work without a cut")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=1, help="processes; the results do not depend on it")
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    """Make the clips, find cuts, count."""
    options = common.parse(make_parser(), arguments)
    record = common.about(options, minutes=options.minutes, seed=options.seed, threads=1, size=list(SIZE), rate=RATE)
    photos = sorted((options.data / "eyecrowd" / "images").glob("*.webp"))
    if not photos or not (options.data / "video").is_dir():
        needed = "eyecrowd/images/*.webp and video/*.avi"
        raise SystemExit(f"{options.data} lacks {needed}: set FASTGAZE_DATA to the folder of the data sets, or --data")
    with tempfile.TemporaryDirectory() as name:
        found = on_cuts(options, photos, Path(name))
        print(json.dumps(found), flush=True)
    count = round(60 * options.minutes / SECONDS)
    with ProcessPoolExecutor(options.workers) as pool:
        rows = list(pool.map(on_camera_work, range(count), photos[50 : 50 + count], [options.seed] * count))
    false = {name: sum(int(str(row[name])) for row in rows) for name in METHODS}
    print(json.dumps(false))
    common.write_record(options.out, {**record, "cuts": found, "camera_work": {"false_cuts": false, "clips": rows}})


if __name__ == "__main__":
    main()
