"""How files are put in place."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fastgaze.core.files import remove_leftovers, replacing, write_whole


def test_a_device_is_written_to_and_not_replaced() -> None:
    write_whole(Path(os.devnull), b"nothing")
    assert not Path(os.devnull).is_file()
    assert Path(os.devnull).exists()


def test_a_link_keeps_leading_where_it_did(tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    (tmp_path / "link.txt").symlink_to(tmp_path / "far" / "file.txt")
    write_whole(tmp_path / "link.txt", b"new")
    assert (tmp_path / "link.txt").is_symlink()
    assert (tmp_path / "far" / "file.txt").read_bytes() == b"new"
    assert [path.name for path in (tmp_path / "far").iterdir()] == ["file.txt"]


def test_what_a_killed_process_left_is_removed_and_what_others_write_stays(tmp_path: Path) -> None:
    child = os.fork()
    if child == 0:
        with replacing(tmp_path / "killed.npy") as part:
            part.write_bytes(b"half")
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    (tmp_path / ".other.elsewhere.999999.part.npy").write_bytes(b"of another machine")
    (tmp_path / "kept.npy").write_bytes(b"whole")
    assert len(list(tmp_path.iterdir())) == 3
    with replacing(tmp_path / "own.npy") as part:
        part.write_bytes(b"new")
        remove_leftovers(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        ".other.elsewhere.999999.part.npy",
        "kept.npy",
        "own.npy",
    ]


def test_the_next_program_that_writes_into_a_folder_removes_what_a_killed_one_left(tmp_path: Path) -> None:
    code = "import os, pathlib, signal, sys\nfrom fastgaze.core.files import replacing, write_whole\n"
    write = "write_whole(pathlib.Path(sys.argv[1], 'a.png'), b'whole')"
    killed = "with replacing(pathlib.Path(sys.argv[1], 'a.png')) as part:\n part.write_bytes(b'half')\n"
    killed += " os.kill(os.getpid(), signal.SIGKILL)"
    assert subprocess.run([sys.executable, "-c", code + killed, tmp_path]).returncode == -signal.SIGKILL
    assert [path.name.startswith(".a.") for path in tmp_path.iterdir()] == [True]
    with replacing(tmp_path / "mine.png") as mine:
        mine.write_bytes(b"of a process that still runs")
        subprocess.run([sys.executable, "-c", code + write, tmp_path], check=True)
        assert sorted(path.name for path in tmp_path.iterdir()) == [mine.name, "a.png"]


@pytest.mark.parametrize("durable", [True, False])
def test_only_what_must_survive_a_power_cut_waits_for_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, durable: bool
) -> None:
    waited: list[int] = []
    monkeypatch.setattr(os, "fsync", waited.append)
    with replacing(tmp_path / "a.txt", durable) as part:
        part.write_text("new")
    assert (tmp_path / "a.txt").read_text() == "new"
    assert bool(waited) == durable
