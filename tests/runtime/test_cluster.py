"""A cluster of several nodes, one of which dies, with an object store on both sides: every image exactly once."""

import json
from pathlib import Path

import pytest


@pytest.mark.slow
def test_every_image_exactly_once_on_a_cluster_that_loses_a_node(tmp_path: Path) -> None:
    for name in ("moto", "s3fs", "ray"):
        pytest.importorskip(
            name, reason="the cluster is not tested: pip install 'moto[server]' s3fs 'fastgaze[cluster]'"
        )
    from experiments import cluster

    cluster.main(["--nodes", "2", "--images", "40", "--out", str(tmp_path / "cluster.json")])
    whole, killed = json.loads((tmp_path / "cluster.json").read_text())["runs"]
    assert (whole["killed"], killed["killed"]) == (0, 1)
    assert 0 < killed["files_when_killed"] < 8
    assert whole["exactly_once"]
    assert killed["exactly_once"]
