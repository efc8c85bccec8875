"""The page as a folder of static files that need no server: ``fastgaze site``.

The same files that the server serves, with the models beside them and onnxruntime-web to run them in the browser. A
service worker keeps all of it for later visits, so that the page also works offline. Pictures stay in the browser.
"""

import base64
import hashlib
import html
import io
import json
import shutil
import subprocess
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fastgaze.app.server.limits import Limits
from fastgaze.core.errors import ArgumentError, FastGazeError
from fastgaze.core.files import cache_dir, write_whole
from fastgaze.core.jsonable import Json
from fastgaze.runtime import headroom, zoo
from fastgaze.runtime.card import ModelCard
from fastgaze.runtime.engines import fold_constants

PAGE = Path(__file__).parent / "server" / "page"
"""What the page is made of; ``gaze/`` is also the source of the npm package in ``js/``."""
PICTURES = (".jpg", ".jpeg", ".png", ".webp")
"""Suffixes of example pictures."""
RUNTIME_VERSION = "1.30.0"
"""Of onnxruntime-web; ``js/package.json`` names the same one."""
RUNTIME_INTEGRITY = "q0y+JrrtukXSzsBWEMccVfqX25LRmosXHF+CaRJmg8pZClzcV7svNc4rKY3jL02Vb7QmRMDs1SigqR4CXAfKYQ=="
"""SHA-512 of its package, in base64, as npm publishes it."""

RUNTIME_FILE = f"onnxruntime-web-{RUNTIME_VERSION}.tgz"
# One pair of files for every browser, and one for browsers with WebGPU, which is fetched only there.
_WASM = ("ort.wasm.bundle.min.mjs", "ort-wasm-simd-threaded.wasm")
_WEBGPU = ("ort.webgpu.bundle.min.mjs", "ort-wasm-simd-threaded.asyncify.wasm")
_POLICY = (
    "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self'; img-src 'self' blob: data:; "
    "connect-src 'self'; worker-src 'self'; base-uri 'none'; form-action 'none'"
)
_ON_SERVER = '<html lang="en" data-engine="server">\n<head>\n'
_IN_BROWSER = (
    '<html lang="en" data-engine="browser" data-model="{model}">\n<head>\n'
    f'  <meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
    # Before the rest of the page: it starts the engine.
    '  <script type="module" src="page/browser.js" async></script>\n'
)


@dataclass(frozen=True)
class Site:
    """What was written."""

    folder: Path
    models: tuple[str, ...]
    files: int
    bytes: int
    first_visit: int
    """Bytes that a browser without WebGPU loads, before the host's compression."""


def page_files() -> Iterator[tuple[str, Path]]:
    """The page's files by the address that follows ``page/``."""
    for path in sorted(PAGE.rglob("*")):
        if path.is_file():
            yield path.relative_to(PAGE).as_posix(), path


def describe_models(cards: Sequence[ModelCard], limits: Limits) -> dict[str, Json]:
    """The document of ``GET /v1/models``: what can be chosen, the first one by default, and how much is accepted."""
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
        "limits": limits.to_json(),
    }


def build_site(folder: Path, models: Sequence[str | Path], examples: Path, runtime: Path | None = None) -> Site:
    """Write the page with ``models`` (names or .onnx files, the first by default) and ``examples`` into ``folder``.

    runtime: the package of onnxruntime-web as a .tgz file; by default the one in the cache, where npm puts it first.
    """
    if folder.exists() and not folder.is_dir():
        raise ArgumentError(f"{folder} is not a folder")
    names = tuple(zoo.read_model(model)[2].name for model in models)
    files = _models(models) | _page(names[0]) | _examples(examples)
    engines = _unpacked(_package(runtime), _WASM + _WEBGPU)
    later = {f"ort/{name}": engines.pop(f"ort/{name}") for name in _WEBGPU}
    first = files | engines
    first["precache.js"] = _precache(first)
    for name, content in (first | later).items():
        write_whole(folder / name, content)
    first_bytes = sum(map(len, first.values()))
    return Site(folder, names, len(first) + len(later), first_bytes + sum(map(len, later.values())), first_bytes)


