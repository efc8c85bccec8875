"""The documentation's site knows every guide."""

from pathlib import Path

import yaml  # type: ignore[import-untyped]

ROOT = Path(__file__).parents[2]


def test_every_guide_is_on_the_site_and_in_the_list_of_guides() -> None:
    settings = (ROOT / "mkdocs.yml").read_text()
    listed = (ROOT / "docs" / "README.md").read_text()
    pages = _pages(yaml.safe_load(settings)["nav"])
    for guide in sorted((ROOT / "docs").glob("*.md")):
        assert guide.name in pages, f"{guide.name} is not in mkdocs.yml"
        assert guide.name == "README.md" or f"({guide.name})" in listed, f"{guide.name} is not in docs/README.md"


def _pages(entry: object) -> set[str]:
    if isinstance(entry, str):
        return {entry}
    parts = entry.values() if isinstance(entry, dict) else entry if isinstance(entry, list) else []
    return {page for part in parts for page in _pages(part)}
