"""The page's files and the example pictures, read once at the start: no request ever names a path."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

from fastgaze.app import site
from fastgaze.app.server.answers import PacedResponse
from fastgaze.app.server.limits import ApiError, Limits, shown

_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".png": "image/png",
    ".webp": "image/webp",
}
_MOST_EXAMPLES = 12


@dataclass(frozen=True)
class File:
    """One file as it is sent."""

    content: bytes
    media_type: str

    @cached_property
    def etag(self) -> str:
        """Changes with the content."""
        return f'"{hashlib.sha256(self.content).hexdigest()[:16]}"'

    def response(self, request: Request, limits: Limits) -> Response:
        """The file, or 304 when the client has it."""
        headers = {"etag": self.etag, "cache-control": "no-cache"}
        if self.etag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        return PacedResponse(self.content, self.media_type, limits, headers)


Files = Mapping[str, File]


def page_files() -> Files:
    """The page by the address that follows ``/page/``."""
    return {name: File(path.read_bytes(), _TYPES[path.suffix]) for name, path in site.page_files()}


def example_files(folder: Path | None, limits: Limits) -> Files:
    """The example pictures of a folder by name, at most a dozen."""
    if folder is None or not folder.is_dir():
        return {}
    paths = [path for path in sorted(folder.iterdir()) if path.suffix.lower() in site.PICTURES and path.is_file()]
    fitting = [path for path in paths if path.stat().st_size <= limits.bytes][:_MOST_EXAMPLES]
    return {path.name: File(path.read_bytes(), _TYPES[path.suffix.lower()]) for path in fitting}


def pick(files: Files, name: str) -> File:
    """The file of that name; 404 when there is none."""
    if name not in files:
        raise ApiError(404, "not_found", f"there is no file {shown(name)}")
    return files[name]
