"""The page in a real browser: drop, paste or choose a picture, move, switch, crop, download."""

import base64
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import numpy as np
import pytest
from PIL import Image

from fastgaze.app.server.limits import Limits
from tests.app.serving import encoded, make_models, picture, serving, until

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


@pytest.mark.parametrize("how", ["drop", "paste"])
def test_a_dropped_or_pasted_picture_gets_a_mark_where_it_is_bright(page: "playwright.Page", how: str) -> None:
    drop(page, how=how)
    wait_for_result(page)
    assert first_mark(page) == pytest.approx(SPOT, abs=8)
    assert "320 \u00d7 240" in page.inner_text("#caption")
    assert re.search(r"\d+(\.\d)? m?s in the network", page.inner_text("#timing"))
    assert "Done in" in page.inner_text("#status")
    assert (page.get_attribute("#heat", "src") or "").startswith("data:image/png")


def test_the_slider_changes_how_much_of_the_map_is_seen(page: "playwright.Page") -> None:
    drop(page)
    wait_for_result(page)
    place = box_of(page.locator("#photo"))
    x, y = place["x"] + 0.75 * place["width"] + 25, place["y"] + 0.25 * place["height"] + 25

    def seen() -> np.ndarray:
        shot = page.screenshot(clip={"x": x, "y": y, "width": 4, "height": 4})
        return np.asarray(Image.open(io.BytesIO(shot)).convert("RGB")).astype(int)

    page.focus("#opacity")
    page.keyboard.press("End")
    full = seen()
    assert page.inner_text("#opacity-value") == "100%"
    page.keyboard.press("Home")
    assert page.inner_text("#opacity-value") == "0%"
    until(page, "getComputedStyle(document.getElementById('heat')).opacity === '0'")
    clear = seen()
    assert (clear == 255).all()
    assert np.abs(full - clear).max() > 60


def test_a_focus_map_is_the_fog_of_the_command_line(page: "playwright.Page", url: str) -> None:
    drop(page)
    wait_for_result(page)
    assert page.is_visible("#heat-legend")
    clear = page.get_attribute("#heat", "src")
    page.select_option("#style", "focus")
    until(page, f"document.getElementById('heat').src !== {json.dumps(clear)}")
    assert page.is_visible("#focus-legend")
    assert "style=focus" in page.url
    page.focus("#opacity")
    page.keyboard.press("End")
    name, content = download(page, "#save-overlay")
    fogged = np.asarray(Image.open(io.BytesIO(content)).convert("RGB")).astype(int)
    query = "format=overlay&style=focus&opacity=1&size=320x240"
    expected = httpx.post(f"{url}/v1/gaze?{query}", content=PHOTO).content
    wanted = np.asarray(Image.open(io.BytesIO(expected)).convert("RGB")).astype(int)
    assert name == "spot.gaze.png"
    assert np.abs(fogged - wanted).mean() < 1
    assert np.percentile(np.abs(fogged - wanted), 99) < 8


def test_another_model_marks_another_place(page: "playwright.Page") -> None:
    drop(page)
    wait_for_result(page)
    with page.expect_response(lambda response: "model=dark" in response.url):
        page.select_option("#model", "dark")
    until(page, "document.querySelector('#marks li').style.getPropertyValue('--x').startsWith('2')")
    wait_for_result(page, "dark")
    assert first_mark(page) == pytest.approx((320 - SPOT[0], 240 - SPOT[1]), abs=8)
    with page.expect_response(lambda response: "center_bias=none" in response.url):
        page.select_option("#bias", "none")
    wait_for_result(page, "dark")
    assert page.locator("#bias option[disabled]").evaluate_all("all => all.map((each) => each.value)") == [
        "photograph",
        "screen",
    ]  # these models have one habit for all pictures


