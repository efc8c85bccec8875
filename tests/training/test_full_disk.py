"""On a full disk a stage of the workshop ends with one line, leaves whole files, and goes on when there is room."""

import os
import resource
import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.training.test_kills import check_readable, finish, outcome, pristine, start

__all__ = ["pristine"]


def without_room(folder: Path, verb: str, room: int) -> int:
    """Exit code of the verb when no file may take more than ``room`` bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, hard))  # the fork inherits it
    try:
        child = start(folder, verb)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.parametrize("room", [2_000, 20_000, 60_000])
def test_training_ends_with_one_line_and_goes_on_when_there_is_room(
    room: int, pristine: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (pristine / "runs" / "teacher").mkdir()
    np.save(pristine / "runs" / "teacher" / "maps-24.npy", np.ones((24, 16, 24), np.float16))
    whole, full = tmp_path / "whole", tmp_path / "full"
    for folder in (whole, full):
        shutil.copytree(pristine, folder)
    finish(whole, "tune")
    capfd.readouterr()
    code = without_room(full, "tune", room)
    said = capfd.readouterr().err
    assert code in (1, 2), said
    assert "Traceback" not in said
    assert "File too large" in said.splitlines()[-1]
    check_readable(full)
    assert not [path.name for path in full.rglob(".*.part*")]
    finish(full, "tune")
    assert outcome(full) == outcome(whole)
