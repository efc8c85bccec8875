"""Writing files so that each is there completely or not at all, and showing their names."""

import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:  # the command line sets numpy's threads before numpy is imported
    import numpy as np
    import numpy.typing as npt

HEAT_MAP = ".gaze"
"""What the name of a heat map has before its suffix: a later run over the same folder leaves such files out."""


def printable(name: str) -> str:
    """Replace control characters and broken bytes, which the name of a file may hold: none is to reach a terminal."""
    return "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in name)


def cache_dir() -> Path:
    """Where files from elsewhere are kept: ``$FASTGAZE_CACHE``, or ``~/.cache/fastgaze``."""
    return Path(os.environ.get("FASTGAZE_CACHE") or Path.home() / ".cache" / "fastgaze")


@contextmanager
def replacing(path: Path, durable: bool = True) -> Iterator[Path]:
    """A temporary path to write to, renamed to ``path`` at the end: a kill leaves the old file or the new one.

    What a kill leaves besides is removed by the next process that writes into the folder. Devices and named pipes are
    written to as they are, and a link keeps leading where it did.
    durable: wait until the disk has the file, so that a power cut leaves no empty one either; 5 ms on a common disk.
    """
    target = path.resolve()
    if target.exists() and not target.is_file():
        yield path
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    _tidy_once(target.parent)
    part = target.with_name(f".{path.stem}.{platform.node()}.{os.getpid()}.part{path.suffix}")
    try:
        yield part
        if durable:
            with part.open("rb") as file:
                os.fsync(file.fileno())
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)


@lru_cache(maxsize=1024)  # once for each folder and process: folders can be large
def _tidy_once(folder: Path) -> None:
    with suppress(OSError):  # a folder that may be written to but not listed
        remove_leftovers(folder)


def remove_leftovers(folder: Path) -> None:
    """Remove what ``replacing`` left in ``folder`` when processes of this machine were killed."""
    if os.name != "posix":  # elsewhere nothing tells whether a process is there
        return
    for part in folder.glob(f".*.{platform.node()}.*.part*"):
        number = part.name.rpartition(".part")[0].rpartition(".")[2]
        if number.isdecimal() and not _is_running(int(number)):
            part.unlink(missing_ok=True)


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # another user's
        pass
    return True


def write_whole(path: Path, content: bytes) -> None:
    """Write ``content`` to ``path`` through a temporary file; a full disk raises OSError, and the old file stays."""
    with replacing(path) as part:
        part.write_bytes(content)


def new_array(path: Path, dtype: "npt.DTypeLike", shape: tuple[int, ...]) -> "np.memmap[Any, Any]":
    """A new .npy file at ``path``, mapped into memory to be filled; OSError when the disk has no room for all of it.

    The room is taken now. Otherwise the first page that finds none would end the process with SIGBUS.
    """
    from numpy.lib.format import open_memmap

    array: np.memmap[Any, Any] = open_memmap(path, "w+", dtype, shape)
    if hasattr(os, "posix_fallocate"):
        try:
            with path.open("r+b") as file:
                os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
        except OSError as error:
            path.unlink(missing_ok=True)
            raise OSError(error.errno, error.strerror, str(path)) from error
    return array


def locked(path: Path) -> IO[str]:
    """The file at ``path``, made if need be and locked until it is closed; BlockingIOError when another has it locked.

    The lock goes with the process, however that ends. Where files cannot be locked (Windows) nothing is.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    file = path.open("a")
    try:
        import fcntl
    except ImportError:
        return file
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise
    return file
