"""Checkpoints: bit for bit, with a typed record, and refused in one line when something is wrong."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from fastgaze.core.errors import ModelError
from fastgaze.core.spec import VGGSpec, spec_to_json
from fastgaze.networks import create_model, load_checkpoint, load_gaze_model, save_checkpoint
from fastgaze.networks.checkpoint import BackboneRecord, PruningRecord, TrainingRecord
from fastgaze.networks.ensemble import GazeEnsemble
from fastgaze.networks.gaze import GazeModel
from tests.small_models import SMALL

FIRST = TrainingRecord(
    "distill",
    "fastgaze",
    240 * 320,
    ("salicon/train", "osie"),
    teachers=("teacher",),
    backbone=BackboneRecord("vgg16.safetensors", "cabd", "matching", {"conv1_1": 2.5}),
    steps=3000,
    seed=3,
    loss=7.31,
    details={"fit": {"batch": 8}},
)
TUNED = TrainingRecord(
    "tune",
    "fastgaze",
    208 * 272,
    ("osie", "eyecrowd"),
    teachers=("teacher", "densegaze-m"),
    start=FIRST,
    pruning=PruningRecord("beta*", "GFLOP", 9.98, 10.0),
)


@pytest.mark.parametrize("name", SMALL)
def test_any_widths_round_trip_bit_for_bit(name: str, tmp_path: Path) -> None:
    model = create_model(name, SMALL[name])
    for buffer in model.buffers():
        buffer.copy_(torch.rand(buffer.shape))
    save_checkpoint(model, tmp_path / "m.safetensors", TUNED)
    loaded, record = load_checkpoint(tmp_path / "m.safetensors")
    assert record == TUNED
    assert loaded.spec == model.spec
    for (key, a), b in zip(model.state_dict().items(), loaded.state_dict().values(), strict=True):
        assert torch.equal(a, b), key
    assert [path.name for path in tmp_path.iterdir()] == ["m.safetensors"]


def test_a_network_without_a_record_says_that_it_is_untrained(tmp_path: Path) -> None:
    save_checkpoint(create_model("fastgaze", SMALL["fastgaze"]), tmp_path / "m.safetensors")
    assert load_checkpoint(tmp_path / "m.safetensors")[1] == TrainingRecord("untrained", "fastgaze", None, ())


def test_a_record_knows_the_sets_of_all_its_stages_each_once() -> None:
    assert TUNED.trained_on == ("salicon/train", "osie", "eyecrowd")


def test_half_precision_halves_the_file_and_loads_back_to_float32(tmp_path: Path) -> None:
    torch.manual_seed(0)
    spec = replace(SMALL["fastgaze"], trunk=VGGSpec(((16,), (32,), (32, 32), (32, 32), (32, 32)), ("relu5_2",)))
    model = create_model("fastgaze", spec)
    assert isinstance(model, GazeModel)
    model.tail.center_bias.copy_(torch.rand(model.tail.center_bias.shape))
    save_checkpoint(model, tmp_path / "full.safetensors", FIRST)
    save_checkpoint(model, tmp_path / "half.safetensors", FIRST, dtype="float16")
    sizes = [(tmp_path / f"{name}.safetensors").stat().st_size for name in ("full", "half")]
    assert sizes[1] < 0.6 * sizes[0]
    loaded, record = load_gaze_model(tmp_path / "half.safetensors")
    assert record == FIRST
    assert {tensor.dtype for tensor in loaded.state_dict().values()} == {torch.float32}
    assert torch.equal(loaded.tail.center_bias, model.tail.center_bias)
    image = torch.randn(1, 3, 64, 96)
    with torch.inference_mode():
        torch.testing.assert_close(loaded(image), model.eval()(image), atol=0.01, rtol=0)


def test_weights_that_half_precision_cannot_hold_are_refused(tmp_path: Path) -> None:
    model = create_model("fastgaze", SMALL["fastgaze"])
    assert isinstance(model, GazeModel)
    next(model.trunk.parameters()).data.fill_(1e6)
    with pytest.raises(ModelError, match="beyond 65,504"):
        save_checkpoint(model, tmp_path / "m.safetensors", dtype="float16")
    assert list(tmp_path.iterdir()) == []


def test_an_ensemble_is_no_single_network(tmp_path: Path) -> None:
    model = create_model("deepgaze2", SMALL["deepgaze2"])
    assert isinstance(model, GazeModel)
    save_checkpoint(GazeEnsemble.of([model, model]), tmp_path / "m.safetensors")
    with pytest.raises(ModelError, match="deepgaze2-ensemble; give the checkpoint of a single network"):
        load_gaze_model(tmp_path / "m.safetensors")


def _refused(path: Path) -> str:
    with pytest.raises(ModelError) as caught:
        load_checkpoint(path)
    message = str(caught.value)
    assert str(path) in message
    assert "\n" not in message
    return message


def test_damaged_and_foreign_files_are_refused(tmp_path: Path) -> None:
    good = tmp_path / "good.safetensors"
    save_checkpoint(create_model("fastgaze", SMALL["fastgaze"]), good)
    content = good.read_bytes()
    for cut in (0, 7, 100, len(content) - 1):
        damaged = tmp_path / "damaged.safetensors"
        damaged.write_bytes(content[:cut])
        assert "truncated" in _refused(damaged)
    assert "no checkpoint at" in _refused(tmp_path / "absent.safetensors")
    foreign = tmp_path / "foreign.safetensors"
    save_file({"a": torch.zeros(1)}, foreign)
    assert "not a checkpoint of fastgaze" in _refused(foreign)
    _refused(tmp_path)


def test_a_record_that_is_not_one_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    save_checkpoint(create_model("fastgaze", SMALL["fastgaze"]), path)
    metadata = {"format": "fastgaze-checkpoint-2", "spec": spec_to_json(SMALL["fastgaze"])}
    for record in ("{", "[]", '{"stage": "tune"}'):
        save_file(load_file(path), path, {**metadata, "record": record})
        assert "training record is damaged" in _refused(path)


def test_spec_and_tensors_that_disagree_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    save_checkpoint(create_model("fastgaze", SMALL["fastgaze"]), path)
    spec = spec_to_json(replace(SMALL["fastgaze"], readout=(6, 4, 1)))
    save_file(load_file(path), path, {"format": "fastgaze-checkpoint-2", "spec": spec, "record": "{}"})
    assert "network.readout.act2.weight: the spec says [4], the file has [3]" in _refused(path)


KEPT = sorted((Path(__file__).parents[2] / "checkpoints").glob("*.safetensors"))


def test_checkpoints_are_kept() -> None:
    assert "litegaze-lite0" in {path.stem for path in KEPT}
    assert sum(path.stat().st_size for path in KEPT) < 66e6


# DeepGaze II is an ensemble, kept without its trunk: `fastgaze.load("deepgaze2")` puts it together.
SINGLE = [path for path in KEPT if path.stem != "deepgaze2"]


@pytest.mark.parametrize("path", SINGLE, ids=lambda path: path.stem)
def test_a_kept_checkpoint_loads_and_says_how_it_came_to_be(path: Path) -> None:
    model, record = load_gaze_model(path)
    assert record.architecture == model.spec.architecture
    assert record.working_pixels is not None
    if record.stage == "exported":  # the paper's line, read back from files whose cards name the data in words
        assert "SALICON" in record.trained_on[0]
    else:
        assert {"salicon/train", "osie", "eyecrowd"} <= set(record.trained_on)
        assert path.stem in ("fastgaze", "densegaze") or "ueyes" in record.trained_on, "the paper's line saw no screens"
    if record.stage == "prune":
        assert record.pruning is not None
        assert path.stem.endswith(f"-{record.pruning.mark:g}")
    if record.stage in ("distill", "tune"):
        assert record.loss is not None
    size = (2 * model.stride, 3 * model.stride)
    with torch.no_grad():
        log_density = model(torch.zeros(1, 3, *size))
    assert log_density.exp().sum().item() == pytest.approx(1, abs=1e-4)
