"""How well are the frames of a video predicted, and what do smoothing over time and motion add?

    python -m experiments.video_temporal [--unisal FOLDER]

Six moments per second of the sequences with recorded gaze of 32 viewers. At each, the fixations of that moment score
the map of that frame: AUC, NSS, CC (with the fixations blurred by a degree, about a thirtieth of the width) and
information gain over the centre bias of the other sequences, in bits per fixation; all on a grid 84 cells wide,
protocol `tuebingen`; means over sequences. Settings are chosen on every other sequence by information gain (NSS where
that is the same to a hundredth) and reported on the rest. Variants: the still model (every frame by itself), an
exponential mean of log densities over time, and motion (`fastgaze.runtime.video.motion`) at several strengths.

UNISAL's still and recurrent video modes are compared if FOLDER holds the unpacked registry packages
mediaattention==0.2.1 (its network) and pyautoflip==0.2.1 (its weights). For every method a power of the density and a
share of the centre bias are fitted on the first half, because UNISAL was made for other screens, and so was ours.
Saliency is kept in runs/video_temporal and not computed again. The numbers go to results/video_temporal.json.
"""

import argparse
import importlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from experiments import common
from experiments.common import RESULTS, RUNS
from experiments.unisal import load_unisal
from experiments.video_sequences import Sequence as Gaze
from experiments.video_sequences import halves, read_sequences
from fastgaze.core.operators import bilinear_matrix, gaussian_matrix
from fastgaze.core.progress import Clock
from fastgaze.core.sizes import Size
from fastgaze.evaluation import metrics
from fastgaze.runtime import tail
from fastgaze.runtime.predictor import Predictor, load
from fastgaze.runtime.video import Reader, Watch
from fastgaze.runtime.video.motion import Motion
from fastgaze.runtime.video.watch import watch

PER_SECOND = 6.0
"""Moments scored; UNISAL's video mode was made for this rate."""
WIDTH = 84
BLUR = WIDTH / 30
Values = npt.NDArray[np.float64]
Maps = list[Values]
"""Log densities of the moments of one sequence, on the grid."""


@dataclass(frozen=True, eq=False)
class Watched:
    """What was kept of one sequence."""

    gaze: Gaze
    saliency: npt.NDArray[np.float32]
    """Of every frame, (n, h, w)."""
    screen: Values
    """How likely every frame is one of a screen, (n,)."""
    grey: npt.NDArray[np.float32]
    """Every eighth pixel of every frame at the working size, (n, h, w)."""
    times: Values
    cuts: npt.NDArray[np.bool_]
    working: Size

    @property
    def grid(self) -> Size:
        """(height, width) on which maps are scored."""
        return round(WIDTH * self.gaze.size[0] / self.gaze.size[1]), WIDTH

    def moments(self) -> list[int]:
        """Numbers of the frames that are scored; the first quarter of a second, of eyes still at rest, is not."""
        wanted = np.arange(0.25, len(self.times) / self.gaze.rate, 1 / PER_SECOND)
        return [index for index in (wanted * self.gaze.rate).astype(int).tolist() if index < len(self.times)]

    def fixations(self, index: int) -> Values:
        """(x, y) of the moment, in cells of the grid."""
        scale = np.array([self.grid[1] / self.gaze.size[1], self.grid[0] / self.gaze.size[0]])
        points: Values = self.gaze.at((index + 0.5) / self.gaze.rate) * scale
        return points


def keep(gaze: Gaze, predictor: Predictor, folder: Path) -> Watched:
    """Watch a sequence frame by frame, or read what was kept."""
    path = folder / f"{gaze.name}-{predictor.name}.npz"
    if not path.exists():
        with Reader(gaze.path, threads=1) as reader:
            seen = [
                (item.view.saliency, item.view.screen, item.rgb[::8, ::8].mean(axis=2), item.time, item.cut)
                for item in watch(reader.frames(), predictor, Watch(), Clock())
            ]
        saliency, screen, grey, times, cuts = zip(*seen, strict=True)
        working = predictor.card.working_size(gaze.size)
        folder.mkdir(parents=True, exist_ok=True)
        np.savez(path, saliency=saliency, screen=screen, grey=grey, times=times, cuts=cuts, working=working)
        print(f"watched {gaze.name}", flush=True)
    with np.load(path) as kept:
        working = (int(kept["working"][0]), int(kept["working"][1]))
        grey = kept["grey"].astype(np.float32)
        saliency = kept["saliency"].astype(np.float32)
        return Watched(gaze, saliency, kept["screen"], grey, kept["times"], kept["cuts"], working)


def smoothed(values: npt.NDArray[np.float32], watched: Watched, seconds: float) -> npt.NDArray[np.float32]:
    """The exponential mean that ``Watch(smooth=seconds)`` computes."""
    if seconds == 0:
        return values
    found = values.copy()
    for index in range(1, len(values)):
        if not watched.cuts[index]:
            weight = 1 - np.exp(-(watched.times[index] - watched.times[index - 1]) / seconds)
            found[index] = found[index - 1] + weight * (values[index] - found[index - 1])
    return found


