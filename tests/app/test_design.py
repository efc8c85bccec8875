"""Regions, comparisons and reports as designers meet them: on the command line, over HTTP and in a browser."""

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import numpy as np
import pytest
from PIL import Image

from fastgaze.app.cli import main
from fastgaze.core.jsonable import Document
from fastgaze.runtime.predictor import load
from tests.app.serving import encoded, make_models, picture, serving

if TYPE_CHECKING:
    from playwright import sync_api as playwright

SPOTS = [(240, 60), (80, 60)]
"""Where two designs have what is looked at."""
RIGHT, LEFT = "right=160,0,160,120", "left=0,0,160,120"


def run(*arguments: object) -> int:
    """Exit code of the command line in this process."""
    with pytest.raises(SystemExit) as caught:
        main([str(argument) for argument in arguments])
    return int(caught.value.code or 0)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_models(tmp_path_factory.mktemp("models"))[0]


@pytest.fixture(scope="module")
def designs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("designs")
    paths = [folder / "a.png", folder / "b & <i>.png"]
    for path, spot in zip(paths, SPOTS, strict=True):
        picture(spot=spot).save(path)
    return paths


@pytest.fixture(scope="module")
def client(model: Path) -> Iterator[httpx.Client]:
    with serving([model], workers=1) as url, httpx.Client(base_url=url, timeout=60) as client:
        yield client


# -- regions ----------------------------------------------------------------------------------------------------------


def test_command_line_and_server_measure_regions_as_the_library_does(
    designs: list[Path], model: Path, client: httpx.Client, capsys: pytest.CaptureFixture[str]
) -> None:
    boxes = {"right": (160, 0, 320, 120), "left": (0, 0, 160, 120)}
    said: Document = load(model, threads=1).predict(designs[0]).to_json(regions=boxes, fixations=3)
    expected = said["regions"]
    assert run("predict", designs[0], "--model", model, "--json", "--format", "json", "--fixations", 3,
               "--region", RIGHT, "--region", LEFT) == 0  # fmt: skip
    (printed,) = json.loads(capsys.readouterr().out)
    params: dict[str, list[str] | int] = {"region": [RIGHT, LEFT], "fixations": 3}
    served = client.post("/v1/gaze", params=params, content=designs[0].read_bytes()).json()
    assert printed["regions"] == served["regions"] == expected
    assert [region["rank"] for region in expected] == [1, 2]
    assert expected[0]["share"] > 0.5
    designs[0].with_suffix(".json").unlink()


