"""What the tests of batch jobs share."""

from pathlib import Path

import pytest

from fastgaze.onnx.write import Facts, export_onnx
from fastgaze.runtime.card import WorkingSize
from tests.runtime.batches import fill, make_picture
from tests.small_models import bright_model


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Looks at bright things, at a small working size."""
    path = tmp_path_factory.mktemp("model") / "tiny.onnx"
    export_onnx(bright_model(sigma=4.0), path, Facts("tiny", working_size=WorkingSize(pixels=96 * 128)))
    return str(path)


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = fill(tmp_path_factory.mktemp("batch") / "images", 40)
    (folder / "below").mkdir()
    make_picture(3, (300, 900)).save(folder / "below" / "wide.png")
    (folder / "broken.jpg").write_bytes((folder / "00000.jpg").read_bytes()[:200])
    (folder / "text.png").write_text("no image")
    (folder / "notes.txt").write_text("not to be read")
    return folder
