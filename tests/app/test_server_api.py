"""The API against a real server on loopback: what it finds, what it refuses, what it promises."""

import base64
import io
import logging
import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import numpy as np
import pytest
from PIL import Image

from fastgaze.app.server import run
from fastgaze.app.server.api import ServerSettings, create_app
from fastgaze.app.server.jobs import map_size
from fastgaze.app.server.limits import Limits
from fastgaze.app.site import PAGE
from fastgaze.core.errors import ArgumentError
from fastgaze.runtime.predictor import load
from tests.app.serving import edges, encoded, make_models, picture, serving

SPOT = (240, 60)
"""(x, y) of the white disc."""


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return make_models(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="module")
def client(models: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    examples = tmp_path_factory.mktemp("examples")
    (examples / "spot.png").write_bytes(encoded(picture()))
    (examples / "secret.txt").write_text("not a picture")
    with serving(models, examples=examples) as url, httpx.Client(base_url=url, timeout=20) as client:
        yield client


def first_peak(response: httpx.Response) -> tuple[float, float]:
    assert response.status_code == 200, response.text
    peak = response.json()["peaks"][0]
    return peak["x"], peak["y"]


def test_the_first_peak_is_the_bright_spot(client: httpx.Client) -> None:
    response = client.post("/v1/gaze", content=encoded(picture()))
    assert first_peak(response) == pytest.approx(SPOT, abs=6)
    assert response.json()["peaks"][0]["mass"] > 0.5
    assert response.json()["model"] == "bright"


def test_another_model_finds_another_place(client: httpx.Client) -> None:
    response = client.post("/v1/gaze", params={"model": "dark"}, content=encoded(picture()))
    assert first_peak(response) == pytest.approx((320 - SPOT[0], 240 - SPOT[1]), abs=6)


def test_positions_are_in_pixels_of_a_picture_larger_than_the_map(client: httpx.Client) -> None:
    large = picture().resize((3200, 2400))
    response = client.post("/v1/gaze", params={"ratio": "1:1"}, content=encoded(large, "JPEG"))
    facts = response.json()
    assert facts["picture_size"] == {"width": 3200, "height": 2400}
    assert first_peak(response) == pytest.approx((10 * SPOT[0], 10 * SPOT[1]), abs=60)
    left, top, right, bottom = edges(facts["crops"][0]["windows"][0]["box"])
    assert (right - left, bottom - top) == (2400, 2400)
    assert left <= 2400 <= right <= 3200
    assert top == 0


def test_a_turned_photograph_is_looked_at_upright(client: httpx.Client) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    buffer = io.BytesIO()
    picture().transpose(Image.Transpose.ROTATE_90).save(buffer, "JPEG", exif=exif)
    response = client.post("/v1/gaze", content=buffer.getvalue())
    assert response.json()["picture_size"] == {"width": 320, "height": 240}
    assert first_peak(response) == pytest.approx(SPOT, abs=6)


def test_a_form_and_a_raw_body_give_the_same_answer(client: httpx.Client) -> None:
    content = encoded(picture())
    raw = client.post("/v1/gaze", params={"model": "dark", "peaks": 1}, content=content).json()
    form = client.post("/v1/gaze", data={"model": "dark", "peaks": "1"}, files={"image": ("../../x", content)}).json()
    mixed = client.post("/v1/gaze", params={"model": "dark"}, data={"peaks": "1"}, files={"file": content}).json()
    for answer in (raw, form, mixed):
        del answer["milliseconds"]
    assert raw == form == mixed


def test_npy_is_the_log_density_that_the_library_gives(client: httpx.Client, models: list[Path]) -> None:
    content = encoded(picture())
    for query, size in (({}, None), ({"size": "80x60"}, (60, 80))):
        response = client.post("/v1/gaze", params={"format": "npy", **query}, content=content)
        found = np.load(io.BytesIO(response.content), allow_pickle=False)
        np.testing.assert_allclose(found, load(models[0], threads=1).predict(content, size).log_density, atol=1e-5)


def test_without_center_bias_the_picture_alone_decides(client: httpx.Client) -> None:
    even = encoded(Image.new("RGB", (320, 240), (120, 120, 120)))
    query = {"format": "npy", "center_bias": "none"}
    found = np.load(io.BytesIO(client.post("/v1/gaze", params=query, content=even).content))
    np.testing.assert_allclose(found, -np.log(320 * 240), atol=1e-3)
    with_bias = np.load(io.BytesIO(client.post("/v1/gaze", params={"format": "npy"}, content=even).content))
    assert with_bias[120, 160] > with_bias[0, 0] + 1


def test_png_is_opaque_where_people_look_and_clear_elsewhere(client: httpx.Client) -> None:
    response = client.post("/v1/gaze", params={"format": "png"}, content=encoded(picture()))
    assert response.headers["content-type"] == "image/png"
    heat = np.asarray(Image.open(io.BytesIO(response.content)).convert("RGBA"))
    assert heat.shape == (240, 320, 4)
    assert heat[SPOT[1], SPOT[0], 3] > 240
    assert heat[200, 20, 3] < 10


def test_an_overlay_without_opacity_is_the_picture(client: httpx.Client) -> None:
    content = encoded(picture())
    clear = client.post("/v1/gaze", params={"format": "overlay", "opacity": "0"}, content=content)
    shown = client.post("/v1/gaze", params={"format": "overlay"}, content=content)
    assert (np.asarray(Image.open(io.BytesIO(clear.content))) == np.asarray(picture())).all()
    assert not (np.asarray(Image.open(io.BytesIO(shown.content))) == np.asarray(picture())).all()


def test_crops_have_the_ratio_and_keep_what_draws_the_eye(client: httpx.Client) -> None:
    response = client.post("/v1/crop", params={"ratio": "1:1,16:9,1:3", "n": 3}, content=encoded(picture()))
    assert [crop["ratio"] for crop in response.json()["crops"]] == ["1:1", "16:9", "1:3"]
    for crop in response.json()["crops"]:
        wide, high = map(int, crop["ratio"].split(":"))
        assert 1 <= len(crop["windows"]) <= 3
        for window in crop["windows"]:
            left, top, right, bottom = edges(window["box"])
            assert (right - left) / (bottom - top) == pytest.approx(wide / high, rel=0.02)
            assert 0 <= left < right <= 320
            assert 0 <= top < bottom <= 240
        left, top, right, bottom = edges(crop["windows"][0]["box"])
        assert left < SPOT[0] < right
        assert top < SPOT[1] < bottom
        assert crop["windows"][0]["mass"] > 0.9


def test_crop_sends_the_best_window_as_a_picture_when_asked(client: httpx.Client) -> None:
    content = encoded(picture(), "JPEG")
    box = client.post("/v1/crop", params={"ratio": "1:1"}, content=content).json()["crops"][0]["windows"][0]["box"]
    kept = client.post("/v1/crop", params={"ratio": "1:1", "format": "keep"}, content=content)
    assert kept.headers["content-type"] == "image/jpeg"
    assert Image.open(io.BytesIO(kept.content)).size == (box["width"], box["height"])
    query = {"ratio": "16:9", "format": "png", "size": "160x90"}
    small = Image.open(io.BytesIO(client.post("/v1/crop", params=query, content=content).content))
    assert (small.format, small.size) == ("PNG", (160, 90))
    assert np.asarray(small.convert("L")).max() > 240  # the bright spot is in it


def test_a_size_stands_for_the_ratio_of_a_crop(client: httpx.Client) -> None:
    content = encoded(picture(), "JPEG")
    cut = client.post("/v1/crop", params={"size": "160x90", "format": "keep"}, content=content)
    assert Image.open(io.BytesIO(cut.content)).size == (160, 90)
    by_size = client.post("/v1/crop", params={"size": "160x90"}, content=content).json()["crops"]
    by_ratio = client.post("/v1/crop", params={"ratio": "160:90"}, content=content).json()["crops"]
    assert by_size == by_ratio


def test_a_crop_is_never_stretched(client: httpx.Client) -> None:
    query = {"ratio": "1:1", "size": "160x90", "format": "keep"}
    refused = client.post("/v1/crop", params=query, content=encoded(picture()))
    assert refused.status_code == 400
    assert "another shape than ratio=1:1" in refused.json()["error"]["message"]
    almost = client.post("/v1/crop", params=query | {"ratio": "1.79:1"}, content=encoded(picture()))
    assert Image.open(io.BytesIO(almost.content)).size == (160, 90)


def test_gaze_gives_the_crops_of_crop_and_the_map_of_png_when_asked(client: httpx.Client) -> None:
    content = encoded(picture())
    together = client.post("/v1/gaze", params={"ratio": ["4:5", "3:1"], "n": 2, "heat": "true"}, content=content)
    crops = client.post("/v1/crop", params={"ratio": "4:5,3:1", "n": 2}, content=content)
    png = client.post("/v1/gaze", params={"format": "png"}, content=content)
    assert together.json()["crops"] == crops.json()["crops"]
    assert base64.b64decode(together.json()["heat"].removeprefix("data:image/png;base64,")) == png.content
    plain = client.post("/v1/gaze", content=content).json()
    assert plain["crops"] == []
    assert "heat" not in plain


def test_the_size_of_the_map_sent_back_moves_no_peak_and_no_window(client: httpx.Client, models: list[Path]) -> None:
    content = encoded(picture())
    plain = client.post("/v1/gaze", params={"ratio": "1:1"}, content=content).json()
    query = {"ratio": "1:1", "size": "900x30", "heat": "true"}
    other = client.post("/v1/gaze", params=query, content=content).json()
    heat = base64.b64decode(other.pop("heat").removeprefix("data:image/png;base64,"))
    assert Image.open(io.BytesIO(heat)).size == (900, 30)
    for answer in (plain, other):
        del answer["milliseconds"]
    assert other == plain
    window = other["crops"][0]["windows"][0]
    assert window["mass"] == pytest.approx(
        load(models[0], threads=1).predict(content).mass(edges(window["box"])), abs=1e-4
    )


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("/v1/gaze?model=other", 404, "unknown_model"),
        ("/v1/gaze?model=../../etc/passwd", 404, "unknown_model"),
        ("/v1/gaze?colour=red", 400, "bad_option"),
        ("/v1/gaze?peaks=1&peaks=2", 400, "bad_option"),
        ("/v1/gaze?peaks=0", 400, "bad_option"),
        ("/v1/gaze?peaks=%D9%A3", 400, "bad_option"),
        ("/v1/gaze?format=gif", 400, "bad_option"),
        ("/v1/gaze?size=480", 400, "bad_option"),
        ("/v1/gaze?size=0x10", 400, "bad_option"),
        ("/v1/gaze?size=8192x8192", 400, "bad_option"),
        ("/v1/gaze?size=16000000x1", 400, "bad_option"),
        ("/v1/gaze?opacity=nan", 400, "bad_option"),
        ("/v1/gaze?center_bias=left", 400, "bad_option"),
        ("/v1/crop", 400, "bad_option"),
        ("/v1/crop?ratio=0:1", 400, "bad_option"),
        ("/v1/crop?size=1x200", 400, "bad_option"),
        ("/v1/crop?ratio=1:1&format=npy", 400, "bad_option"),
        ("/v1/crop?ratio=1:1,2:1&format=keep", 400, "bad_option"),
        ("/v1/crop?ratio=" + ",".join(f"{n}:1" for n in range(1, 15)), 400, "bad_option"),
        ("/v1/crop?ratio=1:1&n=11", 400, "bad_option"),
        ("/v1/other", 404, "not_found"),
    ],
)
def test_a_bad_request_is_refused_with_a_code_and_a_sentence(
    client: httpx.Client, path: str, status: int, code: str
) -> None:
    response = client.post(path, content=encoded(picture(64, 48)))
    assert response.status_code == status
    assert response.json()["error"]["code"] == code
    assert len(response.json()["error"]["message"]) > 10


