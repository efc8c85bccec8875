"""The paper's Figure 1: pruning methods compared while the parameters stay fixed.

    python -m experiments.pruning_comparison experiments/configs/figure1.toml
    python -m experiments.pruning_comparison experiments/configs/figure1-lenet.toml

Estimate the signal on some images, remove a few maps, repeat: without training, nothing can hide a bad choice. The loss
is that of other images, each of which is kept at every mark of cost, so that two methods can be compared image by
image. Every method with a weight beta gets it in the same way: beta is a quantile of its own
beta_i = -delta_loss_i / delta_cost_i before the first removal, so that 0.5 means that removing would pay for half of
the maps. Writes results/NAME.json; a run that was stopped continues with the methods that are missing.
"""

import argparse
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from experiments import common
from experiments.common import RESULTS, RUNS, Record
from experiments.lenet import is_lenet, load_lenet, load_mnist
from experiments.starts import open_network
from fastgaze.data.formats import npz
from fastgaze.networks import GazeModel
from fastgaze.pruning import (
    Beta,
    BetaStar,
    ChannelGraph,
    Fisher,
    Flops,
    L1Activity,
    L1Weight,
    Molchanov,
    NoCost,
    Objective,
    Pruner,
    Random,
    Signal,
    Until,
    run,
)
from fastgaze.training.config import read_settings
from fastgaze.training.datasets import channels_last, prepare
from fastgaze.training.fit import device, per_image_loss
from fastgaze.training.stream import Batch, Source, fixation_source, in_order

REFERENCE = (480, 640)


@dataclass(frozen=True)
class Settings:
    """A file in experiments/configs.

    model: a bundled model, one of the paper's line, an exported .onnx, or a checkpoint below the repository.
    data: the set that both kinds of images come from; ``mnist`` for LeNet.
    size: (height, width) of gaze networks' images.
    signal_images, loss_images: how many; no image is in both.
    maps: removed between two estimates. marks: per cent of the cost at which the loss is measured; the last ends a run.
    quantiles: of a method's own beta_i, one line of the figure for each.
    """

    model: str
    data: str
    signal_images: int
    loss_images: int
    batch: int
    maps: int = 10
    marks: tuple[float, ...] = (90, 75, 50, 35, 25, 15, 10)
    quantiles: tuple[float, ...] = (0.25, 0.5, 0.9)
    size: tuple[int, int] = (240, 320)
    signal_precision: Literal["bf16", "fp32"] = "bf16"
    loss_precision: Literal["bf16", "fp32"] = "fp32"

    def tiny(self) -> "Settings":
        """Small enough for a test."""
        few = replace(self, signal_images=8, loss_images=8, batch=8, size=(64, 96))
        return replace(few, maps=200, marks=(75, 50, 25, 10), quantiles=self.quantiles[:1])


Loss = Callable[[nn.Module], Tensor]
"""A network -> its loss on each image of one batch (N,)."""


@dataclass(frozen=True)
class Problem:
    """A trained network, and its losses on the images for signals and on the others.

    unit: FLOPs that beta is per. size: (height, width) for which FLOPs are counted; None is the traced size.
    """

    load: Callable[[], nn.Module]
    example: Tensor
    signals: list[Loss]
    others: list[Loss]
    unit: float
    size: tuple[int, int] | None

    def trace(self, model: nn.Module) -> ChannelGraph:
        """What is pruned of the network."""
        place = next(model.parameters()).device
        network = model.network if isinstance(model, GazeModel) else model
        return ChannelGraph.trace(network, self.example.to(place))


def problem_of(settings: Settings, data: Path, cache: Path) -> Problem:
    """MNIST's validation digits for LeNet, else a set of images with fixations."""
    if settings.data == "mnist":
        return _digits(settings, data)
    return _fixations(settings, data, cache)


def _digits(settings: Settings, data: Path) -> Problem:
    digits = load_mnist(data / settings.data).validation
    count = settings.signal_images + settings.loss_images
    x = torch.from_numpy(digits.images[:count].copy())[:, None].float().to(device()) / 255
    label = torch.from_numpy(digits.labels[:count].copy()).to(device())

    def loss(part: slice) -> Loss:
        return lambda model: F.cross_entropy(model(x[part]), label[part], reduction="none")

    parts = [slice(k, min(k + settings.batch, end)) for k, end in _starts(settings, len(x))]
    split = math.ceil(settings.signal_images / settings.batch)
    losses = [loss(part) for part in parts]
    return Problem(lambda: _load(settings.model), x[:1], losses[:split], losses[split:], 1e6, None)


