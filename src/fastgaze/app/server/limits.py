"""What a client may ask for, and the error that says it asked for more."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from fastgaze.core.errors import ArgumentError
from fastgaze.core.jsonable import Json
from fastgaze.core.pictures import MAX_PIXELS

# Two formats of the runtime are missing. Pillow decodes JPEG 2000 without releasing the interpreter's lock (3 s for
# 12 megapixels), so that nothing else would run; what is in an ICO may be larger than its header says.
SERVED_FORMATS = ("JPEG", "PNG", "WEBP", "AVIF", "GIF", "TIFF", "BMP", "PPM", "MPO")
LONGEST_MAP_SIDE = 8192
"""Pixels of either side of a map; the tail's matrices grow with it."""
SMALL_ANSWER = 64 << 10
"""Bytes of an answer that the sockets themselves take: what is larger is written piece by piece."""
SUMMARY_PIXELS = 1 << 20
"""Of the heat map inside a JSON answer, unless its size is asked for."""


@dataclass(frozen=True)
class Limits:
    """Bounds of one server; each that a client can reach has its own status code."""

    bytes: int = 32 << 20
    """Bytes of a picture as it is sent; 413."""
    pixels: int = 50_000_000
    """Pixels of a picture; 413."""
    pictures: int = 16
    """Pictures in one request; 413."""
    map_pixels: int = 16_000_000
    """Pixels of a map that is sent back; 400."""
    seconds: float = 10.0
    """Seconds from the picture's arrival to the answer; 504."""
    upload_seconds: float = 10.0
    """Seconds without a byte of the body, and seconds before its average rate counts; 408."""
    write_seconds: float = 10.0
    """The same for an answer and a client that does not read it; the connection is aborted."""
    rate: int = 16 << 10
    """Bytes per second that a body or an answer makes at least on average, once the seconds above are over."""
    in_flight: int = 128
    """Requests whose picture has arrived and whose answer is not yet written; 503."""
    connections: int = 512
    """Open connections; for one more, the connection that has been idle longest is closed."""
    upload_bytes: int = 64 << 20
    """Bytes of all bodies that are held at once; for more, a slow upload is ended, or 503."""
    answer_bytes: int = 80 << 20
    """Bytes of all answers above ``SMALL_ANSWER`` held at once; for more, a slow reader is cut off, or 503."""
    drain_seconds: float = 10.0
    """Seconds from SIGTERM to the end of the process; what is still in flight then is cut off."""

    def __post_init__(self) -> None:
        for name in self.__dataclass_fields__:
            if not 0 < getattr(self, name) < math.inf:
                raise ArgumentError(f"limit {name}={getattr(self, name)} is not a number above 0")
        if self.pixels > MAX_PIXELS:
            raise ArgumentError(f"limit pixels={self.pixels} is above {MAX_PIXELS}, the most that is ever decoded")
        if self.upload_bytes < self.bytes or self.answer_bytes < 4 * self.map_pixels:
            raise ArgumentError("limits upload_bytes and answer_bytes must hold at least one picture and one map")

    def to_json(self) -> dict[str, Json]:
        """What a client needs to know before it sends a picture."""
        names = ("bytes", "pixels", "pictures", "map_pixels", "seconds")
        return {name: getattr(self, name) for name in names}


@dataclass
class ApiError(Exception):
    """An answer other than success: a status, a code for programs and a sentence for people."""

    status: int
    code: str
    message: str
    headers: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Json]:
        """The body of the answer."""
        return {"error": {"code": self.code, "message": self.message}}


def bad_option(message: str) -> ApiError:
    """400 for an option with a value that is not valid."""
    return ApiError(400, "bad_option", message)


def shown(text: str, most: int = 60) -> str:
    """A client's text, quoted in printable ASCII and cut short, as part of a message."""
    return ascii(text if len(text) <= most else text[:most] + "...")


def amount(n: int) -> str:
    """Bytes as people read them: ``32 MB``."""
    for unit, size in (("MB", 1 << 20), ("kB", 1 << 10)):
        if n >= size:
            return f"{n / size:.3g} {unit}"
    return f"{n} bytes"