@pytest.mark.parametrize(
    ("content", "status", "code"),
    [
        (b"", 400, "no_picture"),
        (b"hello", 415, "not_a_picture"),
        (b"\x80\x04\x95cos\nsystem\n.", 415, "not_a_picture"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", 415, "not_a_picture"),
        (encoded(picture())[:500], 400, "bad_picture"),
        (encoded(picture(), "JPEG")[:2000], 400, "bad_picture"),
        (encoded(picture(), "JPEG2000"), 415, "not_a_picture"),
        (encoded(picture(), "ICO"), 415, "not_a_picture"),
        (encoded(picture(), "PPM").replace(b"\n255\n", b"\n254\n", 1), 415, "not_a_picture"),
    ],
)
def test_what_is_no_whole_picture_is_refused(client: httpx.Client, content: bytes, status: int, code: str) -> None:
    response = client.post("/v1/gaze", content=content)
    assert (response.status_code, response.json()["error"]["code"]) == (status, code)


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        ("multipart/form-data", b"x"),
        ("multipart/form-data; boundary=a", b"x"),
        ("multipart/form-data; boundary=" + "a" * 500, b"x"),
        ("multipart/form-data; boundary=a", b'--a\r\nContent-Disposition: form-data; name="image"\r\n\r\nabc'),
        ("multipart/form-data; boundary=a", b"--a\r\n\r\nabc\r\n" * 100 + b"--a--\r\n"),
        (
            "multipart/form-data; boundary=a",
            b'--a\r\nContent-Disposition: form-data; name="\xff"\r\n\r\nb\r\n--a--\r\n',
        ),
    ],
)
def test_a_broken_form_is_refused(client: httpx.Client, content_type: str, body: bytes) -> None:
    response = client.post("/v1/gaze", content=body, headers={"content-type": content_type})
    assert response.status_code in (400, 415)
    assert response.json()["error"]["code"] in ("bad_form", "no_picture", "bad_option", "not_a_picture")


