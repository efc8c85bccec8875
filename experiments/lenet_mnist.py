"""The paper's LeNet-5 table: error and computational cost after Fisher pruning on MNIST.

    python -m experiments.lenet_mnist

Every network, the unpruned one too, is trained in the same way: SGD with momentum, weight decay, cosine decay of the
learning rate, clipped gradients, digits shifted at random by up to two pixels, and the epoch with the best validation
error kept. Pruning goes on while training, with the learning rate and the ten steps a round of the paper; then the
network is tuned. Within a run all choices use the 7,000 validation digits. The plan itself (epochs, betas) was set on
seed 0, whose test error was seen meanwhile; the table therefore starts at seed 1.
The work folder holds every finished row, so that a run that was stopped can be resumed.
"""

import argparse
import copy
import json
import math
import re
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from experiments import common
from experiments.common import RESULTS, RUNS
from experiments.lenet import Digits, LeNet5, load_lenet, load_mnist, save_lenet
from fastgaze.pruning import (
    Beta,
    BetaStar,
    ChannelGraph,
    Flops,
    NoCost,
    Objective,
    ParameterPruner,
    Pruner,
    Until,
    run,
)

MEGA = 1e6  # beta is loss per million FLOPs
STAR, FIXED, ZERO = "Fisher (beta*)", "Fisher (beta > 0)", "Fisher (beta = 0)"
PUSHED = [10.0, 5.0]  # per cent of the cost


@dataclass(frozen=True)
class Plan:
    """How long and how hard; ``limit`` cuts the data for a quick look."""

    epochs: int = 8
    batch: int = 128
    rate: float = 0.05
    weight_decay: float = 5e-4
    clip: float = 2.0
    shift: int = 2
    prune_batch: int = 64
    prune_rate: float = 0.0025
    steps: int = 10
    maps: int = 3
    betas: tuple[float, ...] = (0.07, 0.1, 0.2)
    limit: int | None = None


TINY = Plan(epochs=1, steps=2, maps=60, betas=(0.01,), limit=600)


@dataclass(frozen=True)
class Data:
    """digits (N, 1, 28, 28) in 0..1 and labels (N,) of each part."""

    train: tuple[Tensor, Tensor]
    validation: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]


def load_data(folder: Path, seed: int, limit: int | None) -> Data:
    def tensors(part: Digits) -> tuple[Tensor, Tensor]:
        images = torch.from_numpy(part.images[:limit].copy())[:, None].float() / 255
        return images.contiguous(memory_format=torch.channels_last), torch.from_numpy(part.labels[:limit].copy())

    digits = load_mnist(folder, seed)
    return Data(tensors(digits.train), tensors(digits.validation), tensors(digits.test))


def channels_last(net: nn.Module) -> LeNet5:
    """The same network in the memory format that is faster on a CPU."""
    assert isinstance(net, LeNet5)
    converted: LeNet5 = net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return converted


# Training


def shifted(x: Tensor, reach: int) -> Tensor:
    """Each digit moved by up to ``reach`` pixels in both directions."""
    side = x.shape[-1]
    windows = F.pad(x, (reach,) * 4).unfold(2, side, 1).unfold(3, side, 1)
    row, column = torch.randint(0, 2 * reach + 1, (2, len(x)))
    return windows[torch.arange(len(x)), :, row, column]


def batches(part: tuple[Tensor, Tensor], size: int, reach: int) -> Iterator[tuple[Tensor, Tensor]]:
    """One pass in random order."""
    for index in torch.split(torch.randperm(len(part[1])), size):
        yield shifted(part[0][index], reach), part[1][index]


def score(net: nn.Module, part: tuple[Tensor, Tensor]) -> tuple[float, float]:
    """(error in per cent, cross-entropy)."""
    net.eval()
    with torch.no_grad():
        logits = torch.cat([net(x) for x in torch.split(part[0], 500)])
    wrong = (logits.argmax(1) != part[1]).double().mean()
    return 100 * float(wrong), float(F.cross_entropy(logits, part[1]))


