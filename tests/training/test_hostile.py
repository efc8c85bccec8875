"""Settings that cannot train, files that lead in circles, and disks without room: one error each."""

import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from fastgaze.core.errors import ArgumentError
from fastgaze.training.config import PruneSettings, read_config
from fastgaze.training.fit import FitSettings


@pytest.mark.parametrize("rate", [math.nan, math.inf, 0.0, -0.1])
def test_a_learning_rate_that_is_not_a_number_above_zero_is_refused(rate: float) -> None:
    with pytest.raises(ArgumentError, match="learning_rate"):
        FitSettings(learning_rate=rate)
    with pytest.raises(ArgumentError, match="learning_rate"):
        PruneSettings(learning_rate=rate)


@pytest.mark.parametrize(
    "content",
    ['base = "run.toml"\n', "a = " + "[" * 5000 + "]" * 5000, "\x00", "a = 1e999\n[", '[workshop]\ndata = "\\uD800"'],
    ids=["circle", "depth", "zero", "open", "surrogate"],
)
def test_a_hostile_toml_file_is_one_error(content: str, tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text(content)
    with pytest.raises(ArgumentError):
        read_config(tmp_path / "run.toml")


def test_an_array_file_without_room_is_an_error_before_anything_is_mapped(tmp_path: Path) -> None:
    script = (
        "import sys, pathlib, resource, numpy\nfrom fastgaze.core.files import new_array\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))\n"
        "new_array(pathlib.Path(sys.argv[1]), numpy.uint8, (10, 1000, 1000))"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "x.npy")]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert ended.returncode == 1, ended
    assert "OSError" in ended.stderr.splitlines()[-1]


def test_an_array_file_has_its_room_from_the_start(tmp_path: Path) -> None:
    from fastgaze.core.files import new_array

    array = new_array(tmp_path / "x.npy", np.uint8, (1000, 1000))
    assert (tmp_path / "x.npy").stat().st_blocks * 512 >= 1_000_000
    array[:] = 7
    array.flush()
    assert (np.load(tmp_path / "x.npy") == 7).all()
