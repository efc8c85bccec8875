"""How fast a model is on this machine, now.

Machines are shared and clocks change, so everything that is compared is measured in turn within the same rounds: the
model, the model it is compared with, and a large matrix product that shows what one core can do. Figures are medians
over rounds with the 10th and 90th percentile; ratios are formed within a round first. Wall time and CPU time are both
kept; on one thread ratios and shares are those of CPU time, which other processes disturb least.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import SupportsFloat

import numpy as np
import numpy.typing as npt
from PIL import Image

from fastgaze.core.errors import ArgumentError, FastGazeError
from fastgaze.core.jsonable import Document
from fastgaze.core.progress import Clock
from fastgaze.core.sizes import Size, format_size, size_to_json
from fastgaze.evaluation import cold_start as cold_start_script
from fastgaze.runtime.predictor import Predictor, load

STEPS = ("decode", "prepare", "network", "tail")
PRODUCT = 1024
"""Side of the square matrices whose product shows what a core can do."""
_COLD_STARTS = 5


@dataclass(frozen=True)
class BenchSetup:
    """What is measured: model, network input size (height, width), engine and threads."""

    model: str | None
    size: Size
    engine: str = "onnxruntime"
    threads: int = 1
    rounds: int = 30


def bench(setup: BenchSetup, against: str | None = None, cold: bool = True) -> Document:
    """Figures of one model as plain values; with ``against`` also the ratio to another model.

    The picture and the network's input both have ``setup.size``, so that models with different working sizes compare;
    ``own_size`` holds the figures for the same picture at the model's own working size.
    """
    if setup.rounds < 3:
        raise ArgumentError(f"rounds={setup.rounds} is not at least 3")
    picture = sample_picture(setup.size)
    own = load(setup.model, setup.engine, setup.threads)
    forced = at_size(own, setup.size)
    other = None if against is None else at_size(load(against, setup.engine, setup.threads), setup.size)
    runs = {"model": forced, "own": own} | ({} if other is None else {"against": other})
    timings = _interleave(runs, picture, setup)
    result = _figures(setup, own, timings)
    if other is not None:
        result["against"] = _comparison(other, setup.size, timings)
    if cold:
        result |= cold_start(setup, picture)
    return result


def at_size(predictor: Predictor, size: Size) -> Predictor:
    """The same model with a working size of ``size`` for pictures of that shape; one that it cannot have is refused."""
    policy = predictor.card.working_size
    if any(side % policy.stride or side < policy.least for side in size):
        raise ArgumentError(
            f"size {format_size(size)} is not made of multiples of {policy.stride} from {policy.least} on, as "
            f"{predictor.name} needs it, such as 512x384"
        )
    return predictor.working_at(replace(policy, pixels=size[0] * size[1], max_ratio=1e9))


def sample_picture(size: Size) -> npt.NDArray[np.uint8]:
    """A picture with shapes of all scales and some noise, uint8 (H, W, 3)."""
    generator = np.random.default_rng(0)
    coarse = generator.integers(0, 256, (size[0] // 16 + 1, size[1] // 16 + 1, 3), dtype=np.uint8)
    photo = np.asarray(Image.fromarray(coarse).resize((size[1], size[0]), Image.Resampling.BICUBIC), dtype=np.int16)
    return (photo + generator.integers(-8, 9, photo.shape)).clip(0, 255).astype(np.uint8)


@dataclass(frozen=True, eq=False)
class Timings:
    """Milliseconds in every round: of each step (rounds, 4) for every model, and of the matrix product (rounds,)."""

    wall: dict[str, npt.NDArray[np.float64]]
    cpu: dict[str, npt.NDArray[np.float64]]
    threads: int

    @property
    def fair(self) -> dict[str, npt.NDArray[np.float64]]:
        """What ratios are made of. Several threads add up in CPU time, so there it says nothing about speed."""
        return self.cpu if self.threads == 1 else self.wall


def _interleave(runs: dict[str, Predictor], picture: npt.NDArray[np.uint8], setup: BenchSetup) -> Timings:
    work: dict[str, Callable[[], Clock]] = {
        name: partial(timed_prediction, predictor, picture) for name, predictor in runs.items()
    }
    work["product"] = matrix_product()
    for _ in range(3):  # the first calls build matrices and allocate
        for run in work.values():
            run()
    rounds: dict[str, list[Clock]] = {name: [] for name in work}
    for _ in range(setup.rounds):
        for name, run in work.items():
            rounds[name].append(run())
    wall = {name: milliseconds(clocks)[:, :, 0] for name, clocks in rounds.items()}
    return Timings(wall, {name: milliseconds(clocks)[:, :, 1] for name, clocks in rounds.items()}, setup.threads)


def milliseconds(clocks: Sequence[Clock]) -> npt.NDArray[np.float64]:
    """(clocks, steps, 2): wall and CPU milliseconds of every step, in the order in which steps began."""
    return 1e3 * np.array([[(time.wall, time.cpu) for time in clock.steps.values()] for clock in clocks])


def timed_prediction(predictor: Predictor, picture: npt.NDArray[np.uint8]) -> Clock:
    """One prediction up to the log density of every pixel: decode, prepare, network, tail."""
    view = predictor.look(picture)
    _ = view.at().log_density
    return view.clock


def matrix_product() -> Callable[[], Clock]:
    """A product of two square float32 matrices: the arithmetic limit of a core."""
    generator = np.random.default_rng(1)
    a, b = (generator.standard_normal((PRODUCT, PRODUCT)).astype(np.float32) for _ in range(2))
    out = np.empty_like(a)

    def run() -> Clock:
        clock = Clock()
        with clock("network"):
            np.matmul(a, b, out=out)
        return clock

    return run


def _figures(setup: BenchSetup, own: Predictor, timings: Timings) -> Document:
    gflop = own.card.gflop(setup.size)
    peak = 2 * PRODUCT**3 / 1e6 / timings.fair["product"][:, 0]
    rate = gflop * 1e3 / timings.fair["model"][:, STEPS.index("network")]
    return {
        "model": own.name,
        "engine": setup.engine,
        "threads": setup.threads,
        "size": size_to_json(setup.size),
        "rounds": setup.rounds,
        **_times("model", timings),
        "gflop": gflop,
        "gflop_per_s": _round(np.median(rate), 1),
        "peak_gflop_per_s": _round(np.median(peak), 1),
        "peak_share": _round(np.median(rate / peak), 4),
        "own_size": _own(setup, own, timings),
    }


def _own(setup: BenchSetup, own: Predictor, timings: Timings) -> Document:
    working = own.card.working_size(setup.size)
    return {"working_size": size_to_json(working), "gflop": own.card.gflop(working), **_times("own", timings)}


def _times(name: str, timings: Timings) -> Document:
    fair = timings.fair[name]
    return {
        **_spread("median_ms", timings.wall[name].sum(axis=1)),
        "cpu_ms": _round(np.median(timings.cpu[name].sum(axis=1))),
        "split_ms": _split(timings.wall[name]),
        "split_cpu_ms": _split(timings.cpu[name]),
        "outside_share": _round(np.median((fair[:, 1] + fair[:, 3]) / fair[:, 2]), 4),
    }


def _comparison(other: Predictor, size: Size, timings: Timings) -> Document:
    ratio = timings.fair["against"].sum(axis=1) / timings.fair["model"].sum(axis=1)
    facts = {"model": other.name, "gflop": other.card.gflop(size)}
    return {**facts, **_times("against", timings), **_spread("ratio", ratio)}


def _spread(name: str, values: npt.NDArray[np.float64]) -> dict[str, float]:
    low, middle, high = np.percentile(values, [10, 50, 90])
    prefix = name.removeprefix("median_")
    return {name: _round(middle), f"p10_{prefix}": _round(low), f"p90_{prefix}": _round(high)}


def _split(steps: npt.NDArray[np.float64]) -> dict[str, float]:
    return {step: _round(value) for step, value in zip(STEPS, np.median(steps, axis=0), strict=True)}


def _round(value: SupportsFloat, digits: int = 3) -> float:
    return round(float(value), digits)


def cold_start(setup: BenchSetup, picture: npt.NDArray[np.uint8]) -> dict[str, float]:
    """Seconds and peak memory of one prediction of a JPEG in a fresh process, with the model's own settings."""
    with tempfile.TemporaryDirectory() as folder:
        photo = Path(folder, "photo.jpg")
        Image.fromarray(picture).save(photo, quality=90)
        command = [sys.executable, "-m", cold_start_script.__name__, str(photo), setup.engine, str(setup.threads)]
        command += [] if setup.model is None else [setup.model]
        runs = [_run(command) for _ in range(_COLD_STARTS)]
    wall, cpu, megabytes = np.median(np.array(runs), axis=0)
    return {"cold_start_s": _round(wall), "cold_start_cpu_s": _round(cpu), "peak_rss_mb": _round(megabytes, 1)}


def _run(command: list[str]) -> tuple[float, float, float]:
    """Wall seconds, CPU seconds and peak resident megabytes of one process, as the kernel counts them."""
    environment = {key: value for key, value in os.environ.items() if not key.endswith("_NUM_THREADS")}
    start = perf_counter()
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors, env=environment)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            errors.seek(0)
            raise FastGazeError(f"a prediction failed in a fresh process: {errors.read().decode()[-300:]}")
    kilobytes = usage.ru_maxrss / (1024 if sys.platform == "darwin" else 1)
    return seconds, usage.ru_utime + usage.ru_stime, kilobytes / 1024
