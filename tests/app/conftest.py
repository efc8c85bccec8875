"""A real browser for tests of the page."""

import os
import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

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
