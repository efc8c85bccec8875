"""Does spending bits where people look make what they look at better, at the same size?

    python -m experiments.roi_quality [--model NAME_OR_ONNX]

A clip is made from photographs with recorded fixations: a window moves over each, without scaling. It is encoded by
Debian's ffmpeg with libx264, plain and with the filter script of `fastgaze roi --format ffmpeg`; the plain encode's CRF
is bisected until both files have the same size. Quality is the PSNR of luma, weighted by the model's density, by where
people really looked in these photographs (which the model has not seen), and not weighted. The numbers go to
results/roi_quality.json.
"""

import argparse
import math
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import numpy.typing as npt

from experiments import common
from experiments.common import RESULTS
from fastgaze.core.operators import gaussian_matrix
from fastgaze.core.pictures import open_picture
from fastgaze.data.fixations import FixationSet, held_out
from fastgaze.data.formats import npz
from fastgaze.runtime.predictor import Array, Predictor, load
from fastgaze.runtime.video import Reader, Watch, maps
from fastgaze.runtime.video.addroi import write_ffmpeg
from fastgaze.runtime.video.roi import Roi, watch_blocks

SIZE = (336, 448)
RATE = 25
SIGMA = 16.0  # pixels; about one degree of visual angle in these photographs
WATCH = Watch(smooth=0.2)


@dataclass(frozen=True)
class Shot:
    """One frame of the clip: which photograph, and where its window lies."""

    image: int
    left: int
    top: int


def make_clip(fixations: FixationSet, images: list[int], frames: int, path: Path) -> list[Shot]:
    """A lossless clip: for every photograph a window that moves across it for ``frames`` frames."""
    shots = []
    with av.open(str(path), "w") as container:
        stream = container.add_stream("ffv1", rate=RATE)
        stream.height, stream.width, stream.pix_fmt = *SIZE, "yuv420p"
        for image in images:
            photo = np.asarray(open_picture(fixations.paths[image]).rgb())
            free = (photo.shape[0] - SIZE[0], photo.shape[1] - SIZE[1])
            for step in range(frames):
                share = step / max(frames - 1, 1)
                shot = Shot(image, round(free[1] * share), round(free[0] * share))
                shots.append(shot)
                window = photo[shot.top : shot.top + SIZE[0], shot.left : shot.left + SIZE[1]]
                frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(window), format="rgb24")
                frame.pts, frame.time_base = len(shots) - 1, Fraction(1, RATE)
                container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return shots


def human_density(fixations: FixationSet, shot: Shot, stored: tuple[int, int]) -> Array:
    """Where people looked within the window: recorded fixations, blurred, sums to 1; (H, W)."""
    points = fixations.fixations(shot.image, stored) - np.array([shot.left, shot.top], np.float32)
    inside = ((points >= 0) & (points < np.array([SIZE[1], SIZE[0]]))).all(axis=1)
    counts = np.zeros(SIZE)
    np.add.at(counts, (points[inside, 1].astype(int), points[inside, 0].astype(int)), 1)
    blurred = gaussian_matrix(SIZE[0], SIGMA) @ counts @ gaussian_matrix(SIZE[1], SIGMA).T
    density: Array = (blurred / blurred.sum()).astype(np.float32)
    return density


def write_script(clip: Path, predictor: Predictor, roi: Roi, path: Path) -> None:
    """The same as ``fastgaze roi CLIP --format ffmpeg --out PATH``."""
    with Reader(clip, threads=1) as reader, path.open("w") as out:
        write_ffmpeg(watch_blocks(reader, predictor, roi, WATCH), roi, out, interval=0.5)


def encode(clip: Path, out: Path, crf: float, script: Path | None, preset: str) -> int:
    """Encode with libx264 and return the size in bytes of the bare stream."""
    graph = [] if script is None else ["-filter_complex_script", str(script), "-map", "[out]"]
    command = ["ffmpeg", "-v", "error", "-y", "-i", str(clip), *graph, "-c:v", "libx264", "-threads", "1"]
    subprocess.run([*command, "-preset", preset, "-crf", f"{crf:.4f}", "-f", "h264", str(out)], check=True)
    return out.stat().st_size


def match_size(clip: Path, out: Path, size: int, crf: float, preset: str) -> tuple[float, int]:
    """CRF and bytes of the plain encode that comes closest to ``size``, by bisection."""
    low, high, best = crf - 8, crf + 8, (math.nan, 0)
    for _ in range(9):
        middle = (low + high) / 2
        found = encode(clip, out, middle, None, preset)
        if abs(found - size) < abs(best[1] - size):
            best = (middle, found)
        if abs(found - size) <= 0.002 * size:
            break
        low, high = (middle, high) if found > size else (low, middle)
    encode(clip, out, best[0], None, preset)
    return best


