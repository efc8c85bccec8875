"""``torchrun``: which process this is, and of how many."""

import os

import torch
from torch import Tensor, distributed


def start() -> None:
    """Join the processes that ``torchrun`` started; alone, do nothing. gloo on CPUs, nccl on GPUs."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1 and not distributed.is_initialized():
        gpu = torch.cuda.is_available()
        if gpu:
            torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        distributed.init_process_group("nccl" if gpu else "gloo")


def stop() -> None:
    """Leave the group, if there is one."""
    if distributed.is_initialized():
        distributed.destroy_process_group()


def barrier() -> None:
    """Wait for the other processes, if there are any."""
    if distributed.is_initialized():
        distributed.barrier()


def summed(values: Tensor) -> Tensor:
    """The sum over all processes, which each of them gets."""
    if distributed.is_initialized():
        place = "cuda" if torch.cuda.is_available() else "cpu"
        values = values.to(place)
        distributed.all_reduce(values)
    return values


def rank() -> int:
    """Number of this process, from 0."""
    return distributed.get_rank() if distributed.is_initialized() else 0


def world_size() -> int:
    """How many processes train together."""
    return distributed.get_world_size() if distributed.is_initialized() else 1
