"""Who may ask: host names, origins of web pages, a token or a signed address, and how often.

- A web page elsewhere can make its visitor's browser send requests to a server on the visitor's own machine. So a
  request must name the server by a number, as localhost or by a name that was allowed (a name can be pointed at any
  machine: DNS rebinding), and one that comes from a page of another origin is refused before anything is done for it.
- With a secret every request to the API carries it: ``Authorization: Bearer SECRET``, or an address that was signed
  with it: ``expires`` (seconds since 1970) and ``signature``, the HMAC-SHA256 of method, path and all other parts of
  the query in the order of their names; those of one name stay in the order in which they were signed.
"""

import hashlib
import hmac
import ipaddress
import math
import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from urllib.parse import parse_qsl, urlencode, urlsplit

from fastgaze.app.server.limits import ApiError
from fastgaze.core.errors import ArgumentError

_MOST_CLIENTS = 10_000
_LEAST_SECRET = 16


@dataclass(frozen=True)
class Access:
    """The access rules of one server."""

    hosts: tuple[str, ...] = ()
    """Names by which clients may address the server, besides numbers and localhost; ``*`` allows all."""
    origins: tuple[str, ...] = ()
    """Other origins whose pages may use the API (CORS), such as ``https://example.org``."""
    secret: str = ""
    rate: float = 0.0
    """Requests to the API per second and client address; 0 sets no limit."""
    clients: "OrderedDict[str, tuple[float, float]]" = field(default_factory=OrderedDict, compare=False, repr=False)
    """Tokens left and when, by address: those that asked last."""

    def __post_init__(self) -> None:
        if self.secret and len(self.secret) < _LEAST_SECRET:
            raise ArgumentError(f"the secret has {len(self.secret)} characters; it needs at least {_LEAST_SECRET}")
        if not (math.isfinite(self.rate) and self.rate >= 0):
            raise ArgumentError(f"rate {self.rate} is not a number of at least 0")
        for origin in self.origins:
            parts = urlsplit(origin)
            if parts.scheme not in ("http", "https") or not parts.netloc or parts.path or parts.query:
                raise ArgumentError(f"origin {origin!r} is not SCHEME://HOST or SCHEME://HOST:PORT")

    def check_host(self, headers: Mapping[str, str]) -> None:
        """421 when the request names a host that is not this server."""
        name = _host_name(headers.get("host", ""))
        if "*" in self.hosts or name in ("localhost", *self.hosts) or _is_number(name):
            return
        raise ApiError(421, "wrong_host", "this server does not answer to that name; see --allow-host")

    def check_origin(self, headers: Mapping[str, str]) -> None:
        """403 when a page of another origin sends the request and may not."""
        origin = headers.get("origin")
        if origin is None:
            cross = headers.get("sec-fetch-site") in ("cross-site", "same-site")
        else:
            cross = _place_of(origin) != headers.get("host", "").lower()
        if cross and origin not in self.origins:
            raise ApiError(403, "cross_origin", "pages of this origin may not use this server; see --cors")

    def check_secret(self, method: str, path: str, query: str, headers: Mapping[str, str]) -> None:
        """401 without the secret, 403 with a signature that is wrong or has expired."""
        if not self.secret:
            return
        given = headers.get("authorization", "")
        if hmac.compare_digest(given.encode(), f"Bearer {self.secret}".encode()):
            return
        pairs = parse_qsl(query, keep_blank_values=True)
        signatures = [value for name, value in pairs if name == "signature"]
        if not signatures:
            message = "this server needs a token: Authorization: Bearer TOKEN, or a signed address"
            raise ApiError(401, "no_token", message, {"www-authenticate": "Bearer"})
        rest = [(name, value) for name, value in pairs if name != "signature"]
        times = [value for name, value in rest if name == "expires"]
        right = _signature(self.secret, method, path, rest)
        if len(signatures) > 1 or not hmac.compare_digest(signatures[0].encode(), right.encode()):
            raise ApiError(403, "wrong_signature", "the signature does not belong to this method, path and query")
        if not (len(times) == 1 and times[0].isdecimal() and len(times[0]) < 13 and int(times[0]) >= time.time()):
            raise ApiError(403, "signature_over", "the signed address has expired, or does not say when it does")

    def check_rate(self, address: str) -> None:
        """429 when the client asks more often than ``rate``; it may save up two seconds' worth."""
        if not self.rate:
            return
        client, now, most = client_of(address), time.monotonic(), max(2 * self.rate, 1.0)
        left, last = self.clients.pop(client, (most, now))
        left = min(left + (now - last) * self.rate, most)
        self.clients[client] = (max(left - 1, 0.0) if left >= 1 else left, now)
        if len(self.clients) > _MOST_CLIENTS:
            self.clients.popitem(last=False)
        if left < 1:
            wait = str(math.ceil((1 - left) / self.rate))
            message = f"at most {self.rate:g} requests per second are accepted from one client"
            raise ApiError(429, "too_many_requests", message, {"retry-after": wait})

    def cors_headers(self, headers: Mapping[str, str]) -> dict[str, str]:
        """What lets an allowed page read the answer."""
        if not self.origins:
            return {}
        origin = headers.get("origin", "")
        if origin not in self.origins:
            return {"vary": "origin"}
        return {
            "vary": "origin",
            "access-control-allow-origin": origin,
            "access-control-allow-methods": "GET, POST",
            "access-control-allow-headers": "authorization, content-type",
            "access-control-max-age": "600",
            "cross-origin-resource-policy": "cross-origin",
        }


def sign(address: str, secret: str, expires: int, method: str = "POST") -> str:
    """``address`` (a path with its query, or a whole URL) with ``expires`` and ``signature`` added."""
    parts = urlsplit(address)
    pairs = parse_qsl(parts.query, keep_blank_values=True)
    if own := sorted({"expires", "signature"} & {name for name, _ in pairs}):
        raise ArgumentError(f"the address has {' and '.join(own)} already; sign it without")
    pairs.append(("expires", str(expires)))
    signed = [*pairs, ("signature", _signature(secret, method, parts.path, pairs))]
    return parts._replace(query=urlencode(signed)).geturl()


def _signature(secret: str, method: str, path: str, pairs: list[tuple[str, str]]) -> str:
    text = f"{method}\n{path}\n{urlencode(sorted(pairs, key=itemgetter(0)))}"
    return hmac.new(secret.encode(), text.encode(), hashlib.sha256).hexdigest()


def _place_of(origin: str) -> str:
    """Host and port of an origin; nothing for what is not one."""
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""


def _host_name(host: str) -> str:
    """The name in a Host header, without its port."""
    name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
    return name.lower().rstrip(".")


def _is_number(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def client_of(address: str) -> str:
    """One client: an IPv4 address, or the /64 of an IPv6 one, of which everybody has as many as there are numbers."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return address
    return address if found.version == 4 else str(ipaddress.ip_network((found, 64), strict=False))
