"""The page without a server: what is written, and that a real browser finds what Python finds, also offline."""

import base64
import functools
import http.server
import json
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from fastgaze.app import site
from fastgaze.app.cli import main
from fastgaze.app.demo import EXAMPLES
from fastgaze.core.errors import FastGazeError
from fastgaze.core.files import cache_dir
from fastgaze.runtime import zoo
from tests.app.cases import write_cases
from tests.app.serving import until

if TYPE_CHECKING:
    from playwright import sync_api as playwright

ROOT = Path(__file__).parents[2]
TOLERANCE = 1e-3

COMPARE = """async () => {
  const engine = await import(new URL("page/browser.js", location).href);
  const { complaints, difference, unpack } = await import(new URL("cases/compare.js", location).href);
  const { model, cases, ratios, candidates } = await (await fetch("cases/cases.json")).json();
  const { GazeMap } = await import(new URL("page/gaze/map.js", location).href);
  const { regionToJson } = await import(new URL("page/gaze/regions.js", location).href);
  await engine.start();
  const found = [];
  for (const { name, grid, regions, found: expected } of cases) {
    const file = await (await fetch(`cases/${name}.png`)).blob();
    const options = { model, center_bias: "model", ratio: ratios.join(","), n: String(candidates) };
    const result = await engine.look(file, options);
    result.crops = await engine.crops(file, options);
    const map = await engine.grid(file, options);
    result.regions = new GazeMap(map, result.picture_size).regions(regions).map(regionToJson);
    found.push({ name, nats: difference(map, unpack(grid)), wrong: complaints(result, expected, map) });
  }
  return found;
}"""


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not (cache_dir() / site.RUNTIME_FILE).is_file():
        pytest.skip(
            f"no {site.RUNTIME_FILE} in {cache_dir()}: the page without a server is not tested; see docs/site.md"
        )
    folder = tmp_path_factory.mktemp("site")
    site.build_site(folder, [zoo.default_name()], EXAMPLES)
    write_cases(folder / "cases")
    shutil.copy(ROOT / "js" / "compare.js", folder / "cases")
    return folder


@pytest.fixture
def url(folder: Path) -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Quiet, directory=folder))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def page(browser: "playwright.Browser", url: str) -> Iterator["playwright.Page"]:
    context = browser.new_context(viewport={"width": 1280, "height": 800}, reduced_motion="reduce")
    page = context.new_page()
    page.set_default_timeout(60_000)
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
    # Nothing but reading from where the page came from: no picture leaves the browser.
    context.on("request", lambda request: problems.append(request.url) if _leaves(request, url) else None)
    page.goto(url)
    page.wait_for_selector("#example-list img")
    yield page
    context.close()
    assert problems == []


def _leaves(request: "playwright.Request", url: str) -> bool:
    return request.method != "GET" or not request.url.startswith((url, "blob:", "data:"))


def test_the_browser_finds_in_ten_pictures_what_python_finds(page: "playwright.Page") -> None:
    found = page.evaluate(COMPARE)
    assert len(found) == 10
    assert {each["name"]: each["nats"] for each in found if not each["nats"] <= TOLERANCE} == {}
    assert {each["name"]: each["wrong"] for each in found if each["wrong"]} == {}


def test_the_page_says_what_it_takes_a_picture_for_and_can_be_told(page: "playwright.Page") -> None:
    page.click("#example-list button")
    page.wait_for_selector("body[data-state=result]")
    assert page.inner_text("#kind") == "It looks like a photograph."
    first = page.locator("#peaks .share").first
    before = first.inner_text()
    page.select_option("#bias", "screen")
    until(page, f"document.querySelector('#peaks .share').textContent !== {before!r}")
    assert page.inner_text("#kind") == "It looks like a photograph."
    assert "center_bias=screen" in page.url


def test_the_page_works_offline_after_the_first_visit(page: "playwright.Page") -> None:
    until(page, "navigator.serviceWorker.controller !== null")
    page.context.set_offline(True)
    page.reload()
    page.click("#example-list button")
    page.wait_for_selector("body[data-state=result]")
    page.click("#add-region")
    until(page, "document.querySelector('#region-list .facts')?.textContent.includes('%')")
    assert "nothing is sent anywhere" in (page.text_content("#hint") or "")


