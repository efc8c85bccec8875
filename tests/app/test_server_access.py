"""Who may ask: hosts, origins, tokens, signed addresses and rates; and what the server says about itself."""

import hmac
import re
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

import httpx
import pytest

from fastgaze.app.server.access import Access, sign
from fastgaze.app.server.limits import ApiError
from fastgaze.core.errors import ArgumentError
from tests.app.serving import encoded, make_models, picture, serving

SMALL = encoded(picture(64, 48))
SECRET = "a secret of enough letters"
FRIEND = "https://friend.example"


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return make_models(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="module")
def client(models: list[Path]) -> Iterator[httpx.Client]:
    with serving(models) as url, httpx.Client(base_url=url, timeout=20) as found:
        yield found


@pytest.fixture(scope="module")
def guarded(models: list[Path]) -> Iterator[httpx.Client]:
    access = Access(("gaze.example",), (FRIEND,), SECRET)
    with serving(models, access=access) as url, httpx.Client(base_url=url, timeout=20) as found:
        yield found


def error(response: httpx.Response) -> tuple[int, str]:
    return response.status_code, response.json()["error"]["code"]


def test_a_name_that_was_not_allowed_is_not_served(client: httpx.Client, guarded: httpx.Client) -> None:
    for host in ("evil.example", "evil.example:8000", "127.0.0.1.evil.example", ""):
        assert error(client.get("/", headers={"host": host})) == (421, "wrong_host")
    for host in ("localhost:80", "127.0.0.1", "[::1]:8000", "LOCALHOST."):
        assert client.get("/", headers={"host": host}).status_code == 200
    assert guarded.get("/", headers={"host": "gaze.example:443"}).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [{"origin": "http://evil.example"}, {"origin": "null"}, {"sec-fetch-site": "cross-site"}],
    ids=["origin", "opaque origin", "fetch metadata"],
)
def test_a_page_elsewhere_cannot_make_the_server_work(client: httpx.Client, headers: dict[str, str]) -> None:
    answer = client.post("/v1/gaze", content=SMALL, headers={"content-type": "text/plain", **headers})
    assert error(answer) == (403, "cross_origin")
    assert "access-control-allow-origin" not in answer.headers


def test_the_server_s_own_page_may_ask(client: httpx.Client) -> None:
    own = str(client.base_url).rstrip("/")
    assert client.post("/v1/gaze", content=SMALL, headers={"origin": own}).status_code == 200


def test_an_allowed_origin_may_ask_and_read(guarded: httpx.Client) -> None:
    asked = {"origin": FRIEND, "access-control-request-method": "POST"}
    preflight = guarded.options("/v1/gaze", headers=asked)
    assert preflight.status_code == 204
    assert preflight.headers["access-control-allow-origin"] == FRIEND
    headers = {"origin": FRIEND, "authorization": f"Bearer {SECRET}"}
    answer = guarded.post("/v1/gaze", content=SMALL, headers=headers)
    assert answer.status_code == 200
    assert answer.headers["access-control-allow-origin"] == FRIEND
    assert error(guarded.options("/v1/gaze", headers=asked | {"origin": "https://other.example"}))[0] == 403


def test_cors_is_off_by_default(client: httpx.Client) -> None:
    assert client.options("/v1/gaze", headers={"origin": FRIEND}).status_code == 403
    assert "access-control-allow-origin" not in client.get("/v1/models").headers


def test_with_a_secret_only_those_who_have_it_are_served(guarded: httpx.Client) -> None:
    assert error(guarded.post("/v1/gaze", content=SMALL)) == (401, "no_token")
    assert error(guarded.get("/metrics")) == (401, "no_token")
    for wrong in ("Bearer wrong", SECRET, f"Basic {SECRET}", "Bearer"):
        assert guarded.get("/v1/models", headers={"authorization": wrong}).status_code == 401
    right = {"authorization": f"Bearer {SECRET}"}
    assert guarded.post("/v1/gaze", content=SMALL, headers=right).status_code == 200
    assert guarded.get("/livez").status_code == 200
    assert guarded.get("/").status_code == 200


def test_a_signed_address_is_good_for_what_was_signed_and_no_longer_than_said(guarded: httpx.Client) -> None:
    later = int(time.time()) + 60
    signed = sign("/v1/crop?ratio=16:9&model=dark", SECRET, later)
    assert guarded.post(signed, content=SMALL).json()["model"] == "dark"
    for changed in (
        signed.replace("dark", "bright"),
        signed.replace("/v1/crop", "/v1/gaze"),
        signed.replace(str(later), str(later + 1)),
        signed + "&n=2",
        sign("/v1/crop?ratio=16:9&model=dark", "another secret, as long", later),
    ):
        assert error(guarded.post(changed, content=SMALL)) == (403, "wrong_signature")
    over = sign("/v1/crop?ratio=16:9", SECRET, int(time.time()) - 1)
    assert error(guarded.post(over, content=SMALL)) == (403, "signature_over")
    picture = {"image": ("x.png", SMALL)}
    assert guarded.post(signed, files=picture).json()["model"] == "dark"
    assert error(guarded.post(signed, files=picture, data={"n": "2"})) == (403, "wrong_signature")
    assert guarded.get(sign("/v1/models", SECRET, later, "GET")).status_code == 200
    assert error(guarded.get(sign("/v1/models", SECRET, later, "POST"))) == (403, "wrong_signature")


