"""Hostile uploads and many clients at once, sent by the load script to a server in a process of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.app.serving import write_model

ROOT = Path(__file__).parents[2]


def press(tmp_path: Path, *arguments: str) -> dict[str, Any]:
    model = write_model(tmp_path / "bright.onnx", "bright")
    command = [sys.executable, "-m", "experiments.load_test", "--model", str(model), *arguments]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    ended = subprocess.run(command, capture_output=True, text=True, timeout=600, env=environment, check=False, cwd=ROOT)
    assert ended.stdout.startswith("{"), ended.stderr
    facts: dict[str, Any] = json.loads(ended.stdout)
    return facts


def check_hostile(facts: dict[str, Any]) -> None:
    statuses = facts["statuses"]
    assert set(statuses) <= {"200", "400", "404", "413", "415"}, facts["examples"]
    assert {"400", "413", "415"} <= set(statuses)
    assert facts["memory_mb"]["highest"] < 1000


def test_hostile_uploads_get_an_answer_each_and_do_no_harm(tmp_path: Path) -> None:
    facts = press(tmp_path, "--hostile", "280", "--seconds", "120")
    assert sum(facts["statuses"].values()) == 280
    check_hostile(facts)


@pytest.mark.slow
def test_ten_thousand_hostile_uploads_get_an_answer_each(tmp_path: Path) -> None:
    facts = press(tmp_path, "--hostile", "10000", "--seconds", "580")
    assert sum(facts["statuses"].values()) == 10_000
    check_hostile(facts)


def test_under_load_there_is_no_error_but_the_limit_s_own(tmp_path: Path) -> None:
    facts = press(tmp_path, "--clients", "12", "--seconds", "2", "--", "--max-in-flight", "4")
    assert set(facts["statuses"]) == {"200", "503"}, facts["examples"]
    assert '"busy"' in facts["examples"]["503"]
    assert facts["livez_ms"]["probes"] > 3
    assert facts["memory_mb"]["highest"] < 1000
