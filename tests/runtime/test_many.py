"""Many pictures: in order, in threads, counted, from asyncio, and in other processes."""

import asyncio
import io
import multiprocessing
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fastgaze.core.errors import ArgumentError, ImageError
from fastgaze.core.pictures import Source
from fastgaze.runtime.gazemap import GazeMap
from fastgaze.runtime.many import counted, in_threads
from fastgaze.runtime.predictor import Predictor, load
from tests.photos import photo

PICTURES = [photo(100 + 16 * i, 150, (40 + 12 * i, 60)) for i in range(8)]


@pytest.mark.parametrize("threads", [1, 3, None])
def test_maps_come_in_order_and_equal_single_predictions(bright: Predictor, threads: int | None) -> None:
    found = bright.predict_many(iter(PICTURES), size=(60, 80), center_bias=None, threads=threads)
    expected = [bright.predict(p, (60, 80), None).log_density for p in PICTURES]
    assert all(np.array_equal(a.log_density, b) for a, b in zip(found, expected, strict=True))


def test_a_stack_of_pictures_is_many(bright: Predictor) -> None:
    stack = np.stack([photo(), photo(spot=(200, 150))])
    peaks = [gaze.peaks(1)[0] for gaze in bright.predict_many(stack.transpose(0, 3, 1, 2), threads=1)]
    assert [round(peak.x / 40) for peak in peaks] == [2, 5]


def test_pictures_are_taken_as_maps_are_asked_for(bright: Predictor) -> None:
    taken = []

    def endless() -> Iterator[np.ndarray]:
        while True:
            taken.append(1)
            yield PICTURES[0]

    maps = bright.predict_many(endless(), threads=2)
    assert isinstance(next(maps), GazeMap)
    assert isinstance(next(maps), GazeMap)
    assert len(taken) <= 7
    maps.close()  # type: ignore[attr-defined]
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("fastgaze")]


def test_work_is_done_at_once_in_as_many_threads_as_were_asked_for() -> None:
    meeting = threading.Barrier(3, timeout=30)
    assert len(set(in_threads(lambda _: meeting.wait(), range(3), 3))) == 3


def test_a_bad_picture_ends_everything_or_stands_in_its_place(bright: Predictor) -> None:
    pictures: list[Source] = [PICTURES[0], b"words", PICTURES[1].astype(np.float32), PICTURES[2]]
    with pytest.raises(ImageError, match="known format"):
        list(bright.predict_many(pictures))
    found = list(bright.predict_many(pictures, return_errors=True))
    assert [type(one) for one in found] == [GazeMap, ImageError, ArgumentError, GazeMap]


def test_wrong_arguments_are_refused_before_the_first_picture(bright: Predictor) -> None:
    with pytest.raises(ArgumentError, match="threads=0"):
        bright.predict_many(PICTURES, threads=0)
    with pytest.raises(ArgumentError, match="size"):
        bright.predict_many(PICTURES, size=(0, 5), return_errors=True)
    with pytest.raises(ArgumentError, match="'screen', None"):
        bright.predict_many(PICTURES, center_bias="middle")  # type: ignore[call-overload]
    for one in ("photo.jpg", Path("photo.jpg"), b"\xff\xd8", io.BytesIO(), PICTURES[0]):
        with pytest.raises(ArgumentError, match="several pictures"):
            bright.predict_many(one)  # type: ignore[arg-type]


def test_progress_counts_every_picture(bright: Predictor) -> None:
    told: list[tuple[int, int | None]] = []
    list(bright.predict_many(PICTURES[:3], threads=2, progress=lambda done, total, _: told.append((done, total))))
    assert told == [(0, 3), (1, 3), (2, 3), (3, 3)]
    told.clear()
    list(counted(iter("ab"), None, lambda done, total, _: told.append((done, total))))
    assert told == [(0, None), (1, None), (2, None)]


def test_a_bar_is_shown_on_a_terminal_and_nowhere_else(bright_file: Path) -> None:
    code = (
        "import numpy, fastgaze\n"
        f"model = fastgaze.load({str(bright_file)!r})\n"
        "list(model.predict_many([numpy.zeros((50, 60, 3), 'uint8')] * 7, progress=True))"
    )
    quiet = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert (quiet.stdout, quiet.stderr) == (b"", b"")
    terminal, other_end = os.openpty()
    environment = os.environ | {"TERM": "xterm"}
    subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=other_end, check=True, env=environment)
    os.close(other_end)
    assert b"7/7" in os.read(terminal, 100_000)
    os.close(terminal)


def test_an_event_loop_runs_on_while_a_thread_predicts(bright: Predictor) -> None:
    started, may_end = threading.Event(), threading.Event()

    def slow(images: np.ndarray) -> Sequence[np.ndarray]:
        started.set()
        assert may_end.wait(30), "the event loop stood still"
        return bright._engine(images)

    async def main() -> list[GazeMap]:
        model = Predictor(bright.card, slow)
        tasks = [asyncio.create_task(asyncio.to_thread(model.predict, picture)) for picture in PICTURES[:3]]
        while not started.is_set():
            await asyncio.sleep(0.001)
        may_end.set()
        return await asyncio.gather(*tasks)

    found = asyncio.run(main())
    expected = [bright.predict(picture).log_density for picture in PICTURES[:3]]
    assert all(np.array_equal(a.log_density, b) for a, b in zip(found, expected, strict=True))


def test_a_map_travels_between_processes(bright: Predictor) -> None:
    gaze = bright.predict(photo())
    there = pickle.loads(pickle.dumps(gaze))
    assert there.crop("1:1") == gaze.crop("1:1")
    assert np.array_equal(there.log_density, gaze.log_density)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore:This process.*multi-threaded:DeprecationWarning")
def test_a_pool_of_forks_shares_a_predictor_that_has_been_used_with_threads(bright_file: Path) -> None:
    model = load(bright_file, threads=2)
    expected = [gaze.log_density for gaze in model.predict_many(PICTURES, threads=2)]
    with multiprocessing.get_context("fork").Pool(2) as pool:
        found = pool.map_async(model.predict, PICTURES).get(120)
    assert all(np.array_equal(a.log_density, b) for a, b in zip(found, expected, strict=True))


def test_a_notebook_shows_the_overlay_and_the_places(bright: Predictor) -> None:
    gaze = bright.predict(photo(1200, 1600, (400, 300)))
    with Image.open(io.BytesIO(gaze._repr_png_())) as shown:
        assert (shown.format, shown.size) == ("PNG", (640, 480))
    page = gaze._repr_html_()
    assert page.startswith("<figure")
    assert page.endswith("</figure>")
    assert 'src="data:image/jpeg;base64,/9j/' in page
    peak = gaze.peaks(1)[0]
    assert f"by bright: ({peak.x:.0f}, {peak.y:.0f}) {peak.mass:.0%}" in page
    assert "Pixels of 1600x1200." in page


def test_a_notebook_shows_a_map_without_picture_or_model() -> None:
    gaze = GazeMap.from_log_density(np.zeros((30, 40)))
    assert "Where people look: (" in gaze._repr_html_()
    assert gaze._repr_png_().startswith(b"\x89PNG")
