"""A predictor that looks at bright things, exported once for all tests here."""

from pathlib import Path

import pytest

from fastgaze.export import Facts, export_onnx
from fastgaze.runtime.predictor import Predictor, load
from tests.small_models import bright_model


@pytest.fixture(scope="session")
def bright_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "bright.onnx"
    export_onnx(bright_model(), path, Facts("bright"))
    return path


@pytest.fixture(scope="session")
def bright(bright_file: Path) -> Predictor:
    return load(bright_file, threads=1)
