"""The README: its Python runs, its shell lines are real verbs, its figures are the generated ones."""

import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from experiments import readme
from experiments.reporting.speeds import Range, bundled_speeds
from fastgaze.app.cli import app
from fastgaze.app.demo import EXAMPLES
from fastgaze.runtime.card import identity
from fastgaze.runtime.zoo import default_name, find, models

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def _blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.S)


@pytest.fixture
def reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a reader, who has a photograph and nothing else."""
    shutil.copy(EXAMPLES / "astronaut.jpg", tmp_path / "photo.jpg")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_first_screen_holds_what_a_visitor_needs() -> None:
    screen = README.splitlines()[:30]
    for wanted in (
        "docs/images/strip.png",
        "pip install fastgaze",
        "fastgaze predict",
        "import fastgaze",
        "times out of 100",
    ):
        assert any(wanted in line for line in screen), wanted
    assert "| parameters |" not in README, "the table of models is in docs/models.md"


def test_python_blocks_run(reader: Path) -> None:
    for block in _blocks("python"):
        exec(compile(block, "README.md", "exec"), {})
    assert (reader / "photo.gaze.png").is_file()


def test_fastgaze_lines_run(reader: Path) -> None:
    lines = [line for block in _blocks("sh") for line in block.splitlines() if line.startswith("fastgaze ")]
    assert lines
    for line in lines:
        result = CliRunner().invoke(app, shlex.split(line, comments=True)[1:])
        assert result.exit_code == 0, f"{line}: {result.output}"
    assert (reader / "photo.gaze.png").is_file()
    assert len(list((reader / "crops").iterdir())) == 2


def test_make_targets_and_verbs_that_are_named_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"^make (\w+)", README, flags=re.M):
        assert re.search(rf"^{target}:", makefile, flags=re.M), target
    cells = re.findall(r"^\| `fastgaze ([^|]*)\|", README, flags=re.M)
    named = {verb for cell in cells for verb in re.findall(r"[\w-]+", cell)}
    command: Any = typer.main.get_command(app)
    assert named == set(command.commands), "the table lists every verb"


def test_extras_that_are_named_exist() -> None:
    project = (ROOT / "pyproject.toml").read_text()
    for extra in re.findall(r"\[(\w+)\]", "".join(_blocks("sh"))):
        assert re.search(rf"^{extra} = \[", project, flags=re.M), extra


def test_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", README):
        assert (ROOT / target).exists(), target


def test_the_figures_the_table_of_models_and_the_cards_are_the_generated_ones() -> None:
    assert readme.with_figures(README) == README
    page = (ROOT / "docs" / "models.md").read_text()
    assert readme.with_models(page) == page


def test_a_time_is_the_median_of_the_runs_with_their_range() -> None:
    assert Range(5.0, 4.0, 9.0, 3).shown(unit=" ms") == "5.0 ms (4.0 to 9.0)"


def test_the_command_line_and_the_pages_give_one_time_for_a_model() -> None:
    recorded = readme.recorded_speeds()
    for model in models():
        expected = pytest.approx(recorded[model.name].cpu_ms.median, abs=1e-3) if model.name in recorded else None
        assert model.cpu_ms == expected, model.name


def test_times_of_an_earlier_file_of_the_same_name_do_not_count() -> None:
    def run(identity: str, milliseconds: float) -> dict[str, Any]:
        row = {"name": default_name(), "engine": "onnxruntime", "precision": "fp32", "own_size": True}
        return {"rows": [row | {"identity": identity, "network_size": [192, 256], "cpu_ms": milliseconds}]}

    now = identity(find(default_name()).read_bytes())
    assert bundled_speeds({"runs": [run(now, 5.0), run("another", 9.0)]}) == {}
    found = bundled_speeds({"runs": [run("another", 9.0), run(now, 5.0), run(now, 7.0)]})
    assert found[default_name()].cpu_ms == Range(6.0, 5.0, 7.0, 2)


def test_figures_without_recorded_times_say_nothing_of_time() -> None:
    assert "times out of 100" in (text := readme.figures(models(), {}))
    assert " ms" not in text
