"""Statistics of BatchNorm after pruning."""

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from fastgaze.core.errors import PruningError

Batch = TypeVar("Batch")


def recalibrate(network: nn.Module, batches: Iterable[Batch], forward: Callable[[Batch], object] | None = None) -> int:
    """Compute the running statistics of all BatchNorm layers again, as plain means over ``batches``.

    A removal changes what the layers behind it see, and steps inside ``observe()`` leave the statistics alone: after
    pruning they are stale. Parameters stay as they are.

    batches  inputs, or tuples and lists whose first entry is the input
    forward  what to do with a batch instead of calling the network
    Returns the number of batches.
    """
    norms = [m for m in network.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm) and m.track_running_stats]
    before = [(module, module.training) for module in network.modules()]
    momenta = [norm.momentum for norm in norms]
    count = 0
    try:
        network.eval()
        for norm in norms:
            norm.reset_running_stats()
            norm.momentum = None  # the mean over all batches
            norm.training = True
        with torch.no_grad():
            for batch in batches:
                _call(network, batch) if forward is None else forward(batch)
                count += 1
    finally:
        for norm, momentum in zip(norms, momenta, strict=True):
            norm.momentum = momentum
        for module, training in before:
            module.training = training
    if norms and not count:
        raise PruningError("recalibrate got no batch, and the statistics are empty now; give one or more batches")
    return count


def _call(network: nn.Module, batch: Any) -> None:
    network(batch if isinstance(batch, Tensor) else batch[0])
