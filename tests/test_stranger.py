"""A checkout works by itself: no file of it reaches for what happens to lie beside it on the authors' machine."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
OURS = re.compile(r"""\bshared(?:/|["'] */)""")
"""The folder beside the checkout, in text or as part of a path."""
MAY = {".ci/run", "docs/log.md", "CHANGELOG.md"}
FOLDERS = (".ci", ".github", "docs", "experiments", "js/src", "js/test", "results", "src", "tests", "tools")
WRITTEN = {".cfg", ".html", ".js", ".json", ".md", ".py", ".sh", ".toml", ".ts", ".txt", ".yaml", ".yml"}
PLAIN = {"Makefile", "Dockerfile", "run"}
PAGES = {"CHANGELOG.md", "CITATION.cff", "CONTRIBUTING.md", "LICENSE", "README.md", "SECURITY.md"}
SETTINGS = {".dockerignore", ".gitignore", ".pre-commit-config.yaml", "constraints.txt", "mkdocs.yml", "pyproject.toml"}
BELONG = PAGES | SETTINGS | {"Dockerfile", "Makefile"}
"""The files at the root of the repository."""


def test_nothing_but_the_ci_of_this_place_names_the_folder_beside_the_checkout() -> None:
    files = [path for path in ROOT.iterdir() if path.is_file()]
    files += [path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.is_file()]
    written = [path for path in files if path.suffix in WRITTEN or path.name in PLAIN]
    assert len(written) > 300
    names = {str(path.relative_to(ROOT)) for path in written if OURS.search(path.read_text(encoding="utf-8"))}
    assert names <= MAY


def test_data_are_looked_for_in_the_checkout_unless_a_setting_names_another_folder(tmp_path: Path) -> None:
    def default(**environment: str) -> str:
        code = "from experiments import common; print(common.DATA)"
        own = {name: value for name, value in os.environ.items() if name != "FASTGAZE_DATA"} | environment
        command = [sys.executable, "-c", code]
        return subprocess.run(command, cwd=ROOT, env=own, capture_output=True, text=True, check=True).stdout

    assert default().strip() == str(ROOT / "data")
    assert default(FASTGAZE_DATA=str(tmp_path)).strip() == str(tmp_path)


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="not a checkout: nothing tells what was committed")
def test_nothing_that_an_example_wrote_is_committed_at_the_root() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    files = {name for name in listed.splitlines() if "/" not in name}
    assert files - BELONG == set(), "written by a guide's code that was run here? If not, add it to BELONG"
