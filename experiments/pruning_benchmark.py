"""What Fisher pruning costs beside the forward and backward passes it needs anyway.

    python -m experiments.pruning_benchmark

Two ratios, which must stay below 1.1 and 0.1:
scoring  forward and backward with probes : without, runs interleaved, CPU time, median of the ratios of pairs
outside  greedy removal of 2,000 maps from DenseGaze without training: share of the CPU time outside the passes
"""

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor, nn

from experiments import common
from experiments.common import RESULTS
from fastgaze.networks import GazeModel, create_model
from fastgaze.pruning import ChannelGraph, Flops, Pruner

SIZE = (192, 256)  # (height, width) of the images


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


def outside_share(maps: int, maps_per_round: int, batch: int, size: tuple[int, int]) -> dict[str, float]:
    """One batch for each estimate; with more images the share is smaller still."""
    net, x = network("densegaze"), torch.randn(batch, 3, *size)
    start = time.process_time()
    pruner = Pruner(ChannelGraph.trace(net, x[:1]), cost=Flops((480, 640)))
    inside = 0.0
    while len(pruner.history.removed) < maps:
        inside += passes(net, x, pruner.observe)
        pruner.prune(maps_per_round)
    total = time.process_time() - start
    return {"maps": maps, "share": 1 - inside / total, "seconds": total, "passes_seconds": inside}


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = common.make_parser(__doc__, __file__, data=False, out=RESULTS / "pruning_benchmark.json")
    parser.add_argument("--pairs", type=int, default=8)
    parser.add_argument("--maps", type=int, default=2000)
    parser.add_argument("--maps-per-round", type=int, default=10)
    parser.add_argument("--batch", type=int, default=4)
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure both ratios."""
    options = common.parse(make_parser(), arguments)
    torch.set_num_threads(1)
    settings = {"batch": options.batch, "size": list(SIZE), "maps_per_round": options.maps_per_round}
    result = common.about(options, threads=1, **settings)
    for name in ("fastgaze", "densegaze"):
        found = scoring_ratio(name, options.batch, SIZE, options.pairs)
        print(
            f"scoring {name}: {found['ratio']:.3f} times the plain passes ({found['plain_seconds']:.2f} s)", flush=True
        )
        result[f"scoring_{name}"] = found
    share = outside_share(options.maps, options.maps_per_round, options.batch, SIZE)
    print(f"outside the passes: {100 * share['share']:.1f} % of {share['seconds']:.0f} s for {options.maps} maps")
    result["outside"] = share
    common.write_record(options.out, result)


if __name__ == "__main__":
    main()
