"""The README: its Python runs, its shell lines are real verbs, its figures are the generated ones."""

import re
import runpy
import shlex
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fastgaze.app.cli import app
from fastgaze.runtime.zoo import models

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def _blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.S)


@pytest.mark.skipif(not models(), reason="no trained model is bundled yet")
def test_python_blocks_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    monkeypatch.chdir(tmp_path)
    for block in _blocks("python"):
        exec(compile(block, "README.md", "exec"), {})
    assert (tmp_path / "astronaut.gaze.png").is_file()


@pytest.mark.skipif(not models(), reason="no trained model is bundled yet")
def test_fastgaze_lines_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    monkeypatch.chdir(tmp_path)
    lines = [line for block in _blocks("sh") for line in block.splitlines() if line.startswith("fastgaze ")]
    assert lines
    for line in lines:
        result = CliRunner().invoke(app, shlex.split(line)[1:])
        assert result.exit_code == 0, f"{line}: {result.output}"
    assert list((tmp_path / "crops").iterdir())


def test_make_targets_and_verbs_that_are_named_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"^make (\w+)", README, flags=re.M):
        assert re.search(rf"^{target}:", makefile, flags=re.M), target
    verbs = {
        verb for cell in re.findall(r"^\| `fastgaze ([^|]*)\|", README, flags=re.M) for verb in re.findall(r"\w+", cell)
    }
    known = {command.name for command in app.registered_commands} | {group.name for group in app.registered_groups}
    assert verbs
    assert verbs <= known


def test_extras_that_are_named_exist() -> None:
    project = (ROOT / "pyproject.toml").read_text()
    for extra in re.findall(r"\[(\w+)\]", "".join(_blocks("sh"))):
        assert re.search(rf"^{extra} = \[", project, flags=re.M), extra


def test_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        assert (ROOT / target).exists(), target


@pytest.mark.skipif(not models(), reason="no trained model is bundled yet")
def test_the_table_of_models_and_the_cards_are_the_generated_ones() -> None:
    recipe = runpy.run_path(str(ROOT / "experiments" / "readme.py"))
    assert recipe["with_table"](README) == README
    cards = (ROOT / "docs" / "models.md").read_text()
    assert recipe["with_cards"](cards) == cards
