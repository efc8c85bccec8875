"""Several pictures in one request: rows in their order, each with its own answer or its own error."""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from fastgaze.app.server.api import Outermost
from fastgaze.app.server.limits import Limits
from fastgaze.core.jsonable import Document
from tests.app.serving import encoded, make_models, picture, serving, serving_app

SPOTS = [(240, 60), (60, 60), (250, 180), (70, 170)]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return make_models(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="module")
def served(models: list[Path]) -> Iterator[tuple[httpx.Client, Outermost]]:
    with serving_app(models) as (url, app), httpx.Client(base_url=url, timeout=20) as client:
        yield client, app


@pytest.fixture(scope="module")
def client(served: tuple[httpx.Client, Outermost]) -> httpx.Client:
    return served[0]


def files(contents: list[bytes]) -> list[tuple[str, tuple[str, bytes]]]:
    return [("file", (f"{n}.png", content)) for n, content in enumerate(contents)]


def rows(response: httpx.Response) -> list[Document]:
    assert response.status_code == 200, response.text
    answer: dict[str, list[Document]] = response.json()
    assert list(answer) == ["results"]
    return answer["results"]


def test_rows_come_in_the_order_of_the_pictures_and_equal_single_answers(client: httpx.Client) -> None:
    contents = [encoded(picture(spot=spot)) for spot in SPOTS]
    found = rows(client.post("/v1/gaze", params={"ratio": "1:1"}, data={"peaks": "2"}, files=files(contents)))
    assert len(found) == len(SPOTS)
    for row, content in zip(found, contents, strict=True):
        single = client.post("/v1/gaze", params={"ratio": "1:1", "peaks": 2}, content=content).json()
        del row["milliseconds"], single["milliseconds"], row["name"]
        assert row == single


def test_a_picture_that_fails_is_a_row_and_the_others_are_answered(client: httpx.Client) -> None:
    good = encoded(picture())
    found = rows(client.post("/v1/gaze", files=files([good, b"no picture", good[:500], b"", good])))
    codes = [row.get("error", {}).get("code") for row in found]
    assert codes == [None, "not_a_picture", "bad_picture", "no_picture", None]
    assert found[0]["peaks"] == found[4]["peaks"]
    assert [row["name"] for row in found] == [f"{n}.png" for n in range(5)]


def test_rows_have_the_names_of_their_files_without_folders_and_control_characters(client: httpx.Client) -> None:
    good = encoded(picture(64, 48))
    given = ["C:\\Users\\me\\a.png", "../../b.png", "\x1b[31mred.png", "caf\u00e9 \u4e16.png", "a.png", "n" * 400, "/"]
    sent = [("file", (name, good)) for name in given]
    names = [row["name"] for row in rows(client.post("/v1/gaze", files=sent))]
    assert names[1:4] == ["b.png", "\ufffd[31mred.png", "caf\u00e9 \u4e16.png"]
    assert (names[0], names[4]) == ("a.png (1)", "a.png (5)"), "each has a name of its own"
    assert names[5:] == ["n" * 255, "picture 7"]
    compared = client.post("/v1/compare", files=sent[1:3]).json()
    assert [each["name"] for each in compared["pictures"]] == names[1:3]
    assert "name" not in client.post("/v1/gaze", files=sent[1:2]).json()


def test_bytes_that_look_like_a_boundary_stay_in_their_picture(client: httpx.Client) -> None:
    good = encoded(picture())
    body = b"".join(
        b'--b\r\nContent-Disposition: form-data; name="file"; filename="x"\r\n\r\n' + content + b"\r\n"
        for content in (good + b"\r\n--bx", b"\r\n--", good)
    )
    headers = {"content-type": "multipart/form-data; boundary=b"}
    found = rows(client.post("/v1/gaze", content=body + b"--b--\r\n", headers=headers))
    assert ["peaks" in row for row in found] == [True, False, True]


def test_a_large_picture_and_large_answers_are_rows_like_the_others(models: list[Path]) -> None:
    contents = [encoded(picture(3200, 2800)), encoded(picture())]
    with serving_app(models, Limits(seconds=60)) as (url, app), httpx.Client(base_url=url, timeout=60) as client:
        found = rows(client.post("/v1/gaze", params={"heat": "true"}, files=files(contents)))
        assert [row["picture_size"]["width"] for row in found] == [3200, 320]
        assert all(row["heat"].startswith("data:image/png;base64,") for row in found)
        assert app.pool.heavy.tasks == 1
        for what in ("answers", "uploads"):
            assert f'fastgaze_held_bytes{{what="{what}"}} 0\n' in client.get("/metrics").text


def test_only_json_of_gaze_takes_several_and_not_too_many(client: httpx.Client) -> None:
    content = encoded(picture(64, 48))
    for path, count, status, code in (
        ("/v1/gaze?format=npy", 2, 400, "bad_option"),
        ("/v1/crop?ratio=1:1", 2, 400, "bad_option"),
        ("/v1/gaze", 17, 413, "too_many_pictures"),
        ("/v1/gaze", 100, 400, "bad_form"),
    ):
        answer = client.post(path, files=files([content] * count))
        assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)


def test_the_bytes_of_all_pictures_together_are_bounded(models: list[Path]) -> None:
    with serving(models, Limits(bytes=100_000)) as url:
        answer = httpx.post(f"{url}/v1/gaze", files=files([bytes(60_000)] * 3), timeout=20)
        assert (answer.status_code, answer.json()["error"]["code"]) == (413, "too_many_bytes")


def test_a_killed_worker_costs_at_most_a_row(served: tuple[httpx.Client, Outermost]) -> None:
    client, app = served
    stop = threading.Event()

    def kill_now_and_then() -> None:
        while not stop.wait(0.1):
            for worker in list(app.pool.light.workers)[:1]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(worker.pid, signal.SIGKILL)

    killer = threading.Thread(target=kill_now_and_then)
    killer.start()
    try:
        answers = [client.post("/v1/gaze", files=files([encoded(picture())] * 8)) for _ in range(5)]
    finally:
        stop.set()
        killer.join()
    # The form itself is read by a worker too, and is lost when two of them die over it.
    assert {answer.status_code for answer in answers} <= {200, 500}
    found = [row for answer in answers if answer.status_code == 200 for row in rows(answer)]
    assert len([row for row in found if "peaks" in row]) > len(found) / 2
    assert {row["error"]["code"] for row in found if "error" in row} <= {"worker_died"}


def test_pictures_whose_turn_does_not_come_in_time_are_rows_that_say_so(models: list[Path]) -> None:
    with serving_app(models, Limits(seconds=3.0), workers=1) as (url, app):
        (worker,) = app.pool.light.workers

        def stop_after_the_first() -> None:
            while app.pool.light.tasks < 3:  # the form itself, the first picture, the second one
                time.sleep(0.001)
            os.kill(worker.pid, signal.SIGSTOP)

        stopper = threading.Thread(target=stop_after_the_first)
        stopper.start()
        found = rows(httpx.post(f"{url}/v1/gaze", files=files([encoded(picture())] * 16), timeout=20))
        stopper.join()
        assert len(found) == 16
        assert "peaks" in found[0]
        assert {row["error"]["code"] for row in found if "error" in row} <= {"too_slow", "busy"}
        assert "error" in found[-1]
