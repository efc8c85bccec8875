"""An exported file computes what torch computes, or is not written."""

import collections
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from PIL import Image

from fastgaze.core.cost import flops, parameters, prunable_maps
from fastgaze.core.errors import ExportError
from fastgaze.core.spec import GazeSpec
from fastgaze.networks import TrainingRecord
from fastgaze.onnx.write import PARITY, Facts, check_parity, export_int8, export_onnx, network_bytes
from fastgaze.runtime.card import WorkingSize, read_card
from fastgaze.runtime.engines import make_engine
from fastgaze.runtime.predictor import load
from tests.small_models import DENSE, LITE, PLAIN, bright_model, random_model

SPECS = pytest.mark.parametrize("spec", [PLAIN, DENSE, LITE], ids=lambda spec: spec.architecture)


@SPECS
@pytest.mark.parametrize("half", [True, False])
def test_the_file_computes_what_torch_computes_at_every_shape(spec: GazeSpec, half: bool, tmp_path: Path) -> None:
    model = random_model(spec)
    path = tmp_path / "m.onnx"
    export_onnx(model, path, Facts("m"), half)
    # Half-precision storage rounds the weights by 1/2048 at most; without it only summation order differs.
    assert check_parity(model, load(path, threads=1)) < (PARITY if half else 1e-4)


@SPECS
def test_the_graph_is_plain(spec: GazeSpec, tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    export_onnx(random_model(spec), path, Facts("m"), half=False)
    graph = onnx.load(path).graph
    kinds = collections.Counter(node.op_type for node in graph.node)
    plain = {"Conv", "Relu", "PRelu", "MaxPool", "AveragePool", "BatchNormalization", "Concat"}
    # A mobile trunk has ReLU6 (Clip, whose bounds are constants), additions, and one upsampling.
    own = plain if spec is not LITE else {"Conv", "PRelu", "Clip", "Constant", "Add", "Resize"}
    assert set(kinds) <= own | {"GlobalAveragePool", "Flatten"}  # the summary
    assert [output.name for output in graph.output] == ["saliency", "summary"]
    # Only the BatchNorms that come before a ReLU and a convolution stay: one per dense layer, one per transition.
    assert kinds["BatchNormalization"] == (6 + 2 if spec is DENSE else 0)
    assert [dimension.dim_param for dimension in graph.input[0].type.tensor_type.shape.dim] == [
        "n",
        "",
        "height",
        "width",
    ]


@pytest.mark.parametrize("spec", [PLAIN, DENSE])
def test_half_precision_storage_halves_the_file(spec: GazeSpec, tmp_path: Path) -> None:
    sizes = []
    for half in (True, False):
        path = tmp_path / f"{half}.onnx"
        export_onnx(random_model(spec), path, Facts("m"), half)
        stored = sum(len(tensor.raw_data) for tensor in onnx.load(path).graph.initializer)
        sizes.append(stored)
    assert sizes[0] < 0.56 * sizes[1]  # biases and the BatchNorms that stay are fp32


def test_a_batch_gives_what_single_images_give(tmp_path: Path) -> None:
    export_onnx(random_model(PLAIN), tmp_path / "m.onnx", Facts("m"))
    engine = load(tmp_path / "m.onnx", threads=1)._engine
    images = np.random.default_rng(0).standard_normal((3, 3, 48, 64)).astype(np.float32)
    for together, *alone in zip(engine(images), *(engine(image[None]) for image in images), strict=True):
        assert np.abs(together - np.concatenate(alone)).max() < 1e-4


def test_the_card_says_what_the_network_is(tmp_path: Path) -> None:
    facts = Facts("name", {"auc": 0.85}, "SALICON", "MIT", WorkingSize(pixels=50_000))
    model = random_model(PLAIN)
    export_onnx(model, tmp_path / "m.onnx", facts)
    card = read_card(tmp_path / "m.onnx")
    assert (card.name, card.scores, card.data, card.licence) == ("name", {"auc": 0.85}, "SALICON", "MIT")
    assert (card.parameters, card.maps) == (parameters(PLAIN), prunable_maps(PLAIN))
    assert card.gflop((240, 320)) == pytest.approx(flops(PLAIN, (240, 320)) / 1e9)
    assert card.working_size.pixels == 50_000
    assert card.sigma == pytest.approx(float(model.tail.sigma.detach()))
    assert np.array_equal(card.center_bias, model.tail.center_bias.numpy())


def test_a_card_is_filled_from_the_record() -> None:
    start = TrainingRecord("distill", "fastgaze", 76_800, ("salicon/train", "osie"))
    facts = Facts.of("name", TrainingRecord("tune", "fastgaze", 160 * 208, ("osie", "study"), start=start))
    assert (facts.data, facts.working_size.pixels) == ("salicon/train, osie, study", 160 * 208)
    assert Facts.of("name", start, pixels=50_000).working_size.pixels == 50_000
    unknown = Facts.of("name", TrainingRecord("untrained", "fastgaze", None, ()))
    assert (unknown.data, unknown.working_size) == ("", WorkingSize())


def test_exporting_leaves_the_network_as_it_was(tmp_path: Path) -> None:
    model = random_model(DENSE).train()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    export_onnx(model, tmp_path / "m.onnx", Facts("m"))
    assert model.training
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def test_a_file_that_differs_is_refused_and_not_left_behind(tmp_path: Path) -> None:
    model = random_model(PLAIN)
    with torch.no_grad():
        model.readout.get_parameter("conv1.weight").mul_(1e38)  # overflows: torch and the file both give NaN
    with pytest.raises(ExportError, match=r"NaN or infinity.*not written"):
        export_onnx(model, tmp_path / "m.onnx", Facts("m"), half=False)
    assert list(tmp_path.iterdir()) == []


def test_another_network_fails_the_parity_check(tmp_path: Path) -> None:
    export_onnx(random_model(PLAIN, seed=0), tmp_path / "m.onnx", Facts("m"))
    with pytest.raises(ExportError, match="differs from torch"):
        check_parity(random_model(PLAIN, seed=1), load(tmp_path / "m.onnx", threads=1))


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("photos")
    generator = np.random.default_rng(0)
    for index in range(6):
        coarse = generator.integers(0, 256, (6, 8, 3), dtype=np.uint8)
        Image.fromarray(coarse).resize((320, 240), Image.Resampling.BICUBIC).save(folder / f"{index}.png")
    return sorted(folder.iterdir())


def test_int8_stays_close_and_says_so_in_its_card(photos: list[Path], tmp_path: Path) -> None:
    model = bright_model()
    export_onnx(model, tmp_path / "m.onnx", Facts("m"))
    card = export_int8(model, tmp_path / "m.int8.onnx", Facts("m"), photos)
    assert (card.precision, card.name) == ("int8", "m.int8")
    kinds = collections.Counter(node.op_type for node in onnx.load(tmp_path / "m.int8.onnx").graph.node)
    assert kinds["QuantizeLinear"] > 0
    full, small = (load(tmp_path / name, threads=1).predict(photos[0]) for name in ("m.onnx", "m.int8.onnx"))
    assert float((full.density * (full.log_density - small.log_density)).sum()) < 0.02


def test_int8_that_ruins_the_network_is_refused(photos: list[Path], tmp_path: Path) -> None:
    model = bright_model(gain=5000.0)  # every step of 8 bits becomes many nats
    with pytest.raises(ExportError, match="int8 diverges"):
        export_int8(model, tmp_path / "m.onnx", Facts("m"), photos)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ExportError, match="images to calibrate"):
        export_int8(model, tmp_path / "m.onnx", Facts("m"), [])