def cues(watched: Watched) -> npt.NDArray[np.float32]:
    """The cue that ``Watch(motion=1)`` adds to every frame's saliency, (n, h, w)."""
    motion, shape = Motion(), watched.saliency.shape[1:]
    found = []
    for luma, time, cut in zip(watched.grey, watched.times, watched.cuts, strict=True):
        motion.see(luma, float(time), bool(cut))
        found.append(motion.cue((shape[0], shape[1])))
    return np.array(found)


def ours(watched: Watched, predictor: Predictor, seconds: float, strength: float) -> Maps:
    """Log densities of the moments, smoothed over time and raised where something moves."""
    saliency = watched.saliency + np.float32(strength) * cues(watched) if strength else watched.saliency
    saliency, card = smoothed(saliency, watched, seconds), predictor.card
    assert card.kinds is not None
    biases = [tail.bias_of_kind(card.kinds, float(screen)) for screen in watched.screen]
    fields = (
        tail.Field(saliency[index], watched.working, card.sigma, biases[index], card.temperature)
        for index in watched.moments()
    )
    return [normalised(field.log_density(watched.grid).astype(np.float64)) for field in fields]


def normalised(log_density: Values) -> Values:
    """The same up to a constant, logsumexp 0."""
    shifted = log_density - log_density.max()
    found: Values = shifted - np.log(np.exp(shifted).sum())
    return found


class Unisal:
    """UNISAL's network from one package with the weights of another; ``recurrent`` is its video mode."""

    def __init__(self, folder: Path, recurrent: bool) -> None:
        import torch

        self._torch, self._recurrent = torch, recurrent
        self._network = load_unisal(folder, "weights_best.pth")

    def maps(self, watched: Watched, folder: Path) -> Maps:
        """Log densities of the moments; kept in a file."""
        path = folder / f"{watched.gaze.name}-unisal-{'video' if self._recurrent else 'still'}.npz"
        if not path.exists():
            np.savez_compressed(path, maps=np.array(self._run(watched), np.float32))
            print(f"{path.stem}", flush=True)
        with np.load(path) as kept:
            return [normalised(found.astype(np.float64)) for found in kept["maps"]]

    def _run(self, watched: Watched) -> Maps:
        hidden: Any = [None]
        found, wanted = [], set(watched.moments())
        size = importlib.import_module("mediaattention.saliency")._unisal_size(*watched.gaze.size)
        with Reader(watched.gaze.path, threads=1) as reader, self._torch.no_grad():
            for index, frame in enumerate(reader.frames()):
                if index not in wanted:
                    continue
                pixels = frame.reformat(
                    width=size[1], height=size[0], format="rgb24", interpolation="AREA"
                ).to_ndarray()
                scaled = (pixels / 255 - (0.485, 0.456, 0.406)) / (0.229, 0.224, 0.225)
                tensor = self._torch.tensor(scaled.transpose(2, 0, 1)[None, None], dtype=self._torch.float32)
                if self._recurrent:
                    options = {"source": "DHF1K", "static": False, "h0": hidden, "return_hidden": True}
                    log_density, hidden = self._network(tensor, target_size=watched.grid, **options)
                else:
                    log_density = self._network(tensor, target_size=watched.grid, source="SALICON", static=True)
                found.append(log_density[0, 0, 0].double().numpy())
        return found


def unisal_maps(network: Unisal, all_watched: list[Watched], folder: Path) -> dict[str, Maps]:
    """Of all sequences."""
    return {watched.gaze.name: network.maps(watched, folder) for watched in all_watched}


def center_biases(all_watched: list[Watched]) -> dict[str, Values]:
    """For every sequence the blurred fixations of all others, each with equal weight, as a log density."""
    counts = {}
    for watched in all_watched:
        size = (round(WIDTH * 9 / 16), WIDTH)
        points = watched.gaze.points / watched.gaze.size[::-1] * size[::-1]
        total = np.zeros(size)
        np.add.at(total, (points[:, 1].astype(int), points[:, 0].astype(int)), 1)
        counts[watched.gaze.name] = total / total.sum()
    biases = {}
    for watched in all_watched:
        pooled = sum((own for name, own in counts.items() if name != watched.gaze.name), np.zeros(size))
        rows, columns = (
            bilinear_matrix(n, out) @ gaussian_matrix(n, 5.0) for n, out in zip(size, watched.grid, strict=True)
        )
        biases[watched.gaze.name] = normalised(np.log(rows @ pooled @ columns.T + 1e-6))
    return biases


def score(watched: Watched, maps: Maps, bias: Values) -> dict[str, float]:
    """Means over the moments of one sequence."""
    rows = []
    blurs = [gaussian_matrix(n, BLUR) for n in watched.grid]
    for index, found in zip(watched.moments(), maps, strict=True):
        points = watched.fixations(index)
        if len(points):
            counts = np.zeros(watched.grid)
            np.add.at(counts, (points[:, 1].astype(int), points[:, 0].astype(int)), 1)
            density = np.exp(found)
            rows.append(
                (
                    metrics.auc(density, points),
                    metrics.nss(density, points),
                    metrics.cc(density, blurs[0] @ counts @ blurs[1].T),
                    metrics.information_gain(found, points, bias),
                )
            )
    return dict(zip(("auc", "nss", "cc", "information_gain"), np.mean(rows, axis=0).tolist(), strict=True))


