"""Answers that are written piece by piece, as fast as the client reads them and no slower than is allowed."""

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Mapping
from time import monotonic

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from fastgaze.app.server.budget import Share, Transfer
from fastgaze.app.server.connection import GuardedProtocol
from fastgaze.app.server.limits import Limits
from fastgaze.core.jsonable import Json

_PIECE = 64 << 10


class PacedResponse(Response):
    """An answer of any size: never more than one piece of it is in the transport's buffer.

    ``held`` (a place, bytes of a budget) is given back when the client's socket has taken everything or is given up.
    """

    def __init__(
        self,
        content: bytes | memoryview,
        media_type: str,
        limits: Limits,
        headers: Mapping[str, str] | None = None,
        held: contextlib.ExitStack | None = None,
        room: Share | None = None,
    ) -> None:
        super().__init__(content, headers=headers, media_type=media_type)
        self._limits = limits
        self._held = held or contextlib.ExitStack()
        self._room = room

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        """ASGI."""
        connection: GuardedProtocol = scope["state"]["connection"]
        transfer = Transfer(connection.abort)
        if self._room is not None:
            self._room.transfer = transfer
        with self._held:
            try:
                await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
                await self._write(send, transfer)
                await self._in_time(connection.flushed(), transfer)
            except TimeoutError:
                connection.abort()
                await asyncio.sleep(0)  # until the protocol knows, or it would miss the rest of the answer

    async def _write(self, send: Send, transfer: Transfer) -> None:
        view = memoryview(self.body)
        for start in range(0, max(len(view), 1), _PIECE):
            piece = view[start : start + _PIECE]
            more = start + _PIECE < len(view)
            message = {"type": "http.response.body", "body": piece, "more_body": more}
            await self._in_time(send(message), transfer)
            transfer.move(len(piece))

    async def _in_time(self, writing: Awaitable[None], transfer: Transfer) -> None:
        left = transfer.deadline(self._limits.write_seconds, self._limits.rate) - monotonic()
        async with asyncio.timeout(left):
            await writing


def json_response(value: Mapping[str, Json], status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A small answer."""
    content = json.dumps(value).encode()
    return Response(content, status, {"cache-control": "no-store", **(headers or {})}, "application/json")
