"""Pictures of the page for docs/images, in every state, light and dark, on a desk and on a phone.

    python -m experiments.page_screenshots --url http://127.0.0.1:8000 --out docs/images

Needs a running `fastgaze serve`, Playwright's Python and a Chromium.
"""

import argparse
import io
import time
from pathlib import Path
from typing import Any

from PIL import Image, ImageDraw, ImageFont
from playwright.sync_api import Browser, FilePayload, Page, Route, sync_playwright

from experiments import common
from experiments.common import DOCS, EXAMPLES

SWITCHES = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-background-networking"]
SWITCHES += ["--disable-component-update", "--disable-sync"]
DEVICES: dict[str, dict[str, Any]] = {
    "desk": {"viewport": {"width": 1280, "height": 800}},
    "phone": {"viewport": {"width": 360, "height": 740}, "device_scale_factor": 2, "is_mobile": True},
}


def main() -> None:
    parser = common.make_parser(__doc__, __file__, data=False)
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    parser.add_argument("--photo", type=Path, default=EXAMPLES / "astronaut.jpg")
    parser.add_argument("--browser", default="/usr/bin/chromium")
    parser.add_argument("--out", type=Path, default=DOCS / "images")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=arguments.browser, args=SWITCHES)
        for scheme in ("light", "dark"):
            for device in DEVICES:
                shoot(browser, device, scheme, arguments)
        browser.close()


def shoot(browser: Browser, device: str, scheme: Any, arguments: argparse.Namespace) -> None:
    context = browser.new_context(
        **DEVICES[device], has_touch=device == "phone", color_scheme=scheme, reduced_motion="reduce"
    )
    page = context.new_page()

    def save(state: str) -> None:
        page.screenshot(path=arguments.out / f"page-{device}-{scheme}-{state}.png")

    page.goto(arguments.url, wait_until="networkidle")
    save("empty")
    page.set_input_files("#file", {"name": "notes.txt", "mimeType": "text/plain", "buffer": b"no picture"})
    page.wait_for_selector("#alert:not([hidden])")
    save("error")
    with Slowed(page):
        page.set_input_files("#file", arguments.photo)
        page.wait_for_selector("body[data-state=loading]")
        page.wait_for_timeout(300)
        save("loading")
    page.wait_for_selector("body[data-state=result]", timeout=60_000)
    save("result")
    page.locator("label.chip", has_text="4:5").click()
    page.wait_for_selector(".candidate canvas")
    save("crop")
    if device == "desk":
        compare(page)
        save("compare")
    context.close()


def compare(page: Page) -> None:
    """Two designs beside each other, with a region that was drawn in the first."""
    designs: list[FilePayload] = [
        {"name": name, "mimeType": "image/png", "buffer": design(name)} for name in ("A.png", "B.png")
    ]
    page.reload()
    page.set_input_files("#file", designs)
    page.wait_for_selector("body[data-state=result]", timeout=60_000)
    page.locator("label.chip", has_text="None").click()
    frame = page.locator("#frame").bounding_box()
    assert frame is not None
    page.mouse.move(frame["x"] + 0.55 * frame["width"], frame["y"] + 0.58 * frame["height"])
    page.mouse.down()
    page.mouse.move(frame["x"] + 0.85 * frame["width"], frame["y"] + 0.74 * frame["height"], steps=5)
    page.mouse.up()
    page.keyboard.type("order button")
    page.keyboard.press("Enter")
    page.select_option("#compare", label="B.png")
    page.wait_for_selector("#comparison:not([hidden])")
    page.evaluate("scrollTo(0, 0)")


def design(name: str) -> bytes:
    """A simple advertisement; in A its button is large and orange, in B small and grey."""
    sheet = Image.new("RGB", (1200, 750), (250, 247, 242))
    sheet.paste(Image.open(EXAMPLES / "coffee.jpg").resize((600, 750), box=(60, 0, 380, 400)), (0, 0))
    pen = ImageDraw.Draw(sheet)
    pen.text((660, 190), "Fresh every day", (40, 30, 25), ImageFont.load_default(64))
    pen.text((660, 290), "Roasted in the morning, in your cup at noon.", (90, 80, 75), ImageFont.load_default(24))
    large = (680, 450, 1000, 540), (232, 98, 20), 44
    box, color, size = large if name == "A.png" else ((680, 470, 830, 515), (188, 184, 180), 20)
    pen.rounded_rectangle(box, 16, color)
    middle = ((box[0] + box[2]) / 2, (box[1] + box[3]) / 2)
    pen.text(middle, "Order now", (255, 255, 255), ImageFont.load_default(size), anchor="mm")
    buffer = io.BytesIO()
    sheet.save(buffer, "PNG")
    return buffer.getvalue()


class Slowed:
    """While inside, the answer waits."""

    def __init__(self, page: Page) -> None:
        self._page = page
        self._held: list[Route] = []

    def __enter__(self) -> None:
        self._page.route("**/v1/gaze*", lambda route: self._held.append(route))

    def __exit__(self, *_: object) -> None:
        deadline = time.monotonic() + 10
        while not self._held and time.monotonic() < deadline:
            self._page.wait_for_timeout(20)
        for route in self._held:
            route.continue_()
        self._page.unroute("**/v1/gaze*")


if __name__ == "__main__":
    main()
