"""Files anywhere fsspec reaches: read, list, and write so that a file is there completely or not at all."""

import os
import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

from fastgaze.core.errors import DataError, require
from fastgaze.core.files import locked

FileSystem: TypeAlias = Any
"""A file system of fsspec, which has no types."""
TEMPORARY = "_tmp-"
"""Names that begin so are half-written; Parquet readers skip names with an underscore."""
LOCK = "_lock"
_ESCAPED = re.compile(rb"\\x([89a-f][0-9a-f])")


def split_url(url: str) -> tuple[FileSystem, str]:
    """(file system, path in it) of a path or URL such as ``s3://bucket/folder``."""
    fsspec = require("fsspec", "batch")
    try:
        system, path = fsspec.core.url_to_fs(url)
    except (ImportError, ValueError) as error:
        raise DataError(f"cannot open {url}: {error}") from error
    return system, path


def is_local(system: FileSystem) -> bool:
    """Whether paths of this file system are paths of this machine."""
    return "file" in ((system.protocol,) if isinstance(system.protocol, str) else system.protocol)


def full_name(system: FileSystem, path: str) -> str:
    """The path by which any other process can open the file: absolute, or with its protocol."""
    return os.path.abspath(path) if is_local(system) else str(system.unstrip_protocol(path))


def legible(path: str) -> str:
    """The path as text that Parquet can hold: bytes that are not UTF-8 as in ``caf\\xe9.jpg``."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def _on_disk(path: str) -> str:
    """The path that ``legible`` stands for."""
    if os.path.exists(path):
        return path
    return os.fsdecode(_ESCAPED.sub(lambda found: bytes.fromhex(found[1].decode()), os.fsencode(path)))


def read_bytes(url: str) -> bytes:
    """The whole file; its name may be a legible one."""
    system, path = split_url(url)
    if is_local(system):
        path = _on_disk(path)
        # A pipe or a device could block for ever.
        if os.path.exists(path) and not os.path.isfile(path):
            raise DataError(f"{path} is not a regular file")
    content: bytes = system.cat_file(path)
    return content


class Folder:
    """The output folder."""

    def __init__(self, url: str) -> None:
        self._system, self._root = split_url(url)
        self.url = full_name(self._system, self._root)

    def names(self, filled: bool = False) -> set[str]:
        """Names of the files in it, or of those that hold something; none if it does not exist."""
        self._system.invalidate_cache()
        try:
            found = self._system.ls(self._root, detail=True)
        except FileNotFoundError:
            return set()
        return {str(facts["name"]).rsplit("/", 1)[-1] for facts in found if not filled or facts.get("size") != 0}

    @contextmanager
    def locked(self) -> Iterator[None]:
        """No second job of this machine may write here meanwhile. Elsewhere than on a disk nothing can be locked."""
        if not is_local(self._system):
            yield
            return
        try:
            lock = locked(Path(self._path(LOCK)))
        except BlockingIOError as error:
            raise DataError(f"another job is writing to {self.url}; wait until it has ended") from error
        except OSError as error:
            raise DataError(f"cannot write {self._path(LOCK)}: {error.strerror or error}") from error
        with lock:
            yield

    def read(self, name: str) -> bytes:
        """The content of one file."""
        content: bytes = self._system.cat_file(self._path(name))
        return content

    def open(self, name: str) -> BinaryIO:
        """One file, of which perhaps only the end is needed."""
        stream: BinaryIO = self._system.open(self._path(name), "rb")
        return stream

    def write(self, name: str, content: bytes) -> None:
        """Write under a temporary name, then rename: nobody ever sees half a file."""
        temporary = self._path(f"{TEMPORARY}{uuid.uuid4().hex}")
        try:
            self._system.makedirs(self._root, exist_ok=True)
            if is_local(self._system):
                _write_through(temporary, content)
                os.replace(temporary, self._path(name))
            else:
                self._system.pipe_file(temporary, content)
                self._system.mv(temporary, self._path(name))
        except OSError as error:
            raise DataError(f"cannot write {self._path(name)}: {error.strerror or error}") from error

    def clean(self) -> None:
        """Remove what killed writers left behind; only when no one else writes here."""
        for name in self.names():
            if name.startswith(TEMPORARY):
                self._system.rm_file(self._path(name))

    def _path(self, name: str) -> str:
        return f"{self._root.rstrip('/')}/{name}"


def _write_through(path: str, content: bytes) -> None:
    """To the disk itself, so that a name never outlives its content in a power cut."""
    with open(path, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