def test_a_crop_is_drawn_and_what_is_seen_can_be_downloaded(page: "playwright.Page") -> None:
    drop(page)
    wait_for_result(page)
    assert page.is_disabled("#save-crop")
    page.locator("label.chip", has_text="1:1").click()
    page.wait_for_selector(".candidate canvas")
    window, frame = box_of(page.locator("#window")), box_of(page.locator("#photo"))
    assert window["width"] / window["height"] == pytest.approx(1, rel=0.02)
    assert window["height"] == pytest.approx(frame["height"], rel=0.02)
    assert "keeps" in page.inner_text(".candidate >> nth=0")
    name, content = download(page, "#save-crop")
    cropped = np.asarray(Image.open(io.BytesIO(content)).convert("RGB"))
    assert (name, cropped.shape) == ("spot.1x1.png", (240, 240, 3))
    assert (cropped == 255).all(axis=2).sum() > 2000  # the white disc is in it
    name, content = download(page, "#save-overlay")
    overlay = np.asarray(Image.open(io.BytesIO(content)).convert("RGB")).astype(int)
    assert (name, overlay.shape) == ("spot.gaze.png", (240, 320, 3))
    assert np.abs(overlay - np.asarray(picture())).max() > 30
    name, content = download(page, "#save-heat")
    assert (name, Image.open(io.BytesIO(content)).size) == ("spot.map.png", (320, 240))
    name, content = download(page, "#save-npy")
    log_density = np.load(io.BytesIO(content), allow_pickle=False)
    assert (name, log_density.shape) == ("spot.npy", (240, 320))
    assert np.exp(log_density).sum() == pytest.approx(1, abs=1e-3)


def test_what_goes_wrong_is_said_in_words(page: "playwright.Page") -> None:
    drop(page, b"hello", "<img src=x onerror=alert(1)>.png")
    page.wait_for_selector("#alert:not([hidden])")
    assert "not a picture" in page.inner_text("#alert-text")
    assert "<img src=x" in page.inner_text("#alert-text")
    assert page.is_visible("#drop")
    page.click("#dismiss")
    assert page.is_hidden("#alert")
    drop(page, bytes(2 << 20), "large.png")
    page.wait_for_selector("#alert:not([hidden])")
    assert "2 MB; at most 1 MB" in page.inner_text("#alert-text")
    drop(page)
    wait_for_result(page)
    assert page.is_hidden("#alert")


def test_when_the_server_is_gone_the_page_says_so_and_tries_again(page: "playwright.Page") -> None:
    page.route("**/v1/gaze*", lambda route: route.abort())
    drop(page)
    page.wait_for_selector("#retry:not([hidden])")
    assert "does not answer" in page.inner_text("#alert-text")
    page.unroute("**/v1/gaze*")
    page.click("#retry")
    wait_for_result(page)


def test_when_the_server_goes_away_the_pictures_stay_in_sight(page: "playwright.Page", tmp_path: Path) -> None:
    for name in ("one.png", "two.png"):
        (tmp_path / name).write_bytes(PHOTO)
    page.set_input_files("#file", [tmp_path / "one.png", tmp_path / "two.png"])
    wait_for_result(page)
    page.route("**/v1/gaze*", lambda route: route.abort())
    page.locator("#strip-list .thumb").nth(1).click()
    page.wait_for_selector("#retry:not([hidden])")
    assert page.is_visible("#photo")
    assert page.is_hidden("#drop")
    assert page.locator("#heat").evaluate("(heat) => getComputedStyle(heat).visibility") == "hidden"  # of the other one
    page.locator("#strip-list .thumb").first.click()
    wait_for_result(page)
    page.locator("#strip-list .thumb").nth(1).click()
    page.wait_for_selector("#retry:not([hidden])")
    page.unroute("**/v1/gaze*")
    page.click("#retry")
    wait_for_result(page)
    assert page.text_content("#name") == "two.png"


def test_a_picture_that_the_browser_cannot_show_is_shown_as_the_server_decoded_it(page: "playwright.Page") -> None:
    drop(page, encoded(picture(), "TIFF"), "scan.tif")
    wait_for_result(page)
    assert page.evaluate("document.getElementById('photo').naturalWidth") == 320


