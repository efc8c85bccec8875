"""Every reader of untrusted bytes refuses damaged ones: a moment of fuzzing each, and all past findings."""

from pathlib import Path

import pytest

from experiments.fuzz import CORPUS, fuzz, try_one
from experiments.fuzz_targets import TARGETS


@pytest.mark.parametrize("name", TARGETS)
def test_damaged_input_is_read_or_refused(name: str, tmp_path: Path) -> None:
    tried, findings = fuzz(name, 0.3, seed=1, out=tmp_path)
    assert findings == []
    assert tried > 0


@pytest.mark.parametrize("path", sorted(CORPUS.iterdir()), ids=lambda path: path.name)
def test_what_was_found_once_stays_fixed(path: Path) -> None:
    assert try_one(TARGETS[path.name.split("-")[0]], path.read_bytes()) is None


def test_a_reader_that_breaks_is_a_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(content: bytes, _: Path) -> object:
        return content.decode("ascii")

    monkeypatch.setitem(TARGETS, "broken", type(TARGETS["form"])(broken, lambda: [b"\x80abc"]))
    tried, findings = fuzz("broken", 5, seed=0, out=tmp_path)
    assert tried >= 1
    assert findings[0].startswith("UnicodeDecodeError")
    assert any(tmp_path.iterdir())
