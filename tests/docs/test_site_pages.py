"""The documentation's site knows every guide, and shows what its Markdown means."""

import os
import re
import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped]
from markdown import Markdown  # type: ignore[import-untyped]

ROOT = Path(__file__).parents[2]
for_mkdocs: Callable[[str], str] = runpy.run_path(str(ROOT / "tools" / "docs_links.py"))["for_mkdocs"]


def test_every_guide_is_on_the_site_and_in_the_list_of_guides() -> None:
    settings = (ROOT / "mkdocs.yml").read_text()
    listed = (ROOT / "docs" / "README.md").read_text()
    pages = _pages(yaml.safe_load(settings)["nav"])
    for guide in sorted((ROOT / "docs").glob("*.md")):
        assert guide.name in pages, f"{guide.name} is not in mkdocs.yml"
        assert guide.name == "README.md" or f"({guide.name})" in listed, f"{guide.name} is not in docs/README.md"


def test_no_page_is_in_the_navigation_twice() -> None:
    pages = _listed(yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"])
    assert len(pages) == len(set(pages)), sorted(page for page in pages if pages.count(page) > 1)


@pytest.mark.parametrize("guide", sorted(path.name for path in (ROOT / "docs").glob("*.md")))
def test_the_site_shows_lists_tables_and_code_as_such(guide: str) -> None:
    text = for_mkdocs((ROOT / "docs" / guide).read_text())
    page = Markdown(extensions=["tables", "pymdownx.highlight", "pymdownx.superfences"]).convert(text)
    shown = re.sub(r"<pre.*?</pre>", "", page, flags=re.DOTALL)
    assert "```" not in shown
    assert not re.findall(r"^(?:\||[-*] ).*", shown, re.MULTILINE)


def test_links_and_pictures_of_the_site_lead_somewhere(tmp_path: Path) -> None:
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, env=environment, check=True)
    pages = list(tmp_path.rglob("index.html"))
    assert len(pages) > 20
    for page in pages:
        for target in re.findall(r'(?:src|href)="(?![a-z]+:|/)([^"#?]+)', page.read_text()):
            assert (page.parent / target).exists(), f"{page.relative_to(tmp_path)}: no {target}"


def test_code_and_items_that_go_on_are_left_as_they_are() -> None:
    text = "words\n```sh run\nls\n- no list\n```\n| a | b |\n|---|---|\n- item\n  goes on\n- item\n"
    expected = "words\n```sh\nls\n- no list\n```\n\n| a | b |\n|---|---|\n\n- item\n  goes on\n- item\n"
    assert for_mkdocs(text) == expected


def _pages(entry: object) -> set[str]:
    return set(_listed(entry))


def _listed(entry: object) -> list[str]:
    """Every page of the navigation, in order."""
    if isinstance(entry, str):
        return [entry]
    parts = entry.values() if isinstance(entry, dict) else entry if isinstance(entry, list) else []
    return [page for part in parts for page in _listed(part)]
