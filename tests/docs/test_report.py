"""The report says what was measured, names what was not, and has the paper's figures beside it."""

import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

ROOT = Path(__file__).parents[2]
RECIPES, DOCS = ROOT / "experiments", ROOT / "docs"


@pytest.fixture
def report(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(sys, "path", [str(RECIPES), *sys.path])
    import report

    return report


@pytest.fixture
def pages(report: Any) -> Any:
    """From the JSON files of a folder to (Markdown, HTML), with figures if a folder for them is given."""
    from reporting.document import html, markdown

    def make(results: Path, images: Path | None = None, notes: Path = report.NOTES) -> tuple[str, str]:
        blocks = report.document(report.Inputs(results, notes), images)
        return markdown(blocks), html(blocks)

    return make


def _facts(kind: str, family: str, gflop: float, ms: float, auc: float) -> dict[str, Any]:
    means = {
        "auc": auc,
        "nss": 2.0,
        "sim": 0.7,
        "kl": 0.3,
        "log_likelihood_bits": 10 * auc - 7,
        "information_gain": 0.1,
    }
    score = {"images": 40, "means": means, "intervals": {name: [v - 0.01, v + 0.01] for name, v in means.items()}}
    times = {
        engine: {"cpu_ms": ms, "wall_ms": ms, "ratio_to_deepgaze2": 2000 / ms, "ratio_same_engine": 1500 / ms}
        for engine in ("torch", "onnxruntime")
    }
    facts = {"family": family, "kind": kind, "gflop_640x480": gflop, "parameters": 1000, "maps": 9, "times": times}
    return facts | {"scores": {"cat2000": score, "salicon-val": score}}


def _front() -> dict[str, Any]:
    models = {
        "deepgaze2": _facts("teacher", "DeepGaze II", 239.07, 1800, 0.860),
        "slow": _facts("shipped", "FastGaze", 10, 100, 0.870),
        "quick": _facts("shipped", "FastGaze", 2, 20, 0.861),
        "quicker": _facts("shipped", "FastGaze", 1, 10, 0.859),
    }
    for mark, auc in ((8, 0.86), (4, 0.85)):
        models[f"star-{mark}"] = _facts("regularised", "FastGaze", mark, 10 * mark, auc)
        models[f"none-{mark}"] = _facts("unregularised", "FastGaze", mark, 20 * mark, auc - 0.01)
    models["densegaze-none-4"] = _facts("unregularised", "DenseGaze", 4, 40, 0.85)
    models["sweep-3-beta"] = _facts("regularised", "FastGaze", 4, 40, 0.85)
    machine = {"processor": "Test CPU", "cores": 2, "torch": "2", "onnxruntime": "1", "numpy": "2"}
    timing = {"size": [384, 512], "rounds": 3, "threads": 1, "machine": machine}
    return {"models": models, "baselines": {}, "timing": timing}


def test_what_was_not_measured_is_named_with_its_command(pages: Any, tmp_path: Path) -> None:
    text, page = pages(tmp_path)
    for recipe in ("lenet_mnist", "pruning_comparison", "front", "figures_maps", "speed"):
        assert re.search(rf"Not measured yet.*`python experiments/{recipe}\.py ", text), recipe
    assert "![" not in text
    assert "<img" not in page
    assert page.count('class="missing"') == text.count("**Not measured yet**")


def test_commands_that_are_named_exist(report: Any) -> None:
    from reporting.inputs import COMMANDS

    for command in COMMANDS.values():
        words = command.split()
        if words[0] == "fastgaze":
            subprocess.run([sys.executable, "-m", "fastgaze", words[1], "--help"], check=True, capture_output=True)
            continue
        recipe = (ROOT / words[1]).read_text()
        assert all(f'"{word}"' in recipe for word in words[2:] if word.startswith("--")), command


def test_the_papers_numbers_are_there_without_any_of_ours(pages: Any, tmp_path: Path) -> None:
    text, _ = pages(tmp_path)
    for row in (
        "| Fisher (β > 0) | 0.79% | 10% |",
        "| Han et al. (2015), single parameters | 0.77% | 16% |",
        "| DeepGaze II | 88% | 0.96 | 0.46 | 1.29 | 240.6 |",
        "| FastGaze | 85% | 1.21 | 0.61 | 2.00 | 10.7 |",
        "| DenseGaze | 86% | 1.20 | 0.63 | 2.16 | 12.8 |",
    ):
        assert row in text, row
    for words in ("1.39 s, 356 ms, 258 ms and 91 ms", "(577 ms)", "3.59 s", "39 times as fast", "Xeon E5-2620"):
        assert words in text, words


def test_lenet_rows_stand_beside_the_papers_at_the_nearest_cost(pages: Any, tmp_path: Path) -> None:
    rows = [
        {"method": "Fisher (beta*)", "cost_percent": cost, "error_percent": error, "error_spread": 0.04}
        | {"seeds": [1, 2], "widths": [[4, 10, 99, 10]] * 2}
        for cost, error in ((16.5, 0.61), (3.0, 1.5))
    ]
    record = {"plan": {"epochs": 8, "batch": 128, "maps": 3, "steps": 10}, "rows": rows}
    (tmp_path / "lenet_mnist.json").write_text(json.dumps(record))
    text, _ = pages(tmp_path)
    assert "| Fisher (β*) | 0.86% | 17% | 0.61% ± 0.04 | 16.5% | 2 | 4-10-99-10 |" in text
    assert "| Fisher (β*) | 1.50% ± 0.04 | 3.0% | 2 | 4-10-99-10 |" in text
    assert "lower or same error in 1 of the 1 rows" in text


def test_speedup_is_that_of_the_fastest_model_no_worse_than_deepgaze2(pages: Any, tmp_path: Path) -> None:
    (tmp_path / "front.json").write_text(json.dumps(_front()))
    text, _ = pages(tmp_path, tmp_path / "images")
    assert "| AUC | 0.860 | 0.870 | 0.850 | `quick` | 75x | 100x | 10x (DenseGaze) |" in text
    assert "Test CPU" in text
    with Image.open(tmp_path / "images" / "figure2.png") as figure:
        assert figure.width == 1600


def test_snapshots_are_compared_at_one_mark_and_within_their_family(pages: Any, tmp_path: Path) -> None:
    (tmp_path / "front.json").write_text(json.dumps(_front()))
    text, _ = pages(tmp_path)
    gains = "FastGaze at 8 GFLOP +0.100 over β = 0; FastGaze at 4 GFLOP +0.100 over β = 0."
    assert f"Bits of β* on SALICON val: {gains}" in text


def _trial(number: int, beta: float, gflop: float, loss: float) -> dict[str, Any]:
    objective = "beta" if beta else "none"
    return {"number": number, "objective": objective, "beta": beta, "removed": 9, "loss": loss, "gflop": gflop}


def test_costs_of_a_search_at_equal_loss_are_those_of_the_fronts(pages: Any, tmp_path: Path) -> None:
    trials = [_trial(0, 0.1, 2, 7.4), _trial(1, 0.1, 4, 7.35), _trial(2, 0.1, 8, 7.45)]  # the last is on no front
    trials += [_trial(3, 0.0, 2, 7.45), _trial(4, 0.0, 4, 7.4), _trial(5, 0.0, 16, 7.3)]
    (tmp_path / "sweep.json").write_text(json.dumps({"points": trials, "pareto": [0, 1, 5]}))
    text, _ = pages(tmp_path, tmp_path / "images")
    assert "| 1 | 0.1 | 9 | 4.00 | 7.3500 | yes |" in text
    assert "β = 0 needs 2.00 to 2.00 times the GFLOP of 2 points of the front with β > 0 in its range" in text
    assert (tmp_path / "images" / "sweep.png").is_file()


def test_a_trial_of_the_search_is_no_row_of_table_2(pages: Any, tmp_path: Path) -> None:
    (tmp_path / "front.json").write_text(json.dumps(_front()))
    text, _ = pages(tmp_path)
    figure, table = text.split("## Table 2")
    assert "`sweep-3-beta`" in figure
    assert "`sweep-3-beta`" not in table


def test_scores_without_times_draw_no_figure(pages: Any, tmp_path: Path) -> None:
    front = _front()
    del front["timing"]
    (tmp_path / "front.json").write_text(json.dumps(front))
    text, _ = pages(tmp_path, tmp_path / "images")
    assert "figure2.png" not in text
    assert "experiments/front.py experiments/configs/front.toml --times`" in text


def test_only_points_that_no_faster_one_reaches_are_pareto_optimal(report: Any) -> None:
    from reporting.drawings import pareto

    assert pareto([(30, 0.5), (10, 0.3), (20, 0.2), (40, 0.5), (50, 0.9)]) == [(10, 0.3), (30, 0.5), (50, 0.9)]


def test_notes_follow_what_the_data_says(pages: Any, tmp_path: Path) -> None:
    (tmp_path / "front.json").write_text(json.dumps(_front()))
    notes = tmp_path / "notes.toml"
    notes.write_text('figure2 = """\nBecause of\nthe data."""')
    text, _ = pages(tmp_path, None, notes)
    assert re.search(r"\*\*Where and why they differ\.\*\* At least one student.*Because of the data\.", text)


class _Words(HTMLParser):
    """Text and tags of a page; every tag that is opened is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.cells = 0

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.cells += tag in ("td", "th")
        if tag not in ("meta", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_has_the_same_cells_and_needs_nothing_from_elsewhere(pages: Any, tmp_path: Path) -> None:
    (tmp_path / "front.json").write_text(json.dumps(_front()))
    text, page = pages(tmp_path)
    words = _Words()
    words.feed(page)
    assert not words.open
    rows = [line for line in text.splitlines() if line.startswith("| ") and not line.startswith("| ---")]
    assert words.cells == sum(line.count(" | ") + 1 for line in rows)
    assert "<script" not in page
    assert not re.search(r'(?:src|<link[^>]*href)="(?:https?:)?//', page)
    assert "prefers-color-scheme: dark" in page


def test_the_committed_pages_are_the_generated_ones(pages: Any) -> None:
    text, page = pages(DOCS / "results")
    assert (DOCS / "results.md").read_text() == text, "run: python experiments/report.py"
    assert (DOCS / "results.html").read_text() == page, "run: python experiments/report.py"
    for picture in re.findall(r"!\[[^\]]*\]\(([^)]+)\)", text):
        assert (DOCS / picture).is_file(), picture
