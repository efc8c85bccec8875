"""One picture, one answer: library, command line, server and batch give the same windows, in pixels of the picture."""

import json
from pathlib import Path

import httpx
import pyarrow.parquet as pq
import pytest
from PIL import Image

from fastgaze.app import server
from fastgaze.app.cli import main
from fastgaze.core.jsonable import Document
from fastgaze.runtime import zoo
from fastgaze.runtime.batch import BatchOptions
from fastgaze.runtime.batch import run as run_batch
from fastgaze.runtime.predictor import load
from tests.app.serving import serving

MODEL = "small"
RATIOS = ("16:9", "1:1", "9:16")


@pytest.fixture(scope="module")
def coffee(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example photograph, six times as wide and high."""
    path = tmp_path_factory.mktemp("photos") / "coffee.jpg"
    with Image.open(Path(server.__file__).parent / "examples" / "coffee.jpg") as photo:
        photo.resize((6 * photo.width, 6 * photo.height), Image.Resampling.BICUBIC).save(path, quality=90)
    return path


def test_command_line_server_and_batch_say_what_the_library_says(
    coffee: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = load(MODEL, threads=1)
    expected: Document = model.predict(coffee).to_json(peaks=5, ratios=RATIOS, n=2)
    arguments = ["crop", str(coffee), "--model", MODEL, "--json", "--candidates", "2"]
    with pytest.raises(SystemExit) as ended:
        main([*arguments, *(word for ratio in RATIOS for word in ("--ratio", ratio))])
    assert not ended.value.code
    (printed,) = json.loads(capsys.readouterr().out)
    with serving([zoo.find(MODEL)]) as url:
        params = {"ratio": ",".join(RATIOS), "n": "2"}
        served = httpx.post(f"{url}/v1/crop", params=params, content=coffee.read_bytes(), timeout=60).json()
    run_batch(str(coffee), str(tmp_path), MODEL, BatchOptions(ratios=RATIOS, crops=2, peaks=5), workers=1)
    (row,) = pq.read_table(str(tmp_path)).to_pylist()
    for answer in (printed, served):
        for name in ("model", "center_bias", "picture_size", "bits", "peaks", "crops"):
            assert answer[name] == expected[name]
    boxes = [[window["box"] for window in crop["windows"]] for crop in expected["crops"]]
    assert [[window["box"] for window in crop["windows"]] for crop in row["crops"]] == boxes
    assert row["picture_size"] == expected["picture_size"] == {"width": 3600, "height": 2400}
    assert [crop["ratio"] for crop in row["crops"]] == list(RATIOS)


def test_windows_have_exactly_the_size_that_their_ratio_gives_in_the_picture(coffee: Path) -> None:
    gaze = load(MODEL, threads=1).predict(coffee)
    sizes = {"16:9": (3600, 2025), "1:1": (2400, 2400), "9:16": (1350, 2400)}
    for ratio, size in sizes.items():
        left, top, right, bottom = gaze.crop(ratio)[0].box
        assert (right - left, bottom - top) == size
