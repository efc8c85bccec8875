"""A real browser for tests of the page."""

import os
import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from fastgaze.app.server.limits import Limits
from tests.app.pages import PHOTO
from tests.app.serving import make_models, serving

if TYPE_CHECKING:
    from playwright import sync_api as playwright

BROWSER = os.environ.get("FASTGAZE_BROWSER") or shutil.which("chromium") or shutil.which("google-chrome")
SWITCHES = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="module")
def browser() -> Iterator["playwright.Browser"]:
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install playwright")
    if BROWSER is None:
        pytest.skip("NO BROWSER: the page is not tested; install chromium, or set FASTGAZE_BROWSER to one")
    with api.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=BROWSER, args=SWITCHES)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    examples = tmp_path_factory.mktemp("examples")
    (examples / "spot.png").write_bytes(PHOTO)
    with serving(make_models(tmp_path_factory.mktemp("models")), Limits(bytes=1 << 20), examples=examples) as url:
        yield url


@pytest.fixture
def page(browser: "playwright.Browser", url: str) -> Iterator["playwright.Page"]:
    context = browser.new_context(viewport={"width": 1200, "height": 800}, reduced_motion="reduce")
    page = context.new_page()
    page.set_default_timeout(15_000)
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda message: problems.append(message.text) if "Policy" in message.text else None)
    page.on("request", lambda request: problems.append(request.url) if _is_foreign(request.url, url) else None)
    page.goto(url)
    page.wait_for_selector("#example-list img")
    yield page
    context.close()
    assert problems == []


def _is_foreign(address: str, url: str) -> bool:
    return not address.startswith((url, "blob:", "data:"))
