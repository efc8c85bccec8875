"""``fastgaze train``: a user's own fixations, images of several shapes, from a checkpoint or a backbone."""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from torch import Tensor

from fastgaze.core.errors import ArgumentError, DataError
from fastgaze.core.spec import LITE_TRUNKS, VGG_BLOCKS, VGGSpec
from fastgaze.data import formats
from fastgaze.data.fixations import held_out
from fastgaze.evaluation.models import RuntimeModel
from fastgaze.networks import GazeModel, load_checkpoint, save_checkpoint
from fastgaze.networks.checkpoint import untrained
from fastgaze.networks.lite import LiteNet, _mobilenet_keys
from fastgaze.networks.vgg import VGG
from fastgaze.onnx.write import Facts, export_onnx
from fastgaze.runtime.predictor import load
from fastgaze.training.datasets import shared_sizes
from fastgaze.training.finetune import OwnSettings, Start, prepare_own, train_own
from fastgaze.training.fit import FitSettings
from tests.commands import run
from tests.training.helpers import TINY, bright_squares, tiny_model

QUICK = OwnSettings(
    (64, 96), 0.2, fit=FitSettings(steps=60, learning_rate=0.01, validate_every=20, precision="fp32", save_seconds=0)
)


@pytest.fixture
def study(tmp_path: Path) -> Path:
    """People look at the bright square: 30 flat and 20 upright images with a CSV, and one that nobody looked at."""
    folder = tmp_path / "study"
    folder.mkdir()
    lines = ["image,x,y"]
    for kind, size, count in (("flat", (64, 96), 30), ("tall", (96, 64), 20)):
        squares = bright_squares(count, size)
        for i, (image, counts) in enumerate(zip(squares.images, squares.counts, strict=True)):
            Image.fromarray(image).save(folder / f"{kind}{i}.png")
            rows, columns = np.nonzero(counts)
            lines += [f"{kind}{i}.png,{4 * x + 2},{4 * y + 2}" for x, y in zip(columns, rows, strict=True)]
    Image.new("RGB", (96, 64)).save(folder / "unseen.png")
    (folder / "fixations.csv").write_text("\n".join(lines))
    return folder


@pytest.fixture
def start(tmp_path: Path) -> Path:
    path = tmp_path / "start.safetensors"
    save_checkpoint(tiny_model(), path, replace(untrained(TINY), data=("elsewhere",)))
    return path


def _train(study: Path, start: Start, settings: OwnSettings, folder: Path) -> object:
    return train_own(formats.load("auto", study), "study", start, settings, folder)


def test_images_keep_their_shapes_and_no_validation_image_is_trained_on(study: Path, tmp_path: Path) -> None:
    data = formats.load("auto", study)
    seen = data.subset([i for i in range(len(data)) if data.inside(i).any()])
    own = prepare_own(seen, QUICK, tmp_path / "cache")
    assert [part.size for part in own.training] == [part.size for part in own.validation] == [(64, 96), (96, 64)]
    trained = [name for part in own.training for name in part.names]
    kept = [name for part in own.validation for name in part.names]
    assert len(trained) + len(kept) == 50
    assert held_out(kept, 0.2).all()
    assert not held_out(trained, 0.2).any()
    image = own.training[1].images[0]
    np.testing.assert_array_equal(image, data.image(data.names.index(own.training[1].names[0])))


def test_rare_shapes_join_similar_ones_but_are_never_squeezed_far() -> None:
    sizes = [(240, 320)] * 9 + [(240, 336), (320, 240), (480, 160)]
    assert Counter(shared_sizes(sizes, least=4)) == {(240, 320): 10, (320, 240): 1, (480, 160): 1}
    assert shared_sizes([(32, 32), (64, 64)], least=4) == [(32, 32), (64, 64)]


