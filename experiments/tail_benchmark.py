"""What the tail costs beside the network: FastGaze unpruned at 384x512, one thread, interleaved.

.venv/bin/python -m experiments.tail_benchmark
"""

import statistics
import time

import torch

from fastgaze.networks import create_model
from fastgaze.networks.gaze import GazeModel

SIZE = (384, 512)
ROUNDS = 9


def cpu_seconds(work: object) -> float:
    assert callable(work)
    start = time.process_time()
    work()
    return time.process_time() - start


@torch.inference_mode()
def main() -> None:
    torch.set_num_threads(1)
    model = create_model("fastgaze").eval()
    assert isinstance(model, GazeModel)
    image = torch.randn(1, 3, *SIZE)
    saliency = model.network(image)
    network, tail = [], []
    for _ in range(ROUNDS):
        network.append(cpu_seconds(lambda: model.network(image)))
        tail.append(cpu_seconds(lambda: model.tail(saliency, SIZE, SIZE)))
    share = statistics.median(t / n for t, n in zip(tail, network, strict=True))
    print(f"network {1e3 * statistics.median(network):.0f} ms, tail {1e3 * statistics.median(tail):.1f} ms CPU")
    print(f"the tail costs {share:.2%} of the network (torch {torch.__version__}, 1 thread, {ROUNDS} rounds)")


if __name__ == "__main__":
    main()
