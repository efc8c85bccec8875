"""Fixtures that several test folders use."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from fastgaze.runtime.predictor import Predictor

# Networks of a few maps gain nothing from threads, and lose much where other work waits for the same cores.
os.environ.setdefault("OMP_NUM_THREADS", "1")

SHARED = Path(__file__).parents[2] / "shared"
DATA = Path(os.environ.pop("FASTGAZE_DATA", SHARED / "data"))  # settings that tests read have data of their own


@pytest.fixture(autouse=True)
def _one_torch_thread() -> None:
    """Also where torch was imported before, or another test asked for more threads."""
    if (torch := sys.modules.get("torch")) is not None:
        torch.set_num_threads(1)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The real data beside the checkout; tests that need it are skipped, loudly, where it is absent."""
    if not DATA.is_dir():
        pytest.skip(f"no real data at {DATA}; set FASTGAZE_DATA")
    return DATA


@pytest.fixture(scope="session")
def peer() -> Path:
    """Twitter's production FastGaze, beside the checkout."""
    path = DATA.parent / "peers" / "twitter-fastgaze.vxm"
    if not path.is_file():
        pytest.skip(f"no peer model at {path}")
    return path


@pytest.fixture(scope="session")
def bright_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An exported network that looks at bright things: small, exact, and no training needed."""
    from fastgaze.onnx.write import Facts, export_onnx
    from tests.small_models import bright_model

    path = tmp_path_factory.mktemp("models") / "bright.onnx"
    export_onnx(bright_model(), path, Facts("bright"))
    return path


@pytest.fixture(scope="session")
def bright(bright_file: Path) -> "Predictor":
    """``bright_file``, loaded."""
    from fastgaze.runtime.predictor import load

    return load(bright_file, threads=1)
