"""The routes: the page, the API, and what every answer has in common."""

import contextlib
import json
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fastgaze import __version__
from fastgaze.app.server import jobs, site
from fastgaze.app.server.body import Body, parse_form
from fastgaze.app.server.limits import ApiError, Limits, bad_option, shown
from fastgaze.app.server.openapi import document
from fastgaze.app.server.options import CROP_OPTIONS, GAZE_OPTIONS, Options, parse_options
from fastgaze.app.server.pool import Pool
from fastgaze.core.errors import ArgumentError
from fastgaze.runtime.predictor import Predictor

logger = logging.getLogger("fastgaze.server")

Job = Callable[[Predictor, bytes, Options, Limits], jobs.Answer]

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
_PATHS = ("/", "/v1/gaze", "/v1/crop", "/v1/models", "/healthz", "/openapi.json", "/examples")


def create_app(
    predictors: Sequence[Predictor], limits: Limits | None = None, workers: int = 1, examples: Path | None = None
) -> ASGIApp:
    """The whole server for these models, the first of which is the default one.

    workers: threads that predict. examples: a folder of pictures that the page offers.
    """
    names = [predictor.name for predictor in predictors]
    if len(set(names)) < len(names) or not names:
        raise ArgumentError(f"models to serve need different names and at least one; got {names}")
    server = Server({predictor.name: predictor for predictor in predictors}, limits or Limits(), workers, examples)
    return Outermost(server.app())