def test_fine_tuning_learns_the_users_fixations_and_centre_bias(study: Path, start: Path, tmp_path: Path) -> None:
    settings = replace(QUICK, fit=replace(QUICK.fit, steps=100))
    result = train_own(formats.load("auto", study), "study", Start(str(start)), settings, tmp_path / "run")
    assert result.loss < min(result.start_loss, result.center_bias_loss) - 0.3
    model, record = load_checkpoint(result.checkpoint)
    assert (record.stage, record.data, record.working_pixels) == ("finetune", ("study",), 64 * 96)
    assert record.trained_on == ("elsewhere", "study")
    assert (record.steps, record.loss) == (result.best_step, result.loss)
    assert isinstance(model, GazeModel)
    bias = model.tail.center_bias
    assert float(bias.exp().sum()) == pytest.approx(1, abs=1e-4)
    assert float(bias.max() - bias.min()) > 0.5, "the start's bias was uniform"
    assert json.loads((tmp_path / "run" / "result.json").read_text())["loss"] == result.loss
    # What the network learned survives the export.
    export_onnx(model, tmp_path / "own.onnx", Facts("own"))
    gaze = load(tmp_path / "own.onnx", threads=1).predict(study / "flat0.png")
    (peak,) = gaze.peaks(1)
    assert np.asarray(Image.open(study / "flat0.png"))[int(peak.y), int(peak.x)].min() == 255


def test_a_run_started_again_gives_what_an_uninterrupted_one_gives(study: Path, start: Path, tmp_path: Path) -> None:
    settings = replace(QUICK, prune_to=0.08, fit=replace(QUICK.fit, steps=30, validate_every=10))
    data = formats.load("auto", study)
    train_own(data, "study", Start(str(start)), settings, tmp_path / "whole")

    class KilledError(Exception):
        pass

    def kill(step: int, _steps: int | None, _note: str) -> None:
        if step == 17:
            raise KilledError

    with pytest.raises(KilledError):
        train_own(data, "study", Start(str(start)), settings, tmp_path / "killed", kill)
    result = train_own(data, "study", Start(str(start)), settings, tmp_path / "killed")
    assert result.gflop <= 0.08
    whole, killed = (load_checkpoint(tmp_path / name / "best.safetensors")[0] for name in ("whole", "killed"))
    assert whole.spec == killed.spec != tiny_model().spec
    for name, tensor in whole.state_dict().items():
        assert torch.equal(tensor, killed.state_dict()[name]), name


def test_another_run_in_the_same_folder_is_refused(study: Path, start: Path, tmp_path: Path) -> None:
    settings = replace(QUICK, fit=replace(QUICK.fit, steps=2))
    _train(study, Start(str(start)), settings, tmp_path / "run")
    with pytest.raises(ArgumentError, match=r"another run: size is \[64, 96\] there, \[96, 96\] here"):
        _train(study, Start(str(start)), replace(settings, size=(96, 96)), tmp_path / "run")
    with (study / "fixations.csv").open("a") as file:
        file.write("\nflat0.png,1,1")
    with pytest.raises(ArgumentError, match="another run: data is"):
        _train(study, Start(str(start)), settings, tmp_path / "run")


def test_a_refused_run_leaves_its_folder_free(study: Path, start: Path, tmp_path: Path) -> None:
    quick = replace(QUICK, fit=replace(QUICK.fit, steps=1))
    with pytest.raises(DataError, match="of 50 images with fixations, a validation share of 0 keeps 0"):
        _train(study, Start(str(start)), replace(quick, validation_share=0), tmp_path / "run")
    with pytest.raises(ArgumentError, match="already costs"):
        _train(study, Start(str(start)), replace(quick, prune_to=50.0), tmp_path / "run")
    data = formats.load("auto", study)
    (study / "flat2.png").rename(tmp_path / "flat2.png")
    with pytest.raises(DataError, match=r"no image at .*flat2.png"):
        train_own(data, "study", Start(str(start)), quick, tmp_path / "run")
    (tmp_path / "flat2.png").rename(study / "flat2.png")
    _train(study, Start(str(start)), quick, tmp_path / "run")


