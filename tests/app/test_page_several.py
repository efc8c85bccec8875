"""The page in a real browser: several pictures, regions, links, comparisons."""

import io
import re
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from PIL import Image

from tests.app.pages import PHOTO, box_of, download, drop, number_in, wait_for_result
from tests.app.serving import encoded, picture, until

if TYPE_CHECKING:
    from playwright import sync_api as playwright


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
