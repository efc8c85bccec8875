"""A run or a cache that was made from something else is not continued by mistake."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from fastgaze.core.errors import ArgumentError, DataError
from fastgaze.core.jsonable import Json
from fastgaze.core.spec import GazeSpec, VGGSpec
from fastgaze.data.fixations import FixationSet, from_lists
from fastgaze.networks import create_model
from fastgaze.networks.gaze import GazeModel
from fastgaze.training.datasets import prepare
from fastgaze.training.features import extract_features
from fastgaze.training.runs import claim, differences, weights_digest
from tests.training.helpers import bright_squares, tiny_model

MIXTURE: dict[str, Json] = {"teacher": 0.5, "teachers": ("teacher",)}
SLIM = GazeSpec("deepgaze2", VGGSpec(((4,), (6,), (6,), (8,), (8,)), ("conv5_1", "relu5_1")), (4, 1), "relu")


def _begun(folder: Path, facts: dict[str, object] | None) -> Path:
    """The folder of a run that has saved its state, with its record unless it is of an older version."""
    folder.mkdir()
    (folder / "state.safetensors").touch()
    if facts is not None:
        (folder / "run.json").write_text(json.dumps(facts))
    return folder


def test_another_start_or_mixture_is_refused_by_name(tmp_path: Path) -> None:
    claim(tmp_path, {"run": {"start": "a"}, "mixture": MIXTURE}, {})
    (tmp_path / "state.safetensors").touch()
    claim(tmp_path, {"run": {"start": "a"}, "mixture": MIXTURE}, {})
    reason = r"holds another run: run.start is 'a' there, 'b' here; choose another folder, or delete this one"
    with pytest.raises(ArgumentError, match=reason):
        claim(tmp_path, {"run": {"start": "b"}, "mixture": MIXTURE}, {})
    with pytest.raises(ArgumentError, match=r"mixture.teachers is \['teacher'\] there, \['small'\] here"):
        claim(tmp_path, {"run": {"start": "a"}, "mixture": MIXTURE | {"teachers": ("small",)}}, {})


def test_a_run_that_never_began_can_be_started_another_way(tmp_path: Path) -> None:
    claim(tmp_path, {"run": {"start": "a"}}, {})
    claim(tmp_path, {"run": {"start": "b"}}, {})
    assert json.loads((tmp_path / "run.json").read_text()) == {"run.start": "b"}


def test_a_folder_without_a_record_goes_on_and_a_setting_that_came_later_had_its_default(tmp_path: Path) -> None:
    old = _begun(tmp_path / "old", None)
    claim(old, {"mixture": MIXTURE}, {})
    assert not (old / "run.json").exists()
    newer = _begun(tmp_path / "newer", {"mixture.teacher": 0.5})
    with pytest.raises(ArgumentError, match=r"mixture.teachers is \['teacher'\] there, \['small'\] here"):
        claim(newer, {"mixture": MIXTURE | {"teachers": ["small"]}}, {"mixture": MIXTURE})
    claim(newer, {"mixture": MIXTURE}, {"mixture": MIXTURE})


def test_pruning_may_go_on_to_lower_marks_only(tmp_path: Path) -> None:
    folder = _begun(tmp_path / "run", {"prune.marks": [3.0, 1.0]})
    claim(folder, {"prune": {"marks": (0.5, 3.0, 1.0)}}, {})
    for marks in ((3.0, 2.0, 1.0, 0.5), (3.0, 1.0), ()):
        with pytest.raises(ArgumentError, match=r"prune\.marks"):
            claim(folder, {"prune": {"marks": marks}}, {})


def test_sections_that_lie_in_each_other_compare_as_flat_ones() -> None:
    assert differences({"fit.steps": 5, "size": [2, 3]}, {"fit": {"steps": 5}, "size": (2, 3)}) == []
    assert differences({"fit": {"steps": 5}}, {"fit": {"steps": 6}}) == ["fit.steps is 5 there, 6 here"]


def test_a_digest_changes_with_one_weight() -> None:
    model = tiny_model()
    before = weights_digest(model)
    assert weights_digest(tiny_model()) == before
    next(model.parameters()).data.flatten()[0] += 1e-3
    assert weights_digest(model) != before


def _teacher(seed: int) -> GazeModel:
    torch.manual_seed(seed)
    model = create_model("deepgaze2", SLIM)
    assert isinstance(model, GazeModel)
    return model


def test_stored_features_of_another_trunk_or_other_images_are_computed_again(tmp_path: Path) -> None:
    file, squares = tmp_path / "features.npy", bright_squares(4)
    assert list(extract_features(_teacher(0), squares, file, batch=2)) == [2, 4]
    first = np.load(file)
    assert list(extract_features(_teacher(0), squares, file, batch=2)) == []
    assert list(extract_features(_teacher(1), squares, file, batch=2)) == [2, 4]
    assert not np.allclose(np.load(file), first)
    assert list(extract_features(_teacher(1), bright_squares(4, (32, 48)), file, batch=2)) == [2, 4]
    assert np.load(file).shape[2:] == (2, 3)


def test_rounding_on_another_machine_leaves_stored_features_as_they_are(tmp_path: Path) -> None:
    file, squares, model = tmp_path / "features.npy", bright_squares(2), _teacher(0)
    assert list(extract_features(model, squares, file)) == [2]
    for parameter in model.parameters():
        parameter.data *= 1 + 1e-6
    assert list(extract_features(model, squares, file)) == []


def test_features_of_an_older_version_are_kept_if_their_shape_fits_and_get_a_record(tmp_path: Path) -> None:
    file, squares = tmp_path / "features.npy", bright_squares(4)
    list(extract_features(_teacher(0), squares, file))
    progress = file.with_suffix(".json")
    progress.write_text('{"done": 4}')
    assert list(extract_features(_teacher(0), squares, file)) == []
    assert json.loads(progress.read_text())["size"] == [64, 96]
    assert list(extract_features(_teacher(1), squares, file)) == [4]
    progress.write_text('{"done": 4}')
    assert list(extract_features(_teacher(1), bright_squares(4, (32, 48)), file)) == [4]


def _photographs(folder: Path, names: list[str]) -> FixationSet:
    path = folder / "photo.png"
    Image.new("RGB", (96, 64), (90, 60, 30)).save(path)
    return from_lists(names, [path] * len(names), [(64, 96)] * len(names), [[(3, 4)]] * len(names))


def test_cached_images_of_other_names_are_refused_and_older_caches_are_kept(tmp_path: Path) -> None:
    data, cache = _photographs(tmp_path, ["a", "b"]), tmp_path / "cache"
    prepare(data, "photos", (64, 96), cache)
    (cache / "photos-64x96.json").unlink()  # as an older version left it
    prepare(data, "photos", (64, 96), cache)
    with pytest.raises(DataError, match=r"photos-64x96.npy holds images with other names .* delete it"):
        prepare(_photographs(tmp_path, ["a", "c"]), "photos", (64, 96), cache)
    (cache / "photos-64x96.npy").unlink()
    assert len(prepare(_photographs(tmp_path, ["a", "c"]), "photos", (64, 96), cache)) == 2
