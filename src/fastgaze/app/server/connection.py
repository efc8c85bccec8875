"""HTTP/1.1 over one connection, so that no client can hold up the others.

uvicorn's protocol on h11 trusts the other side with the event loop's time and with memory. What is changed here:

- What arrives is looked at when its turn comes (``gate``), and `/livez` is answered before that.
- One read takes 64 kB, not 256 kB, and a body in tiny chunks, or with headers behind it, is refused: h11 takes up to 40
  microseconds per chunk, so that one read of one-byte chunks would stop the loop for two seconds.
- A head is kept back until it is whole, and is refused above 16 kB or 100 lines: h11 checks only incomplete ones. What
  another server could read otherwise is refused too, so that no request can hide behind another.
- A request that comes before the last answer is sent (pipelining) is not looked at: the connection closes after that
  answer. No browser and no common library does this.
- The write buffer's limit is zero: `FlowControl.drain` waits until the client's socket has taken everything, so that
  a request can keep its place until then.
- When there are too many connections, the one that has been idle longest makes room for the new one; one whose last
  picture was good only when there is no other.
"""

import asyncio
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import STATUS_PHRASES, H11Protocol

from fastgaze.app.server.budget import Transfer
from fastgaze.app.server.gate import Gate, Standing
from fastgaze.app.server.limits import ApiError, Limits

HEAD_SECONDS = 10.0
"""A connection that has not sent a whole request head by then is closed."""
HEAD_BYTES = 16 << 10
_HEAD_LINES = 100
_LIVE_BYTES = 2 << 10
_READ_BYTES = 64 << 10
# A body may have this many chunks, and one more for every so many bytes.
_FREE_CHUNKS = 64
_BYTES_PER_CHUNK = 256
# What ends a body in chunks, where nothing follows; the line break before it belongs to the chunk before.
_LAST_CHUNK = re.compile(rb"(?:\r\n)?0+[ \t]*(?:;[^\r\n]*)?\r\n")
# The head of a request for /livez as programs write it, and what else would have to be looked at.
_LIVE = re.compile(rb"GET /livez HTTP/1\.1\r\n(?:[A-Za-z-]+:[\x20-\x7e]*\r\n){1,20}\r\n")
_NOT_ONLY_LIVE = re.compile(
    rb"\n(?:connection: *(?!keep-alive)|content-|transfer-|expect:|upgrade:|origin:)", re.IGNORECASE
)
_PICTURE = b"POST /v1/"
_END_OF_HEAD = re.compile(rb"\n\r?\n")
# What a proxy in front may understand otherwise: lines that end in a bare line feed or go on in the next line, and a
# body whose end is said twice, or by anything but one number.
_ODD_HEAD = re.compile(rb"(?<!\r)\n|\n[ \t]|\ncontent-length:(?![ \t]*[0-9]+[ \t]*\r\n)", re.IGNORECASE)
_FRAMING = re.compile(rb"\n(?:content-length|transfer-encoding)[ \t]*:", re.IGNORECASE)


class BoundedConnection(h11.Connection):
    """h11 that refuses a body in tiny chunks, and headers that follow a body: a read could hold ten thousand."""

    _chunks = 0
    _bytes = 0
    _between = False
    """Whether the next bytes begin a chunk."""
    _ending = False
    """Whether the last chunk has come, but not what ends the body."""

    def next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        """The next event; an error of the other side when its chunks are too small or trailers follow."""
        if self._between or self._ending:
            self._refuse_trailers()
        event = super().next_event()
        if isinstance(event, h11.Data):
            self._between = event.chunk_end
            self._chunks += event.chunk_start
            self._bytes += len(event.data)
            if self._chunks > _FREE_CHUNKS + self._bytes / _BYTES_PER_CHUNK:
                raise h11.RemoteProtocolError("the body comes in tiny chunks")
        elif isinstance(event, h11.Request):
            self._chunks = self._bytes = 0
            self._between = any(name == b"transfer-encoding" for name, _ in event.headers)
        elif isinstance(event, h11.EndOfMessage):
            self._between = self._ending = False
        return event

    def _refuse_trailers(self) -> None:
        coming, start = self._receive_buffer._data, 0  # trailing_data would copy all of it for every chunk
        if not self._ending:
            end = _LAST_CHUNK.match(coming)
            if end is None:
                return
            self._ending, self._between, start = True, False, end.end()
        if bytes(coming[start : start + 2]) not in (b"", b"\r", b"\r\n"):
            raise h11.RemoteProtocolError("headers follow the body")


