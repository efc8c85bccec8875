"""The request's body, read piece by piece within the limits."""

import asyncio
import contextlib
from time import monotonic

from starlette.requests import ClientDisconnect, Request

from fastgaze.app.server.budget import Share, Transfer
from fastgaze.app.server.connection import GuardedProtocol
from fastgaze.app.server.limits import ApiError, Limits, amount

# What a form may add to the picture itself: boundaries, headers and options.
_FORM_BYTES = 64 << 10
# A refused body is read on for this long, so that a client still sending it gets to see the answer.
_DRAIN_BYTES = 8 << 20
_DRAIN_SECONDS = 1.0


class Body:
    """The body of one request, counted against the server's budget of bytes while it arrives."""

    def __init__(self, request: Request, limits: Limits, share: Share) -> None:
        self._request = request
        self._limits = limits
        self._share = share
        self._complete = False
        self.content_type = request.headers.get("content-type", "")
        self.is_form = self.content_type.lower().startswith("multipart/form-data")
        self._most = limits.bytes + (_FORM_BYTES if self.is_form else 0)

    async def read(self) -> bytearray:
        """All of it; 413 when it is too long, 408 when it is too slow, 503 when others take all the memory."""
        declared = self._request.headers.get("content-length", "")
        if declared.isdecimal() and int(declared) > self._most:
            raise self.too_long()
        connection: GuardedProtocol = self._request.state.connection
        upload = Transfer(connection.abort)
        self._share.transfer = connection.upload = upload
        try:
            return await self._read(upload)
        finally:
            self._share.transfer = connection.upload = None

    async def _read(self, upload: Transfer) -> bytearray:
        content = bytearray()
        while not self._complete:
            piece = await self._piece_in_time(upload)
            if len(content) + len(piece) > self._most:
                raise self.too_long()
            if not self._share.take(len(piece)):
                raise self._share.budget.full()
            upload.move(len(piece))
            content += piece
        return content

    async def _piece_in_time(self, upload: Transfer) -> bytes:
        left = upload.deadline(self._limits.upload_seconds, self._limits.rate) - monotonic()
        try:
            async with asyncio.timeout(left):
                return await self._piece()
        except TimeoutError:
            message = (
                f"the request's body came too slowly: less than {amount(self._limits.rate)} per second, "
                f"or nothing for {self._limits.upload_seconds:g} s"
            )
            raise ApiError(408, "upload_too_slow", message) from None

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
        """Read and discard for a moment; whether that was the rest of the body."""
        # A client that waits for "100 Continue" has sent nothing yet, and reading would invite it to.
        left = 0 if "expect" in self._request.headers else _DRAIN_BYTES
        with contextlib.suppress(TimeoutError, ClientDisconnect):
            async with asyncio.timeout(_DRAIN_SECONDS):
                while not self._complete and left > 0:
                    left -= len(await self._piece())
        return self._complete
