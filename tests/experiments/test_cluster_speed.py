"""Throughput against nodes: what counts as warm, and what the guide says of it."""

import pytest

from experiments import cluster_speed


def test_the_rate_counts_from_when_every_worker_is_warm() -> None:
    slow_start = [30.0, 31.0, 32.0, 33.0]  # the first two files of two workers
    assert cluster_speed.warm_rate([*slow_start, 34.0, 35.0], 20, nodes=2) == pytest.approx(20)
    assert cluster_speed.warm_rate([35.0, *slow_start, 34.0], 20, nodes=2) == pytest.approx(20)
    assert cluster_speed.warm_rate([10.0, 20.0, 21.0, 22.0], 20, nodes=1) == pytest.approx(20)
    with pytest.raises(SystemExit, match="more --images"):
        cluster_speed.warm_rate(slow_start, 20, nodes=2)


def test_the_guide_gets_the_median_of_ratios_within_rounds() -> None:
    record = {
        "command": "python -m experiments.cluster_speed",
        "settings": {"nodes": [1, 2], "images": 40},
        "machine": {"date": "2026-01-02", "cores": 2, "processor": "a processor", "load": 0.3},
        "rounds": [{"1": 10.0, "2": 19.0}, {"1": 5.0, "2": 9.0}, {"1": 8.0, "2": 16.0}],
    }
    text = cluster_speed.sentence(record)
    assert text.startswith("Measured on 2026-01-02 on 2 cores (a processor) with")
    assert "1 node worked on 8.0 pictures per second (5.0 to 10.0), and 2 nodes 1.90 times (1.80 to 2.00) as" in text
    assert text.endswith("(`python -m experiments.cluster_speed`).")
