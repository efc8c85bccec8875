"""The server keeps to its own OpenAPI document."""

import html
import json
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import jsonschema  # type: ignore[import-untyped]
import pytest
from PIL import Image

from fastgaze.app.server.options import COMPARE_OPTIONS, CROP_OPTIONS, GAZE_OPTIONS
from fastgaze.core.jsonable import Document
from tests.app.serving import encoded, make_models, picture, serving


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    with (
        serving(make_models(tmp_path_factory.mktemp("models"))) as url,
        httpx.Client(base_url=url, timeout=20) as found,
    ):
        yield found


@pytest.fixture(scope="module")
def openapi(client: httpx.Client) -> Document:
    document: Document = client.get("/openapi.json").json()
    return document


def validate(openapi: Document, response: httpx.Response, path: str, method: str) -> None:
    """The answer is one that the document announces, body included."""
    answers = openapi["paths"][path][method]["responses"]
    content = answers[str(response.status_code)]["content"]
    schema = content[response.headers["content-type"].split(";")[0]].get("schema")
    if schema is not None:
        jsonschema.Draft202012Validator(schema | {"components": openapi["components"]}).validate(response.json())


def test_answers_match_the_openapi_document(client: httpx.Client, openapi: Document) -> None:
    for path in ("/v1/models", "/livez", "/readyz", "/openapi.json"):
        validate(openapi, client.get(path), path, "get")
        validate(openapi, client.delete(path), path, "get")
    good, bad = encoded(picture(64, 48)), b"no picture"
    for query in ("", "?format=png", "?format=npy", "?format=overlay", "?heat=true&ratio=1:1&n=2", "?x=1", "?model=x"):
        for content in (good, bad, b""):
            validate(openapi, client.post(f"/v1/gaze{query}", content=content), "/v1/gaze", "post")
    several = client.post("/v1/gaze", files=[("file", good), ("file", bad)])
    assert [list(row) == ["name", "error"] for row in several.json()["results"]] == [False, True]
    validate(openapi, several, "/v1/gaze", "post")
    for query in ("", "?format=overlay", "?region=cta=1,2,30,40&ratio=1:1", "?region=x", "?size=9x9"):
        for files in ([good, good], [good, bad], [good]):
            found = client.post(f"/v1/compare{query}", files=[("file", content) for content in files])
            validate(openapi, found, "/v1/compare", "post")
    for query in ("?ratio=1:1", ""):
        validate(openapi, client.post(f"/v1/crop{query}", content=good), "/v1/crop", "post")


def test_every_documented_value_of_an_option_is_accepted_and_every_other_refused(
    client: httpx.Client, openapi: Document
) -> None:
    content = encoded(picture(64, 48))
    for path in ("/v1/gaze", "/v1/crop"):
        base = {"ratio": "1:1"} if path == "/v1/crop" else {}
        for parameter in openapi["paths"][path]["post"]["parameters"]:
            for value, status in _values(parameter["schema"]):
                found = client.post(path, params={**base, parameter["name"]: value}, content=content).status_code
                assert found == status or (status == 400 and found == 404), (parameter["name"], value)


def _values(schema: Document) -> list[tuple[str | int | float, int]]:
    if "enum" in schema:
        return [(value, 200) for value in schema["enum"]] + [("other", 400)]
    if schema["type"] == "boolean":
        return [("true", 200), ("false", 200), ("yes", 400)]
    if "pattern" in schema:
        return [(value, 200) for value in schema.get("examples", ["48x64"])] + [("other", 400)]
    return [
        (schema["minimum"], 200),
        (schema["maximum"], 200),
        (schema["minimum"] - 1, 400),
        (schema["maximum"] + 1, 400),
    ]


