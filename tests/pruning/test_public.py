import subprocess
import sys

import fastgaze.pruning as pruning


def test_all_names_exist_and_are_sorted() -> None:
    assert list(pruning.__all__) == sorted(pruning.__all__)
    assert all(hasattr(pruning, name) for name in pruning.__all__)


def test_pruning_imports_no_other_room() -> None:
    code = "import sys, fastgaze.pruning; print([m for m in sys.modules if m.startswith('fastgaze.')])"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    rooms = {name for name in eval(loaded) if not name.startswith("fastgaze.pruning")}
    assert rooms == {f"fastgaze.{name}" for name in ("core", "core.errors", "core.files", "core.jsonable")}
