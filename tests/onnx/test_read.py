"""An exported network back in torch."""

from pathlib import Path

import pytest
import torch

from fastgaze.core.errors import ModelError
from fastgaze.onnx.read import reopen
from fastgaze.onnx.write import Facts, export_onnx
from tests.small_models import DENSE, PLAIN, random_model


def test_an_exported_network_can_be_trained_further(tmp_path: Path) -> None:
    original = random_model(PLAIN)
    export_onnx(original, tmp_path / "net.onnx", Facts("net", data="somewhere"))
    model, record = reopen(tmp_path / "net.onnx")
    assert (record.stage, record.data, record.details["model"], model.spec) == (
        "exported",
        ("somewhere",),
        "net",
        PLAIN,
    )
    image = torch.randn(1, 3, 64, 96)
    with torch.inference_mode():
        torch.testing.assert_close(model(image), original(image), atol=0.01, rtol=0)
    export_onnx(random_model(DENSE), tmp_path / "dense.onnx", Facts("dense"))
    with pytest.raises(ModelError, match="give the checkpoint"):
        reopen(tmp_path / "dense.onnx")
