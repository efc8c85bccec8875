"""Accuracy against FLOPs and milliseconds: Fisher with beta* beside torch-pruning's Taylor and magnitude importance.

    python -m experiments.pruning_gain

MobileNetV2 with ImageNet weights learns what kind of screen a picture shows (UEyes: desktop, mobile, web, poster;
pictures are squashed to a square, so that their shape does not tell). The same fine-tuned network is then pruned by
every method to the same shares of its FLOPs, in as many rounds, with as many training steps, and tuned for as long.
Every method runs with free widths and with widths on multiples of 16, which engines like ("fisher-16"). The rounded
networks are timed in turn with the unpruned one.
A run that was stopped continues with the rows that are missing.
"""

import argparse
import copy
import io
import itertools
import os
import statistics
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from safetensors.torch import load_file, load_model, save_model
from torch import Tensor, nn

from experiments import common
from experiments.common import DOCS, RESULTS, RUNS, Record
from experiments.pages import fill, table
from fastgaze.networks.backbones import find_backbone
from fastgaze.pruning import ChannelGraph, Pruner, recalibrate

PAGE = DOCS / "pruning.md"
SIDE = 64  # pixels of the square pictures
BATCH = 16
ROUNDS = 5
SIGNALS = 4  # batches from which signals are estimated in each round
METHODS = ("fisher", "taylor", "magnitude", "fisher-16", "taylor-16", "magnitude-16")
SHARES = (0.5, 0.25)
# expansion, channels, blocks, stride of each stage
STAGES = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))


