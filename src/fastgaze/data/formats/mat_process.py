"""A process that reads .mat files for another: scipy's reader crashes on damaged ones, and takes its process with it.

    python -m fastgaze.data.formats.mat_process

Paths come in and values go out over the standard streams, as messages of 8 bytes (length, big endian) and that many
more. Values are plain data: JSON in which an array is ``{"array": [dtype, shape, base64]}``.
"""

import atexit
import base64
import json
import os
import select
import struct
import subprocess
import sys
from pathlib import Path
from typing import IO, Any

import numpy as np

from fastgaze.core.errors import DataError
from fastgaze.core.jsonable import Json

Struct = dict[str, Any]
"""Variables or fields by name: a struct, a list of values, text, or an array."""
_LENGTH = struct.Struct(">Q")
_SECONDS = 120.0
_KINDS = "biufcU"
"""Of arrays that can be sent: numbers and text."""


class MatProcess:
    """The other process, started when it is first needed and again after it has died."""

    def __init__(self) -> None:
        # By process. What a fork inherits belongs to its parent, which still waits for answers: it is left alone.
        self._started: dict[int, subprocess.Popen[bytes]] = {}

    def read(self, path: Path) -> Struct:
        """The variables of a .mat file; DataError when it cannot be read."""
        process = self._running()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            _send(process.stdin, os.fsencode(path.absolute()))
            if not select.select([process.stdout], [], [], _SECONDS)[0]:
                raise EOFError
            answer = json.loads(_receive(process.stdout))
        except (EOFError, OSError, ValueError) as error:
            self.stop()
            raise DataError(f"{path} is not a readable .mat file: the reader crashed over it or never ended") from error
        if "error" in answer:
            raise DataError(f"{path} is not a readable .mat file ({answer['error']})")
        values: Struct = _unpacked(answer["values"])
        return values

    def stop(self) -> None:
        """End it."""
        if (process := self._started.pop(os.getpid(), None)) is not None:
            process.kill()
            process.communicate()

    def _running(self) -> "subprocess.Popen[bytes]":
        process = self._started.get(os.getpid())
        if process is None or process.poll() is not None:
            self.stop()
            command = [sys.executable, "-m", "fastgaze.data.formats.mat_process"]
            pipe = subprocess.PIPE
            process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL)
            self._started[os.getpid()] = process
        return process


READER = MatProcess()
atexit.register(READER.stop)


def _send(stream: IO[bytes], content: bytes) -> None:
    stream.write(_LENGTH.pack(len(content)) + content)
    stream.flush()


def _receive(stream: IO[bytes]) -> bytes:
    head = stream.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        raise EOFError
    content = stream.read(_LENGTH.unpack(head)[0])
    if len(content) < _LENGTH.unpack(head)[0]:
        raise EOFError
    return content


def _packed(value: Any) -> Json:
    if isinstance(value, dict):
        return {"dict": [[str(name), _packed(item)] for name, item in value.items()]}
    if isinstance(value, list):
        return [_packed(item) for item in value]
    if isinstance(value, str):
        return value
    array = np.ascontiguousarray(value).reshape(np.shape(value))
    if array.dtype.kind not in _KINDS:
        raise ValueError(f"an array of {array.dtype} is not supported")
    return {"array": [array.dtype.str, list(array.shape), base64.b64encode(array.tobytes()).decode("ascii")]}


def _unpacked(value: Any) -> Any:
    if isinstance(value, list):
        return [_unpacked(item) for item in value]
    if isinstance(value, dict) and "dict" in value:
        return {name: _unpacked(item) for name, item in value["dict"]}
    if isinstance(value, dict):
        kind, shape, content = value["array"]
        array = np.frombuffer(base64.b64decode(content), np.dtype(kind)).reshape(shape)
        return array if array.ndim else array[()]
    return value


def main() -> None:
    """Serve until the other side closes."""
    from fastgaze.data.formats.mat import read_here

    streams = sys.stdin.buffer, sys.stdout.buffer
    while True:
        try:
            path = Path(os.fsdecode(_receive(streams[0])))
        except EOFError:
            return
        try:
            answer = {"values": _packed(read_here(path))}
        except Exception as error:  # scipy and h5py raise all kinds over hostile bytes
            answer = {"error": f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"}
        _send(streams[1], json.dumps(answer).encode())


if __name__ == "__main__":
    main()
