"""The crop audit finds a preference that is there, and none where there is none."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from fastgaze.app.cli import app
from fastgaze.core.errors import ArgumentError
from fastgaze.evaluation.audit import Pair, audit, drawn_pairs, folder_pairs, wilson
from fastgaze.runtime.predictor import Predictor


def _spot(level: int) -> Image.Image:
    """A grey portrait with a face of this brightness."""
    pixels = np.full((320, 320, 3), 90, np.uint8)
    pixels[100:180, 120:200] = level
    return Image.fromarray(pixels)


def test_a_model_that_looks_at_bright_things_prefers_the_brighter_face(bright: Predictor) -> None:
    pairs = [Pair(_spot(level), _spot(level - 90)) for level in (200, 225, 250)]
    finding = audit(bright, "bright over dark", pairs, "3:4")
    assert (finding.first, finding.second, finding.position) == (3, 0, 0)
    assert finding.window == finding.peak == 1
    assert 0.5 < finding.mass < 1
    assert finding.left == 0.5
    swapped = audit(bright, "dark over bright", [Pair(p.second, p.first) for p in pairs], "3:4")
    assert (swapped.first, swapped.second) == (0, 3)
    assert swapped.mass == pytest.approx(1 - finding.mass)


def test_twins_are_never_a_preference_for_a_person(bright: Predictor) -> None:
    finding = audit(bright, "twins", [Pair(_spot(250), _spot(250))], "3:4")
    assert (finding.window, finding.position, finding.first_share) == (0.5, 1, None)
    assert finding.mass == pytest.approx(0.5)


def test_intervals_are_wilsons() -> None:
    # Newcombe (1998), table I: 81 of 263, 15 of 148, 0 of 20.
    assert wilson(81, 263) == pytest.approx((0.2553, 0.3662), abs=1e-4)
    assert wilson(15, 148) == pytest.approx((0.0624, 0.1605), abs=1e-4)
    assert wilson(0, 20) == pytest.approx((0, 0.1611), abs=1e-4)


def test_drawn_pairs_differ_in_one_thing_only() -> None:
    contrasts = drawn_pairs(2)
    for pair in contrasts["glasses over none"]:
        rows, columns = np.nonzero(np.any(np.asarray(pair.first) != np.asarray(pair.second), axis=2))
        assert 110 < rows.min() < rows.max() < 160, "glasses sit at the eyes"
        assert 90 < columns.min() < columns.max() < 230


def _groups(folder: Path, **levels: int) -> Path:
    for group, level in levels.items():
        (folder / group).mkdir(parents=True)
        _spot(level).save(folder / group / "a.png")
    return folder


def test_the_verb_audits_a_users_own_folder(tmp_path: Path, bright_file: Path) -> None:
    people = _groups(tmp_path / "people", bright=240, dim=130)
    words = ["audit", "--model", str(bright_file), "--pairs", "2", "--portraits", str(people), "--json"]
    result = CliRunner().invoke(app, [*words, "--sheet", str(tmp_path / "sheet.png")])
    assert result.exit_code == 0, result.output
    (finding,) = json.loads(result.stdout)["findings"]
    assert (finding["contrast"], finding["window"]) == ("bright over dim", 1)
    with Image.open(tmp_path / "sheet.png") as sheet:
        assert sheet.size == (960, 160)


def test_one_group_of_portraits_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="has 1 folders with portraits; make one folder for each group"):
        folder_pairs(_groups(tmp_path, only=200), 2)
