"""The routes: the page, the API, and what every answer has in common."""

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path
from time import monotonic, perf_counter

from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fastgaze import __version__
from fastgaze.app.server import docs, site
from fastgaze.app.server.access import Access, client_of
from fastgaze.app.server.answers import PacedResponse, json_response
from fastgaze.app.server.body import Body
from fastgaze.app.server.budget import Budget
from fastgaze.app.server.connection import GuardedProtocol, Live
from fastgaze.app.server.limits import ApiError, Limits, bad_option
from fastgaze.app.server.metrics import Metrics
from fastgaze.app.server.openapi import document
from fastgaze.app.server.options import parse_request
from fastgaze.app.server.pool import Pool
from fastgaze.app.server.pool import Request as PoolRequest
from fastgaze.app.server.several import answer_each
from fastgaze.app.server.turns import Caller
from fastgaze.app.server.wire import Outcome, Task
from fastgaze.app.server.workers import Nursery
from fastgaze.app.site import describe_models
from fastgaze.core.errors import ArgumentError
from fastgaze.runtime import zoo
from fastgaze.runtime.card import ModelCard

logger = logging.getLogger("fastgaze.server")

HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}
_LIVE = json.dumps({"status": "ok", "version": __version__}).encode()
_PATHS = {"/", "/docs", "/examples", "/livez", "/metrics", "/openapi.json", "/readyz"}
_PATHS |= {"/v1/compare", "/v1/crop", "/v1/gaze", "/v1/models"}
_METHODS = ("GET", "HEAD", "POST", "OPTIONS")
_SIGNING = ("expires", "signature")
_MOST_PARAMETERS = 128
"""In a query: twice as many as there can be regions."""
_DOCS_ADDRESS = "http://127.0.0.1:8000"
"""In the examples of /docs for those whose request does not tell how they reach the server."""
_DOCS_KEPT = 16
_BUSY_SECONDS = 0.4
"""Before 503 is said, and for every bad picture after the first: who asks again at once cannot keep the server busy."""


@dataclass(frozen=True)
class ServerSettings:
    """What a server consists of, besides its limits."""

    models: Sequence[str | Path]
    """Bundled names or paths of .onnx files; the first is the default one."""
    engine: str = "onnxruntime"
    threads: int = 1
    """Threads of one prediction."""
    workers: int = 1
    """Pictures that are predicted at once."""
    examples: Path | None = None
    """A folder of pictures that the page offers."""
    access: Access = field(default_factory=Access)


def create_app(settings: ServerSettings, limits: Limits | None = None) -> "Outermost":
    """The whole server; starts the process that loads the models."""
    cards = [zoo.read_model(name)[2] for name in settings.models]
    names = [card.name for card in cards]
    if len(set(names)) < len(names) or not names:
        raise ArgumentError(f"models to serve need different names and at least one; got {names}")
    limits = limits or Limits()
    nursery = Nursery([str(name) for name in settings.models], settings.engine, settings.threads, limits)
    nursery.start()
    server = Server(cards, limits, Pool(nursery, settings.workers, limits), settings)
    return Outermost(server, settings.access)


