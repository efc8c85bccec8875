"""The front scores what is finished, forgets what was run again, and keeps times that still hold."""

from dataclasses import replace
from pathlib import Path

import pytest

from experiments import entries
from experiments.common import CONFIGS
from experiments.entries import describe, read_entries
from experiments.front import forget, own_record


def test_networks_of_an_experiment_that_was_run_again_are_forgotten() -> None:
    (entry,) = read_entries(CONFIGS / "front.toml", ["fastgaze-xs"])
    again = replace(entry, name="sweep-1-beta", source="search")
    models = {
        "sweep-0-beta": {"source": "search"},
        "sweep-1-beta": {"source": "search"},
        "star-10": {"source": "comparison"},
        "fastgaze": {"source": ""},
    }
    record = {"models": dict(models)}
    forget([entry, again], record)
    assert list(record["models"]) == ["sweep-1-beta", "star-10", "fastgaze"]
    record = {"models": dict(models)}
    forget([entry], record)
    assert record["models"] == models, "the search was not run again"


def test_other_weights_take_no_other_time_but_have_other_scores() -> None:
    (entry,) = read_entries(CONFIGS / "front.toml", ["fastgaze-xs"])
    earlier = {
        "sha256": "other",
        "pixels": entry.pixels,
        **describe(entry),
        "scores": {"cat2000": {}},
        "times": {"a": 1},
    }
    own = own_record({"models": {entry.name: earlier}}, entry)
    assert own["scores"] == {}
    assert own["times"] == {"a": 1}
    wider = earlier | {"layers": [["conv1_1", 99]]}
    assert "times" not in own_record({"models": {entry.name: wider}}, entry)


def test_the_best_network_of_a_run_that_has_not_ended_is_no_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(entries, "ROOT", tmp_path)
    for number in (1, 2):
        folder = tmp_path / "runs" / f"trial{number}" / "tuned"
        folder.mkdir(parents=True)
        for name in ("best", "state"):
            (folder / f"{name}.safetensors").touch()
    (tmp_path / "runs" / "trial2" / "tuned" / "result.json").touch()
    models = tmp_path / "models.toml"
    facts = 'name = "sweep-*"\npath = "runs/trial*/tuned/best.safetensors"\nfamily = "FastGaze"\nkind = "regularised"\n'
    models.write_text(f"[[model]]\n{facts}")
    assert [entry.name for entry in read_entries(models)] == ["sweep-2"]
