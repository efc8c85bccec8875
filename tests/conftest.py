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

# Taken out of the environment: settings that tests read have data of their own.
DATA = Path(os.environ.pop("FASTGAZE_DATA", Path(__file__).parents[1] / "data"))


@pytest.fixture(autouse=True)
def _one_torch_thread() -> None:
    """Also where torch was imported before, or another test asked for more threads."""
    if (torch := sys.modules.get("torch")) is not None:
        torch.set_num_threads(1)


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The published data sets; tests that need them are skipped where they are absent."""
    if not DATA.is_dir():
        pytest.skip(f"no data sets at {DATA}; set FASTGAZE_DATA to the folder that has them")
    return DATA


@pytest.fixture(scope="session")
def peer() -> Path:
    """Twitter's production FastGaze, in peers/ beside the data sets."""
    path = DATA.parent / "peers" / "twitter-fastgaze.vxm"
    if not path.is_file():
        pytest.skip(f"no peer model at {path}; it lies beside the data sets, see docs/data.md")
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
