"""Benchmark files, read back by the benchmark's own library, and the verbs of the command line."""

import json
import warnings
import zipfile
from pathlib import Path

import h5py
import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image
from typer.testing import CliRunner

from fastgaze.app.cli import app, main
from fastgaze.core.center_bias import CenterBias
from fastgaze.core.errors import ArgumentError, DataError
from fastgaze.core.sizes import Size
from fastgaze.data.convert import convert
from fastgaze.data.fixations import FixationSet
from fastgaze.evaluation.protocols import METRICS
from fastgaze.evaluation.submit import submit, to_8_bits
from fastgaze.networks.checkpoint import save_checkpoint
from tests.evaluation.conftest import SeesSquares
from tests.small_models import bright_model


@pytest.fixture
def images(tmp_path: Path) -> Path:
    """Two images in one folder and one in a folder below, as CAT2000's are."""
    for name, size in (("i1.jpg", (64, 48)), ("i2.png", (40, 50)), ("Action/001.jpg", (32, 32))):
        path = tmp_path / "images" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", size, 255 if name == "i2.png" else 20).save(path)
    return tmp_path / "images"


def test_log_densities_are_stored_under_the_names_of_the_images(
    tmp_path: Path, images: Path, model: SeesSquares
) -> None:
    assert submit(model, images, tmp_path / "out.hdf5") == 3
    with h5py.File(tmp_path / "out.hdf5") as file:
        shapes = {name: file[name].shape for name in ("i1.jpg", "i2.png", "Action/001.jpg")}
        assert shapes == {"i1.jpg": (48, 64), "i2.png": (50, 40), "Action/001.jpg": (32, 32)}
        assert np.exp(file["i1.jpg"][()].astype(float)).sum() == pytest.approx(1, abs=1e-4)
    assert model.biases == ["model"] * 3


def test_pysaliency_reads_the_submission(tmp_path: Path, images: Path, model: SeesSquares) -> None:
    np.trapz, np.string_ = np.trapezoid, np.bytes_  # type: ignore[attr-defined]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pysaliency = pytest.importorskip("pysaliency")
        submit(model, images, tmp_path / "out.hdf5")
        files = sorted(str(p) for p in images.rglob("*.*"))
        stimuli = pysaliency.FileStimuli(files)
        theirs = pysaliency.HDF5Model(stimuli, str(tmp_path / "out.hdf5"))
        for stimulus in stimuli:
            expected = model.log_density(stimulus.stimulus_data, stimulus.size, "model")
            np.testing.assert_allclose(theirs.log_density(stimulus), expected, atol=1e-5)


@pytest.mark.parametrize("out", ["maps", "maps.zip"])
def test_the_older_benchmark_gets_8_bit_maps(tmp_path: Path, images: Path, model: SeesSquares, out: str) -> None:
    submit(model, images, tmp_path / out)
    if out.endswith(".zip"):
        zipfile.ZipFile(tmp_path / out).extractall(tmp_path / "maps")
    names = sorted(p.relative_to(tmp_path / "maps").as_posix() for p in (tmp_path / "maps").rglob("*.png"))
    assert names == ["Action/001.png", "i1.png", "i2.png"]
    with Image.open(tmp_path / "maps" / "i1.png") as image:
        assert (image.mode, image.size, image.getextrema()[1]) == ("L", (64, 48), 255)


def test_8_bits_hold_the_density_or_three_decades_of_its_logarithm() -> None:
    log_density = np.log(np.array([[0.8, 0.16, 0.008, 0.00008]]))
    assert to_8_bits(log_density, "density").tolist() == [[255, 51, 3, 0]]
    assert to_8_bits(log_density, "log").tolist() == [[255, 196, 85, 0]]


def test_nothing_is_overwritten_and_half_a_file_never_stays(tmp_path: Path, images: Path, model: SeesSquares) -> None:
    (tmp_path / "there.hdf5").write_text("precious")
    with pytest.raises(ArgumentError, match="exists already"):
        submit(model, images, tmp_path / "there.hdf5")
    with pytest.raises(DataError, match="no images"):
        submit(model, tmp_path / "nowhere", tmp_path / "out.hdf5")
    with pytest.raises(ArgumentError, match="no map 'jet'"):
        submit(model, images, tmp_path / "maps", map="jet")

    class Broken:
        def log_density(self, image: NDArray[np.uint8], size: Size, center_bias: CenterBias) -> NDArray[np.floating]:
            return np.full(size, np.nan)

    for name in ("out.hdf5", "out.zip"):
        with pytest.raises(DataError, match=r"001\.jpg"):
            submit(Broken(), images, tmp_path / name)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["images", "there.hdf5"]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "bright.safetensors"
    save_checkpoint(bright_model(), path)
    return path


def test_evaluate_prints_json_with_the_protocol_and_a_row_for_each_image(
    tmp_path: Path, small_set: FixationSet, checkpoint: Path
) -> None:
    convert(small_set, "npz", tmp_path / "set")
    arguments = ["evaluate", checkpoint, "--data", tmp_path / "set", "--protocol", "mit-legacy", "--json"]
    result = CliRunner().invoke(app, [str(a) for a in [*arguments, "--size", "48x32", "--limit", 3, "--threads", 1]])
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert (found["protocol"], found["center_bias"], found["size"], found["images"]) == (
        "mit-legacy",
        "own",
        [32, 48],
        3,
    )
    assert set(found["means"]) == set(found["intervals"]) == set(METRICS)
    assert set(found["baselines"]) == {"uniform", "center_bias", "other_observers"}
    assert [set(row) for row in found["rows"]] == [{"name", "fixations", *METRICS}] * 3


def test_evaluate_prints_a_table_with_the_baselines(tmp_path: Path, small_set: FixationSet, checkpoint: Path) -> None:
    convert(small_set, "npz", tmp_path / "set")
    arguments = ["evaluate", checkpoint, "--data", tmp_path / "set", "--limit", 2, "--center-bias", "none"]
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    assert result.exit_code == 0, result.output
    for word in ("tuebingen", "centre bias none", "uniform", "information_gain"):
        assert word in result.stdout


def test_submit_writes_a_file_from_the_command_line(tmp_path: Path, images: Path, checkpoint: Path) -> None:
    arguments = ["submit", checkpoint, "--images", images, "--out", tmp_path / "out.hdf5", "--json"]
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["images"] == 3
    assert (tmp_path / "out.hdf5").is_file()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--protocol", "mit"], "no protocol"),
        (["--center-bias", "ours"], "no centre bias"),
        (["--layout", "coco"], "no layout"),
        (["--size", "big"], "not WIDTHxHEIGHT"),
    ],
)
def test_a_users_error_is_one_line_and_exit_code_two(
    tmp_path: Path,
    small_set: FixationSet,
    checkpoint: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    message: str,
) -> None:
    convert(small_set, "npz", tmp_path / "set")
    with pytest.raises(SystemExit) as exit:
        main(["evaluate", str(checkpoint), "--data", str(tmp_path / "set"), *arguments])
    assert exit.value.code == 2
    printed = capsys.readouterr().err
    assert printed.count("\n") == 1
    assert message in printed
