"""``fastgaze`` as somebody types it, in this process or in one of its own."""

import subprocess
import sys
from pathlib import Path

import pytest

from fastgaze.app.cli import main


def run(*arguments: object) -> int:
    """Exit code of the command line in this process."""
    with pytest.raises(SystemExit) as caught:
        main([str(argument) for argument in arguments])
    return int(caught.value.code or 0)


def fresh(*arguments: object, stdin: bytes = b"", cwd: Path | None = None) -> subprocess.CompletedProcess[bytes]:
    """The command in a process of its own."""
    command = [sys.executable, "-m", "fastgaze", *map(str, arguments)]
    return subprocess.run(command, input=stdin, capture_output=True, check=False, cwd=cwd)
