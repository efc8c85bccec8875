"""The crop audit finds a preference that is there, and none where there is none."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from fastgaze.runtime.predictor import Predictor

RECIPES = Path(__file__).parents[2] / "experiments"


@pytest.fixture
def recipe(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(sys, "path", [str(RECIPES), *sys.path])
    import audit_crop

    return audit_crop


def _spot(level: int) -> Image.Image:
    """A grey portrait with a face of this brightness."""
    pixels = np.full((320, 320, 3), 90, np.uint8)
    pixels[100:180, 120:200] = level
    return Image.fromarray(pixels)


def test_a_model_that_looks_at_bright_things_prefers_the_brighter_face(recipe: Any, bright: Predictor) -> None:
    pairs = [recipe.Pair(_spot(level), _spot(level - 90)) for level in (200, 225, 250)]
    finding = recipe.audit(bright, "bright over dark", pairs, "3:4")
    assert (finding.first, finding.second, finding.position) == (3, 0, 0)
    assert finding.window == finding.peak == 1
    assert 0.5 < finding.mass < 1
    assert finding.left == 0.5
    swapped = recipe.audit(bright, "dark over bright", [recipe.Pair(p.second, p.first) for p in pairs], "3:4")
    assert (swapped.first, swapped.second) == (0, 3)
    assert swapped.mass == pytest.approx(1 - finding.mass)


def test_twins_are_never_a_preference_for_a_person(recipe: Any, bright: Predictor) -> None:
    finding = recipe.audit(bright, "twins", [recipe.Pair(_spot(250), _spot(250))], "3:4")
    assert (finding.window, finding.position, finding.first_share) == (0.5, 1, None)
    assert finding.mass == pytest.approx(0.5)


def test_intervals_are_wilsons(recipe: Any) -> None:
    # Newcombe (1998), table I: 81 of 263, 15 of 148, 0 of 20.
    assert recipe.wilson(81, 263) == pytest.approx((0.2553, 0.3662), abs=1e-4)
    assert recipe.wilson(15, 148) == pytest.approx((0.0624, 0.1605), abs=1e-4)
    assert recipe.wilson(0, 20) == pytest.approx((0, 0.1611), abs=1e-4)


def test_drawn_pairs_differ_in_one_thing_only(recipe: Any) -> None:
    contrasts = recipe.drawn_pairs(2)
    for pair in contrasts["glasses over none"]:
        rows, columns = np.nonzero(np.any(np.asarray(pair.first) != np.asarray(pair.second), axis=2))
        assert 110 < rows.min() < rows.max() < 160, "glasses sit at the eyes"
        assert 90 < columns.min() < columns.max() < 230


def test_the_recipe_audits_a_users_own_folder(tmp_path: Path, bright_file: Path) -> None:
    for group, level in (("bright", 240), ("dim", 130)):
        (tmp_path / "people" / group).mkdir(parents=True)
        _spot(level).save(tmp_path / "people" / group / "a.png")
    command = [sys.executable, str(RECIPES / "audit_crop.py"), "--model", str(bright_file), "--pairs", "2"]
    command += ["--portraits", str(tmp_path / "people"), "--json", str(tmp_path / "out.json")]
    subprocess.run(command, check=True, capture_output=True)
    (finding,) = json.loads((tmp_path / "out.json").read_text())["findings"]
    assert (finding["contrast"], finding["window"]) == ("bright over dim", 1)