def test_the_engine_starts_with_the_page_and_heads_are_fetched_for_the_first_crop(
    browser: "playwright.Browser", url: str
) -> None:
    context = browser.new_context()
    page = context.new_page()
    page.add_init_script("delete Navigator.prototype.serviceWorker")  # it would fetch everything
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url.removeprefix(url)))
    with page.expect_request("**/ort/*.wasm"):  # before a picture is chosen
        page.goto(url)
    assert "models/default.onnx" in asked
    assert "models/heads.onnx" not in asked
    page.click("#example-list button")
    page.click("#ratios label:has-text('1:1')")
    page.wait_for_selector("#windows .candidate")
    assert "models/heads.onnx" in asked
    context.close()


def test_what_the_browser_cannot_read_is_said_in_words(page: "playwright.Page") -> None:
    page.set_input_files("#file", {"name": "scan.tif", "mimeType": "image/tiff", "buffer": b"II*\0" + bytes(99)})
    page.wait_for_selector("#alert:not([hidden])")
    assert "not a picture that this browser can read" in page.inner_text("#alert-text")
    assert page.is_visible("#drop")


def test_the_map_can_be_saved_for_numpy(page: "playwright.Page") -> None:
    import numpy as np

    page.click("#example-list button")
    page.wait_for_selector("body[data-state=result]")
    with page.expect_download() as waiting:
        page.click("#save-npy")
    log_density = np.load(waiting.value.path(), allow_pickle=False)
    assert log_density.dtype == np.float32
    assert np.exp(log_density).sum() == pytest.approx(1, abs=1e-3)


def test_the_list_of_the_service_worker_names_every_file_that_the_first_visit_needs(folder: Path) -> None:
    text = (folder / "precache.js").read_text()
    kept = json.loads(text.removeprefix("self.PRECACHE = ").rstrip().rstrip(";"))["files"]
    written = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    needed = {
        name for name in written if not name.startswith("cases/") and "webgpu" not in name and "asyncify" not in name
    }
    assert set(kept) == (needed - {"index.html", "sw.js", "precache.js"}) | {"./"}


def test_a_changed_file_changes_the_version_that_is_kept() -> None:
    files = {"index.html": b"page", "page/main.js": b"one"}
    assert site._precache(files) != site._precache({**files, "page/main.js": b"two"})


def test_another_package_than_the_published_one_is_refused(tmp_path: Path) -> None:
    package = tmp_path / "onnxruntime-web.tgz"
    package.write_bytes(b"something else")
    with pytest.raises(FastGazeError, match="as it was published"):
        site.build_site(tmp_path / "site", [zoo.default_name()], EXAMPLES, package)
    assert not (tmp_path / "site").exists()


def test_without_npm_the_command_says_where_the_package_comes_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FASTGAZE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SystemExit) as stopped:
        main(["site", "--out", str(tmp_path / "site")])
    assert stopped.value.code == 2
    assert f"npm pack onnxruntime-web@{site.RUNTIME_VERSION}" in capsys.readouterr().err


@pytest.mark.slow
def test_the_npm_package_passes_its_tests_on_what_python_found(folder: Path) -> None:
    if shutil.which("npm") is None or not (ROOT / "js" / "node_modules").is_dir():
        pytest.skip("the npm package is not tested: install Node and run `npm ci` in js/")
    environment = {**os.environ, "FASTGAZE_CASES": str(folder / "cases")}
    done = subprocess.run(
        ["npm", "test"], cwd=ROOT / "js", env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "# skipped 0" in done.stdout


def test_the_npm_package_asks_for_the_same_runtime() -> None:
    package = json.loads((ROOT / "js" / "package.json").read_text())
    locked = json.loads((ROOT / "js" / "package-lock.json").read_text())["packages"]["node_modules/onnxruntime-web"]
    assert package["dependencies"]["onnxruntime-web"] == site.RUNTIME_VERSION
    assert locked["integrity"] == f"sha512-{site.RUNTIME_INTEGRITY}"
    assert len(base64.b64decode(site.RUNTIME_INTEGRITY)) == 64
