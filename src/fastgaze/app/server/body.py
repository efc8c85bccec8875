"""The request's body, read piece by piece within the limits, and what a multipart form holds."""

import asyncio
import contextlib
from dataclasses import dataclass, field

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.requests import ClientDisconnect, Request

from fastgaze.app.server.limits import ApiError, Limits, amount

# What a form may add to the picture itself: boundaries, headers and options.
_FORM_BYTES = 64 << 10
_MOST_PARTS = 32
# A refused body is read on for this long, so that a client still sending it gets to see the answer.
_DRAIN_BYTES = 8 << 20
_DRAIN_SECONDS = 1.0


class Body:
    """The body of one request; no more of it than the limit and one piece is ever taken in."""

    def __init__(self, request: Request, limits: Limits) -> None:
        self._request = request
        self._limits = limits
        self._complete = False
        self.content_type = request.headers.get("content-type", "")
        self.is_form = self.content_type.lower().startswith("multipart/form-data")
        self._most = limits.bytes + (_FORM_BYTES if self.is_form else 0)

    async def read(self) -> bytes:
        """All of it; 413 when it is too long, 408 when it is too slow."""
        declared = self._request.headers.get("content-length", "")
        if declared.isdecimal() and int(declared) > self._most:
            raise self.too_long()
        try:
            async with asyncio.timeout(self._limits.upload_seconds):
                return await self._read()
        except TimeoutError:
            seconds = self._limits.upload_seconds
            raise ApiError(
                408, "upload_too_slow", f"the request's body took longer than {seconds:g} s to arrive"
            ) from None

    async def _read(self) -> bytes:
        content = bytearray()
        while not self._complete:
            content += await self._piece()
            if len(content) > self._most:
                raise self.too_long()
        return bytes(content)

    async def _piece(self) -> bytes:
        message = await self._request.receive()
        if message["type"] == "http.disconnect":
            self._complete = True
            raise ClientDisconnect
        self._complete = not message.get("more_body", False)
        piece: bytes = message.get("body", b"")
        return piece

    def too_long(self) -> ApiError:
        """413."""
        return ApiError(413, "too_many_bytes", f"the picture is larger than {amount(self._limits.bytes)}")

    async def drain(self) -> bool:
        """Read on and forget, for a moment; whether that was all of it."""
        # A client that waits for "100 Continue" has sent nothing yet, and reading would invite it to.
        left = 0 if "expect" in self._request.headers else _DRAIN_BYTES
        with contextlib.suppress(TimeoutError, ClientDisconnect):
            async with asyncio.timeout(_DRAIN_SECONDS):
                while not self._complete and left > 0:
                    left -= len(await self._piece())
        return self._complete


@dataclass
class Form:
    """What a multipart form holds: one picture and text fields."""

    image: bytes | None = None
    fields: list[tuple[str, str]] = field(default_factory=list)


@dataclass
class _Part:
    name: str = ""
    is_file: bool = False
    header: bytes = b""
    value: bytes = b""
    pieces: list[memoryview] = field(default_factory=list)


def parse_form(content: bytes, content_type: str) -> Form:
    """The parts of a multipart body: the file called ``image`` (or the only file) and the text fields."""
    boundary = parse_options_header(content_type)[1].get(b"boundary")
    if not boundary:
        raise _bad_form("its Content-Type names no boundary")
    try:
        parts = _split(content, boundary)
    except (FormParserError, UnicodeDecodeError) as error:
        raise _bad_form("its parts cannot be told apart") from error
    form = Form()
    for part in parts:
        value = b"".join(part.pieces)
        if part.name == "image" or part.is_file:
            if form.image is not None:
                raise _bad_form("it holds two pictures; send one")
            form.image = value
        else:
            form.fields.append((part.name, value.decode("utf-8", "replace")))
    return form


def _split(content: bytes, boundary: bytes) -> list[_Part]:
    parts: list[_Part] = []

    def begin() -> None:
        if len(parts) >= _MOST_PARTS:
            raise FormParserError("too many parts")
        parts.append(_Part())

    def header_name(data: bytes, start: int, end: int) -> None:
        parts[-1].header += data[start:end]

    def header_value(data: bytes, start: int, end: int) -> None:
        parts[-1].value += data[start:end]

    def header_end() -> None:
        part = parts[-1]
        if part.header.lower() == b"content-disposition":
            options = parse_options_header(part.value)[1]
            part.name = options.get(b"name", b"").decode("utf-8")
            part.is_file = b"filename" in options
        part.header = part.value = b""

    def data(piece: bytes, start: int, end: int) -> None:
        parts[-1].pieces.append(memoryview(piece)[start:end])

    parser = MultipartParser(
        boundary,
        {
            "on_part_begin": begin,
            "on_header_field": header_name,
            "on_header_value": header_value,
            "on_header_end": header_end,
            "on_part_data": data,
        },
    )
    parser.write(content)
    parser.finalize()
    return parts


def _bad_form(reason: str) -> ApiError:
    return ApiError(400, "bad_form", f"the multipart form cannot be read: {reason}")
