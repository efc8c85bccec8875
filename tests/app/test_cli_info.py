"""``fastgaze info``, ``--version`` and what they must not load."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fastgaze import __version__
from fastgaze.app.cli import app
from fastgaze.core.spec import GazeSpec, VGGSpec, architectures
from fastgaze.networks import TrainingRecord, create_model, save_checkpoint
from fastgaze.runtime.zoo import models


@pytest.mark.parametrize(
    ("architecture", "maps", "gflop"),
    [("fastgaze", 2803, 91.745), ("densegaze", 7219, 32.276), ("deepgaze2", 5555, 239.069)],
)
def test_info_of_an_architecture(architecture: str, maps: int, gflop: float) -> None:
    result = CliRunner().invoke(app, ["info", architecture, "--size", "640x480", "--json"])
    facts = json.loads(result.stdout)
    assert facts["maps"] == maps
    assert facts["gflop"] == pytest.approx(gflop, abs=1e-3)
    assert facts["gflop"] == pytest.approx(sum(layer["gflop"] for layer in facts["layers"]))
    assert facts["parameters"] == sum(p.numel() for p in create_model(architecture).parameters())


def test_info_of_a_checkpoint_and_of_an_exported_model(tmp_path: Path, bright_file: Path) -> None:
    spec = GazeSpec("fastgaze", VGGSpec(((4,), (5,), (6,), (7,), (8,)), ("relu5_1",)), (3, 1), "prelu")
    save_checkpoint(
        create_model("fastgaze", spec),
        tmp_path / "m.safetensors",
        TrainingRecord("tune", "fastgaze", 12_288, ("eyes",)),
    )
    facts = json.loads(CliRunner().invoke(app, ["info", str(tmp_path / "m.safetensors"), "--json"]).stdout)
    assert [layer["maps"] for layer in facts["layers"]] == [4, 5, 6, 7, 8, 3, 1]
    assert (facts["record"]["stage"], facts["record"]["data"]) == ("tune", ["eyes"])
    exported = json.loads(CliRunner().invoke(app, ["info", str(bright_file), "--json"]).stdout)
    assert exported["parameters"] > 0


def test_without_json_it_is_a_table() -> None:
    result = CliRunner().invoke(app, ["info", "fastgaze"])
    assert "2803 feature maps" in result.stdout
    assert "conv5_2" in result.stdout


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["info", "nothing"], "no bundled model 'nothing'"),
        (["info", "fastgaze", "--size", "big"], "'big' is not WIDTHxHEIGHT"),
        (["info", "fastgaze", "--sise", "1x1"], "No such option"),
        (["inform"], "No such command"),
    ],
)
def test_a_users_error_is_one_line_and_exit_code_2(arguments: list[str], complaint: str) -> None:
    done = _run("-m", "fastgaze", *arguments)
    assert done.returncode == 2
    assert complaint in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert done.stdout == ""


@pytest.mark.parametrize("arguments", [[], ["data"]])
def test_without_arguments_the_help_is_all_that_is_said(arguments: list[str]) -> None:
    done = _run("-m", "fastgaze", *arguments)
    assert done.returncode == 2
    assert "--help" in done.stdout + done.stderr
    assert "fastgaze:" not in done.stderr


def test_an_unknown_name_is_answered_with_all_that_info_takes() -> None:
    said = CliRunner().invoke(app, ["info", "nothing"]).exception
    assert all(model.name in str(said) for model in models())
    assert all(name in str(said) for name in architectures())
    assert ".onnx" in str(said)
    assert ".safetensors" in str(said)


def test_debug_shows_the_traceback() -> None:
    done = _run("-m", "fastgaze", "--debug", "info", "nothing")
    assert "Traceback" in done.stderr
    assert done.returncode == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ["predict", "x.jpg", "--model", "none"],
        ["crop", "x.jpg", "--ratio", "1:1", "--model", "none"],
        ["demo", "--model", "none"],
        ["serve", "--model", "none"],
        ["bench", "none"],
        ["video", "none.mp4", "out.mp4"],
        ["roi", "none.mp4"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_numpy_is_imported_with_the_threads_that_were_asked_for(arguments: list[str]) -> None:
    code = (
        "import os, sys\n"
        "class Watch:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'numpy':\n"
        "            print([os.environ.get(f'{blas}_NUM_THREADS') for blas in ('OPENBLAS', 'OMP')])\n"
        "sys.meta_path.insert(0, Watch())\n"
        "from fastgaze.app.cli import main\n"
        f"main({[*arguments, '--threads', '3']})"
    )
    done = _run("-c", code)
    assert done.returncode == 2
    assert "none" in done.stderr
    assert done.stdout.strip() == "['3', '3']"


def test_import_and_version_load_neither_torch_nor_onnxruntime() -> None:
    code = "import sys, fastgaze; print([m for m in ('torch', 'onnxruntime', 'numpy') if m in sys.modules])"
    assert _run("-c", code).stdout.strip() == "[]"
    code = (
        "import sys\nfrom fastgaze.app.cli import main\n"
        "try:\n    main(['--version'])\nexcept SystemExit:\n    pass\n"
        "print([m for m in ('torch', 'onnxruntime') if m in sys.modules])"
    )
    assert _run("-c", code).stdout.splitlines() == [f"fastgaze {__version__}", "[]"]
