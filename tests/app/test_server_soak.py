"""The soak recipe in its short form: hostile clients beside good ones, against a server in processes of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.app.serving import write_model

ROOT = Path(__file__).parents[2]


def test_good_clients_are_served_while_hostile_ones_do_their_worst(tmp_path: Path) -> None:
    model = write_model(tmp_path / "bright.onnx", "bright")
    out = tmp_path / "soak.json"
    options = [
        "--seconds",
        "2",
        "--rounds",
        "1",
        "--hostile",
        "12",
        "--kills",
        "2",
        "--side",
        "900",
        "--out",
        str(out),
        "--",
        "--model",
        str(model),
    ]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "experiments.soak", *options]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, env=environment, check=False)
    assert out.is_file(), ended.stderr
    facts = json.loads(out.read_text())
    # Times depend on what else the machine does, so that only what no load excuses is required here.
    assert facts["attacked"][0]["statuses"]["200"] > 0
    assert facts["livez_ms"]["failures"] == 0
    assert facts["longest_wait"] < 10
    assert facts["memory_mb"] < 1024
    assert facts["kills"] == 2
    assert sum(facts["attacks"].values()) > 12
