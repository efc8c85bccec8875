"""Sockets, logging and shutdown: the part of the server that is uvicorn's."""

import asyncio
import ipaddress
import logging
import re
import socket
from typing import Any

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from fastgaze.app.server.limits import Limits
from fastgaze.core.errors import ArgumentError

HEAD_SECONDS = 10.0
"""A connection that has not sent a whole request head by then is closed."""
_SHUTDOWN_SECONDS = 10
_HEAD_BYTES = 16 << 10


def bind(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 takes a free one."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        return socket.create_server(address[:2], family=family, backlog=256)
    except (OSError, OverflowError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ArgumentError(
            f"cannot listen on {host} port {port}: {reason}; choose others with --host, --port"
        ) from error


def is_local(listening: socket.socket) -> bool:
    """Whether only this machine can reach the socket."""
    return ipaddress.ip_address(listening.getsockname()[0]).is_loopback


def address(listening: socket.socket) -> str:
    """Where a browser finds the socket."""
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if listening.family == socket.AF_INET6 else f"http://{host}:{port}"


def make_server(app: ASGIApp, limits: Limits) -> uvicorn.Server:
    """uvicorn with limits; ``server.run(sockets=[...])`` serves until SIGTERM or SIGINT and ends what is in flight."""
    return uvicorn.Server(
        uvicorn.Config(
            app,
            http=GuardedProtocol,
            ws="none",
            loop="asyncio",
            lifespan="on",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            limit_concurrency=limits.connections,
            timeout_keep_alive=10,
            timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
            h11_max_incomplete_event_size=_HEAD_BYTES,
        )
    )


class GuardedProtocol(H11Protocol):
    """HTTP/1.1 that also closes a connection whose request head does not come."""

    _head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A connection opens."""
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        """Bytes arrive."""
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """A connection ends."""
        self._forget()
        super().connection_lost(exc)

    def _watch(self) -> None:
        if self.conn.their_state is not h11.IDLE:
            self._forget()
        elif self._head_timer is None:
            self._head_timer = self.loop.call_later(HEAD_SECONDS, self._give_up)

    def _forget(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _give_up(self) -> None:
        self._head_timer = None
        if self.conn.their_state is h11.IDLE and not self.transport.is_closing():
            self.transport.close()


class EscapingFormatter(logging.Formatter):
    """One record is one line of printable ASCII, whatever a client managed to get into it."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        return re.sub(r"[^\x20-\x7e]", _escape, super().format(record))


def _escape(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode("ascii")


def log_to(stream: Any, level: int) -> None:
    """Send the log of the server and of uvicorn to ``stream``, escaped."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(EscapingFormatter("%(asctime)s %(levelname)s %(message)s"))
    levels = {"fastgaze.server": level, "uvicorn.error": max(level, logging.WARNING), "python_multipart": logging.ERROR}
    for name, least in levels.items():
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(least)
