"""Checkpoints: bit for bit, and refused in one line when something is wrong."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from fastgaze.core.errors import ModelError
from fastgaze.core.spec import LeNetSpec
from fastgaze.networks import create_model, load_checkpoint, save_checkpoint
from tests.networks.test_gaze import SMALL


@pytest.mark.parametrize("name", SMALL)
def test_any_widths_round_trip_bit_for_bit(name: str, tmp_path: Path) -> None:
    model = create_model(name, SMALL[name])
    for buffer in model.buffers():
        buffer.copy_(torch.rand(buffer.shape))
    save_checkpoint(model, tmp_path / "m.safetensors", {"seed": 3, "data": ["osie"]})
    loaded, record = load_checkpoint(tmp_path / "m.safetensors")
    assert record == {"seed": 3, "data": ["osie"]}
    assert loaded.spec == model.spec
    for (key, a), b in zip(model.state_dict().items(), loaded.state_dict().values(), strict=True):
        assert torch.equal(a, b), key
    assert [path.name for path in tmp_path.iterdir()] == ["m.safetensors"]


def _refused(path: Path) -> str:
    with pytest.raises(ModelError) as caught:
        load_checkpoint(path)
    message = str(caught.value)
    assert str(path) in message
    assert "\n" not in message
    return message


def test_damaged_and_foreign_files_are_refused(tmp_path: Path) -> None:
    good = tmp_path / "good.safetensors"
    save_checkpoint(create_model("lenet5", LeNetSpec("lenet5", (2, 3, 4, 10))), good)
    content = good.read_bytes()
    for cut in (0, 7, 100, len(content) - 1):
        damaged = tmp_path / "damaged.safetensors"
        damaged.write_bytes(content[:cut])
        assert "truncated" in _refused(damaged)
    assert "no checkpoint at" in _refused(tmp_path / "absent.safetensors")
    foreign = tmp_path / "foreign.safetensors"
    save_file({"a": torch.zeros(1)}, foreign)
    assert "not a checkpoint of fastgaze" in _refused(foreign)
    _refused(tmp_path / "absent.safetensors")
    _refused(tmp_path)


def test_spec_and_tensors_that_disagree_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    save_checkpoint(create_model("lenet5", LeNetSpec("lenet5", (2, 3, 4, 10))), path)
    spec = json.dumps({"architecture": "lenet5", "maps": [2, 3, 5, 10]})
    save_file(load_file(path), path, {"format": "fastgaze-checkpoint-1", "spec": spec, "record": "{}"})
    assert "fc1.bias: the spec says [5], the file has [4]" in _refused(path)