def luma(path: Path) -> npt.NDArray[np.uint8]:
    """Luma of all frames, (n, H, W)."""
    with av.open(str(path)) as container:
        frames = [frame.reformat(format="gray").to_ndarray() for frame in container.decode(video=0)]
    return np.array(frames, np.uint8)


def psnr(clip: npt.NDArray[np.uint8], coded: npt.NDArray[np.uint8], weights: list[Array]) -> float:
    """10 log10(255^2 / mean over frames of sum_p weight_p * error_p^2)."""
    assert clip.shape == coded.shape, (clip.shape, coded.shape)
    errors = [
        float((weight * np.square(a.astype(np.float32) - b)).sum(dtype=np.float64))
        for a, b, weight in zip(clip, coded, weights, strict=True)
    ]
    return 10 * math.log10(255**2 / float(np.mean(errors)))


def compare(
    clip: Path, script: Path, crf: float, preset: str, weights: dict[str, list[Array]], folder: Path
) -> dict[str, Any]:
    """Encode both ways at equal size and measure."""
    original = luma(clip)
    roi_file, plain_file = folder / "roi.h264", folder / "plain.h264"
    roi_bytes = encode(clip, roi_file, crf, script, preset)
    plain_crf, plain_bytes = match_size(clip, plain_file, roi_bytes, crf, preset)
    unmatched = encode(clip, folder / "same_crf.h264", crf, None, preset)
    row: dict[str, Any] = {"crf": crf, "plain_crf": plain_crf, "roi_bytes": roi_bytes, "plain_bytes": plain_bytes}
    row["bits_at_equal_crf"] = roi_bytes / unmatched
    coded = {"plain": luma(plain_file), "roi": luma(roi_file)}
    for name, weight in weights.items():
        plain, roi = (psnr(original, coded[kind], weight) for kind in ("plain", "roi"))
        row[f"psnr_{name}"] = {"plain": plain, "roi": roi, "gain": roi - plain}
    return row


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = common.make_parser(__doc__, __file__, out=RESULTS / "roi_quality.json")
    parser.add_argument("--model", help="a bundled model or an .onnx file; the default model without it")
    parser.add_argument("--images", type=int, default=12)
    parser.add_argument("--frames", type=int, default=25, help="frames for each photograph")
    parser.add_argument("--crf", type=float, nargs="+", default=[24, 29, 34])
    parser.add_argument("--preset", default="veryfast")
    parser.add_argument("--strength", type=float, default=1.0)
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    """Make the clip, encode, measure, print and write."""
    options = common.parse(make_parser(), arguments)
    record = common.about(options, images=options.images, frames=options.frames, preset=options.preset, data="osie")
    predictor, fixations = load(options.model, threads=1), npz.read(options.data / "osie")
    unseen = [int(i) for i in np.flatnonzero(held_out(fixations.names))]  # never trained on
    images = unseen[:: max(len(unseen) // options.images, 1)][: options.images]
    roi = Roi(block=16, low=-8, high=8, strength=options.strength, neutral=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        clip, script = folder / "clip.mkv", folder / "roi.ffmpeg"
        shots = make_clip(fixations, images, options.frames, clip)
        write_script(clip, predictor, roi, script)
        stored = {i: open_picture(fixations.paths[i]).size for i in images}
        weights: dict[str, list[Array]] = {
            "model": [gaze.density for _, gaze in maps(clip, predictor, watching=WATCH, threads=1)],
            "people": [human_density(fixations, shot, stored[shot.image]) for shot in shots],
            "even": [np.full(SIZE, 1 / (SIZE[0] * SIZE[1]), np.float32)] * len(shots),
        }
        rows = [compare(clip, script, crf, options.preset, weights, folder) for crf in options.crf]
    for row in rows:
        gains = ", ".join(f"{name} {row[f'psnr_{name}']['gain']:+.2f} dB" for name in weights)
        size = f"{row['roi_bytes']} against {row['plain_bytes']} bytes"
        print(f"crf {row['crf']:g}: {size}; PSNR weighted by {gains}; bits {row['bits_at_equal_crf']:.3f}")
    facts: dict[str, Any] = {"model": predictor.name, "encoder": f"ffmpeg libx264 {options.preset}", "size": list(SIZE)}
    facts |= {"frames": len(shots), "roi": {"block": 16, "range": [-8, 8], "strength": roi.strength, "neutral": True}}
    common.write_record(options.out, {**record, **facts, "results": rows})


if __name__ == "__main__":
    main()
