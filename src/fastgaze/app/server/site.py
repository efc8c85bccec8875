"""The page's files and the example pictures, read once at the start: no request ever names a path."""

import gzip
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
_PHOTOS = ("image/jpeg", "image/png", "image/webp")
_MOST_EXAMPLES = 12


@dataclass(frozen=True)
class File:
    """One file as it is sent: as it is, or packed once for all who can unpack it."""

    content: bytes
    media_type: str

    def __post_init__(self) -> None:
        """Pack it now: no request waits for that."""
        assert self.packed is not None

    @cached_property
    def key(self) -> str:
        """Changes with the content."""
        return hashlib.sha256(self.content).hexdigest()[:16]

    @cached_property
    def packed(self) -> bytes:
        """The content in gzip; nothing for photographs, which would not be shorter."""
        return gzip.compress(self.content, 9, mtime=0) if self.media_type not in _PHOTOS else b""

    def response(self, request: Request, limits: Limits) -> Response:
        """The file, or 304 when the client has it."""
        pack = bool(self.packed) and "gzip" in request.headers.get("accept-encoding", "")
        headers = {"etag": f'"{self.key}{"-gzip" * pack}"', "cache-control": "no-cache", "vary": "accept-encoding"}
        if headers["etag"] in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        if pack:
            headers["content-encoding"] = "gzip"
        return PacedResponse(self.packed if pack else self.content, self.media_type, limits, headers)


def html_file(page: str) -> File:
    """A page that was made here."""
    return File(page.encode(), _TYPES[".html"])


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