def test_the_verb_fine_tunes_a_model_and_says_what_is_missing(
    study: Path, start: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    onnx = tmp_path / "start.onnx"
    export_onnx(tiny_model(), onnx, Facts("start"))
    arguments = ["train", "--data", study, "--start", onnx, "--out", tmp_path / "run", "--size", "96x64"]
    assert run(*arguments, "--steps", 20, "--learning-rate", 0.01, "--json") == 0
    facts = json.loads(capsys.readouterr().out)
    assert load_checkpoint(facts["checkpoint"])[0].spec == tiny_model().spec
    for wrong in ([], ["--start", start, "--architecture", "fastgaze"], ["--architecture", "fastgaze"]):
        assert run("train", "--data", study, "--out", tmp_path / "x", *wrong) == 2
        assert len(capsys.readouterr().err.strip().splitlines()) == 1


def test_a_new_student_starts_from_a_backbone(study: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trunk = VGG(VGGSpec(VGG_BLOCKS["vgg11"], ("relu5_2",)))
    convolutions = [trunk.conv(b, c) for b, depth in enumerate(trunk.depths, 1) for c in range(1, depth + 1)]
    weights = {f"features.{i}.weight": conv.weight.detach() for i, conv in enumerate(convolutions)}
    save_file(
        weights | {f"features.{i}.bias": c.bias.detach() for i, c in enumerate(convolutions) if c.bias is not None},
        tmp_path / "v.safetensors",
    )
    backbone = ["--architecture", "fastgaze", "--backbone", tmp_path / "v.safetensors"]
    arguments = ["train", "--data", study, *backbone, "--out", tmp_path / "run", "--size", "48x32", "--batch", 2]
    assert run(*arguments, "--steps", 1, "--json") == 0
    _, record = load_checkpoint(json.loads(capsys.readouterr().out)["checkpoint"])
    assert record.backbone is not None
    assert (record.backbone.file, record.backbone.layers) == ("v.safetensors", "all")
    fit = record.details["fit"]
    assert isinstance(fit, Mapping)
    assert fit["trunk_rate"] == 0.1


def test_a_new_litegaze_starts_from_a_mobile_backbone_and_works_at_multiples_of_32(
    study: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    backbone = tmp_path / "mobilenetv2.safetensors"
    state: dict[str, Tensor] = {}
    for conv, norm, unit in _mobilenet_keys(LiteNet(LITE_TRUNKS["mobilenetv2"])):
        state |= {f"{conv}.weight": unit.conv.weight.detach()}
        state |= {f"{norm}.{name}": tensor for name, tensor in unit.norm.state_dict().items() if tensor.dim()}
    save_file(state, backbone)
    new = ["--architecture", "litegaze", "--backbone", backbone, "--out", tmp_path / "run"]
    assert run("train", "--data", study, *new, "--size", "96x64", "--batch", 2, "--steps", 1, "--json") == 0
    checkpoint = json.loads(capsys.readouterr().out)["checkpoint"]
    model, record = load_checkpoint(checkpoint)
    assert (model.spec.architecture, model.stride) == ("litegaze", 32)
    assert record.backbone is not None
    assert (record.backbone.file, record.backbone.layers) == ("mobilenetv2.safetensors", "all")
    assert run("export", checkpoint, "--out", tmp_path / "lite.onnx") == 0
    predictor = load(tmp_path / "lite.onnx", threads=1)
    assert predictor.card.working_size.stride == 32
    assert predictor.look(study / "tall0.png").working == (96, 64)
    resized = RuntimeModel(predictor, resized=True)
    with pytest.raises(ArgumentError, match="size 96x80: lite works at multiples of 32"):
        resized.log_density(np.zeros((80, 96, 3), np.uint8), (80, 96), "model")