def test_regions_in_percent_and_from_a_file(
    designs: list[Path], model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    boxes = tmp_path / "boxes.json"
    boxes.write_text(json.dumps({"from file": [160, 0, 160, 120]}))
    assert run("predict", designs[0], "--model", model, "--out", tmp_path, "--region", boxes,
               "--region", "percent=50%,0%,50%,50%") == 0  # fmt: skip
    lines = capsys.readouterr().out.splitlines()
    shares = [line.split(":")[1].split("%")[0] for line in lines if line.startswith("  ")]
    assert len(shares) == 2
    assert shares[0] == shares[1]
    with Image.open(tmp_path / "a.gaze.png") as shown:
        assert shown.getpixel((162, 60)) != shown.getpixel((150, 60))  # the outline of the box


@pytest.mark.parametrize(
    ("region", "message"),
    [
        ("cta", "is not name=left,top,width,height"),
        ("cta=1,2,0,4", "width 0"),
        ("cta=900,900,5,5", "holds no pixel of the picture, which has 320x240"),
    ],
)
def test_a_wrong_region_is_refused_in_one_line_everywhere(
    region: str,
    message: str,
    designs: list[Path],
    model: Path,
    client: httpx.Client,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run("predict", designs[0], "--model", model, "--region", region) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line
    for format in ("json", "overlay"):
        answer = client.post("/v1/gaze", params={"region": region, "format": format}, content=designs[0].read_bytes())
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "bad_option")
        assert message in answer.json()["error"]["message"]
    assert not designs[0].with_name("a.gaze.png").exists()


def test_a_region_may_belong_to_one_of_several_pictures_and_an_error_names_its_picture(
    designs: list[Path], model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small = tmp_path / "small.png"
    picture(64, 48, spot=(30, 20)).save(small)
    for verb, out in (("predict", tmp_path / "out"), ("report", tmp_path / "report.html")):
        arguments = [verb, designs[0], small, "--model", model, "--out", out]
        assert run(*arguments, "--region", "right@1=160,0,160,120", "--region", "cta@2=10,10,20,20", "--json") == 0
        answer = json.loads(capsys.readouterr().out)
        rows = answer if isinstance(answer, list) else answer["pictures"]
        assert [[region["name"] for region in row["regions"]] for row in rows] == [["right"], ["cta"]]
        assert run(*arguments, "--region", RIGHT) == 2
        assert f"{small}: region 'right'" in capsys.readouterr().err


def test_a_region_of_a_picture_that_is_not_there_is_refused(
    designs: list[Path], model: Path, client: httpx.Client, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    outs = {"predict": tmp_path / "out", "report": tmp_path / "report.html", "compare": tmp_path / "both.png"}
    for verb, out in outs.items():
        for number in (0, 3):
            region = f"cta@{number}=10,10,20,20"
            assert run(verb, *designs, "--model", model, "--out", out, "--region", region) == 2
            message = f"there is no picture {number} for region 'cta@{number}'; the last is 2"
            assert message in capsys.readouterr().err
        assert not out.exists()
    content = designs[0].read_bytes()
    alone = client.post("/v1/gaze", params={"region": "cta@2=1,1,9,9"}, content=content)
    both = client.post("/v1/compare", params={"region": "cta@3=1,1,9,9"}, files=[("file", content)] * 2)
    for answer, last in ((alone, 1), (both, 2)):
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "bad_option")
        assert f"the last is {last}" in answer.json()["error"]["message"]


def test_the_server_draws_styles_legends_and_regions(client: httpx.Client) -> None:
    content = encoded(picture())

    def drawn(**params: str) -> np.ndarray:
        answer = client.post("/v1/gaze", params={"format": "overlay", **params}, content=content)
        return np.asarray(Image.open(io.BytesIO(answer.content)).convert("RGB")).astype(int)

    heat, focus = drawn(), drawn(style="focus")
    assert (heat == np.asarray(picture())).all(axis=2).mean() > 0.4
    assert np.abs(heat - focus).mean() > 5
    assert drawn(legend="true").shape[0] > heat.shape[0]
    assert (drawn(region="cta=20,150,100,60") != heat)[150:210, 20].any()


# -- compare ----------------------------------------------------------------------------------------------------------


def test_compare_prints_what_regions_gain_and_writes_the_pictures_side_by_side(
    designs: list[Path], model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "both.png"
    arguments = ["compare", *designs, "--model", model, "--out", out, "--region", RIGHT, "--region", LEFT]
    assert run(*arguments) == 0
    printed = capsys.readouterr().out
    assert "of the attention at the same places as in a.png" in printed
    assert "points" in printed
    with Image.open(out) as sheet:
        assert sheet.width > 2 * 320
        assert sheet.height > 2 * 240
    assert run(*arguments, "--json") == 0
    facts = json.loads(capsys.readouterr().out)
    right, left = facts["regions"]
    assert right["changes"][1] < -0.2
    assert left["changes"][1] > 0.2
    assert [shown["name"] for shown in facts["pictures"]] == ["a.png", "b & <i>.png"]
    assert facts["overlaps"][0] == pytest.approx(1, abs=1e-3)


def test_compare_writes_to_stdout_when_asked(
    designs: list[Path], model: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    assert run("compare", *designs, "--model", model, "--out", "-") == 0
    assert Image.open(io.BytesIO(capsysbinary.readouterr().out)).format == "PNG"
    assert run("compare", *designs, "--model", model, "--out", "-", "--json") == 2
    assert b"both write to stdout" in capsysbinary.readouterr().err


def test_compare_over_http_says_what_the_command_line_says(
    designs: list[Path], model: Path, client: httpx.Client, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    moved = ["cta@1=210,30,60,60", "cta@2=50,30,60,60"]
    options = [word for region in moved for word in ("--region", region)]
    assert run("compare", *designs, "--model", model, "--out", tmp_path / "x.png", "--json", *options) == 0
    printed = json.loads(capsys.readouterr().out)
    files = [("file", (path.name, path.read_bytes())) for path in designs]
    served = client.post("/v1/compare", params={"region": moved}, files=files).json()
    for name in ("scale_top", "overlaps", "regions"):
        assert served[name] == printed[name]
    assert served["regions"][0]["shares"][0] > 0.3
    assert abs(served["regions"][0]["changes"][1]) < 0.1
    sheet = client.post("/v1/compare", params={"format": "overlay"}, files=files)
    assert sheet.headers["content-type"] == "image/png", sheet.text
    assert Image.open(io.BytesIO(sheet.content)).width > 640


def test_what_cannot_be_compared_is_refused(
    designs: list[Path], model: Path, client: httpx.Client, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("compare", designs[0], "--model", model) == 2
    assert "give 2 to 8 pictures to compare, not 1" in capsys.readouterr().err
    for out in ("both.jpg", "both"):  # a PNG file under another name would puzzle every program that opens it
        assert run("compare", *designs, "--model", model, "--out", out) == 2
        assert f"--out {out} is not the name of a PNG file" in capsys.readouterr().err
    good = designs[0].read_bytes()
    for files in ([good], [good] * 9, [good, b"no picture"]):
        answer = client.post("/v1/compare", files=[("file", content) for content in files])
        assert answer.status_code in (400, 415)
    assert client.post("/v1/compare", content=good).status_code == 400


# -- report -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def report(designs: list[Path], model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "report.html"
    assert run("report", designs[0].parent, "--model", model, "--out", path, "--region", RIGHT, "--region", LEFT,
               "--title", "Two <designs>") == 0  # fmt: skip
    return path


def test_a_report_opens_in_a_browser_and_prints(report: Path, browser: "playwright.Browser") -> None:
    page = browser.new_page(viewport={"width": 1000, "height": 800})
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    problems: list[str] = []
    page.on("console", lambda message: problems.append(message.text))
    page.goto(report.as_uri())
    assert page.inner_text("h1") == "Two <designs>"
    assert [heading.inner_text() for heading in page.query_selector_all("h2")] == ["a.png", "b & <i>.png"]
    assert all(url.startswith(("file:", "data:")) for url in asked)
    assert problems == []
    pictures = page.evaluate("[...document.images].map((i) => [i.complete && i.naturalWidth > 0, !!i.alt])")
    assert len(pictures) == 2 * (4 + 4)
    assert all(loaded and described for loaded, described in pictures)
    cells = [row.inner_text().split("\t") for row in page.query_selector_all("#p1 .tables > div:nth-child(2) tbody tr")]
    assert [(row[0], row[3]) for row in cells] == [("right", "1"), ("left", "2")]
    assert "fastgaze 0." in page.inner_text("header")
    assert "bright" in page.inner_text("header")
    width = page.evaluate("document.documentElement.scrollWidth")
    assert width <= 1000
    printed = page.pdf(format="A4")
    assert printed.startswith(b"%PDF")
    assert printed.count(b"/Type /Page\n") == 2
    page.close()


@pytest.mark.parametrize("size", [(1200, 750), (600, 600), (390, 844), (600, 3000)])
def test_a_picture_of_any_shape_takes_one_printed_page_and_fits_a_phone(
    size: tuple[int, int], tmp_path: Path, model: Path, browser: "playwright.Browser"
) -> None:
    picture(*size).save(tmp_path / "page.png")
    assert run("report", tmp_path / "page.png", "--model", model, "--out", tmp_path / "report.html",
               "--region", "call to action=0%,10%,50%,10%", "--region", "logo=0%,0%,20%,10%") == 0  # fmt: skip
    page = browser.new_page(viewport={"width": 390, "height": 844})
    page.goto((tmp_path / "report.html").as_uri())
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert page.pdf(prefer_css_page_size=True).count(b"/Type /Page\n") == 1
    page.close()


def test_a_report_shows_the_maps_themselves(report: Path, browser: "playwright.Browser") -> None:
    page = browser.new_page(viewport={"width": 1000, "height": 800}, device_scale_factor=1)
    page.goto(report.as_uri())
    figures = page.query_selector_all("#p1 .maps img")
    plain, heat = (
        np.asarray(Image.open(io.BytesIO(figure.screenshot()))).astype(int)[..., :3] for figure in figures[:2]
    )
    height, width = plain.shape[:2]
    x, y = int(240 / 320 * width), int(60 / 240 * height)
    assert np.abs(heat[y, x] - 255).max() > 60  # the white disc is under colours
    page.close()


def test_a_report_of_what_cannot_be_read_is_refused(
    tmp_path: Path, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "broken.png").write_bytes(b"no picture")
    assert run("report", tmp_path / "broken.png", "--model", model, "--out", tmp_path / "r.html") == 1
    assert not (tmp_path / "r.html").exists()
    assert run("report", tmp_path / "broken.png", "--model", model, "--out", tmp_path / "r.pdf") == 2
    assert "is not the name of an HTML file" in capsys.readouterr().err
