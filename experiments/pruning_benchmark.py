"""What Fisher pruning costs beside the forward and backward passes it needs anyway.

    python -m experiments.pruning_benchmark --json pruning_benchmark.json

Two ratios, which must stay below 1.1 and 0.1:
scoring  forward and backward with probes : without, runs interleaved, CPU time, median of the ratios of pairs
outside  greedy removal of 2,000 maps from DenseGaze without training: share of the CPU time outside the passes
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import torch
from torch import Tensor, nn

from fastgaze.networks import GazeModel, create_model
from fastgaze.pruning import ChannelGraph, Flops, Pruner


def network(name: str) -> nn.Module:
    """The convolutional part with fresh weights; batch normalisation uses running statistics."""
    torch.manual_seed(0)
    model = create_model(name)
    assert isinstance(model, GazeModel)
    return model.network.eval()


def passes(net: nn.Module, x: Tensor, context: Callable[[], AbstractContextManager[None]]) -> float:
    """CPU seconds of one forward and one backward pass inside ``context``."""
    net.zero_grad(set_to_none=True)
    start = time.process_time()
    with context():
        net(x).square().mean().backward()
    return time.process_time() - start


def scoring_ratio(name: str, batch: int, size: tuple[int, int], pairs: int) -> dict[str, float]:
    """With probes against without; the order within a pair alternates."""
    net, x = network(name), torch.randn(batch, 3, *size)
    pruner = Pruner(ChannelGraph.trace(net, x[:1]))
    ratios, plain_times = [], []
    for number in range(pairs + 1):
        contexts = [nullcontext, pruner.observe] if number % 2 else [pruner.observe, nullcontext]
        times = {context: passes(net, x, context) for context in contexts}  # type: ignore[arg-type]
        if number:  # the first pair warms up
            ratios.append(times[pruner.observe] / times[nullcontext])
            plain_times.append(times[nullcontext])
    return {"ratio": statistics.median(ratios), "plain_seconds": statistics.median(plain_times)}


def outside_share(maps: int, maps_a_round: int, batch: int, size: tuple[int, int]) -> dict[str, float]:
    """One batch an estimate: with more images an estimate, the share is smaller still."""
    net, x = network("densegaze"), torch.randn(batch, 3, *size)
    start = time.process_time()
    pruner = Pruner(ChannelGraph.trace(net, x[:1]), cost=Flops((480, 640)))
    inside = 0.0
    while len(pruner.history.removed) < maps:
        inside += passes(net, x, pruner.observe)
        pruner.prune(maps_a_round)
    total = time.process_time() - start
    return {"maps": maps, "share": 1 - inside / total, "seconds": total, "passes_seconds": inside}


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--pairs", type=int, default=8)
    parser.add_argument("--maps", type=int, default=2000)
    parser.add_argument("--maps-a-round", type=int, default=10)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--size", type=int, nargs=2, default=(192, 256), metavar=("HEIGHT", "WIDTH"))
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    size = (options.size[0], options.size[1])
    result: dict[str, object] = {"batch": options.batch, "size": size, "maps_a_round": options.maps_a_round}
    for name in ("fastgaze", "densegaze"):
        found = scoring_ratio(name, options.batch, size, options.pairs)
        print(
            f"scoring {name}: {found['ratio']:.3f} times the plain passes ({found['plain_seconds']:.2f} s)", flush=True
        )
        result[f"scoring_{name}"] = found
    share = outside_share(options.maps, options.maps_a_round, options.batch, size)
    print(f"outside the passes: {100 * share['share']:.1f} % of {share['seconds']:.0f} s for {options.maps} maps")
    result["outside"] = share
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