def _starts(settings: Settings, count: int) -> Iterator[tuple[int, int]]:
    """(first, end of its kind) of every batch: those for signals, then the others."""
    for first, end in ((0, settings.signal_images), (settings.signal_images, count)):
        yield from ((k, end) for k in range(first, end, settings.batch))


def _fixations(settings: Settings, data: Path, cache: Path) -> Problem:
    height, width = settings.size
    prepared = prepare(npz.read(data / settings.data), settings.data, (height, width), cache)
    count = settings.signal_images + settings.loss_images
    order = np.linspace(0, len(prepared) - 1, count).round().astype(int)
    signal = np.zeros(count, bool)
    signal[np.linspace(0, count - 1, settings.signal_images).round().astype(int)] = True

    def losses(images: np.ndarray, precision: str) -> list[Loss]:
        source: Source = fixation_source(prepared.subset(images))
        return [_gaze_loss(part, precision) for part in in_order(source, settings.batch)]

    return Problem(
        lambda: _load(settings.model),
        torch.zeros(1, 3, 64, 96),
        losses(order[signal], settings.signal_precision),
        losses(order[~signal], settings.loss_precision),
        1e9,
        REFERENCE,
    )


def _gaze_loss(part: Batch, precision: str) -> Loss:
    return lambda model: per_image_loss(model, part, precision)


def _load(name: str) -> nn.Module:
    """The network in evaluation mode, where training would put it."""
    path = common.ROOT / name
    lenet = path.suffix == ".safetensors" and is_lenet(path)
    model: nn.Module = load_lenet(path)[0] if lenet else open_network(name)[0]
    return channels_last(model).to(device()).eval()


@dataclass(frozen=True)
class Method:
    """One line of the figure; ``quantile`` chooses its beta, None for objectives without one."""

    name: str
    group: str
    signal: Signal
    objective: Objective
    live: bool = True
    quantile: float | None = None


def methods(quantiles: Sequence[float]) -> list[Method]:
    """The paper's lines, those without a weight first; the figure draws each group apart."""
    fisher, molchanov = Fisher(), {"normalised": Molchanov(True), "unnormalised": Molchanov(False)}
    naive: dict[str, Signal] = {"L1A": L1Activity(), "L1W": L1Weight(), "random": Random()}
    found = [
        Method("Fisher, beta*", "Fisher", fisher, BetaStar()),
        Method("Fisher, beta = 0", "Fisher", fisher, NoCost()),
        *(Method(name, "naive", signal, NoCost()) for name, signal in naive.items()),
        *(Method(f"Molchanov, {name}", "Molchanov", signal, NoCost()) for name, signal in molchanov.items()),
        Method("Fisher with first-order term", "Fisher", Fisher(first_order=True), NoCost()),
        Method("Fisher, beta*, frozen costs", "frozen costs", fisher, BetaStar(), live=False),
        *_weighted("Fisher, beta", "Fisher", fisher, quantiles, live=True),
        *_weighted("Fisher, frozen costs, beta", "frozen costs", fisher, quantiles, live=False),
    ]
    for name, signal in molchanov.items():
        found += _weighted(f"Molchanov, {name}, beta", "Molchanov", signal, quantiles, live=False)
    return found


def _weighted(name: str, group: str, signal: Signal, quantiles: Sequence[float], live: bool) -> list[Method]:
    return [Method(f"{name} at {q:.0%}", group, signal, NoCost(), live, q) for q in quantiles]