def backward(loss: Tensor) -> None:
    loss.backward()  # type: ignore[no-untyped-call]


def sgd(net: nn.Module, plan: Plan, rate: float) -> torch.optim.SGD:
    return torch.optim.SGD(net.parameters(), lr=rate, momentum=0.9, weight_decay=plan.weight_decay, nesterov=True)


def fit(net: nn.Module, data: Data, plan: Plan, optimizer: torch.optim.Optimizer | None = None) -> tuple[float, float]:
    """Train with cosine decay, keep the best epoch on the validation digits; its (error, cross-entropy)."""
    optimizer = optimizer or sgd(net, plan, plan.rate)
    total, step = plan.epochs * math.ceil(len(data.train[1]) / plan.batch), 0
    best, kept = (math.inf, math.inf), copy.deepcopy(net.state_dict())
    for _ in range(plan.epochs):
        for x, label in batches(data.train, plan.batch, plan.shift):
            optimizer.param_groups[0]["lr"] = plan.rate * 0.5 * (1 + math.cos(math.pi * step / total))
            optimizer.zero_grad()
            backward(F.cross_entropy(net(x), label))
            # Just after pruning a full learning rate can throw a network of a few maps out of reach.
            nn.utils.clip_grad_norm_(net.parameters(), plan.clip)
            optimizer.step()
            step += 1
        if (found := score(net, data.validation)) < best:
            best, kept = found, copy.deepcopy(net.state_dict())
    net.load_state_dict(kept)
    return best


# Pruning of maps


def prune_maps(
    net: LeNet5, data: Data, plan: Plan, objective: Objective, targets: list[float]
) -> Iterator[tuple[float, Pruner]]:
    """Prune while training; stops whenever the cost has come down to a target (per cent) and yields it."""
    optimizer = sgd(net, plan, plan.prune_rate)
    graph = ChannelGraph.trace(net, data.train[0][:1])
    pruner = Pruner(graph, objective=objective, cost=Flops(), optimizer=optimizer)
    stream = endless(lambda: batches(data.train, plan.prune_batch, plan.shift))

    def step(_number: int) -> float:
        x, label = next(stream)
        optimizer.zero_grad()
        with pruner.observe():
            loss = F.cross_entropy(net(x), label)
            backward(loss)
        optimizer.step()
        return float(loss.detach())

    for target in targets:
        limit = Until(cost=target / 100 * pruner.history.cost)
        run(pruner, step, limit, steps=plan.steps, per_round=plan.maps)
        yield 100 * pruner.total_cost / pruner.history.cost, pruner


def endless(passes: Callable[[], Iterator[tuple[Tensor, Tensor]]]) -> Iterator[tuple[Tensor, Tensor]]:
    while True:
        yield from passes()


# Pruning of single parameters


def sparse_cost(net: nn.Module, graph: ChannelGraph) -> float:
    """FLOPs when only weights that are not zero are multiplied: positions * (2 * weights + outputs in use)."""
    shapes, total = graph.shapes(), 0
    for layer in graph.readers:
        weight = net.get_submodule(layer.name).weight
        assert isinstance(weight, Tensor)
        used = weight.detach().flatten(1) != 0
        total += math.prod(shapes[layer.name][0]) * int(2 * used.sum() + used.any(1).sum())
    return float(total)


