"""Checkpoints, ensembles, exported models and the peer, each as a log density of any size."""

import struct
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from experiments.lenet import LeNet5, save_lenet
from fastgaze.core.errors import ArgumentError, ModelError
from fastgaze.core.sizes import Size
from fastgaze.evaluation import peers
from fastgaze.evaluation.models import CheckpointModel, Ensemble, open_model
from fastgaze.networks.checkpoint import save_checkpoint
from fastgaze.onnx.write import Facts, export_onnx
from tests.small_models import PLAIN, random_model

IMAGE = np.random.default_rng(0).integers(0, 256, (50, 70, 3), dtype=np.uint8)


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two networks with a centre bias of their own."""
    folder = tmp_path_factory.mktemp("models")
    for seed in (0, 1):
        save_checkpoint(random_model(PLAIN, seed), folder / f"member-{seed}.safetensors")
    return folder


def test_a_checkpoint_predicts_what_its_network_does(checkpoints: Path) -> None:
    path = checkpoints / "member-0.safetensors"
    network = random_model(PLAIN, 0)
    pixels = torch.from_numpy(IMAGE).permute(2, 0, 1)[None] / 255
    mean, spread = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    with torch.inference_mode():
        expected = network((pixels - mean[:, None, None]) / spread[:, None, None])[0].numpy()
    ours = open_model([str(path)]).log_density(IMAGE, (50, 70), "model")
    np.testing.assert_allclose(ours, expected, atol=2e-4)


def test_the_centre_bias_can_be_the_models_none_or_a_given_one(checkpoints: Path) -> None:
    model = CheckpointModel(checkpoints / "member-0.safetensors")
    own, none = (model.log_density(IMAGE, (50, 70), choice) for choice in ("model", None))
    given = np.linspace(-3, 3, 50 * 70).reshape(50, 70)
    added = model.log_density(IMAGE, (50, 70), given)
    assert np.abs(own - none).max() > 0.1
    difference = added - none - given
    assert np.ptp(difference) < 1e-3  # only the normalisation is left


@pytest.mark.parametrize("size", [(50, 70), (100, 40), (7, 9)])
def test_densities_of_every_size_sum_to_one(checkpoints: Path, size: Size) -> None:
    density = np.exp(open_model([str(checkpoints)]).log_density(IMAGE, size, "model"))
    assert density.shape == size
    assert density.sum() == pytest.approx(1, abs=1e-4)


def test_several_checkpoints_or_their_folder_are_the_mean_of_their_densities(checkpoints: Path) -> None:
    files = [str(checkpoints / f"member-{i}.safetensors") for i in (0, 1)]
    first, second = (np.exp(open_model([f]).log_density(IMAGE, (50, 70), None)) for f in files)
    for together in (open_model(files), open_model([str(checkpoints)])):
        assert isinstance(together, Ensemble)
        np.testing.assert_allclose(np.exp(together.log_density(IMAGE, (50, 70), None)), (first + second) / 2, rtol=1e-5)


def test_an_exported_model_predicts_what_its_checkpoint_does_at_the_size_asked_for(
    checkpoints: Path, tmp_path: Path
) -> None:
    export_onnx(random_model(PLAIN, 0), tmp_path / "small.onnx", Facts("small"), half=False)
    image = np.random.default_rng(2).integers(0, 256, (64, 96, 3), dtype=np.uint8)
    exported = open_model([str(tmp_path / "small.onnx")], resized=True, threads=1)
    checkpoint = open_model([str(checkpoints / "member-0.safetensors")])
    bias = np.linspace(-2, 2, 30 * 40).reshape(30, 40)
    for choice in ("model", None, bias):
        expected = checkpoint.log_density(image, (30, 40), choice)
        np.testing.assert_allclose(exported.log_density(image, (30, 40), choice), expected, atol=5e-3)
    with pytest.raises(ArgumentError, match="multiples of 16"):
        exported.log_density(IMAGE, (30, 40), "model")
    free = open_model([str(tmp_path / "small.onnx")])
    assert np.exp(free.log_density(IMAGE, (33, 44), "model")).sum() == pytest.approx(1, abs=1e-4)


def test_what_is_no_gaze_model_is_refused(tmp_path: Path) -> None:
    save_lenet(LeNet5(), tmp_path / "digits.safetensors")
    with pytest.raises(ModelError, match="not a checkpoint of fastgaze"):
        open_model([str(tmp_path / "digits.safetensors")])
    with pytest.raises(ModelError, match=r"no model file at nowhere\.safetensors"):
        open_model(["nowhere.safetensors"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(ModelError, match=r"no \.safetensors, \.onnx, \.vxm file"):
        open_model([str(tmp_path / "empty")])
    with pytest.raises(ArgumentError, match="no model was given"):
        open_model([])


def test_the_peer_is_the_network_that_was_published(peer: Path) -> None:
    layers = peers.read_layers(peer)
    widths = [len(layer.weight) for layer in layers if layer.weight.size]
    assert widths == [43, 44, 49, 56, 44, 38, 31, 20, 18, 10, 7, 7, 2, 1]
    assert sum(layer.weight.size + layer.bias.size for layer in layers) == 121_060


def test_the_peers_graph_computes_what_its_layers_say(peer: Path) -> None:
    model = peers.TwitterFastGaze(peer, width=None, threads=1)
    image = np.random.default_rng(1).integers(0, 256, (64, 96, 3), dtype=np.uint8)
    x = torch.from_numpy(image[:, :, ::-1].astype(np.float32) - peers.BGR_MEAN).permute(2, 0, 1)[None]
    for layer in peers.read_layers(peer):
        if layer.weight.size:
            weight = torch.tensor(layer.weight)
            x = F.conv2d(x, weight, torch.tensor(layer.bias), padding=weight.shape[2] // 2)
            x = F.relu(x) if layer.slope is None else F.prelu(x, torch.tensor(layer.slope))
        elif layer.taps:
            taps = torch.exp(-0.5 * ((torch.arange(19) - 9.0) / 3) ** 2)
            taps = taps / taps.sum()
            x = F.conv2d(F.pad(x, (9, 9, 9, 9), mode="replicate"), (taps[:, None] * taps)[None, None])
        else:
            x = F.max_pool2d(x, 2)
    np.testing.assert_allclose(model.saliency(image), x[0, 0].numpy(), atol=1e-4)


def test_the_peer_adds_a_centre_bias_that_it_is_given_and_scales_images_to_its_width(peer: Path) -> None:
    model = peers.TwitterFastGaze(peer, width=160, threads=1)
    assert model.saliency(IMAGE).shape == (8, 10)
    plain = model.log_density(IMAGE, (30, 40), None)
    np.testing.assert_array_equal(plain, model.log_density(IMAGE, (30, 40), "model"))
    bias = np.linspace(-2, 2, 30 * 40).reshape(30, 40)
    difference = model.log_density(IMAGE, (30, 40), bias) - plain - bias
    assert np.ptp(difference) < 1e-9
    assert np.exp(plain).sum() == pytest.approx(1)


def test_a_damaged_peer_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.vxm").write_bytes(b"JPEG" + bytes(100))
    (tmp_path / "b.vxm").write_bytes(peers.MAGIC + struct.pack("<I", 5) + b"\x05")
    (tmp_path / "c.vxm").write_bytes(peers.MAGIC + struct.pack("<II", 1, 6) + b"0Type\0" + struct.pack("<Ii", 4, 9))
    with pytest.raises(ModelError, match=r"a\.vxm: not a \.vxm model"):
        open_model([str(tmp_path / "a.vxm")])
    with pytest.raises(ModelError, match="ends inside a record"):
        open_model([str(tmp_path / "b.vxm")])
    with pytest.raises(ModelError, match="type 9"):
        open_model([str(tmp_path / "c.vxm")])
