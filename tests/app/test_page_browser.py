"""The page in a real browser: drop, paste or choose a picture, move, switch, crop, download."""

import io
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import numpy as np
import pytest
from PIL import Image

from tests.app.pages import PHOTO, SPOT, box_of, download, drop, first_mark, wait_for_result
from tests.app.serving import encoded, picture, until

if TYPE_CHECKING:
    from playwright import sync_api as playwright


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