def prune_parameters(net: nn.Module, data: Data, plan: Plan, fisher: bool, target: float) -> float:
    """Remove a tenth of the weights a round until the cost target (per cent), then tune with the masks; the cost.

    fisher  rank by equation 7 per FLOP saved; else by magnitude over the layer's standard deviation, as Han et al.
    """
    graph = ChannelGraph.trace(net, data.train[0][:1])
    positions = {name: math.prod(shapes[0]) for name, shapes in graph.shapes().items()}
    full, optimizer = Flops().total(graph), sgd(net, plan, plan.prune_rate)
    pruner = ParameterPruner(net, optimizer)
    stream = endless(lambda: batches(data.train, plan.prune_batch, plan.shift))
    while 100 * sparse_cost(net, graph) / full > target:
        for _ in range(plan.steps):
            x, label = next(stream)
            optimizer.zero_grad()
            with pruner.observe():
                backward(F.cross_entropy(net(x), label))
            optimizer.step()
        pruner.prune(pruner.left // 10, scores=_parameter_scores(pruner, positions, fisher))
    fit(net, data, plan, optimizer)
    return 100 * sparse_cost(net, graph) / full


def _parameter_scores(pruner: ParameterPruner, positions: dict[str, int], fisher: bool) -> dict[str, Tensor]:
    if fisher:
        return {name: s / positions[name.rpartition(".")[0]] for name, s in pruner.delta_loss().items()}
    return {name: p.detach().abs() / p.detach()[pruner.masks[name]].std() for name, p in pruner.parameters.items()}


# Rows


def row(seed: int, method: str, target: float, net: LeNet5, data: Data, cost: float) -> dict[str, Any]:
    error, loss = score(net, data.validation)
    return {
        "seed": seed,
        "method": method,
        "target_percent": target,
        "error_percent": score(net, data.test)[0],
        "cost_percent": cost,
        "validation_error_percent": error,
        "validation_loss": loss,
        "widths": list(net.widths),
    }


class Workbench:
    """One seed: its data, its unpruned network, and the rows that are finished, on disk."""

    def __init__(self, folder: Path, data: Path, seed: int, plan: Plan) -> None:
        self.path, self.network = folder / f"seed{seed}.json", folder / f"unpruned-seed{seed}.safetensors"
        self.seed, self.plan = seed, plan
        self.data = load_data(data, seed, plan.limit)
        self.rows: list[dict[str, Any]] = json.loads(self.path.read_text()) if self.path.exists() else []

    def has(self, method: str, target: float, beta: float | None = None) -> bool:
        return any((r["method"], r["target_percent"], r.get("beta")) == (method, target, beta) for r in self.rows)

    def add(self, new: dict[str, Any]) -> None:
        self.rows.append(new)
        common.write_record(self.path, self.rows)
        print(json.dumps(new), flush=True)

    def unpruned(self) -> LeNet5:
        """Trained once; every pruning starts from the same weights."""
        torch.manual_seed(self.seed)
        if not self.network.exists():
            fresh = channels_last(LeNet5())
            fit(fresh, self.data, self.plan)
            save_lenet(fresh, self.network)
        net = channels_last(load_lenet(self.network)[0])
        if not self.has("unpruned", 100.0):
            self.add(row(self.seed, "unpruned", 100.0, net, self.data, 100.0))
        return net

    def snapshot(self, method: str, target: float) -> Path:
        return self.path.parent / f"{re.sub('[^a-z0-9.]+', '-', method.lower())}-{target:g}-seed{self.seed}.safetensors"

    def prune(self, method: str, objective: Objective, targets: list[float]) -> None:
        """One pruning run down to the lowest target; the network is kept at each, to be tuned by itself."""
        if all(self.snapshot(method, target).exists() for target in targets):
            return
        net = self.unpruned()
        for target, (cost, pruner) in zip(
            targets, prune_maps(net, self.data, self.plan, objective, targets), strict=True
        ):
            facts = {"cost_percent": cost, "removed": len(pruner.history.removed)}
            save_lenet(net, self.snapshot(method, target), facts)

    def tune(self, method: str, target: float, beta: float | None = None) -> None:
        """Train the pruned network at ``target`` per cent and add its row."""
        if self.has(method, target, beta):
            return
        found, facts = load_lenet(self.snapshot(variant(method, beta), target))
        net = channels_last(found)
        torch.manual_seed(self.seed)
        fit(net, self.data, self.plan)
        self.add({**row(self.seed, method, target, net, self.data, facts["cost_percent"]), "beta": beta, **facts})

    def parameters(self, method: str, fisher: bool, target: float) -> None:
        if not self.has(method, target):
            net = self.unpruned()
            cost = prune_parameters(net, self.data, self.plan, fisher, target)
            self.add(row(self.seed, method, target, net, self.data, cost))

    def table(self) -> None:
        """The paper's rows."""
        self.prune(STAR, BetaStar(), [17.0, *PUSHED])
        self.tune(STAR, 17.0)
        for beta in self.plan.betas:
            self.prune(variant(FIXED, beta), Beta(beta, unit=MEGA), PUSHED)
            self.tune(FIXED, 10.0, beta)
        self.prune(ZERO, NoCost(), [26.0])
        self.tune(ZERO, 26.0)

    def pushed(self) -> None:
        """How far down it goes."""
        for target in PUSHED:
            self.tune(STAR, target)
            for beta in self.plan.betas:
                self.tune(FIXED, target, beta)

    def single(self) -> None:
        """Single parameters, at the cost that Han et al. report."""
        self.parameters("single parameters, Fisher", True, 16.0)
        self.parameters("single parameters, magnitude (Han et al.)", False, 16.0)


def variant(method: str, beta: float | None) -> str:
    return method if beta is None else f"{method} {beta:g}"


# Table


def summarize(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Means over seeds; of several betas the one with the best validation error of each seed."""
    best: dict[tuple[str, float, int], dict[str, Any]] = {}
    for r in rows:
        key = (r["method"], r["target_percent"], r["seed"])
        rank = (r["validation_error_percent"], r["validation_loss"])
        if key not in best or rank < (best[key]["validation_error_percent"], best[key]["validation_loss"]):
            best[key] = r
    groups: dict[tuple[str, float], list[dict[str, Any]]] = {}
    for (method, target, _), r in sorted(best.items(), key=lambda item: -item[0][1]):
        groups.setdefault((method, target), []).append(r)
    return [_summary(method, found) for (method, _), found in groups.items()]


def _summary(method: str, found: list[dict[str, Any]]) -> dict[str, Any]:
    errors = [r["error_percent"] for r in found]
    return {
        "method": method,
        "error_percent": statistics.fmean(errors),
        "error_spread": statistics.stdev(errors) if len(errors) > 1 else 0.0,
        "cost_percent": statistics.fmean(r["cost_percent"] for r in found),
        "validation_error_percent": statistics.fmean(r["validation_error_percent"] for r in found),
        "seeds": [r["seed"] for r in found],
        "widths": [r["widths"] for r in found],
        "betas": [r["beta"] for r in found if r.get("beta") is not None],
    }


def print_table(summary: list[dict[str, Any]]) -> None:
    print(f"{'method':42} {'error %':>15} {'cost %':>8} {'seeds':>6}")
    for s in summary:
        error = f"{s['error_percent']:.3f} ± {s['error_spread']:.3f}"
        print(f"{s['method']:42} {error:>15} {s['cost_percent']:8.2f} {len(s['seeds']):6}")


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = common.make_parser(
        __doc__, __file__, out=RESULTS / "lenet_mnist.json", tiny="600 digits, one epoch, one seed", threads=True
    )
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--work", type=Path, default=RUNS / "lenet_mnist", help="folder of finished rows")
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    """Train, prune, tune and tabulate what is missing."""
    options = common.parse(make_parser(), arguments)
    plan, seeds = (TINY, 1) if options.tiny else (Plan(), options.seeds)
    benches = [Workbench(options.work, options.data / "mnist", seed, plan) for seed in range(1, seeds + 1)]
    for stage in (Workbench.table, Workbench.single, Workbench.pushed):
        for bench in benches:
            stage(bench)
            rows = summarize([r for b in benches for r in b.rows])
            about = common.about(options, seeds=seeds, threads=options.threads)
            common.write_record(options.out, about | {"plan": asdict(plan), "rows": rows})
    print_table(summarize([r for bench in benches for r in bench.rows]))


if __name__ == "__main__":
    main()