class Server:
    """What the routes share."""

    def __init__(self, cards: Sequence[ModelCard], limits: Limits, pool: Pool, settings: ServerSettings) -> None:
        self._limits = limits
        self._cards = tuple(cards)
        self.names = [card.name for card in cards]
        self._secret = settings.access.secret
        self.pool = pool
        self._uploads = Budget(limits.upload_bytes, "pictures")
        self._answers = Budget(limits.answer_bytes, "answers")
        self.metrics = Metrics(pool, self._uploads, self._answers)
        self._page = site.page_files()
        self._examples = site.example_files(settings.examples, limits)
        self._models = json.dumps(describe_models(cards, limits)).encode()
        described = document(cards, limits)
        self._openapi = site.File(json.dumps(described).encode(), "application/json")
        # One for each address by which the server is called: whoever makes up names keeps the latest few.
        self._docs = lru_cache(_DOCS_KEPT)(lambda address: site.html_file(docs.page(described, address)))
        self._docs(_DOCS_ADDRESS)

    def app(self) -> Starlette:
        """The routes as an application."""
        app = Starlette(
            routes=[
                Route("/", self.index, methods=["GET"]),
                Route("/docs", self.docs, methods=["GET"]),
                Route("/page/{name:path}", self.page_file, methods=["GET"]),
                Route("/examples", self.list_examples, methods=["GET"]),
                Route("/examples/{name}", self.example, methods=["GET"]),
                Route("/livez", self.live, methods=["GET"]),
                Route("/readyz", self.ready, methods=["GET"]),
                Route("/metrics", self.measured, methods=["GET"]),
                Route("/openapi.json", self.openapi, methods=["GET"]),
                Route("/v1/models", self.models, methods=["GET"]),
                Route("/v1/gaze", self.gaze, methods=["POST"]),
                Route("/v1/crop", self.crop, methods=["POST"]),
                Route("/v1/compare", self.compare, methods=["POST"]),
            ],
            exception_handlers={ApiError: _on_api_error, HTTPException: _on_http_error, Exception: _on_bug},
            lifespan=self._lifespan,
        )
        app.router.redirect_slashes = False  # a redirect would repeat the client's own Host
        return app

    @contextlib.asynccontextmanager
    async def _lifespan(self, _: Starlette) -> AsyncIterator[None]:
        await self.pool.open()
        try:
            yield
        finally:
            self.pool.close()

    async def index(self, request: Request) -> Response:
        """The page."""
        return self._page["index.html"].response(request, self._limits)

    async def docs(self, request: Request) -> Response:
        """The API for people to read."""
        address = docs.address_of(request.scope["scheme"], request.headers) or _DOCS_ADDRESS
        return self._docs(address).response(request, self._limits)

    async def page_file(self, request: Request) -> Response:
        """What the page is made of."""
        return site.pick(self._page, request.path_params["name"]).response(request, self._limits)

    async def list_examples(self, _: Request) -> Response:
        """Names of the example pictures."""
        return json_response({"examples": list(self._examples)})

    async def example(self, request: Request) -> Response:
        """One example picture."""
        return site.pick(self._examples, request.path_params["name"]).response(request, self._limits)

    async def live(self, _: Request) -> Response:
        """Report that the process answers."""
        return Response(_LIVE, headers={"cache-control": "no-store"}, media_type="application/json")

    async def ready(self, _: Request) -> Response:
        """Whether pictures can be looked at now, and how busy the server is."""
        lanes = {"light": len(self.pool.light.workers), "heavy": len(self.pool.heavy.workers)}
        facts = {"status": "ok" if self.pool.ready else "starting", "in_flight": self.pool.in_flight, "workers": lanes}
        return json_response(facts, 200 if self.pool.ready else 503)

    async def measured(self, _: Request) -> Response:
        """Counts for Prometheus."""
        return Response(self.metrics.text(), media_type="text/plain; version=0.0.4")

    async def openapi(self, request: Request) -> Response:
        """The API as an OpenAPI document."""
        return self._openapi.response(request, self._limits)

    async def models(self, _: Request) -> Response:
        """The models and the limits."""
        return Response(self._models, media_type="application/json")

    async def gaze(self, request: Request) -> Response:
        """Where people look in the picture that was sent."""
        return await self._work(request, "gaze")

    async def crop(self, request: Request) -> Response:
        """Windows that keep what people look at."""
        return await self._work(request, "crop")

    async def compare(self, request: Request) -> Response:
        """What several pictures draw, beside each other."""
        return await self._work(request, "compare")

    async def _work(self, request: Request, verb: str) -> Response:
        connection: GuardedProtocol = request.state.connection
        with contextlib.ExitStack() as held:
            sent, room = self._uploads.share(), self._answers.share()
            held.callback(sent.release)
            held.callback(room.release)
            task, content = await self._receive(request, verb, Body(request, self._limits, sent))
            address = client_of(request.client.host if request.client else "")
            caller = Caller(address, connection.known, behind=connection.refused)
            held.enter_context(self.pool.place(caller))
            deadline = monotonic() + self._limits.seconds
            wanted = lambda: not connection.transport.is_closing()  # noqa: E731
            given = PoolRequest(task, content, caller, deadline, wanted)
            answer = await self.pool.run(given, room)
            if isinstance(answer, Outcome):
                answer = await answer_each(self.pool, given, answer, room)
            if answer is None:
                raise ClientDisconnect
            del content, given
            sent.release()
            room.keep(len(answer.content))
            headers = {"cache-control": "no-store"}
            return PacedResponse(answer.content, answer.media_type, self._limits, headers, held.pop_all(), room)

    async def _receive(self, request: Request, verb: str, body: Body) -> tuple[Task, bytearray]:
        query, signed = request.query_params.multi_items(), False
        if self._secret:
            signed = "signature" in request.query_params
            query = [(name, value) for name, value in query if name not in _SIGNING]
        options = None
        try:
            if not body.is_form:  # what is wrong with a query is said before the picture is sent
                options = asdict(parse_request(verb, query, self._cards, self._limits))
            content = await body.read()
        except ApiError as error:
            if not await body.drain():
                error.headers = {**error.headers, "connection": "close"}
            raise
        return Task(verb, options, query, body.content_type if body.is_form else "", signed), content