def _page(model: str) -> dict[str, bytes]:
    files = {f"page/{name}": path.read_bytes() for name, path in page_files()}
    index = files.pop("page/index.html").decode()
    if _ON_SERVER not in index:
        raise FastGazeError("the page does not begin as expected; install fastgaze again")
    # A service worker looks after the folder that it lies in.
    files["sw.js"] = files.pop("page/sw.js")
    return files | {"index.html": index.replace(_ON_SERVER, _IN_BROWSER.format(model=html.escape(model))).encode()}


def _models(models: Sequence[str | Path]) -> dict[str, bytes]:
    found = [zoo.read_model(model) for model in models]
    cards = [card for _, _, card in found]
    if len({card.name for card in cards}) < len(cards) or not cards:
        raise ArgumentError(f"models of a site need different names and at least one; got {[c.name for c in cards]}")
    facts = json.dumps(describe_models(cards, Limits())).encode()
    contents = {f"models/{card.name}.onnx": fold_constants(path, content) for path, content, card in found}
    heads = fold_constants(headroom.FILE, headroom.FILE.read_bytes())
    return contents | {"models/heads.onnx": heads, "models.json": facts}


def _examples(folder: Path) -> dict[str, bytes]:
    paths = [path for path in sorted(folder.iterdir()) if path.suffix.lower() in PICTURES]
    listed = json.dumps({"examples": [path.name for path in paths]}).encode()
    return {"examples.json": listed} | {f"examples/{path.name}": path.read_bytes() for path in paths}


def _precache(files: Mapping[str, bytes]) -> bytes:
    """What the service worker keeps: a list whose version changes with any of the files."""
    digest = hashlib.sha256()
    for name, content in sorted(files.items()):
        digest.update(f"{name} {len(content)} ".encode() + content)
    kept = {"version": digest.hexdigest()[:16], "files": ["./", *sorted(set(files) - {"index.html", "sw.js"})]}
    return f"self.PRECACHE = {json.dumps(kept, indent=1)};\n".encode()


def _package(given: Path | None) -> bytes:
    """The checked package of onnxruntime-web."""
    path = cache_dir() / RUNTIME_FILE if given is None else given
    if given is None and not path.is_file():
        _fetch(path)
    content = path.read_bytes()
    found = base64.b64encode(hashlib.sha512(content).digest()).decode()
    if found != RUNTIME_INTEGRITY:
        raise FastGazeError(f"{path} is not onnxruntime-web {RUNTIME_VERSION} as it was published; remove it")
    return content


def _fetch(path: Path) -> None:
    remedy = f"run `npm pack onnxruntime-web@{RUNTIME_VERSION}` elsewhere and give the file with --runtime"
    npm = shutil.which("npm")
    if npm is None:
        raise FastGazeError(f"onnxruntime-web {RUNTIME_VERSION} is not in {path.parent}, and there is no npm; {remedy}")
    path.parent.mkdir(parents=True, exist_ok=True)
    command = [npm, "pack", f"onnxruntime-web@{RUNTIME_VERSION}", "--pack-destination", str(path.parent)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode or not path.is_file():
        raise FastGazeError(f"npm cannot fetch onnxruntime-web {RUNTIME_VERSION} (status {done.returncode}); {remedy}")


def _unpacked(package: bytes, names: Sequence[str]) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(package)) as archive:
        return {f"ort/{name}": _member(archive, f"package/dist/{name}") for name in names}


def _member(archive: tarfile.TarFile, name: str) -> bytes:
    file = archive.extractfile(name)
    if file is None:
        raise FastGazeError(f"onnxruntime-web has no file {name}")
    return file.read()
