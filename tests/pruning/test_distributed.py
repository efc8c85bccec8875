"""Processes of torch.distributed must remove the same maps."""

import multiprocessing
import socket
from typing import Any

import pytest
import torch
from torch import nn

from fastgaze.core.errors import PruningError
from fastgaze.pruning import ChannelGraph, Pruner


def _rank(rank: int, port: int, queue: Any) -> None:
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 16, 1), nn.ReLU(), nn.Conv2d(16, 2, 1))
    x = torch.randn(4, 3, 6, 6, generator=torch.Generator().manual_seed(rank))  # each its own images
    pruner = Pruner(ChannelGraph.trace(net, x))
    with pruner.observe():
        net(x).square().mean().backward()
    signed = pruner.statistics.over_ranks().signed
    alone = pruner.signal(pruner.graph, pruner.statistics)[:16].argsort()[:6].tolist()
    removal = pruner.prune(6)
    wrapped = nn.parallel.DistributedDataParallel(net)
    try:
        Pruner(ChannelGraph.trace(wrapped, x))
        refused = ""
    except PruningError as error:
        refused = str(error)
    queue.put((rank, removal.indices, removal.images, alone, refused, signed.tolist()))
    torch.distributed.destroy_process_group()


@pytest.mark.slow
def test_ranks_agree_on_the_maps() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    ranks = [context.Process(target=_rank, args=(rank, port, queue)) for rank in range(2)]
    for process in ranks:
        process.start()
    found = sorted(queue.get(timeout=300) for _ in ranks)
    for process in ranks:
        process.join()
    assert found[0][1] == found[1][1]
    assert found[0][2] == found[1][2] == 8
    assert found[0][3] != found[1][3]  # left alone, they would not
    assert "compacting=False" in found[0][4]
    assert found[0][5] == found[1][5]
