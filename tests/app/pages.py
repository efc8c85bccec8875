"""What the tests of the page do in it: drop pictures, wait, read, download."""

import base64
import re
from pathlib import Path
from typing import TYPE_CHECKING

from tests.app.serving import encoded, picture

if TYPE_CHECKING:
    from playwright import sync_api as playwright

PHOTO = encoded(picture())
SPOT = (240, 60)

DROP = """([name, type, content, how]) => {
  const bytes = Uint8Array.from(atob(content), (character) => character.charCodeAt(0));
  const data = new DataTransfer();
  data.items.add(new File([bytes], name, { type }));
  const options = { bubbles: true, cancelable: true };
  if (how === "paste") document.dispatchEvent(new ClipboardEvent("paste", { ...options, clipboardData: data }));
  else for (const kind of ["dragover", "drop"])
    document.dispatchEvent(new DragEvent(kind, { ...options, dataTransfer: data }));
}"""


def drop(page: "playwright.Page", content: bytes = PHOTO, name: str = "spot.png", how: str = "drop") -> None:
    kind = "image/jpeg" if name.endswith(".jpg") else "image/png"
    page.evaluate(DROP, [name, kind, base64.b64encode(content).decode(), how])


def wait_for_result(page: "playwright.Page", model: str = "bright") -> None:
    page.wait_for_selector("body[data-state=result]")
    assert page.input_value("#model") == model


def box_of(element: "playwright.Locator") -> "playwright.FloatRect":
    """Where an element that is shown stands in the window, in CSS pixels."""
    box = element.bounding_box()
    assert box is not None, element
    return box


def number_in(pattern: str, text: str) -> float:
    """What the first group of ``pattern`` finds."""
    found = re.search(pattern, text)
    assert found is not None, text
    return float(found[1])


def first_mark(page: "playwright.Page") -> tuple[float, float]:
    """(x, y) of the first mark, in pixels of the picture."""
    mark, frame = box_of(page.locator("#marks li").first), box_of(page.locator("#photo"))
    x = (mark["x"] + mark["width"] / 2 - frame["x"]) / frame["width"] * 320
    y = (mark["y"] + mark["height"] / 2 - frame["y"]) / frame["height"] * 240
    return x, y


def download(page: "playwright.Page", button: str) -> tuple[str, bytes]:
    with page.expect_download() as waiting:
        page.click(button)
    return waiting.value.suggested_filename, Path(waiting.value.path()).read_bytes()
