"""Pages of the documentation that scripts write tables and sentences into, from what was measured.

A part stands between ``<!-- mark: who writes it from what -->`` and ``<!-- /mark -->``.
"""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Markdown."""
    lines = ["|" + "".join(f" {cell} |" if str(cell) else " |" for cell in cells) for cells in (header, *rows)]
    return "\n".join([lines[0], "|---" * len(header) + "|", *lines[1:]])


def filled(text: str, mark: str, content: str) -> str:
    """``text`` with ``content`` in the part ``mark``."""
    pattern = rf"(<!-- {mark}: [^>]*-->\n).*?(<!-- /{mark} -->)"
    new, found = re.subn(pattern, lambda match: f"{match[1]}{content}\n{match[2]}", text, flags=re.S)
    if found != 1:
        raise SystemExit(f"the page has {found} places for {mark!r}, not one")
    return new


def fill(page: Path, mark: str, content: str) -> None:
    """Write ``content`` into the part ``mark`` of a page."""
    page.write_text(filled(page.read_text(), mark, content))