@SPECS
def test_the_summary_of_a_picture_is_the_mean_of_each_of_the_deepest_maps(spec: GazeSpec, tmp_path: Path) -> None:
    model = random_model(spec)
    export_onnx(model, tmp_path / "m.onnx", Facts("m"), half=False)
    image = np.random.default_rng(0).normal(size=(1, 3, 96, 128)).astype(np.float32)
    engine = make_engine(tmp_path / "m.onnx", (tmp_path / "m.onnx").read_bytes(), threads=1)
    saliency, summary = engine(image)
    with torch.inference_mode():
        features = model.trunk(torch.from_numpy(image))
    expected = (features[-1] if isinstance(features, tuple) else features).mean((2, 3)).numpy()
    # Export pads the widths of a mobile trunk with maps that are zero.
    found = summary[:, : expected.shape[1]]
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)
    assert np.abs(summary[:, expected.shape[1] :]).sum() == 0
    (alone,) = make_engine(Path("m"), network_bytes(model), threads=1)(image)
    np.testing.assert_allclose(alone, saliency, atol=0.05 * float(np.ptp(saliency)))


@pytest.mark.parametrize(("spec", "first"), [(LITE, 3), (PLAIN, 1)], ids=["lite", "vgg"])
def test_8_bits_begin_behind_the_layers_that_they_would_slow(
    spec: GazeSpec, first: int, photos: list[Path], tmp_path: Path
) -> None:
    export_int8(random_model(spec), tmp_path / "m.int8.onnx", Facts("m"), photos)
    graph = onnx.load(tmp_path / "m.int8.onnx").graph
    levels = {node.output[0] for node in graph.node if node.op_type == "DequantizeLinear"}
    trunk = [node for node in graph.node if node.op_type == "Conv" and "readout" not in node.name]
    assert [node.input[0] in levels for node in trunk] == [False] * first + [True] * (len(trunk) - first)
