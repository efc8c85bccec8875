"""The walks of CONTRIBUTING.md lead through code that exists, and never back into a room that they have left."""

import re
from importlib import import_module
from itertools import groupby
from pathlib import Path

import pytest

CONTRIBUTING = (Path(__file__).parents[2] / "CONTRIBUTING.md").read_text()
WALKS = dict(re.findall(r"^### (.*?)\n(.*?)(?=^##)", CONTRIBUTING, flags=re.MULTILINE | re.DOTALL))
HOP = r"`([a-z_.]+):([\w.]+)`"


def test_there_are_four_walks() -> None:
    assert len(WALKS) == 4


@pytest.mark.parametrize("title", WALKS)
def test_every_place_exists(title: str) -> None:
    places = re.findall(HOP, WALKS[title])
    assert len(places) > 5
    for module, name in places:
        found = import_module(f"fastgaze.{module}")
        for part in name.split("."):
            assert hasattr(found, part), f"{title}: no {name} in {module}"
            found = getattr(found, part)


@pytest.mark.parametrize("title", WALKS)
def test_no_walk_returns_to_a_room_that_it_has_left(title: str) -> None:
    steps = re.findall(rf"^\d+\. {HOP}", WALKS[title], flags=re.MULTILINE)
    rooms = [module.split(".")[0] for module, _ in steps if not module.startswith("core.")]
    visited = [room for room, _ in groupby(rooms)]
    assert len(visited) == len(set(visited)), visited
