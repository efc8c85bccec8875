"""Sockets, logging and shutdown: the part of the server that is uvicorn's."""

import ipaddress
import logging
import math
import re
import resource
import socket
from dataclasses import replace
from time import monotonic
from typing import TextIO

import uvicorn

from fastgaze.app.server.api import Outermost
from fastgaze.app.server.connection import protocol_for
from fastgaze.app.server.limits import Limits
from fastgaze.core.errors import ArgumentError

_BACKLOG = 256
"""Connections that wait to be accepted."""
_AT_ONCE = 64
"""Connections that asyncio accepts in one turn of its loop, while everybody else waits."""
_OWN_DESCRIPTORS = 64
"""Of the server itself: workers, log, standard library."""
_SAME_LINE_SECONDS = 5.0


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


class _Server(uvicorn.Server):
    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """For uvicorn and asyncio, how many wait and how many are accepted at once is one number."""
        await super().startup(sockets)
        for listening in sockets or ():
            listening.listen(_BACKLOG)


def make_server(app: Outermost, limits: Limits) -> uvicorn.Server:
    """uvicorn with limits; ``server.run(sockets=[...])`` serves until SIGTERM or SIGINT and ends what is in flight."""
    limits, at_once = _fitting_descriptors(limits)
    return _Server(
        uvicorn.Config(
            app,
            http=protocol_for(limits, app.live()),
            ws="none",
            loop="asyncio",
            lifespan="on",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            backlog=at_once,
            timeout_keep_alive=10,
            # The connections end by themselves (GuardedProtocol.shutdown); this is for what then hangs.
            timeout_graceful_shutdown=math.ceil(limits.drain_seconds) + 2,
        )
    )


def _fitting_descriptors(limits: Limits) -> tuple[Limits, int]:
    """Limits, and connections to accept at once, for which the process has file descriptors."""
    wanted = limits.connections + _AT_ONCE + _OWN_DESCRIPTORS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return limits, _AT_ONCE
    at_once = max(min(_AT_ONCE, (soft - _OWN_DESCRIPTORS) // 2), 1)
    connections = soft - _OWN_DESCRIPTORS - at_once
    if connections < 1:
        raise ArgumentError(
            f"this process may open {soft} files at once; serving needs {_OWN_DESCRIPTORS + 16} or more"
        )
    return replace(limits, connections=connections), at_once


class OncePerWhile(logging.Filter):
    """Lets one line through and drops its repetitions for a few seconds: no client can fill a disk with them."""

    def __init__(self) -> None:
        super().__init__()
        self._last: dict[tuple[str, int], float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record is written."""
        line, now = (record.pathname, record.lineno), monotonic()
        if now - self._last.get(line, -math.inf) < _SAME_LINE_SECONDS:
            return False
        self._last[line] = now
        return True


class EscapingFormatter(logging.Formatter):
    """One record is one line of printable ASCII, whatever a client managed to get into it."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        return re.sub(r"[^\x20-\x7e]", _escape, super().format(record))


def _escape(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode("ascii")


def log_to(stream: TextIO, level: int) -> None:
    """Send the log of the server and of uvicorn to ``stream``, escaped."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(EscapingFormatter("%(asctime)s %(levelname)s %(message)s"))
    seldom = logging.StreamHandler(stream)
    seldom.setFormatter(handler.formatter)
    seldom.addFilter(OncePerWhile())
    own, others = logging.getLogger("fastgaze.server"), ("uvicorn.error", "asyncio", "python_multipart")
    own.handlers, own.propagate = [handler], False
    own.setLevel(level)
    for name in others:
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [seldom], False
        logger.setLevel(logging.ERROR if name == "python_multipart" else max(level, logging.WARNING))