def test_everything_is_reached_with_the_keyboard_and_shows_its_focus(page: "playwright.Page") -> None:
    reached = []
    page.keyboard.press("Tab")
    for _ in range(3):
        reached.append(page.evaluate("document.activeElement.id || document.activeElement.textContent"))
        page.keyboard.press("Tab")
    assert "choose" in reached
    page.focus("#example-list button")
    page.keyboard.press("Enter")
    wait_for_result(page)
    assert page.evaluate("document.activeElement.id") == "another"
    reached = []
    for _ in range(19):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.id || document.activeElement.name"))
        outline = "(e => getComputedStyle(e.type === 'radio' ? e.nextElementSibling : e).outlineStyle)"
        if reached[-1]:
            assert page.evaluate(f"{outline}(document.activeElement)") != "none", reached[-1]
    results = ["style", "opacity", "show-marks", "ratio", "save-overlay", "save-heat", "save-npy"]
    wanted = [*results, "add-region", "copy-link", "model", "bias"]
    assert [name for name in dict.fromkeys(reached) if name in wanted] == wanted
    page.focus("input[name=ratio]")
    page.keyboard.press("ArrowRight")
    page.wait_for_selector("#window:not([hidden])")


def test_every_control_has_a_name_and_every_picture_a_text(page: "playwright.Page") -> None:
    drop(page)
    wait_for_result(page)
    nameless = page.evaluate(
        """() => [...document.querySelectorAll("button, select, input:not([hidden]), a")].filter((element) =>
          !element.textContent.trim() && !element.ariaLabel && !element.labels?.length
          && !element.querySelector("img[alt]")
        ).map((element) => element.outerHTML)"""
    )
    assert nameless == []
    assert page.locator("img:not([alt])").count() == 0
    assert page.get_attribute("html", "lang") == "en"


def test_on_a_phone_nothing_is_wider_than_the_screen(browser: "playwright.Browser", url: str) -> None:
    context = browser.new_context(
        viewport={"width": 360, "height": 740}, is_mobile=True, has_touch=True, color_scheme="dark"
    )
    page = context.new_page()
    page.goto(url)
    page.tap("#example-list button")
    wait_for_result(page)
    page.locator("label.chip", has_text="16:9").tap()
    page.wait_for_selector(".candidate canvas")
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    photo = box_of(page.locator("#photo"))
    assert photo["y"] >= -1  # still in sight beside the settings
    assert abs(photo["x"] + photo["width"] / 2 - 180) < 1  # in the middle
    small = page.evaluate(
        """() => [...document.querySelectorAll("button, select, .chip span")]
          .filter((element) => element.checkVisibility() && element.getBoundingClientRect().height < 40)
          .map((element) => element.id || element.className)"""
    )
    assert small == []
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(19, 17, 23)"
    page.goto(f"{url}/docs")
    for summary in page.locator("summary").all():
        summary.click()
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    context.close()


@pytest.mark.parametrize(("width", "height"), [(640, 400), (390, 844), (844, 390)])
def test_settings_are_not_covered_by_the_picture(
    browser: "playwright.Browser", url: str, tmp_path: Path, width: int, height: int
) -> None:
    context = browser.new_context(viewport={"width": width, "height": height}, device_scale_factor=2)
    page = context.new_page()
    page.goto(url)
    for name in ("one.png", "two.png"):
        (tmp_path / name).write_bytes(PHOTO)
    page.set_input_files("#file", [tmp_path / "one.png", tmp_path / "two.png"])
    wait_for_result(page)
    seen = """(element) => {
      element.scrollIntoView({ block: "center" });
      const { left, top, width, height } = element.getBoundingClientRect();
      return element.contains(document.elementFromPoint(left + width / 2, top + height / 2));
    }"""
    for place in ("#save-overlay", "#peaks", "#add-region", "#model"):
        assert page.locator(place).evaluate(seen), place
    context.close()


def test_several_pictures_are_kept_side_by_side_and_can_be_left(page: "playwright.Page", tmp_path: Path) -> None:
    names = ["one.png", "two.png", "three.png"]
    for name in names:
        (tmp_path / name).write_bytes(PHOTO)
    page.set_input_files("#file", [tmp_path / name for name in names])
    wait_for_result(page)
    assert page.locator("#strip-list .thumb").count() == 3
    assert page.locator("#strip-list [aria-current]").get_attribute("title") == "one.png"
    page.locator("#strip-list .thumb").nth(2).click()
    until(page, "document.getElementById('caption').textContent.startsWith('three.png \u00b7')")
    page.get_by_label("Remove three.png").click()
    until(page, "document.getElementById('caption').textContent.startsWith('two.png \u00b7')")
    assert page.locator("#strip-list .thumb").count() == 2


