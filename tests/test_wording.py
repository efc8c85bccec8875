"""Plain English everywhere: what people read holds none of the phrases that only this project's authors understood."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.wording import DIALECT

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "fastgaze"
ROOMS = sorted(path.name for path in PACKAGE.iterdir() if (path / "__init__.py").is_file())
PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")]
PAGES += sorted(page for page in (ROOT / "docs").glob("*.md"))


def readable(path: Path) -> Iterator[tuple[int, str]]:
    """Line and text of every comment and every string of a module that holds more than one word."""
    source = path.read_text()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield node.lineno, " ".join(node.value.split())


def found(text: str) -> list[str]:
    """The phrases of the dialect in a text; what it quotes as an example does not count."""
    text = re.sub(r'"[^"]*"|`[^`]*`', "", text)
    return [match[0] for phrase in DIALECT if (match := re.search(phrase, text))]


@pytest.mark.parametrize("room", [*ROOMS, "../../experiments"])
def test_code_speaks_plain_english(room: str) -> None:
    hits = [
        f"{path.relative_to(ROOT)}:{line}: {phrases[0]!r} in {text[:120]!r}"
        for path in sorted((PACKAGE / room).resolve().rglob("*.py"))
        for line, text in readable(path)
        if (phrases := found(text))
    ]
    assert not hits, "\n".join(hits)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_speak_plain_english(page: Path) -> None:
    hits = [
        f"{number}: {found(line)[0]!r}" for number, line in enumerate(page.read_text().splitlines(), 1) if found(line)
    ]
    assert not hits


@pytest.mark.parametrize(
    "sentence",
    [
        "Folder of the run; one that exists is gone on with.",
        "Images a step.",
        "milliseconds of a worker, 3 images a second",
        "'x' is no whole number",
        "a size that it shall work at",
        "it starts anew at cuts",
    ],
)
def test_the_old_phrases_are_recognised(sentence: str) -> None:
    assert found(sentence)


@pytest.mark.parametrize(
    "sentence",
    ["8 images per step.", "Continue an existing run.", "'x' is not a whole number.", "It is no longer accepted."],
)
def test_plain_sentences_pass(sentence: str) -> None:
    assert not found(sentence)
