"""An exported network back in torch."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from fastgaze.core.errors import ModelError
from fastgaze.core.spec import GazeSpec
from fastgaze.onnx.pad import padded_spec
from fastgaze.onnx.read import reopen
from fastgaze.onnx.write import Facts, export_onnx
from fastgaze.runtime.card import WorkingSize, read_card, with_card
from fastgaze.runtime.predictor import load
from tests.small_models import DENSE, LITE, PLAIN, random_model


@pytest.mark.parametrize("spec", [PLAIN, DENSE, LITE], ids=["vgg", "densenet", "lite"])
def test_an_exported_network_can_be_trained_further(spec: GazeSpec, tmp_path: Path) -> None:
    original = random_model(spec)
    facts = Facts("net", data="somewhere", working_size=WorkingSize(pixels=64 * 96))
    export_onnx(original, tmp_path / "net.onnx", facts)
    model, record = reopen(tmp_path / "net.onnx")
    assert (record.stage, record.data, record.details["model"]) == ("exported", ("somewhere",), "net")
    assert (record.working_pixels, model.spec) == (64 * 96, padded_spec(spec))
    image = torch.randn(1, 3, 64, 96)
    with torch.inference_mode():
        torch.testing.assert_close(model(image), original(image), atol=0.01, rtol=0)


@pytest.mark.parametrize("spec", [PLAIN, LITE], ids=["vgg", "lite"])
def test_a_calibrated_file_keeps_its_temperature(spec: GazeSpec, tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    export_onnx(random_model(spec), path, Facts("net", working_size=WorkingSize(pixels=64 * 96)))
    path.write_bytes(with_card(path.read_bytes(), replace(read_card(path), temperature=0.5)))
    image = torch.randn(1, 3, 64, 96)
    with torch.inference_mode():
        found = reopen(path)[0](image)[0].numpy()
    assert np.abs(found - load(path, threads=1).see(image[0].numpy()).at().log_density).max() < 0.002


def test_a_network_of_8_bits_cannot_be_trained_further(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    export_onnx(random_model(PLAIN), path, Facts("net"))
    path.write_bytes(with_card(path.read_bytes(), replace(read_card(path), precision="int8")))
    with pytest.raises(ModelError, match="give the checkpoint"):
        reopen(path)
