"""Checkpoints in torch as predictors, and DeepGaze II put together from its readouts and the file of its trunk."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import fastgaze
from experiments import keep
from fastgaze.core.errors import ArgumentError, BackboneError, MissingExtraError, ModelError
from fastgaze.core.spec import GazeSpec, VGGSpec
from fastgaze.evaluation.models import open_model
from fastgaze.networks import create_model, load_backbone, load_checkpoint, save_checkpoint
from fastgaze.networks.checkpoint import TrainingRecord
from fastgaze.networks.ensemble import GazeEnsemble
from fastgaze.networks.gaze import GazeModel
from fastgaze.onnx.write import Facts, export_onnx
from fastgaze.runtime.predictor import load
from tests.small_models import LITE, random_model, vgg_state

BLOCKS = ((2, 2), (3, 3), (3,) * 4, (4,) * 4, (4,) * 4)
SPEC = GazeSpec("deepgaze2", VGGSpec(BLOCKS, ("conv5_1", "relu5_1", "relu5_4")), (4, 1), "relu")
SIZE = (64, 96)
IMAGE = np.random.default_rng(0).integers(0, 256, (*SIZE, 3), dtype=np.uint8)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of weights with a trunk as deep as VGG-19 and a few maps wide."""
    folder = tmp_path / "cache"
    folder.mkdir()
    save_file(vgg_state(BLOCKS), folder / "narrow19.safetensors")
    monkeypatch.setenv("FASTGAZE_CACHE", str(folder))
    return folder


@pytest.fixture
def teacher(cache: Path, tmp_path: Path) -> Path:
    """The checkpoint of an ensemble of three readouts, each with a blur and a centre bias of its own."""
    members = []
    for seed in range(3):
        torch.manual_seed(seed)
        model = create_model("deepgaze2", SPEC)
        assert isinstance(model, GazeModel)
        backbone = load_backbone(
            model.trunk, cache / "narrow19.safetensors", torch.randn(2, 3, *SIZE, generator=torch.manual_seed(9))
        )
        model.tail.log_sigma.data.add_(0.3 * seed)
        model.tail.center_bias.copy_(torch.randn(48, 64))
        members.append(model)
    record = TrainingRecord(
        "teacher", "deepgaze2-ensemble", SIZE[0] * SIZE[1], ("salicon/train", "osie"), backbone=backbone
    )
    save_checkpoint(GazeEnsemble.of(members), tmp_path / "ensemble.safetensors", record)
    return tmp_path / "ensemble.safetensors"


@pytest.fixture
def kept(teacher: Path, cache: Path) -> Path:
    """The readouts as the repository keeps them."""
    keep.main([str(teacher), str(cache / "deepgaze2.safetensors"), "--without-trunk"])
    return cache / "deepgaze2.safetensors"


def forward(checkpoint: Path, center_bias: torch.Tensor | None = None) -> np.ndarray:
    """What the ensemble computes in torch alone."""
    model, _ = load_checkpoint(checkpoint)
    mean, std = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    pixels = ((torch.from_numpy(IMAGE) / 255 - mean) / std).permute(2, 0, 1)[None]
    with torch.inference_mode():
        found: np.ndarray = model(pixels, center_bias=center_bias)[0].numpy()
    return found


def test_deepgaze2_is_put_together_from_its_readouts_and_its_trunk(teacher: Path, kept: Path) -> None:
    assert "trunk.conv1_1.weight" not in dict(torch_tensors(kept))
    model = fastgaze.load("deepgaze2")
    assert (model.name, model.card.architecture) == ("deepgaze2", "deepgaze2-ensemble")
    assert (model.card.working_size.pixels, model.card.data) == (SIZE[0] * SIZE[1], "salicon/train, osie")
    gaze = model.predict(IMAGE)
    assert np.exp(gaze.log_density.astype(np.float64)).sum() == pytest.approx(1, abs=1e-4)
    assert np.abs(gaze.log_density - forward(kept)).max() < 1e-4
    assert np.abs(gaze.log_density - forward(teacher)).max() < 0.01, "but for the float16 of the readouts"
    flat = model.predict(IMAGE, center_bias=None)
    assert np.abs(flat.log_density - forward(kept, torch.zeros(1, 1))).max() < 1e-4
    assert len(gaze.peaks(1)) == 1


def torch_tensors(path: Path) -> list[tuple[str, torch.Tensor]]:
    from safetensors.torch import load_file

    return list(load_file(path).items())


def test_deepgaze2_can_be_evaluated(kept: Path) -> None:
    found = open_model(["deepgaze2"]).log_density(IMAGE, (30, 40), None)
    assert np.abs(found - open_model([str(kept)]).log_density(IMAGE, (30, 40), None)).max() < 1e-4


def test_any_checkpoint_predicts_what_its_export_does(tmp_path: Path) -> None:
    network = random_model(LITE)
    save_checkpoint(
        network, tmp_path / "lite.safetensors", TrainingRecord("untrained", "litegaze", SIZE[0] * SIZE[1], ())
    )
    export_onnx(network, tmp_path / "lite.onnx", Facts("lite"), half=False)
    ours = fastgaze.load(tmp_path / "lite.safetensors")
    exported = load(tmp_path / "lite.onnx", threads=1).working_at(ours.card.working_size)
    assert ours.card.working_size.stride == 32
    assert np.abs(ours.predict(IMAGE).log_density - exported.predict(IMAGE).log_density).max() < 0.002
    with pytest.raises(ArgumentError, match="runs in torch, not in engine 'openvino'"):
        fastgaze.load(tmp_path / "lite.safetensors", engine="openvino")


def test_what_deepgaze2_lacks_is_said_in_one_line(cache: Path, kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trunk = cache / "narrow19.safetensors"
    trunk.rename(cache / "elsewhere.safetensors")
    with pytest.raises(BackboneError, match="no file and no backbone named 'narrow19'"):
        fastgaze.load("deepgaze2")
    save_file({name: tensor + 1 for name, tensor in vgg_state(BLOCKS).items()}, trunk)
    with pytest.raises(BackboneError, match="is not the narrow19 that the network was trained on"):
        fastgaze.load("deepgaze2")
    assert load_checkpoint(kept, cache / "elsewhere.safetensors")[0].spec.architecture == "deepgaze2-ensemble"
    with pytest.raises(ModelError, match="no checkpoint at"):
        fastgaze.load(cache / "nothing.safetensors")
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtraError, match=r"run pip install 'fastgaze\[train\]'") as missing:
        fastgaze.load("deepgaze2")
    # The message and the guide give the same line, which fetches no CUDA.
    line = "uv pip install 'fastgaze[train]' --torch-backend=cpu"
    assert line in str(missing.value)
    assert line in (Path(__file__).parents[2] / "docs" / "train-your-own.md").read_text()


def test_a_trunk_that_was_trained_is_not_left_out(teacher: Path, tmp_path: Path) -> None:
    model, record = load_checkpoint(teacher)
    next(model.trunk.parameters()).data.add_(0.1)
    with pytest.raises(ModelError, match=r"conv1_1\.weight of the trunk was trained"):
        save_checkpoint(model, tmp_path / "kept.safetensors", record, trunk=False)
    network = random_model(LITE)
    with pytest.raises(ModelError, match="the trunk of this litegaze cannot be filled from a backbone"):
        save_checkpoint(network, tmp_path / "kept.safetensors", trunk=False)
    assert not (tmp_path / "kept.safetensors").exists()