def test_a_signed_address_has_one_meaning() -> None:
    later = int(time.time()) + 60
    signed = sign("/v1/crop?ratio=1:1&region=a:1,2,3,4&region=b:1,2,3,4", SECRET, later)
    path, _, query = signed.partition("?")
    parts = query.split("&")
    access = Access(secret=SECRET)
    for order in (parts, [parts[4], parts[1], parts[3], parts[2], parts[0]]):  # other names may be anywhere
        access.check_secret("POST", path, "&".join(order), {})
    swapped = [parts[0], parts[2], parts[1], *parts[3:]]
    twice = [*parts, parts[-1]]
    for changed in (swapped, twice, [*parts[:-1], "signature=", parts[-1]], [*parts, "expires=9999999999"]):
        with pytest.raises(ApiError) as refused:
            access.check_secret("POST", path, "&".join(changed), {})
        assert refused.value.code == "wrong_signature"


def test_a_time_that_the_asker_put_into_the_query_does_not_prolong_it() -> None:
    for given in ("expires=9999999999", "signature=0", "n=1&expires="):
        with pytest.raises(ArgumentError, match="already"):
            sign(f"/v1/crop?{given}", SECRET, 1)
    # One that was signed elsewhere with two times, by the documented rule.
    query = urlencode([("expires", str(int(time.time()) + 60)), ("expires", "9999999999")])
    signature = hmac.new(SECRET.encode(), f"POST\n/v1/crop\n{query}".encode(), "sha256").hexdigest()
    with pytest.raises(ApiError) as refused:
        Access(secret=SECRET).check_secret("POST", "/v1/crop", f"{query}&signature={signature}", {})
    assert refused.value.code == "signature_over"


@pytest.mark.parametrize(
    "expires", ["", "-1", "+9999999999", "9999999999.5", "1e12", "9" * 13, " 9999999999", "0x9999999999"]
)
def test_a_time_that_is_not_a_plain_number_of_seconds_is_over(expires: str) -> None:
    query = urlencode([("expires", expires)])
    signature = hmac.new(SECRET.encode(), f"GET\n/v1/models\n{query}".encode(), "sha256").hexdigest()
    with pytest.raises(ApiError) as refused:
        Access(secret=SECRET).check_secret("GET", "/v1/models", f"{query}&signature={signature}", {})
    assert refused.value.code == "signature_over"


def test_one_client_s_rate_is_limited_and_another_s_is_not() -> None:
    access = Access(rate=5)
    for _ in range(10):
        access.check_rate("10.0.0.1")
    with pytest.raises(ApiError) as refused:
        access.check_rate("10.0.0.1")
    assert (refused.value.status, refused.value.headers["retry-after"]) == (429, "1")
    access.check_rate("10.0.0.2")
    time.sleep(0.25)
    access.check_rate("10.0.0.1")
    for last in range(10):
        access.check_rate(f"2001:db8::{last}")
    with pytest.raises(ApiError):
        access.check_rate("2001:db8::ffff")


def test_rates_of_many_clients_take_bounded_memory() -> None:
    access = Access(rate=1)
    for n in range(12_000):
        access.check_rate(f"10.{n >> 16}.{n >> 8 & 255}.{n & 255}")
    assert len(access.clients) == 10_000


def test_a_rate_limited_server_says_when_to_come_back(models: list[Path]) -> None:
    with serving(models, access=Access(rate=1)) as url:
        statuses = [httpx.get(f"{url}/v1/models").status_code for _ in range(4)]
        assert statuses[:2] == [200, 200]
        assert 429 in statuses
        assert httpx.get(f"{url}/livez").status_code == 200


@pytest.mark.parametrize(
    "wrong", [{"secret": "short"}, {"rate": -1.0}, {"rate": float("nan")}, {"origins": ("example.org",)}]
)
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ArgumentError):
        Access(**wrong)  # type: ignore[arg-type]


def test_metrics_are_prometheus_text_and_count(client: httpx.Client) -> None:
    client.post("/v1/gaze", content=SMALL)
    client.post("/v1/gaze?evil%22=1", content=SMALL)
    answer = client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    labels = r'\{[a-z]+="[^"]*"(,[a-z]+="[^"]*")*\}'
    sample = re.compile(rf"# TYPE fastgaze_\w+ (gauge|counter|histogram)|fastgaze_\w+({labels})? [0-9.+e-]+")
    for line in answer.text.splitlines():
        assert sample.fullmatch(line), line
    assert 'fastgaze_requests_total{method="POST",path="/v1/gaze",status="400"}' in answer.text
    assert re.search(r'fastgaze_request_seconds_bucket\{path="/v1/gaze",le="\+Inf"\} [1-9]', answer.text)
    assert "evil" not in answer.text


def test_it_says_when_it_is_ready(client: httpx.Client) -> None:
    facts = client.get("/readyz").json()
    assert facts["status"] == "ok"
    assert facts["workers"] == {"light": 2, "heavy": 1}


def test_the_api_can_be_read_by_people_without_a_script(client: httpx.Client) -> None:
    page = client.get("/docs")
    assert page.headers["content-type"].startswith("text/html")
    assert "<script" not in page.text
    assert not re.search(r'(src|href)="https?:', page.text)
    for word in ("POST /v1/gaze", "POST /v1/crop", "center_bias", "too_many_pixels", "curl --data-binary"):
        assert word in page.text
    assert client.get("/page/docs.css").status_code == 200