def test_the_document_is_openapi_3_1_and_names_all_options(openapi: Document) -> None:
    assert openapi["openapi"].startswith("3.1.")
    for path, options in (
        ("/v1/gaze", GAZE_OPTIONS),
        ("/v1/crop", CROP_OPTIONS),
        ("/v1/compare", COMPARE_OPTIONS),
    ):
        assert tuple(p["name"] for p in openapi["paths"][path]["post"]["parameters"]) == options
    for schema in openapi["components"]["schemas"].values():
        jsonschema.Draft202012Validator.check_schema(schema)
    references = re.findall(r"#/components/schemas/(\w+)", str(openapi))
    assert set(references) <= set(openapi["components"]["schemas"])


@pytest.mark.parametrize("ratio", ["0", "0:1", "1:0", "0.0", "1:1,0", ".", "1:1,"])
def test_a_ratio_of_nothing_is_not_valid_by_the_document_nor_for_the_server(
    client: httpx.Client, openapi: Document, ratio: str
) -> None:
    schema = next(p["schema"] for p in openapi["paths"]["/v1/crop"]["post"]["parameters"] if p["name"] == "ratio")
    assert not jsonschema.Draft202012Validator(schema).is_valid(ratio)
    assert client.post("/v1/crop", params={"ratio": ratio}, content=encoded(picture(64, 48))).status_code == 400


# -- the page's files and what every answer carries -------------------------------------------------------------------


def test_the_commands_on_the_page_of_the_api_work_as_they_stand(client: httpx.Client, tmp_path: Path) -> None:
    for name in ("photo.jpg", "a.png", "b.png"):
        (tmp_path / name).write_bytes(encoded(picture(320, 240), "JPEG" if name.endswith("jpg") else "PNG"))
    commands = [html.unescape(found) for found in re.findall(r"<code>(curl .*?)</code>", client.get("/docs").text)]
    assert len(commands) == 3
    for command in commands:
        run = subprocess.run([*shlex.split(command), "--silent", "--fail"], cwd=tmp_path, capture_output=True)
        assert run.returncode == 0, command
    with Image.open(tmp_path / "crop.jpg") as cut:
        assert cut.size == (1200, 630)


def test_the_page_of_the_api_shows_the_address_by_which_it_was_reached(client: httpx.Client) -> None:
    def shown(**headers: str) -> str:
        text = client.get("/docs", headers={name.replace("_", "-"): value for name, value in headers.items()}).text
        address: str
        (address,) = {found.partition("/v1")[0] for found in re.findall(r"https?://[^&]*/v1", html.unescape(text))}
        return address

    assert shown() == str(client.base_url).rstrip("/")
    assert shown(host="localhost:1234") == "http://localhost:1234"
    assert shown(host="[::1]:80", x_forwarded_proto="https") == "https://[::1]:80"
    assert shown(host="localhost", x_forwarded_proto="javascript") == "http://localhost"
    # What cannot be an address is not repeated.
    assert shown(host="localhost:1'; rm -rf") == "http://127.0.0.1:8000"


def test_the_page_of_the_api_shows_answers_that_fit_the_document(client: httpx.Client, openapi: Document) -> None:
    text = client.get("/docs").text
    shown = re.findall(r"<summary>JSON: (\w+)</summary><pre><code>(.*?)</code>", text, re.DOTALL)
    assert {name for name, _ in shown} >= {"Gaze", "Results", "Comparison", "Models"}
    for name, sample in shown:
        schema = openapi["components"]["schemas"][name] | {"components": openapi["components"]}
        jsonschema.Draft202012Validator(schema).validate(json.loads(html.unescape(sample)))
    statuses = [int(status) for status in re.findall(r"<td>(\d{3})</td>", text.partition("/v1/crop")[0])]
    assert statuses == sorted(statuses)


def test_the_page_of_the_api_gives_an_example_or_all_values_of_every_option(
    client: httpx.Client, openapi: Document
) -> None:
    text = client.get("/docs").text
    assert "such as 1200x630" in text
    assert "(unless given: false)" in text
    assert "such as ?" not in text
    for way in openapi["paths"].values():
        for found in way.values():
            for option in found.get("parameters", ()):
                assert f"<td>{option['name']}</td>" in text
