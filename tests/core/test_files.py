"""How files are put in place."""

import os
from pathlib import Path

from fastgaze.core.files import write_whole


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
