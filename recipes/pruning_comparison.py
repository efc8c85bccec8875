"""The paper's Figure 1: pruning methods compared while the parameters stay fixed.

    python recipes/pruning_comparison.py --checkpoint fastgaze.safetensors --data ../shared/data/osie --out figure1
    python recipes/pruning_comparison.py --checkpoint lenet.safetensors --data ../shared/data/mnist --out figure1-lenet

Estimate the signal on the whole set, remove 10 maps, repeat: without training, nothing can hide a bad choice.
Writes OUT.json (curves of loss over cost) and OUT.png. beta is loss per unit: a GFLOP at 640x480 for gaze networks,
a million FLOPs for LeNet. A run that was stopped goes on with the methods that OUT.json does not hold yet.
"""

import argparse
import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fastgaze.app.cli.common import parse_size
from fastgaze.data.formats import npz
from fastgaze.data.mnist import load_mnist
from fastgaze.models import GazeModel, load_checkpoint
from fastgaze.models.lenet import LeNet5
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
from fastgaze.training.fit import per_image_loss
from fastgaze.training.prepare import prepare
from fastgaze.training.stream import Batch, fixation_source, in_order

REFERENCE = (480, 640)


@dataclass(frozen=True)
class Problem:
    """A trained network, what is pruned of it, and its loss on every batch of a fixed set.

    unit  FLOPs that beta is per
    size  for which FLOPs are counted; None is the traced size
    """

    load: Callable[[], nn.Module]
    example: Tensor
    losses: list[Callable[[nn.Module], Tensor]]
    unit: float
    size: tuple[int, int] | None

    def network(self, model: nn.Module) -> nn.Module:
        return model.network if isinstance(model, GazeModel) else model


@dataclass(frozen=True)
class Method:
    """One line of the figure."""

    name: str
    signal: Signal
    objective: Objective
    update: bool = True
    color: str = "tab:blue"


def methods(betas: list[float], molchanov_beta: float, unit: float) -> list[Method]:
    """The paper's lines: Fisher in blue and red, frozen costs in orange, Molchanov et al. in grey, naive in green."""
    fisher = [Method(f"Fisher, beta = {b:g}", Fisher(), Beta(b, unit)) for b in betas]
    frozen = [
        Method("Fisher, beta*, frozen costs", Fisher(), BetaStar(), update=False, color="tab:orange"),
        *(
            Method(f"Fisher, beta = {b:g}, frozen costs", Fisher(), Beta(b, unit), False, "tab:orange")
            for b in betas[:1]
        ),
    ]
    others = []
    for normalized in (True, False):
        name = "Molchanov, " + ("normalised" if normalized else "unnormalised")
        others.append(Method(name, Molchanov(normalized), NoCost(), color="tab:gray"))
        others.append(Method(f"{name}, cost", Molchanov(normalized), Beta(molchanov_beta, unit), False, "tab:gray"))
    naive = [
        Method("L1A", L1Activity(), NoCost(), color="tab:green"),
        Method("L1W", L1Weight(), NoCost(), color="tab:green"),
        Method("random", Random(), NoCost(), color="lightgreen"),
    ]
    star = Method("Fisher, beta*", Fisher(), BetaStar(), color="tab:red")
    return [star, Method("Fisher, beta = 0", Fisher(), NoCost()), *fisher, *frozen, *others, *naive]


def curve(problem: Problem, method: Method, maps: int, lowest: float) -> list[dict[str, float]]:
    """Points {cost_percent, loss} from the whole network down to ``lowest`` per cent of its cost."""
    model = problem.load().eval()
    graph = ChannelGraph.trace(problem.network(model), problem.example)
    cost = Flops(problem.size, update=method.update)
    pruner = Pruner(graph, signal=method.signal, cost=cost, objective=method.objective)
    backward = "gradient" in method.signal.needs

    def step(number: int) -> float:
        with pruner.observe(), torch.set_grad_enabled(backward):
            losses = problem.losses[number % len(problem.losses)](model)
            if backward:
                losses.mean().backward()  # type: ignore[no-untyped-call]
        model.zero_grad(set_to_none=True)
        return float(losses.detach().mean())

    limit = Until(cost=lowest / 100 * pruner.total_cost)
    history = run(pruner, step, limit, steps=len(problem.losses), per_round=maps)
    costs = [history.cost, *(removal.cost for removal in history.removals)]  # a round's loss is that before its removal
    pairs = zip(costs, history.removals, strict=False)
    return [{"cost_percent": 100 * c / history.cost, "loss": r.loss or 0.0} for c, r in pairs]