def conv_norm(inside: int, out: int, kernel: int, stride: int = 1, groups: int = 1) -> nn.Sequential:
    """Convolution, BatchNorm, ReLU6, named as torchvision does."""
    conv = nn.Conv2d(inside, out, kernel, stride, kernel // 2, groups=groups, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(out), nn.ReLU6())


class Inverted(nn.Module):
    """An inverted residual."""

    def __init__(self, inside: int, out: int, stride: int, expansion: int) -> None:
        super().__init__()
        wide = inside * expansion
        first = [] if expansion == 1 else [conv_norm(inside, wide, 1)]
        last = [conv_norm(wide, wide, 3, stride, wide), nn.Conv2d(wide, out, 1, bias=False), nn.BatchNorm2d(out)]
        self.conv = nn.Sequential(*first, *last)
        self.add = stride == 1 and inside == out

    def forward(self, x: Tensor) -> Tensor:
        """(N, C, H, W)."""
        y: Tensor = self.conv(x)
        return x + y if self.add else y


class MobileNetV2(nn.Module):
    """MobileNetV2 with a head of ``classes``."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        layers: list[nn.Module] = [conv_norm(3, 32, 3, 2)]
        width = 32
        for expansion, out, blocks, stride in STAGES:
            for block in range(blocks):
                layers.append(Inverted(width, out, stride if block == 0 else 1, expansion))
                width = out
        self.features = nn.Sequential(*layers, conv_norm(width, 1280, 1))
        self.head = nn.Linear(1280, classes)

    def forward(self, x: Tensor) -> Tensor:
        """(N, 3, H, W) -> (N, classes)."""
        scores: Tensor = self.head(self.features(x).mean((2, 3)))
        return scores


class Screens:
    """Pictures and kinds: 60 % to train, 20 % to choose, 20 % to test, the same for every seed."""

    def __init__(self, folder: Path, cache: Path) -> None:
        record = np.load(folder / "fixations.npz")
        cache.parent.mkdir(parents=True, exist_ok=True)
        kinds, names = record["category"], record["name"]
        labels = torch.tensor(np.searchsorted(np.unique(kinds), kinds))
        images = torch.from_numpy(self._images(folder / "images", names, cache))
        order = torch.randperm(len(names), generator=torch.Generator().manual_seed(0))
        ends = (round(0.6 * len(names)), round(0.8 * len(names)), len(names))
        parts = (order[: ends[0]], order[ends[0] : ends[1]], order[ends[1] :])
        self.train, self.validation, self.test = ((images[part], labels[part]) for part in parts)

    @staticmethod
    def _images(folder: Path, names: np.ndarray[Any, Any], cache: Path) -> np.ndarray[Any, Any]:
        """uint8 (images, 3, SIDE, SIDE), decoded once."""
        if not cache.exists():
            pictures = [
                Image.open(folder / f"{n}.webp").convert("RGB").resize((SIDE, SIDE), Image.Resampling.BILINEAR)
                for n in names
            ]
            np.save(cache, np.stack([np.asarray(picture).transpose(2, 0, 1) for picture in pictures]))
        found: np.ndarray[Any, Any] = np.load(cache)
        return found

    def batches(self, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Training batches for ever, mirrored at random."""
        generator = torch.Generator().manual_seed(seed)
        images, labels = self.train
        while True:
            for part in torch.randperm(len(images), generator=generator).split(BATCH)[:-1]:  # type: ignore[no-untyped-call]
                x = normalised(images[part])
                yield (x.flip(3) if torch.rand(1, generator=generator) < 0.5 else x), labels[part]


def normalised(images: Tensor) -> Tensor:
    """uint8 -> float32 as ImageNet networks want it."""
    mean, std = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    return (images / 255 - mean.view(3, 1, 1)) / std.view(3, 1, 1)


def accuracy(net: nn.Module, part: tuple[Tensor, Tensor]) -> float:
    """Share of right answers."""
    net.eval()
    with torch.no_grad():
        starts = range(0, len(part[1]), 64)
        guesses = [net(normalised(part[0][first : first + 64])).argmax(1) for first in starts]
    return float((torch.cat(guesses) == part[1]).float().mean())


def tune(net: nn.Module, batches: Iterator[tuple[Tensor, Tensor]], steps: int, rate: float) -> None:
    """SGD with a cosine to zero."""
    optimizer = torch.optim.SGD(net.parameters(), lr=rate, momentum=0.9, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, max(1, steps))
    net.train()
    for _ in range(steps):
        x, y = next(batches)
        optimizer.zero_grad()
        F.cross_entropy(net(x), y).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()


def session(net: nn.Module) -> Callable[[], None]:
    """A function that runs one picture through ``net`` in onnxruntime on one thread."""
    import onnxruntime

    file = io.BytesIO()
    example = torch.zeros(1, 3, SIDE, SIDE)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # this exporter is deprecated, and needs no further package
        torch.onnx.export(net.eval(), (example,), file, dynamo=False, input_names=["x"])  # type: ignore[arg-type]
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    engine = onnxruntime.InferenceSession(file.getvalue(), options, providers=["CPUExecutionProvider"])
    feed = {"x": example.numpy()}
    return lambda: engine.run(None, feed)


def milliseconds(*nets: nn.Module) -> list[float]:
    """CPU milliseconds of one picture for each network, the least of sixty, in turn."""
    runs, times = [session(net) for net in nets], list[list[float]]()
    for _ in range(63):
        row = []
        for run in runs:
            start = process_time()
            run()
            row.append(process_time() - start)
        times.append(row)
    return [1000 * min(column) for column in zip(*times[3:], strict=True)]


def prune_ours(
    net: nn.Module, batches: Iterator[tuple[Tensor, Tensor]], share: float, steps: int, multiple: int
) -> None:
    """Fisher signals and beta*, in ROUNDS rounds of equal ratio with ``steps`` training steps each."""
    pruner = Pruner(ChannelGraph.trace(net, torch.zeros(1, 3, SIDE, SIDE)), keep="head", round_to=multiple)
    for number in range(1, ROUNDS + 1):
        for _ in range(SIGNALS):
            x, y = next(batches)
            with pruner.observe():
                F.cross_entropy(net(x), y).backward()  # type: ignore[no-untyped-call]
        net.zero_grad()
        pruner.prune(10**6, to_share=share ** (number / ROUNDS))
        tune(net, batches, steps, 0.002)


def prune_theirs(
    net: nn.Module, batches: Iterator[tuple[Tensor, Tensor]], share: float, steps: int, method: str, multiple: int
) -> None:
    """torch-pruning, globally, in small steps until each round's share of our count of FLOPs is reached."""
    import torch_pruning as tp  # type: ignore[import-untyped]

    example = torch.zeros(1, 3, SIDE, SIDE)
    start = flops(net)
    importance = (
        tp.importance.GroupTaylorImportance() if method == "taylor" else tp.importance.GroupMagnitudeImportance(p=2)
    )
    pruner = tp.pruner.BasePruner(
        net, example, importance=importance, global_pruning=True, pruning_ratio=0.97, max_pruning_ratio=0.97,
        iterative_steps=100, ignored_layers=[net.head], round_to=multiple,
    )  # fmt: skip
    for number in range(1, ROUNDS + 1):
        net.eval()
        for x, y in [next(batches) for _ in range(SIGNALS)]:  # as many images as ours; gradients are sliced along
            F.cross_entropy(net(x), y).backward()  # type: ignore[no-untyped-call]
        while flops(net) > share ** (number / ROUNDS) * start:
            pruner.step()
        net.zero_grad()
        tune(net, batches, steps, 0.002)


def flops(net: nn.Module) -> int:
    """By the paper's formula, from the sizes that one picture gives."""
    counts: list[int] = []

    def count(module: Any, _args: object, result: Tensor) -> None:
        counts.append(result.numel() * (2 * module.weight[0].numel() + 1))

    hooks = [m.register_forward_hook(count) for m in net.modules() if isinstance(m, nn.Conv2d | nn.Linear)]
    try:
        net.eval()
        with torch.no_grad():
            net(torch.zeros(1, 3, SIDE, SIDE))
    finally:
        for hook in hooks:
            hook.remove()
    return sum(counts)


def unpruned(options: argparse.Namespace, data: Screens, seed: int) -> nn.Module:
    """The fine-tuned network of one seed, from its file if it is there."""
    torch.manual_seed(seed)
    net = MobileNetV2(4)
    file = options.work / f"unpruned-{options.tune}-{seed}.safetensors"
    if file.exists():
        load_model(net, file)
        return net
    net.load_state_dict(load_file(find_backbone("mobilenetv2")), strict=False)
    tune(net, data.batches(seed), options.tune, 0.01)
    save_model(net, str(file))
    return net


def row(options: argparse.Namespace, data: Screens, seed: int, method: str, share: float) -> Record:
    """One network: pruned, tuned, measured."""
    net = copy.deepcopy(unpruned(options, data, seed))
    start, batches = flops(net), data.batches(1000 + seed)
    kind, _, multiple = method.partition("-")
    if kind == "fisher":
        prune_ours(net, batches, share, options.between, int(multiple or 1))
    elif kind != "unpruned":
        prune_theirs(net, batches, share, options.between, kind, int(multiple or 1))
    tune(net, batches, options.tune, 0.005)
    recalibrate(net, (next(batches) for _ in range(10)))
    own, unchanged = milliseconds(net, MobileNetV2(4))
    return {
        "seed": seed, "method": method, "share": share, "flops": flops(net) / start, "milliseconds": own,
        "milliseconds_unpruned": unchanged, "load": os.getloadavg()[0],
        "parameters": sum(p.numel() for p in net.parameters()), "validation": accuracy(net, data.validation),
        "test": accuracy(net, data.test),
    }  # fmt: skip


def reference(row: Record, rows: list[Record]) -> float:
    """Milliseconds of the unpruned network: in turn with this one where it was measured so, else those of its seed."""
    if "milliseconds_unpruned" in row:
        return float(row["milliseconds_unpruned"])
    return float(next(r["milliseconds"] for r in rows if (r["method"], r["seed"]) == ("unpruned", row["seed"])))


def means(rows: list[Record]) -> dict[tuple[str, float], dict[str, float]]:
    """Means over seeds for every method and share, and the spread of the accuracy."""
    found = {}
    for key in dict.fromkeys((r["method"], r["share"]) for r in sorted(rows, key=_place)):
        same = [r for r in rows if (r["method"], r["share"]) == key]
        mean = {name: statistics.mean(r[name] for r in same) for name in ("flops", "test", "milliseconds")}
        mean["unpruned"] = statistics.mean(reference(r, rows) for r in same)
        mean["time"] = statistics.mean(r["milliseconds"] / reference(r, rows) for r in same)
        mean["spread"] = statistics.stdev(r["test"] for r in same) if len(same) > 1 else 0.0
        found[key] = mean | {"seeds": len(same)}
    return found


def _place(row: Record) -> tuple[float, int]:
    return -row["share"], ("unpruned", *METHODS).index(row["method"])


def gains(rows: list[Record]) -> str:
    """Means and spreads over seeds, as Markdown."""
    lines = []
    for (method, _), mean in means(rows).items():
        spread = f" ± {100 * mean['spread']:.1f}" if mean["seeds"] > 1 else ""
        shares = (f"{100 * mean['flops']:.0f} %", f"{100 * mean['time']:.0f} %")
        times = (f"{mean['milliseconds']:.2f}", f"{mean['unpruned']:.2f}")
        lines.append([method, *shares, *times, f"{100 * mean['test']:.1f}{spread}", f"{mean['seeds']:.0f}"])
    return table(["method", "FLOPs", "time", "ms", "ms unpruned", "test accuracy", "seeds"], lines)


def shown(rows: list[Record]) -> str:
    """The part of the page: the table, and what it says about time."""
    return f"{gains(rows)}\n\n{words(rows)}"


def words(rows: list[Record]) -> str:
    """What the rows say about time: which pruned networks are faster than the unpruned one, and which are not."""
    sides: dict[bool, list[str]] = {True: [], False: []}
    for (method, share), mean in means(rows).items():
        if share < 1:
            sides[mean["time"] < 1].append(f"{method} at {share:.0%} ({mean['time']:.2f} of the time)")
    told = [
        f"{what} than the unpruned network: {', '.join(sides[side])}."
        for side, what in ((True, "Faster"), (False, "Not faster"))
        if sides[side]
    ]
    late = {r["method"] for r in rows if "milliseconds_unpruned" not in r and r["method"] != "unpruned"}
    if late:
        names = ", ".join(method for method in METHODS if method in late)
        told.append(f"Not timed in turn with the unpruned network but after it, which compares less surely: {names}.")
    return " ".join(told)


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = common.make_parser(
        __doc__, __file__, out=RESULTS / "pruning_gain.json", tiny="one seed, one share, two steps", threads=True
    )
    parser.add_argument("--lock", type=Path, help="a file whose lock is taken for a few minutes at a time")
    parser.add_argument("--work", type=Path, default=RUNS / "pruning_gain", help="folder of the unpruned networks")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--tune", type=int, default=80, help="steps of fine-tuning, before and after pruning")
    parser.add_argument("--between", type=int, default=8, help="training steps of a pruning round")
    return parser


def main(arguments: list[str] | None = None) -> None:
    """Run every row that is missing, and print the table."""
    options = common.parse(make_parser(), arguments)
    shares: tuple[float, ...] = SHARES
    if options.tiny:
        options.seeds, options.tune, options.between, shares = 1, 2, 1, SHARES[:1]
    data = Screens(options.data / "ueyes", options.work / f"images-{SIDE}.npy")
    settings = {"tune": options.tune, "between": options.between, "side": SIDE, "batch": BATCH, "rounds": ROUNDS}
    record = common.read_record(options.out) or common.about(options, **settings) | {"rows": []}
    done = {(each["seed"], each["method"], each["share"]) for each in record["rows"]}
    turns = common.Turns(options.lock)
    wanted = [("unpruned", 1.0), *((method, share) for share in shares for method in METHODS)]
    for (method, share), seed in itertools.product(wanted, range(options.seeds)):
        if (seed, method, share) not in done:
            turns.take()
            record["rows"].append(row(options, data, seed, method, share))
            common.write_record(options.out, record)
            print(record["rows"][-1], flush=True)
    print(gains(record["rows"]))
    if options.out == RESULTS / "pruning_gain.json" and not options.tiny:
        fill(PAGE, "gain", shown(record["rows"]))


if __name__ == "__main__":
    main()