def test_a_form_without_a_picture_is_refused(client: httpx.Client) -> None:
    none = client.post("/v1/gaze", files={"model": (None, "bright")})
    assert (none.status_code, none.json()["error"]["code"]) == (400, "no_picture")


def test_a_wrong_method_is_refused(client: httpx.Client) -> None:
    response = client.get("/v1/gaze")
    assert (response.status_code, response.json()["error"]["code"]) == (405, "method_not_allowed")


# -- promises of the OpenAPI document ---------------------------------------------------------------------------------


def test_every_answer_carries_a_strict_policy(client: httpx.Client) -> None:
    for response in (client.get("/"), client.get("/nothing"), client.post("/v1/gaze"), client.get("/livez")):
        policy = response.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "http" not in policy
        assert response.headers["x-content-type-options"] == "nosniff"


def test_the_page_needs_nothing_from_elsewhere() -> None:
    for path in PAGE.rglob("*"):
        if path.suffix in (".html", ".css", ".js"):
            assert not re.search(r"https?://|//cdn|\bstyle=|\son\w+=|eval\(|innerHTML", path.read_text()), path.name


def test_page_files_are_served_and_revalidated(client: httpx.Client) -> None:
    page = client.get("/")
    assert "<title>fastgaze" in page.text
    for name in [*re.findall(r'"page/([^"]+)"', page.text), "gaze/map.js"]:
        response = client.get(f"/page/{name}")
        assert response.status_code == 200
        again = client.get(f"/page/{name}", headers={"if-none-match": response.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")


@pytest.mark.parametrize("path", ["/docs", "/openapi.json", "/", "/page/gaze/map.js"])
def test_text_is_sent_packed_to_who_can_unpack_it(client: httpx.Client, path: str) -> None:
    plain = client.get(path, headers={"accept-encoding": "identity"})
    packed = client.get(path, headers={"accept-encoding": "br, gzip"})
    assert "content-encoding" not in plain.headers
    assert packed.headers["content-encoding"] == "gzip"
    assert packed.content == plain.content
    assert int(packed.headers["content-length"]) < 0.6 * len(plain.content)
    assert packed.headers["etag"] != plain.headers["etag"]
    assert "accept-encoding" in packed.headers["vary"]


@pytest.mark.parametrize("path", ["/page/..%2fserver%2fapi.py", "/page/%2e%2e/x", "/examples/secret.txt", "/page/"])
def test_no_name_in_a_url_reaches_the_disk(client: httpx.Client, path: str) -> None:
    assert client.get(path).status_code == 404


def test_examples_are_listed_and_served(client: httpx.Client) -> None:
    assert client.get("/examples").json() == {"examples": ["spot.png"]}
    assert client.get("/examples/spot.png").content == encoded(picture())


def test_models_are_described(client: httpx.Client, models: list[Path]) -> None:
    facts = client.get("/v1/models").json()
    assert facts["default"] == "bright"
    assert [model["name"] for model in facts["models"]] == ["bright", "dark"]
    for model, path in zip(facts["models"], models, strict=True):
        assert model["working_pixels"] == 240 * 320
        assert model["gflop_working"] == pytest.approx(load(path).card.gflop_working)
    assert facts["limits"]["bytes"] == Limits().bytes


def test_two_models_of_one_name_are_refused(models: list[Path]) -> None:
    with pytest.raises(ArgumentError, match="different names"):
        create_app(ServerSettings([models[0], models[0]]))


def test_a_log_line_holds_no_words_of_a_client(client: httpx.Client) -> None:
    lines = io.StringIO()
    logger = logging.getLogger("fastgaze.server")
    before = logger.handlers, logger.propagate, logger.level
    try:
        run.log_to(lines, logging.INFO)
        client.post("/v1/gaze?model=evil%0aERROR%20forged", headers={"user-agent": "evil"}, content=b"evil")
        client.get("/evil%0a%1b[31m")
        client.request("EVIL", "/livez")
        logger.error("broken by %s", "a\nb\x1b[31m\u202e")
    finally:
        logger.handlers, logger.propagate = before[0], before[1]
        logger.setLevel(before[2])
    assert "evil" not in lines.getvalue().lower()
    assert len(lines.getvalue().splitlines()) == 4
    assert re.fullmatch(r"[\x20-\x7e\n]+", lines.getvalue())
    assert "POST /v1/gaze 404" in lines.getvalue()


def test_maps_keep_the_shape_of_the_picture_within_the_limit() -> None:
    assert map_size((480, 640), 10**6) == (480, 640)
    height, width = map_size((6000, 8000), 10**6)
    assert height * width <= 10**6
    assert height / width == pytest.approx(0.75, rel=0.01)
    assert map_size((1, 40_000_000), 10**6) == (1, 8192)


def test_the_page_is_part_of_the_package() -> None:
    assert {"index.html", "style.css", "main.js", "gaze"} <= {path.name for path in Path(PAGE).iterdir()}
