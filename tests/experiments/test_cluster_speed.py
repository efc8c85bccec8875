"""Throughput against nodes: what counts as warm, and what the guide and the report say of it."""

from pathlib import Path
from typing import Any

import pytest

from experiments import cluster_speed
from tests.experiments.report_records import pages, put

RECORD: dict[str, Any] = {
    "command": "python -m experiments.cluster_speed --rounds 3",
    "settings": {"nodes": [1, 2], "images": 40},
    "machine": {"date": "2026-01-02", "cores": 2, "processor": "a processor", "load": 0.3, "onnxruntime": "1.2"},
    "rounds": [{"1": 10.0, "2": 19.0}, {"1": 5.0, "2": 9.0}, {"1": 8.0, "2": 16.0}],
}


def test_the_rate_counts_from_when_every_worker_is_warm() -> None:
    slow_start = [30.0, 31.0, 32.0, 33.0]  # the first two files of two workers
    assert cluster_speed.warm_rate([*slow_start, 34.0, 35.0], 20, nodes=2) == pytest.approx(20)
    assert cluster_speed.warm_rate([35.0, *slow_start, 34.0], 20, nodes=2) == pytest.approx(20)
    assert cluster_speed.warm_rate([10.0, 20.0, 21.0, 22.0], 20, nodes=1) == pytest.approx(20)
    with pytest.raises(SystemExit, match="more --images"):
        cluster_speed.warm_rate(slow_start, 20, nodes=2)


def test_the_guide_gets_the_median_of_ratios_within_rounds() -> None:
    text = cluster_speed.sentence(RECORD)
    assert text.startswith("With nodes of one core each on 2 cores of a machine (a processor), ")
    assert "1 node worked on 8.0 (5.0 to 10.0) pictures per second, and 2 nodes on 1.90 (1.80 to 2.00) times as" in text
    assert text.endswith("how it was measured.")


def test_the_report_has_throughput_against_nodes_with_machine_engine_and_threads(tmp_path: Path) -> None:
    jobs: dict[str, Any] = {
        "settings": {"images": 9, "store": "a store"},
        "runs": [
            {"nodes": 1, "killed": 0, "exactly_once": True},
            {"nodes": 3, "killed": 1, "exactly_once": True},
        ],
    }
    text, _ = pages(put(tmp_path, cluster_speed=RECORD, cluster=jobs))
    section = text.split("## Batch jobs on a Ray cluster")[1]
    assert "2 nodes work on 1.90 (1.80 to 2.00) times as many pictures as 1." in section
    assert "| 2 | 16.0 (9.0 to 19.0) | 1.90 (1.80 to 2.00) | 0.95 |" in section
    assert "onnxruntime, one worker with 1 thread per node" in section
    assert "a processor, 2 cores, load 0.3 at the start; onnxruntime 1.2" in section
    assert RECORD["command"] in section
    assert "with 3 nodes, of which 1 was killed while the job ran: in all of them every picture" in section

    jobs["runs"][1]["exactly_once"] = False
    text, _ = pages(put(tmp_path, cluster=jobs))
    assert "in 1 of them every picture has exactly one row" in text
