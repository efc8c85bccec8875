"""Public names: ``__all__`` is exact, what is returned can be imported, and no name means two things."""

import ast
import inspect
import subprocess
import sys
import typing
from collections import defaultdict
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import fastgaze

PACKAGE = Path(fastgaze.__file__).parent
DOORS = ("fastgaze", "fastgaze.batch", "fastgaze.video", "fastgaze.pruning", "fastgaze.networks")
"""The modules from which users import; everything else is reached through them or belongs to a room."""


def door(name: str) -> ModuleType:
    """The module that a user knows under ``name``: ``fastgaze.batch`` is an attribute, not a file."""
    base, _, attribute = name.partition(".")
    module: ModuleType = (
        getattr(import_module(base), attribute) if attribute in fastgaze.__all__ else import_module(name)
    )
    return module


@pytest.mark.parametrize("name", DOORS)
def test_all_is_exact(name: str) -> None:
    module = door(name)
    assert sorted(set(module.__all__)) == sorted(module.__all__), "each once"
    for public in module.__all__:
        assert hasattr(module, public), public
    shown = {
        public for public in dir(module) if not public.startswith("_") and not inspect.ismodule(getattr(module, public))
    }
    own = {public for public in shown if getattr(getattr(module, public), "__module__", name) == module.__name__}
    assert own <= set(module.__all__), "public by its name, but not listed"


def test_fastgaze_shows_nothing_but_its_public_names() -> None:
    assert dir(fastgaze) == sorted(fastgaze.__all__)
    code = "import fastgaze; print(sorted(n for n in vars(fastgaze) if not n.startswith('_')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    left = set(ast.literal_eval(done.stdout)) - set(fastgaze.__all__)
    assert left <= {"import_module", "TYPE_CHECKING"}


def returned(value: Any) -> Iterator[type]:
    """Classes of this package that calling ``value``, or a method or property of it, gives."""
    members = [value, *vars(value).values()] if inspect.isclass(value) else [value]
    for member in members:
        function = getattr(member, "fget", None) or getattr(member, "func", None) or getattr(member, "__func__", member)
        if inspect.isfunction(function) and not function.__name__.startswith("_"):
            yield from classes(return_type(function))


def return_type(function: Any) -> Any:
    """The annotation of what a function returns; names that only a type checker imports are anything."""
    unknown: dict[str, Any] = {}
    while True:
        try:
            return typing.get_type_hints(function, localns=unknown).get("return")
        except NameError as error:
            unknown[error.name] = Any


def classes(annotation: Any) -> Iterator[type]:
    """The classes of this package inside an annotation."""
    if inspect.isclass(annotation) and annotation.__module__.startswith("fastgaze."):
        yield annotation
    for part in typing.get_args(annotation):
        yield from classes(part)


@pytest.mark.parametrize("name", ["fastgaze", "fastgaze.batch", "fastgaze.video"])
def test_what_is_returned_can_be_imported(name: str) -> None:
    known = {
        getattr(door(place), public)
        for place in {"fastgaze", name}
        for public in door(place).__all__
        if public != "__version__"
    }
    for public in door(name).__all__:
        value = getattr(door(name), public)
        if inspect.isclass(value) or inspect.isfunction(value):
            missing = [found for found in returned(value) if found not in known and not found.__name__.startswith("_")]
            assert not missing, f"{name}.{public} gives {missing}, which cannot be imported from {name}"


def test_no_two_public_classes_share_a_name() -> None:
    homes: dict[str, list[str]] = defaultdict(list)
    for path in PACKAGE.rglob("*.py"):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].append(str(path.relative_to(PACKAGE)))
    assert {name: places for name, places in homes.items() if len(places) > 1} == {}