async def _on_api_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    # Everything that the request held is given back by now.
    if error.status == 503 or (request.method == "POST" and request.state.connection.refused):
        await asyncio.sleep(_BUSY_SECONDS)
    return json_response(error.to_json(), error.status, error.headers)


async def _on_http_error(_: Request, error: Exception) -> Response:
    """Starlette's own refusals: no such route, no such method."""
    assert isinstance(error, HTTPException)
    code, message = {
        404: ("not_found", "there is nothing here; see /docs"),
        405: ("method_not_allowed", "this method is not allowed here; see /docs"),
    }.get(error.status_code, ("refused", "the request cannot be served"))
    return json_response(ApiError(error.status_code, code, message).to_json(), error.status_code, error.headers)


async def _on_bug(_: Request, __: Exception) -> Response:
    return json_response(ApiError(500, "internal", "the server failed; its log says why").to_json(), 500)


class Outermost:
    """Around everything: who may ask, headers that every answer has, one line of log without a client's own words."""

    def __init__(self, server: Server, access: Access) -> None:
        self.pool = server.pool
        self.names = server.names
        self._app: ASGIApp = server.app()
        self._metrics = server.metrics
        self._access = access

    def live(self) -> Live:
        """What ``GET /livez`` answers before a request takes its turn."""
        headers = {"content-type": "application/json", "content-length": str(len(_LIVE)), "cache-control": "no-store"}
        headers |= HEADERS | self._access.cors_headers({})
        lines = ["HTTP/1.1 200 OK", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
        return Live("\r\n".join(lines).encode() + _LIVE, lambda: self._metrics.count("GET", "/livez", 200, 0.0))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start, status, headers = perf_counter(), 0, Headers(scope=scope)
        extra = HEADERS | self._access.cors_headers(headers)

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                added = MutableHeaders(scope=message)
                varies = [value for value in (added.get("vary"), extra.get("vary")) if value]
                added.update(extra)
                if varies:
                    added["vary"] = ", ".join(varies)
            await send(message)

        try:
            app = self._refusal(scope, headers) or self._app
            await app(scope, receive, send_with_headers)
        except (ClientDisconnect, asyncio.CancelledError):  # the latter when the time to drain is over
            status = 499
        path = scope["path"] if scope["path"] in _PATHS else "(other)"
        method = scope["method"] if scope["method"] in _METHODS else "(other)"
        if method == "POST":
            scope["state"]["connection"].note(status)
        seconds = perf_counter() - start
        self._metrics.count(method, path, status, seconds)
        if path != "/livez" or status != 200:
            logger.info("%s %s %d %.0f ms", method, path, status, 1e3 * seconds)

    def _refusal(self, scope: Scope, headers: Headers) -> ASGIApp | None:
        """What to answer instead, before anything is done for the request."""
        method, path = scope["method"], scope["path"]
        if path == "/livez":
            return None
        try:
            self._access.check_host(headers)
            if path.startswith("/v1/") or path == "/metrics":
                self._access.check_origin(headers)
                if method == "OPTIONS" and self._access.origins:
                    return Response(status_code=204)
                self._access.check_rate(scope["client"][0] if scope["client"] else "")
                if scope["query_string"].count(b"&") >= _MOST_PARAMETERS:
                    raise bad_option(f"more than {_MOST_PARAMETERS} options are given")
                self._access.check_secret(method, path, scope["query_string"].decode("latin-1"), headers)
        except ApiError as error:
            # A body is on its way that nobody is going to read.
            closing = {"connection": "close"} if method == "POST" else {}
            return json_response(error.to_json(), error.status, {**error.headers, **closing})
        return None
