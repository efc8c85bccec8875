"""``POST /v1/crop`` around a point, and the names of its formats, against a real server."""

import io
from collections.abc import Iterator

import httpx
import numpy as np
import pytest
from PIL import Image

from tests.app.serving import edges, encoded, make_models, picture, serving


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    models = make_models(tmp_path_factory.mktemp("models"))
    with serving(models) as url, httpx.Client(base_url=url, timeout=20) as client:
        yield client


@pytest.mark.parametrize(
    ("focus", "boxes"),
    [
        ("100,120", [(0, 0, 240, 240), (40, 0, 160, 240)]),
        ("310.5, 0", [(80, 0, 320, 240), (200, 0, 320, 240)]),
        ("0,240", [(0, 0, 240, 240), (0, 0, 120, 240)]),
    ],
)
def test_a_focus_gives_one_window_for_every_ratio_around_the_point(
    client: httpx.Client, focus: str, boxes: list[tuple[int, ...]]
) -> None:
    query = {"ratio": "1:1,1:2", "focus": focus, "n": "1"}
    crops = client.post("/v1/crop", params=query, content=encoded(picture())).json()["crops"]
    assert [crop["ratio"] for crop in crops] == ["1:1", "1:2"]
    assert [[edges(window["box"]) for window in crop["windows"]] for crop in crops] == [[box] for box in boxes]
    x, y = (float(part) for part in focus.split(","))
    assert {tuple(crop["windows"][0]["focal_point"].values()) for crop in crops} == {(x, y)}


def test_a_focus_is_where_the_picture_that_comes_back_was_cut(client: httpx.Client) -> None:
    content = encoded(picture())
    expected = picture().crop((0, 0, 120, 240))
    form = {"ratio": "1:2", "focus": "50,120", "format": "png"}
    whole = client.post("/v1/crop", data=form, files={"image": content})
    assert np.array_equal(np.asarray(Image.open(io.BytesIO(whole.content))), np.asarray(expected))
    query = {"size": "60x120", "focus": "50,120", "format": "png"}
    small = Image.open(io.BytesIO(client.post("/v1/crop", params=query, content=content).content))
    assert small.size == (60, 120)
    assert np.abs(np.asarray(small, int) - np.asarray(expected.reduce(2), int)).mean() < 1


def test_a_focus_is_a_point_of_the_upright_picture(client: httpx.Client) -> None:
    buffer, exif = io.BytesIO(), Image.Exif()
    exif[274] = 6  # the stored 320x240 is shown as 240x320
    picture().save(buffer, "JPEG", exif=exif)
    query = {"ratio": "1:1", "focus": "120,300"}
    found = client.post("/v1/crop", params=query, content=buffer.getvalue()).json()
    assert edges(found["crops"][0]["windows"][0]["box"]) == (0, 80, 240, 320)
    refused = client.post("/v1/crop", params=query | {"focus": "300,120"}, content=buffer.getvalue())
    assert "outside the picture, which has 240x320 pixels" in refused.json()["error"]["message"]


@pytest.mark.parametrize("format", ["json", "keep"])
@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("focus=321,10", "focus=321,10 is outside the picture, which has 320x240 pixels"),
        ("focus=10,240.5", "focus=10,240.5 is outside the picture, which has 320x240 pixels"),
        ("focus=10", "is not X,Y in pixels"),
        ("focus=-1,10", "is not X,Y in pixels"),
        ("focus=1,2,3", "is not X,Y in pixels"),
        ("focus=a,b", "is not X,Y in pixels"),
        ("focus=nan,1", "is not X,Y in pixels"),
        ("focus=", "is not X,Y in pixels"),
        ("focus=%D9%A3,1", "is not X,Y in pixels"),
        ("focus=10,10&n=2", "with focus there is one window for every ratio, not n=2"),
        ("focus=10,10&focus=10,10", "option focus is given twice"),
    ],
)
def test_a_focus_that_means_nothing_is_refused_with_a_sentence(
    client: httpx.Client, query: str, reason: str, format: str
) -> None:
    refused = client.post(f"/v1/crop?ratio=1:1&format={format}&{query}", content=encoded(picture()))
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "bad_option")
    assert reason in refused.json()["error"]["message"]


def test_jpg_is_another_name_of_jpeg(client: httpx.Client) -> None:
    for query in ({"ratio": "1:1"}, {"size": "60x60"}):
        short, long = (
            client.post("/v1/crop", params=query | {"format": name}, content=encoded(picture()))
            for name in ("jpg", "jpeg")
        )
        assert short.headers["content-type"] == "image/jpeg"
        assert short.content == long.content