def problem_of(checkpoint: Path, data: Path, images: int, batch: int, size: tuple[int, int], cache: Path) -> Problem:
    """MNIST's training digits for LeNet, else a folder with images and fixations."""

    def load() -> nn.Module:
        return load_checkpoint(checkpoint)[0]

    if isinstance(load(), LeNet5):
        return _digits(load, data, images, batch)
    return _fixations(load, data, images, batch, size, cache)


def _digits(load: Callable[[], nn.Module], data: Path, images: int, batch: int) -> Problem:
    digits = load_mnist(data).train
    x = torch.from_numpy(digits.images[:images].copy())[:, None].float() / 255
    label = torch.from_numpy(digits.labels[:images].copy())

    def loss(part: slice) -> Callable[[nn.Module], Tensor]:
        return lambda model: F.cross_entropy(model(x[part]), label[part], reduction="none")

    parts = [slice(k, k + batch) for k in range(0, len(x), batch)]
    return Problem(load, x[:1], [loss(part) for part in parts], 1e6, None)


def _fixations(
    load: Callable[[], nn.Module], data: Path, images: int, batch: int, size: tuple[int, int], cache: Path
) -> Problem:
    source = fixation_source(prepare(npz.read(data), data.name, size, cache))
    parts = list(in_order(source, batch))[: math.ceil(images / batch)]

    def loss(part: Batch) -> Callable[[nn.Module], Tensor]:
        return lambda model: per_image_loss(model, part)

    return Problem(load, torch.zeros(1, 3, 64, 96), [loss(part) for part in parts], 1e9, REFERENCE)


def plot(curves: dict[str, list[dict[str, float]]], found: list[Method], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 5))
    styles = ["-", "--", "-.", ":"]
    count: dict[str, int] = {}
    for method in found:
        if method.name in curves:
            points = curves[method.name]
            style = styles[count.get(method.color, 0) % len(styles)]
            count[method.color] = count.get(method.color, 0) + 1
            x, y = [p["cost_percent"] for p in points], [p["loss"] for p in points]
            axes.plot(x, y, style, color=method.color, label=method.name)
    start = min(points[0]["loss"] for points in curves.values())
    axes.set(xlabel="cost, per cent of the unpruned network", ylabel="loss", xlim=(0, 100))
    axes.set_ylim(start - 0.02, max(3 * start, start + 1.0))
    axes.legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(path, dpi=150)
    pyplot.close(figure)


def summary(curves: dict[str, list[dict[str, float]]], marks: tuple[float, ...] = (50, 25, 10)) -> str:
    """Loss at the first point at or below each cost."""
    lines = [f"{'method':38}" + "".join(f"{f'{mark:g} %':>10}" for mark in marks)]
    for name, points in curves.items():
        cells = [next((p["loss"] for p in points if p["cost_percent"] <= mark), math.nan) for mark in marks]
        lines.append(f"{name:38}" + "".join(f"{cell:10.4f}" for cell in cells))
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkpoint", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True, help="folder of fixation data, or of MNIST for LeNet")
    parser.add_argument("--out", type=Path, default=Path("pruning_comparison"), help="OUT.json and OUT.png")
    parser.add_argument("--images", type=int, default=1000, help="how many images the signals are estimated from")
    parser.add_argument("--batch", type=int, default=50)
    parser.add_argument("--maps", type=int, default=10, help="maps removed between two estimates")
    parser.add_argument("--lowest", type=float, default=3.0, help="per cent of the cost at which a curve ends")
    parser.add_argument("--betas", type=float, nargs="*", default=[1e-3, 1e-2, 1e-1])
    parser.add_argument("--molchanov-beta", type=float, default=1e-2)
    parser.add_argument("--size", type=parse_size, default=(240, 320), help="HEIGHTxWIDTH of gaze networks' images")
    parser.add_argument("--cache", type=Path, default=Path("runs/cache"), help="decoded images")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    problem = problem_of(options.checkpoint, options.data, options.images, options.batch, options.size, options.cache)
    found = methods(options.betas, options.molchanov_beta, problem.unit)
    record = options.out.with_suffix(".json")
    curves: dict[str, Any] = json.loads(record.read_text())["curves"] if record.exists() else {}
    for method in found:
        if method.name not in curves:
            curves[method.name] = curve(problem, method, options.maps, options.lowest)
            record.parent.mkdir(parents=True, exist_ok=True)
            facts = {
                "images": options.images,
                "size": options.size,
                "maps": options.maps,
                "unit_flops": problem.unit,
                "data": options.data.name,
                "checkpoint": str(options.checkpoint),
                "curves": curves,
            }
            record.write_text(json.dumps(facts) + "\n")
    plot(curves, found, options.out.with_suffix(".png"))
    print(summary(curves))


if __name__ == "__main__":
    main()