def mean_score(group: list[Watched], maps: dict[str, Maps], biases: dict[str, Values]) -> dict[str, float]:
    """Means over sequences."""
    rows = [score(watched, maps[watched.gaze.name], biases[watched.gaze.name]) for watched in group]
    return {metric: round(float(np.mean([row[metric] for row in rows])), 4) for metric in rows[0]}


def fitted(group: list[Watched], maps: dict[str, Maps], biases: dict[str, Values]) -> tuple[float, float]:
    """The power of the density and the share of the centre bias with the highest information gain on the sequences."""

    def gain(power: float, share: float) -> float:
        total = []
        for watched in group:
            bias = biases[watched.gaze.name]
            for index, found in zip(watched.moments(), maps[watched.gaze.name], strict=True):
                points = watched.fixations(index).astype(int)
                if len(points):
                    total.append(normalised(power * found + share * bias)[points[:, 1], points[:, 0]].mean())
        return float(np.mean(total))

    grid = [(power, share) for power in (0.5, 0.65, 0.8, 1.0, 1.2) for share in (0.0, 0.25, 0.5, 0.75)]
    return max(grid, key=lambda pair: gain(*pair))


def with_fit(maps: dict[str, Maps], biases: dict[str, Values], fit: tuple[float, float]) -> dict[str, Maps]:
    """The maps with this power and share."""
    return {name: [normalised(fit[0] * found + fit[1] * biases[name]) for found in own] for name, own in maps.items()}


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = common.make_parser(__doc__, __file__, out=RESULTS / "video_temporal.json")
    parser.add_argument("--model", help="a bundled model or an .onnx file; the default model without it")
    parser.add_argument("--unisal", type=Path, help="folder with mediaattention and pyautoflip, unpacked")
    parser.add_argument("--smooth", type=float, nargs="+", default=[0, 0.1, 0.2, 0.3, 0.4, 0.6, 1.0])
    parser.add_argument("--motion", type=float, nargs="+", default=[0.25, 0.5, 0.75])
    parser.add_argument("--keep", type=Path, default=RUNS / "video_temporal", help="folder for saliency maps")
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    """Watch, choose, score, write."""
    options = common.parse(make_parser(), arguments)
    predictor = load(options.model, threads=1)
    record = common.about(options, model=predictor.name, engine="onnxruntime", threads=1, per_second=PER_SECOND)
    first, second = halves(read_sequences(options.data / "video"))
    choosing, reporting = ([keep(gaze, predictor, options.keep) for gaze in half] for half in (first, second))
    everything = [*choosing, *reporting]
    biases = center_biases(everything)

    def variant(seconds: float, strength: float) -> dict[str, Maps]:
        return {watched.gaze.name: ours(watched, predictor, seconds, strength) for watched in everything}

    rows, best = [], (0.0, 0.0)
    tried: dict[tuple[float, float], tuple[float, float]] = {}

    def attempt(seconds: float, strength: float) -> None:
        maps = variant(seconds, strength)
        found = [mean_score(group, maps, biases) for group in (choosing, reporting)]
        rows.append({"smooth": seconds, "motion": strength, "choosing": found[0], "reporting": found[1]})
        tried[seconds, strength] = (round(found[0]["information_gain"], 2), found[0]["nss"])
        print(json.dumps(rows[-1]), flush=True)

    for seconds in options.smooth:
        attempt(seconds, 0.0)
    best = max(tried, key=lambda key: tried[key])
    for strength in options.motion:
        attempt(best[0], strength)
    best = max(tried, key=lambda key: tried[key])
    methods: dict[str, Callable[[], dict[str, Maps]]] = {
        "still": lambda: variant(0.0, 0.0),
        "chosen": lambda: variant(*best),
        "center bias": lambda: {w.gaze.name: [biases[w.gaze.name]] * len(w.moments()) for w in everything},
    }
    if options.unisal is not None:
        for name, recurrent in (("unisal still", False), ("unisal video", True)):
            methods[name] = partial(unisal_maps, Unisal(options.unisal, recurrent), everything, options.keep)
    table = {}
    for name, make in methods.items():
        maps = make()
        fit = fitted(choosing, maps, biases)
        table[name] = {
            "as it is": mean_score(reporting, maps, biases),
            "fitted": mean_score(reporting, with_fit(maps, biases, fit), biases),
            "power": fit[0],
            "center_bias": fit[1],
        }
        print(name, json.dumps(table[name]), flush=True)
    names = {"choosing": [w.gaze.name for w in choosing], "reporting": [w.gaze.name for w in reporting]}
    chosen = {"smooth": best[0], "motion": best[1]}
    common.write_record(options.out, {**record, **names, "chosen": chosen, "variants": rows, "methods": table})


if __name__ == "__main__":
    main()