@dataclass(frozen=True)
class Live:
    """What ``GET /livez`` answers."""

    answer: bytes
    """All of it, head and body."""
    count: Callable[[], None]
    """Called for every answer."""


class GuardedProtocol(H11Protocol, asyncio.BufferedProtocol):
    """One connection; ``limits`` is set by ``protocol_for``."""

    limits: Limits
    gate: Gate
    live: Live
    idle: "dict[GuardedProtocol, None]"
    """Connections that have no request, those that have had none for longest first."""
    buffer: bytearray
    """What a read goes to, shared by all connections of a server: it is emptied before the next one reads."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.conn = BoundedConnection(h11.SERVER, HEAD_BYTES)
        # Where the application finds this object: request.state.connection.
        self.app_state = {**self.app_state, "connection": self}
        self.upload: Transfer | None = None
        """Set while the application reads a body."""
        self.known = False
        """Whether the last picture that came over it was good."""
        self.used = 0.0
        self.refused = False
        """Whether the last one was not, for a reason that lies in it."""
        self._arrived = bytearray()
        """What nobody has looked at yet."""
        self._head = bytearray()
        self._head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A connection opens."""
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=0)
        self._expect_head()
        self._make_room()

    def get_buffer(self, sizehint: int) -> bytearray:  # noqa: ARG002
        """Where the next read goes."""
        return self.buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Bytes arrive: nothing else is read until their turn has come."""
        data = bytes(memoryview(self.buffer)[:nbytes])
        if self._arrived:
            self._arrived += data
            self.transport.pause_reading()
        elif not self._answer_live(data):
            self._arrived += data
            self.transport.pause_reading()
            self.gate.enter(self, self._standing(data))

    def look(self) -> int:
        """Look at what has arrived; the number of requests that began."""
        data = bytes(self._arrived)
        self._arrived.clear()
        if not self.flow.read_paused:  # uvicorn's own reason not to read: the application has enough to do
            self.transport.resume_reading()
        before = self.cycle
        self.data_received(data)
        return int(self.cycle is not before)

    def _standing(self, data: bytes) -> Standing:
        start = bytes(self._head[: len(_PICTURE)]) + data[: len(_PICTURE)]
        if self.refused or not (self.conn.their_state is not h11.IDLE or start.startswith(_PICTURE)):
            return Standing.OTHER
        return Standing.KNOWN if self.known else Standing.NEW

    def _answer_live(self, data: bytes) -> bool:
        """Answer ``GET /livez``, if that is what came, and nothing but that: whatever the server does, it says so."""
        if self._head or self.conn.their_state is not h11.IDLE or self.conn.our_state is not h11.IDLE:
            return False
        if len(data) > _LIVE_BYTES or not _LIVE.fullmatch(data) or _NOT_ONLY_LIVE.search(data):
            return False
        if data.lower().count(b"\nhost:") != 1 or self.transport.is_closing():
            return False
        if self.transport.get_write_buffer_size():  # the client does not read its answers
            self.transport.abort()
            return True
        self.transport.write(self.live.answer)
        self.live.count()
        self._unset_keepalive_if_required()
        self._expect_head()
        return True

    def data_received(self, data: bytes) -> None:
        """A part of a head, or of a body."""
        if self.transport.is_closing():
            return
        if self.conn.their_state is not h11.IDLE:
            super().data_received(data)
        elif (head := self._whole_head(data)) is not None:
            self._forget_head()
            super().data_received(head)
        if self.conn.their_state is h11.DONE and self.conn.trailing_data[0] and self.cycle is not None:
            self.cycle.keep_alive = False

    def _whole_head(self, data: bytes) -> bytes | None:
        """What has come of this request, once that is all of its head; None before, and when it is refused."""
        known = max(len(self._head) - 2, 0)
        self._head += data
        end = _END_OF_HEAD.search(self._head, known)
        length = end.end() if end else len(self._head)
        if length > HEAD_BYTES or self._head.count(b"\n", 0, length) > _HEAD_LINES:
            self._refuse(ApiError(431, "head_too_large", f"a request's head has at most {HEAD_BYTES >> 10} kB"))
            return None
        if end is None:
            return None
        if _ODD_HEAD.search(self._head, 0, length) or len(_FRAMING.findall(self._head, 0, length)) > 1:
            self.send_400_response("")
            return None
        head = bytes(self._head)
        self._head.clear()
        return head

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002
        """What uvicorn does when h11 finds no HTTP."""
        self._refuse(ApiError(400, "not_http", "this is not a request in HTTP/1.1, or its body comes in tiny chunks"))

    def _refuse(self, error: ApiError) -> None:
        """Say so, unless an answer has begun, and close."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE) and not self.transport.is_closing():
            body = json.dumps(error.to_json()).encode()
            head = f"HTTP/1.1 {error.status} {STATUS_PHRASES[error.status].decode()}\r\n"
            head += f"content-type: application/json\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
            self.transport.write(head.encode() + body)
        self._forget_head()
        self.transport.close()

    def on_response_complete(self) -> None:
        """An answer has been handed to the transport."""
        if self.conn.their_state is h11.SEND_BODY:  # nobody is going to read the rest
            self.transport.close()
        super().on_response_complete()
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """A connection ends."""
        self._forget_head()
        super().connection_lost(exc)

    def shutdown(self) -> None:
        """The server is about to end: no further request, and so much time for this one."""
        super().shutdown()
        self.loop.call_later(self.limits.drain_seconds, self.abort)

    def note(self, status: int) -> None:
        """A picture that came over this connection was answered with ``status``."""
        if status != 503:  # that says something about the server
            self.known, self.refused = status == 200, status != 200

    async def flushed(self) -> None:
        """Wait until the client's socket has taken everything."""
        await self.flow.drain()

    def abort(self) -> None:
        """End the connection now; what is not yet written is dropped."""
        self.transport.abort()

    # -- too long without a head, too many connections ----------------------------------------------------------------

    def _expect_head(self) -> None:
        self._forget_head()
        self.idle[self] = None
        self._head_timer = self.loop.call_later(HEAD_SECONDS, self.transport.close)

    def _forget_head(self) -> None:
        self.idle.pop(self, None)
        self._head.clear()
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _make_room(self) -> None:
        if len(self.connections) <= self.limits.connections:
            return
        weakest = next((found for found in self.idle if not found.known), None) or next(iter(self.idle), None)
        if weakest is None:
            now = monotonic()
            paces = {found: found.upload.pace(now) for found in self._others() if found.upload is not None}
            weakest = min(paces, key=paces.__getitem__, default=self)
        self.connections.discard(weakest)
        self.idle.pop(weakest, None)
        weakest.abort()

    def _others(self) -> "list[GuardedProtocol]":
        found = (other for other in self.connections if isinstance(other, GuardedProtocol))
        return [other for other in found if other is not self and not other.transport.is_closing()]


def protocol_for(limits: Limits, live: Live) -> type[GuardedProtocol]:
    """The protocol of one server."""
    own = {"limits": limits, "gate": Gate(), "live": live, "idle": {}, "buffer": bytearray(_READ_BYTES)}
    return type("LimitedProtocol", (GuardedProtocol,), own)
