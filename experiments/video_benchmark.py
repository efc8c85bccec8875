"""How fast is a video overlaid, end to end, on one core, and where does the time go?

    python -m experiments.video_benchmark [--model NAME_OR_ONNX] [--photos FOLDER]

A 720p H.264 clip with sound is made from photographs (a window moves over each). Then `fastgaze video` does its work on
one core with one thread: decode, scale, network, tail, overlay, encode. On a machine that does other things too, frames
per second of CPU time is the figure to read. The numbers go to results/video_benchmark.json.
"""

import argparse
import json
import os
import tempfile
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
from PIL import Image

from experiments import common
from experiments.common import RESULTS
from fastgaze.core.jsonable import Json
from fastgaze.runtime.predictor import load
from fastgaze.runtime.video import VideoReport, Watch, render
from fastgaze.runtime.zoo import default_name

RATE = 30
SIZES = {"720p": (720, 1280), "1080p": (1080, 1920)}


def make_clip(photos: list[Path], size: tuple[int, int], frames: int, path: Path) -> None:
    """``frames`` frames in shots of two seconds, with a tone for sound."""
    height, width = size
    with av.open(str(path), "w") as container:
        video = container.add_stream("libx264", rate=RATE, options={"crf": "20", "preset": "veryfast"})
        video.height, video.width, video.pix_fmt = height, width, "yuv420p"
        audio = container.add_stream("aac", rate=44100, layout="mono")
        for index in range(frames):
            shot, step = divmod(index, 2 * RATE)
            if step == 0:
                with Image.open(photos[shot % len(photos)]) as photo:
                    large = photo.convert("RGB").resize((width + 240, height + 120), Image.Resampling.LANCZOS)
            window = large.crop((4 * step, 2 * step, 4 * step + width, 2 * step + height))
            frame = av.VideoFrame.from_ndarray(np.asarray(window), format="rgb24")
            frame.pts, frame.time_base = index, Fraction(1, RATE)
            container.mux(video.encode(frame))
        container.mux(video.encode(None))
        for start in range(0, 44100 * frames // RATE, 1024):
            wave = 0.1 * np.sin(np.arange(start, start + 1024) * 2 * np.pi * 440 / 44100)
            sound = av.AudioFrame.from_ndarray(wave.astype(np.float32)[None], format="fltp", layout="mono")
            sound.sample_rate, sound.pts, sound.time_base = 44100, start, Fraction(1, 44100)
            container.mux(audio.encode(sound))
        container.mux(audio.encode(None))


def describe(report: VideoReport) -> dict[str, Json]:
    """The report with frames per second of CPU time."""
    return report.to_json() | {"fps_of_cpu_time": round(report.frames / report.cpu_seconds, 2)}


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = common.make_parser(__doc__, __file__, out=RESULTS / "video_benchmark.json")
    parser.add_argument("--model", default=default_name(), help="a bundled model or an .onnx file")
    parser.add_argument("--photos", type=Path, help="folder of pictures; those of CAT2000 by default")
    parser.add_argument("--size", choices=SIZES, default="720p")
    parser.add_argument("--frames", type=int, default=600)
    parser.add_argument("--repeats", type=int, default=3, help="runs; the one with the median time counts")
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    """Make the clip, overlay it a few times on one core, keep the run with the median CPU time."""
    options = common.parse(make_parser(), arguments)
    record = common.about(options, size=options.size, frames=options.frames, repeats=options.repeats, cores=1)
    folder = options.photos or options.data / "cat2000" / "images"
    photos = sorted(folder.glob("*.webp")) + sorted(folder.glob("*.jpg"))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        clip = folder / "clip.mp4"
        make_clip(photos, SIZES[options.size], options.frames, clip)
        predictor = load(options.model, threads=1)
        core = max(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {core})
        reports = [
            render(clip, folder / "out.mp4", predictor, watching=Watch(smooth=0.2), threads=1)
            for _ in range(options.repeats)
        ]
    middle = sorted(reports, key=lambda report: report.cpu_seconds)[len(reports) // 2]
    found = {"model": predictor.name, **describe(middle)}
    print(json.dumps(found, indent=2))
    common.write_record(options.out, record | found)


if __name__ == "__main__":
    main()