def curve(problem: Problem, method: Method, settings: Settings, whole: list[float]) -> Record:
    """The loss of every other image at each mark of cost; ``whole`` are those of the network before any removal."""
    model = problem.load().requires_grad_(False)  # signals need the gradients of maps alone: a third less work
    graph = problem.trace(model)
    cost = Flops(problem.size, update=method.live)
    pruner = Pruner(graph, signal=method.signal, cost=cost, objective=method.objective)
    step = _observer(problem, method, model, pruner)
    beta = None if method.quantile is None else _own_beta(pruner, step, problem, method.quantile)
    if beta is not None:
        pruner = Pruner(graph, signal=method.signal, cost=cost, objective=Beta(beta, problem.unit))
        step = _observer(problem, method, model, pruner)
    measured = [{"mark": 100.0, "cost_percent": 100.0, "losses": whole}]
    full, steps = pruner.total_cost, len(problem.signals) if method.signal.needs else 1
    for mark in settings.marks:
        run(pruner, step, Until(cost=mark / 100 * full), steps=steps, per_round=settings.maps)
        share = 100 * pruner.total_cost / full
        measured.append({"mark": mark, "cost_percent": round(share, 3), "losses": _losses(problem.others, model)})
    rounds = len(pruner.history.removals)
    return {"group": method.group, "live": method.live, "beta": beta, "rounds": rounds, "measured": measured}


def _observer(problem: Problem, method: Method, model: nn.Module, pruner: Pruner) -> Callable[[int], float]:
    backward = "gradient" in method.signal.needs

    def step(number: int) -> float:
        if not method.signal.needs:
            return 0.0  # weights and random numbers need no image
        with pruner.observe(), torch.set_grad_enabled(backward):
            losses = problem.signals[number % len(problem.signals)](model)
            if backward:
                losses.mean().backward()  # type: ignore[no-untyped-call]
        return float(losses.detach().mean())

    return step


def _own_beta(pruner: Pruner, step: Callable[[int], float], problem: Problem, quantile: float) -> float:
    """The quantile of beta_i over the maps that can go, in loss per ``problem.unit``."""
    for number in range(len(problem.signals)):
        step(number)
    saved = pruner.cost.delta_cost(pruner.graph, pruner.graph.alive)
    beta = BetaStar()(pruner.delta_loss(), saved)[pruner.allowed]
    return float(torch.quantile(beta[torch.isfinite(beta)], quantile)) * problem.unit


@torch.no_grad()
def _losses(parts: list[Loss], model: nn.Module) -> list[float]:
    return [round(float(value), 5) for part in parts for value in part(model).double().cpu()]


def summary(curves: dict[str, Record]) -> str:
    """Mean rise of the loss at every mark."""
    marks = [point["mark"] for point in next(iter(curves.values()))["measured"]]
    lines = [f"{'method':44}" + "".join(f"{f'{mark:g} %':>9}" for mark in marks)]
    for name, found in curves.items():
        start = np.array(found["measured"][0]["losses"])
        rises = [float(np.mean(np.array(point["losses"]) - start)) for point in found["measured"]]
        lines.append(f"{name:44}" + "".join(f"{rise:9.4f}" for rise in rises))
    return "\n".join(lines)


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = common.make_settings_parser(__doc__, __file__, "figure1.toml", tiny="8 small images, two marks")
    parser.add_argument("--model", help="instead of the one in the settings")
    parser.add_argument("--only", nargs="+", help="names of methods; all by default")
    parser.add_argument("--cache", type=Path, default=RUNS / "cache", help="decoded images")
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    """Run every method that is missing."""
    options = common.parse(make_parser(), arguments)
    settings = read_settings(Settings, options.config)
    settings = settings.tiny() if options.tiny else settings
    settings = replace(settings, model=options.model) if options.model else settings
    out = options.out or RESULTS / f"{options.config.stem}.json"
    record = common.read_record(out)
    if record is None or record["settings"] != _plain(settings):
        record = common.about(options, **_plain(settings)) | {"curves": {}}
    problem = problem_of(settings, options.data, options.cache)
    record["unit_flops"] = problem.unit
    record["methods"] = [method.name for method in methods(settings.quantiles)]
    whole = _losses(problem.others, problem.load())
    for method in methods(settings.quantiles):
        if method.name not in record["curves"] and (not options.only or method.name in options.only):
            record["curves"][method.name] = curve(problem, method, settings, whole)
            common.write_record(out, record)
            print(f"{method.name} is done", flush=True)
    print(summary(record["curves"]))


def _plain(settings: Settings) -> Record:
    """As JSON gives them back; the size is [width, height] there."""
    height, width = settings.size
    facts = {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(settings).items()}
    return facts | {"size": [width, height]}


if __name__ == "__main__":
    main()