class Server:
    """What the routes share."""

    def __init__(
        self, predictors: Mapping[str, Predictor], limits: Limits, workers: int, examples: Path | None
    ) -> None:
        self._predictors = predictors
        self._limits = limits
        self._pool = Pool(workers, limits)
        self._page = site.page_files()
        self._examples = site.example_files(examples, limits)
        self._models = json.dumps(self._describe()).encode()
        self._openapi = json.dumps(document(list(predictors), limits)).encode()

    def app(self) -> Starlette:
        """The routes as an application."""
        return Starlette(
            routes=[
                Route("/", self.index, methods=["GET"]),
                Route("/page/{name}", self.page_file, methods=["GET"]),
                Route("/examples", self.list_examples, methods=["GET"]),
                Route("/examples/{name}", self.example, methods=["GET"]),
                Route("/healthz", self.health, methods=["GET"]),
                Route("/openapi.json", self.openapi, methods=["GET"]),
                Route("/v1/models", self.models, methods=["GET"]),
                Route("/v1/gaze", self.gaze, methods=["POST"]),
                Route("/v1/crop", self.crop, methods=["POST"]),
            ],
            exception_handlers={ApiError: _on_api_error, HTTPException: _on_http_error, Exception: _on_bug},
            lifespan=self._lifespan,
        )

    @contextlib.asynccontextmanager
    async def _lifespan(self, _: Starlette) -> AsyncIterator[None]:
        yield
        self._pool.close()

    async def index(self, request: Request) -> Response:
        """The page."""
        return self._page["index.html"].response(request)

    async def page_file(self, request: Request) -> Response:
        """What the page is made of."""
        return site.pick(self._page, request.path_params["name"]).response(request)

    async def list_examples(self, _: Request) -> Response:
        """Names of the example pictures."""
        return _json_response({"examples": list(self._examples)})

    async def example(self, request: Request) -> Response:
        """One example picture."""
        return site.pick(self._examples, request.path_params["name"]).response(request)

    async def health(self, _: Request) -> Response:
        """That the server lives, and how busy it is."""
        return _json_response({"status": "ok", "version": __version__, "in_flight": self._pool.in_flight})

    async def openapi(self, _: Request) -> Response:
        """The API as an OpenAPI document."""
        return Response(self._openapi, media_type="application/json")

    async def models(self, _: Request) -> Response:
        """The models and the limits."""
        return Response(self._models, media_type="application/json")

    async def gaze(self, request: Request) -> Response:
        """Where people look in the picture that was sent."""
        return await self._work(request, jobs.gaze, GAZE_OPTIONS)

    async def crop(self, request: Request) -> Response:
        """Windows that keep what people look at."""
        return await self._work(request, jobs.crop, CROP_OPTIONS, needed="ratio")

    async def _work(self, request: Request, job: Job, known: tuple[str, ...], needed: str | None = None) -> Response:
        body = Body(request, self._limits)
        query = request.query_params.multi_items()
        try:
            # What is wrong with a query is said before the picture is sent; a form's options come with the picture.
            asked = None if body.is_form else self._options(query, known, needed)
            with self._pool.place():
                content = await body.read()
                answer = await self._pool.run(lambda: self._answer(body, content, query, job, known, needed, asked))
        except ApiError as error:
            if not await body.drain():
                error.headers = {**error.headers, "connection": "close"}
            raise
        return Response(answer.content, media_type=answer.media_type, headers={"cache-control": "no-store"})

    def _answer(
        self,
        body: Body,
        content: bytes,
        query: list[tuple[str, str]],
        job: Job,
        known: tuple[str, ...],
        needed: str | None,
        asked: tuple[Options, Predictor] | None,
    ) -> jobs.Answer:
        """Runs in a worker thread: a form of many small pieces takes a while to split."""
        picture: bytes | None = content
        if body.is_form:
            form = parse_form(content, body.content_type)
            picture, query = form.image, query + form.fields
        options, predictor = asked or self._options(query, known, needed)
        if not picture:
            raise ApiError(400, "no_picture", "no picture was sent; send its bytes as the body or as the field image")
        if len(picture) > self._limits.bytes:
            raise body.too_long()
        return job(predictor, picture, options, self._limits)

    def _options(
        self, fields: list[tuple[str, str]], known: tuple[str, ...], needed: str | None
    ) -> tuple[Options, Predictor]:
        options = parse_options(fields, known, self._limits)
        if needed == "ratio" and not options.ratios:
            raise bad_option("no ratio is given; add one such as ratio=16:9")
        name = next(iter(self._predictors)) if options.model is None else options.model
        if name not in self._predictors:
            known_names = ", ".join(self._predictors)
            raise ApiError(404, "unknown_model", f"there is no model {shown(name)}; there are {known_names}")
        return options, self._predictors[name]

    def _describe(self) -> dict[str, Any]:
        cards = [predictor.card for predictor in self._predictors.values()]
        return {
            "default": cards[0].name,
            "models": [
                {
                    "name": card.name,
                    "architecture": card.architecture,
                    "precision": card.precision,
                    "parameters": card.parameters,
                    "gflop_640x480": card.gflop_640x480,
                    "gflop_working": card.gflop_working,
                    "working_pixels": card.working_size.pixels,
                    "scores": dict(card.scores),
                    "data": card.data,
                    "licence": card.licence,
                }
                for card in cards
            ],
            "limits": self._limits.to_json(),
        }


def _json_response(value: dict[str, Any], status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    content = json.dumps(value).encode()
    return Response(content, status, {"cache-control": "no-store", **(headers or {})}, "application/json")


async def _on_api_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    return _json_response(error.to_json(), error.status, error.headers)


async def _on_http_error(_: Request, error: Exception) -> Response:
    """Starlette's own refusals: no such route, no such method."""
    assert isinstance(error, HTTPException)
    code, message = {
        404: ("not_found", "there is nothing here; see /openapi.json"),
        405: ("method_not_allowed", "this method is not allowed here; see /openapi.json"),
    }.get(error.status_code, ("refused", "the request cannot be served"))
    return _json_response(ApiError(error.status_code, code, message).to_json(), error.status_code, error.headers)


async def _on_bug(_: Request, __: Exception) -> Response:
    return _json_response(ApiError(500, "internal", "the server failed; its log says why").to_json(), 500)


class Outermost:
    """Around everything: headers that every answer has, and one line of log without a client's own words."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start, status = perf_counter(), 0

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        try:
            await self._app(scope, receive, send_with_headers)
        except ClientDisconnect:
            status = 499
        path = scope["path"] if scope["path"] in _PATHS else "(other)"
        method = scope["method"] if scope["method"] in ("GET", "HEAD", "POST") else "(other)"
        logger.info("%s %s %d %.0f ms", method, path, status, 1e3 * (perf_counter() - start))
