"""Messages between the server and its worker processes: a line of facts as JSON, and bytes.

A message is 12 bytes (lengths of the two parts, big endian), the JSON, the bytes. No pickle: what a worker sends is
read by a process that must survive it.
"""

import json
import math
import socket
import struct
from dataclasses import asdict, dataclass, field, fields
from typing import TypeVar

from fastgaze.core.jsonable import Document, Json

HEADER = struct.Struct(">IQ")
MOST_FACTS = 1 << 20
MOST_CONTENT = 256 << 20
"""Bytes of an answer that the server takes from a worker, which a decoder's bug may have turned into an attacker."""
PIECE = 256 << 10

T = TypeVar("T")


@dataclass(frozen=True)
class Task:
    """One request for a worker; its bytes are the request's body."""

    verb: str
    """gaze, crop or compare."""
    options: Document | None
    """What was asked for, already checked; None where a form has to be read first."""
    query: list[tuple[str, str]]
    """What the address says beside a form."""
    content_type: str = ""
    """Of a multipart form; otherwise the body is the picture."""
    signed: bool = False
    """Whether the address was signed: then a form holds the picture alone, as its options would not be signed."""
    name: str = ""
    """Of one picture of several, which its answer repeats."""
    granted: bool = False
    """Whether there is room for the answer and time for the work, whatever they come to."""


@dataclass(frozen=True)
class Outcome:
    """What a worker says: it is ready, an answer (its bytes follow), a refusal, what a task needs, or a bug."""

    kind: str
    """hello, answer, error, needs, parts or bug; the server's own kind is gone: nobody waits for the answer."""
    pid: int = 0
    media_type: str = ""
    status: int = 0
    code: str = ""
    message: str = ""
    """For people; with a bug the traceback, for the log."""
    heavy: bool = False
    """needs: a worker with more time and memory than the light ones have."""
    size: int = 0
    """needs: bytes that the answer takes at most."""
    cost: float = 0.0
    """needs: seconds of CPU time that decoding takes, roughly."""
    parts: list[list[int]] = field(default_factory=list)
    """parts: where the pictures of a form begin and end in its bytes."""
    names: list[str] = field(default_factory=list)
    """parts: what the pictures are called."""
    options: Document | None = None
    """parts: what is asked for each of them."""
    seconds: float = 0.0
    """CPU time of the task."""
    last: bool = False
    """The worker ends after this: it has grown, and a fresh one costs milliseconds."""


def pack(message: Task | Outcome | Document, size: int = 0) -> bytes:
    """The message up to its bytes, of which ``size`` follow."""
    facts = json.dumps(message if isinstance(message, dict) else asdict(message)).encode()
    return HEADER.pack(len(facts), size) + facts


def unpack(kind: type[T], facts: bytes) -> T:
    """The message of that kind; ValueError for anything else."""
    try:
        found = json.loads(facts)
        types = {known.name: known.type for known in fields(kind)}  # type: ignore[arg-type]
        if all(_fits(value, types[name]) for name, value in found.items()):
            return kind(**found)
    except (AttributeError, KeyError, TypeError, RecursionError):  # no object, another name, one missing
        pass
    raise ValueError(f"no {kind.__name__}")


def _fits(value: Json, wanted: object) -> bool:
    """Whether a number or a text is one; what is made of others is checked where it is used."""
    if wanted is float:
        return isinstance(value, int | float) and math.isfinite(value)
    return not isinstance(wanted, type) or wanted not in (str, int, bool) or type(value) is wanted


def receive(connection: socket.socket) -> tuple[bytes, bytes]:
    """Facts and bytes of the next message on a blocking socket; EOFError at its end."""
    facts, size = HEADER.unpack(_exactly(connection, HEADER.size))
    return _exactly(connection, facts), _exactly(connection, size)


def _exactly(connection: socket.socket, size: int) -> bytes:
    content = bytearray(size)
    view = memoryview(content)
    while view:
        n = connection.recv_into(view)
        if n == 0:
            raise EOFError
        view = view[n:]
    return bytes(content)  # Pillow's streams copy a bytearray every time, and bytes never