@pytest.mark.parametrize(("width", "height"), [(390, 844), (1280, 800)])
def test_many_pictures_do_not_push_the_page_out_of_the_window(
    browser: "playwright.Browser", url: str, tmp_path: Path, width: int, height: int
) -> None:
    context = browser.new_context(viewport={"width": width, "height": height})
    page = context.new_page()
    page.goto(url)
    paths = [tmp_path / f"{number}.png" for number in range(20)]
    for path in paths:
        path.write_bytes(PHOTO)
    page.set_input_files("#file", paths)
    wait_for_result(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    photo = box_of(page.locator("#photo"))
    assert photo["x"] >= 0
    assert photo["x"] + photo["width"] <= width
    context.close()


def test_files_that_are_no_pictures_are_named_and_the_others_are_shown(page: "playwright.Page", tmp_path: Path) -> None:
    contents = {"notes.txt": b"hello", "empty.png": b"", "good.png": PHOTO, "huge.png": bytes(2 << 20)}
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    page.set_input_files("#file", [tmp_path / name for name in contents])
    wait_for_result(page)
    assert page.text_content("#name") == "good.png"
    message = page.inner_text("#alert-text")
    assert message.startswith("3 files were left out")
    assert all(name in message for name in contents if name != "good.png")
    assert page.is_hidden("#strip")


def test_a_name_cannot_turn_the_words_around_it(page: "playwright.Page") -> None:
    drop(page, name="\u202egnp.evil.png")
    wait_for_result(page)
    assert page.text_content("#caption") == "gnp.evil.png \u00b7 320 \u00d7 240"


def test_a_long_page_can_be_seen_at_its_own_width(page: "playwright.Page") -> None:
    drop(page)
    wait_for_result(page)
    assert page.is_hidden("#wide-choice")
    drop(page, encoded(picture(600, 4000)), "long.png")
    until(page, "document.getElementById('name').textContent === 'long.png'")
    wait_for_result(page)
    assert box_of(page.locator("#photo"))["width"] < 120
    page.check("#wide")
    assert box_of(page.locator("#photo"))["width"] == pytest.approx(600, abs=2)
    pane = box_of(page.locator(".pane"))
    assert pane["y"] + pane["height"] < 800
    page.locator(".pane").evaluate("(pane) => pane.scrollTo(0, 1e6)")
    photo = box_of(page.locator("#photo"))
    assert photo["y"] + photo["height"] == pytest.approx(pane["y"] + pane["height"], abs=2)


def region_facts(page: "playwright.Page") -> str:
    until(page, "document.querySelector('#region-list .facts')?.textContent.includes('%')")
    return page.inner_text("#region-list .facts")


def test_a_region_is_drawn_named_moved_and_measured(page: "playwright.Page") -> None:
    drop(page)
    wait_for_result(page)
    frame = box_of(page.locator("#frame"))

    def at(x: float, y: float) -> tuple[float, float]:
        return frame["x"] + x * frame["width"] / 320, frame["y"] + y * frame["height"] / 240

    page.mouse.move(*at(200, 20))
    page.mouse.down()
    page.mouse.move(*at(250, 60), steps=4)
    page.mouse.move(*at(280, 100), steps=4)
    page.mouse.up()
    page.keyboard.type("the disc")
    page.keyboard.press("Enter")
    assert "rank" not in region_facts(page)
    share = number_in(r"^([\d.]+)%", region_facts(page))
    assert share > 40  # the model looks at what is bright
    assert page.get_by_label("Region the disc").count() == 1
    until(page, "location.hash.includes('region=the+disc')")
    left = number_in(r"disc%3D(\d+)", page.url)
    page.mouse.move(*at(240, 60))
    page.mouse.down()
    page.mouse.move(*at(140, 160), steps=4)
    page.mouse.up()
    until(page, f"parseFloat(document.querySelector('#region-list .facts').textContent) < {share / 2}")
    page.locator("#boxes .region").focus()
    page.keyboard.press("ArrowRight")
    assert number_in(r"disc%3D(\d+)", page.url) == pytest.approx(left - 100 + 3, abs=3)
    page.keyboard.press("Delete")
    assert page.locator("#region-list li").count() == 0
    assert "region" not in page.url


def test_the_name_of_a_region_covers_nothing_of_it_and_is_in_the_download(page: "playwright.Page", url: str) -> None:
    page.goto("about:blank")
    page.goto(f"{url}/#example=spot.png&opacity=0&region=middle=100,100,60,20&region=top=200,4,100,20")
    wait_for_result(page)
    region_facts(page)
    for region in page.locator("#boxes .region").all():
        label, box = box_of(region.locator("span")), box_of(region)
        above, below = label["y"] + label["height"] <= box["y"] + 3, label["y"] >= box["y"] + box["height"] - 3
        assert above or below
        assert re.search(r"^(middle|top) [\d.]+%$", region.inner_text())
    _, content = download(page, "#save-overlay")
    drawn = np.asarray(Image.open(io.BytesIO(content)).convert("RGB")).astype(int)
    changed = np.abs(drawn - np.asarray(picture())).max(axis=2) > 30
    assert changed[110, 98:103].any()  # the left edge of the first box
    assert changed[88:98, 100:140].mean() > 0.5  # its name
    assert not changed[104:116, 104:156].any()  # what is in it


def test_the_address_brings_back_settings_regions_and_the_example(page: "playwright.Page", url: str) -> None:
    page.goto("about:blank")
    page.goto(
        f"{url}/#example=spot.png&ratio=1:1&window=2&opacity=30&style=focus&marks=off&model=dark&region=disc=200,20,80,80"
    )
    wait_for_result(page, "dark")
    until(page, "document.querySelector('#region-list .facts')?.textContent.includes('%')")
    assert page.input_value("#region-list input") == "disc"
    assert page.input_value("#opacity") == "30"
    assert page.input_value("#style") == "focus"
    assert not page.is_checked("#show-marks")
    assert page.is_checked("input[name=ratio][value='1:1']")
    assert page.is_checked("input[name=window][value='1']")
    assert "window=2" in page.url
    assert "model=dark" in page.url


def test_the_regions_of_a_link_go_to_the_first_picture_that_can_be_read(
    page: "playwright.Page", url: str, tmp_path: Path
) -> None:
    page.goto("about:blank")
    page.goto(f"{url}/#region=disc=200,20,80,80")
    page.wait_for_selector("#example-list img")
    for name, content in (("notes.txt", b"hello"), ("spot.png", PHOTO)):
        (tmp_path / name).write_bytes(content)
    page.set_input_files("#file", [tmp_path / "notes.txt", tmp_path / "spot.png"])
    wait_for_result(page)
    assert number_in(r"^([\d.]+)%", region_facts(page)) > 40


def test_another_link_in_the_same_window_is_followed(page: "playwright.Page", url: str) -> None:
    drop(page)
    wait_for_result(page)
    page.evaluate("location.hash = 'opacity=30&ratio=1:1&marks=off&region=corner=300,200,90,90'")
    assert number_in(r"^([\d.]+)%", region_facts(page)) < 10
    assert page.input_value("#opacity") == "30"
    assert page.is_checked("input[name=ratio][value='1:1']")
    assert page.is_hidden("#marks")
    assert "corner%3D300%2C200%2C20%2C40" in page.url  # the part of it that is in the picture
    page.evaluate("location.hash = ''")
    until(page, "!document.querySelector('#boxes .region')")
    assert page.input_value("#opacity") == "70"


def test_two_pictures_are_compared_with_a_table_of_regions(page: "playwright.Page", url: str) -> None:
    page.goto("about:blank")
    page.goto(f"{url}/#region=disc=200,20,80,80")
    page.wait_for_selector("#example-list img")
    drop(page, name="before.png")
    wait_for_result(page)
    drop(page, encoded(picture(spot=(80, 180))), "after.png")
    until(page, "document.getElementById('caption').textContent.startsWith('after.png \u00b7')")
    wait_for_result(page)
    page.locator("#strip-list .thumb").first.click()
    until(page, "document.getElementById('caption').textContent.startsWith('before.png \u00b7')")
    wait_for_result(page)
    page.select_option("#compare", label="after.png")
    page.wait_for_selector("#comparison:not([hidden])")
    assert page.locator("#tiles canvas").count() == 3
    row = page.inner_text("#change-rows tr").split("\t")
    assert row[0] == "disc"
    assert float(row[1].rstrip("%")) > 40
    assert float(row[2].rstrip("%")) < 5
    assert row[3].startswith("\u2212")
    name, content = download(page, "#save-comparison")
    assert name == "before and after.png"
    assert Image.open(io.BytesIO(content)).size == (2 * 320 + 3 * 24, 2 * (240 + 40) + 3 * 24)
    assert page.is_hidden("#peaks")  # of one picture, which is not shown
    with page.expect_response(lambda response: "model=dark" in response.url):
        page.select_option("#model", "dark")
    until(page, "parseFloat(document.querySelector('#change-rows td').textContent) < 5")
    assert page.is_visible("#comparison")
    assert page.locator("#compare option:checked").inner_text() == "after.png"
    page.select_option("#compare", "")
    assert page.is_visible("#view")
    page.select_option("#compare", label="after.png")
    page.wait_for_selector("#comparison:not([hidden])")
    page.click("#stop-comparing")
    assert page.is_visible("#view")
    page.select_option("#compare", label="after.png")
    page.wait_for_selector("#comparison:not([hidden])")
    page.get_by_label("Remove after.png").click()
    assert page.is_visible("#view")


def test_a_comparison_fits_a_phone(browser: "playwright.Browser", url: str) -> None:
    context = browser.new_context(viewport={"width": 390, "height": 844}, is_mobile=True, has_touch=True)
    page = context.new_page()
    page.goto(f"{url}/#region=disc=200,20,80,80")
    page.wait_for_selector("#example-list img")
    drop(page, name="a rather long name of the first design.png")
    wait_for_result(page)
    drop(page, encoded(picture(300, 1500)), "after.png")
    until(page, "document.getElementById('name').textContent === 'after.png'")
    wait_for_result(page)
    page.select_option("#compare", index=1)
    page.wait_for_selector("#comparison:not([hidden])")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    for tile in page.locator("#tiles canvas").all():
        shown = box_of(tile)
        drawn = tile.evaluate("(canvas) => canvas.width / canvas.height")
        assert shown["width"] / shown["height"] == pytest.approx(drawn, rel=0.02)
    context.close()


def test_crops_and_downloads_are_in_sight_without_scrolling(browser: "playwright.Browser", url: str) -> None:
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    page = context.new_page()
    page.goto(url)
    page.click("#example-list button")
    wait_for_result(page)
    page.locator("label.chip", has_text="16:9").click()
    for place in (
        "#ratios",
        "#windows",
        "#save-overlay",
        "#save-crop",
        "#save-heat",
        "#save-npy",
        "#photo",
        "#opacity",
    ):
        box = box_of(page.locator(place))
        assert box["y"] >= 0, place
        assert box["y"] + box["height"] <= 800, place
    sections = page.evaluate("[...document.querySelectorAll('#panel .heading')].map((each) => each.textContent)")
    assert sections[0] == "Crop"
    assert sections[-2:] == ["Model", "Habit of viewers"]
    context.close()


def test_a_mark_leaves_the_hottest_spot_in_sight(page: "playwright.Page") -> None:
    drop(page)
    wait_for_result(page)
    mark = page.locator("#marks li").first
    ring, number = box_of(mark), box_of(mark.locator("b"))
    x, y = ring["x"] + ring["width"] / 2, ring["y"] + ring["height"] / 2
    assert mark.evaluate("(mark) => getComputedStyle(mark).backgroundColor") == "rgba(0, 0, 0, 0)"
    assert not (number["x"] - 4 < x < number["x"] + number["width"] + 4)
    assert not (number["y"] - 4 < y < number["y"] + number["height"] + 4)
