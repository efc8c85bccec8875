"""A run that is killed takes nothing with it: the file of an earlier run stays until a whole one replaces it."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.runtime.clips import decoded, spot, write_clip

KILLS = 25


def _start(verb: str, source: Path, target: Path, model: Path, *options: str) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "fastgaze", verb, str(source), str(target), "--model", str(model), *options]
    return subprocess.Popen([*command, "--threads", "1", "--quiet"], stdout=subprocess.DEVNULL)


@pytest.mark.slow
@pytest.mark.parametrize(("verb", "options"), [("video", ()), ("reframe", ("--ratio", "9:16"))])
def test_kills_of_a_rerun_lose_and_truncate_nothing(
    verb: str, options: tuple[str, ...], bright_file: Path, tmp_path: Path
) -> None:
    source = write_clip(tmp_path / "in.mp4", [spot(40 + k % 170, 72) for k in range(250)])
    target = tmp_path / "out.mp4"
    start = time.monotonic()
    assert _start(verb, source, target, bright_file, *options).wait(120) == 0
    whole = time.monotonic() - start
    earlier, ended = target.read_bytes(), 0
    assert len(decoded(target)) == 250
    for kill in range(KILLS):
        process = _start(verb, source, target, bright_file, *options)
        try:
            ended += process.wait(whole * (kill + 1) / KILLS) == 0
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        assert target.read_bytes() == earlier
    assert ended < KILLS / 2
    assert _start(verb, source, target, bright_file, *options).wait(120) == 0
    assert target.read_bytes() == earlier
