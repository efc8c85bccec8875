"""What the report shows: figures, tables and pages."""

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from experiments.common import DOCS, RESULTS
from experiments.reporting import model_sections
from experiments.reporting.drawings import front_of
from experiments.reporting.inputs import COMMANDS
from experiments.reporting.speeds import Range, speeds
from tests.experiments.report_records import (
    MACHINE,
    SEARCH,
    curves,
    front,
    lenet,
    model,
    pages,
    put,
    score,
    trial,
    verdict,
)


def test_widths_that_were_typed_in_are_never_in_figure_3(tmp_path: Path) -> None:
    text, _ = pages(put(tmp_path, front=front()))
    section = text.split("## Figure 3")[1].split("## Figure 4")[0]
    shown = re.findall(r"^\| `([\w.-]+)` \|", section, flags=re.M)
    assert shown == ["fastgaze-l", "none-8", "star-8", "sweep-3-beta", "sweep-4-none"], "the start, then found ones"
    assert "densegaze-m`" not in section


def searched(widths: dict[float, tuple[int, int, int, int]]) -> tuple[dict[str, Any], dict[str, Any]]:
    """A front and a search with three trials of each beta, whose layers have the given widths, of 64 at the start."""
    record = front()
    names = ("conv1_1", "conv2_1", "conv3_1", "conv4_1")
    record["models"] = {"fastgaze-l": model("finished", "FastGaze", 10, 100, 0.86)}
    record["models"]["fastgaze-l"]["layers"] = [[name, 64] for name in names]
    points: list[dict[str, Any]] = []
    for beta, shape in widths.items():
        for _ in range(3):
            points.append(trial(len(points), beta, 3.0, 7.4))
            kind, mark = ("regularised", "beta") if beta else ("unregularised", "none")
            found = model(kind, "FastGaze", 3, 40, 0.86, source="search", found=True)
            found["layers"] = [list(pair) for pair in zip(names, shape, strict=True)]
            record["models"][f"sweep-{points[-1]['number']}-{mark}"] = found
    return record, {"settings": SEARCH, "points": points, "pareto": []}


def test_widths_alternate_only_if_they_go_up_and_down(tmp_path: Path) -> None:
    claim = "Strongly regularised networks alternate"
    flat, trend, zigzag = (32, 32, 32, 32), (64, 32, 16, 8), (32, 4, 32, 4)
    for strong, zero, expected in (
        (zigzag, flat, "reproduced"),
        (flat, zigzag, "contradicted"),
        (trend, flat, "undecided"),
    ):
        record, sweep = searched({0.0: zero, 1e-4: zero, 1e-3: strong})
        text, _ = pages(put(tmp_path, front=record, sweep=sweep))
        assert verdict(text, claim) == expected, (strong, zero)


def test_a_search_that_is_not_scored_to_its_end_decides_nothing(tmp_path: Path) -> None:
    record, sweep = searched({0.0: (32, 32, 32, 32), 1e-4: (32, 32, 32, 32), 1e-3: (32, 4, 32, 4)})
    for number, facts in enumerate(list(record["models"].values())[1:]):
        facts["gflop_640x480"], kind = 1.0 + number % 3, facts["kind"]
        facts["scores"]["cat2000"] = score(0.8 + 0.01 * (number % 3) + (0.005 if kind == "regularised" else 0.0))
    whole, _ = pages(put(tmp_path, front=record, sweep=sweep))
    assert verdict(whole, "Strongly regularised networks alternate") == "reproduced"
    del record["models"]["sweep-4-beta"]
    text, _ = pages(put(tmp_path, front=record, sweep=sweep))
    assert "8 of 9 trials are scored" in text
    for claim in ("At equal AUC on CAT2000", "Strongly regularised networks alternate"):
        assert verdict(text, claim) == "undecided"


def test_figure_3_shows_a_trial_of_each_of_four_betas(tmp_path: Path) -> None:
    shape = (32, 32, 32, 32)
    record, sweep = searched({0.0: shape, 1e-5: shape, 1e-4: shape, 1e-3: shape})
    text, _ = pages(put(tmp_path, front=record, sweep=sweep))
    section = text.split("## Figure 3")[1].split("## Figure 4")[0]
    assert re.findall(r"^\| `(sweep-\d+)", section, flags=re.M) == ["sweep-0", "sweep-3", "sweep-6", "sweep-9"]


def test_the_best_fastgaze_is_a_regularised_one(tmp_path: Path) -> None:
    text, _ = pages(put(tmp_path, front=front()), tmp_path / "images")
    assert "| AUC | 0.860 | 0.868 (`fastgaze-l`) | 0.870 (`densegaze-m`) | `fastgaze-xs` | 150 | 200 |" in text
    with Image.open(tmp_path / "images" / "figure2.png") as figure:
        assert figure.width == 1600


def test_the_legacy_table_says_where_the_centre_bias_wins(tmp_path: Path) -> None:
    record = front()
    for name in ("fastgaze-l", "densegaze-m"):
        record["models"][name]["scores"]["cat2000-legacy"] = score(0.86)
    for kl, words in ((0.2, "in KL (0.200) it is ahead of 2 of 2 models"), (0.9, "behind every model in every metric")):
        record["baselines"] = {"cat2000-legacy": {"center_bias": {"auc": 0.8, "kl": kl, "sim": 0.7, "nss": 1.0}}}
        text, _ = pages(put(tmp_path, front=record))
        assert words in text
    assert "Not measured yet**: deepgaze2 and twitter-fastgaze by this protocol" in text


def test_240_gflop_are_the_readout_at_stride_4() -> None:
    assert model_sections.deepgaze2_gflop() == pytest.approx(239.07, abs=0.005)
    assert model_sections.deepgaze2_gflop(4) == pytest.approx(240.57, abs=0.005)
    assert model_sections.cost_claim().verdict == "reproduced"


def test_speeds_are_medians_and_ranges_over_all_runs() -> None:
    def run(load: float, ms: float) -> dict[str, Any]:
        row = {"name": "m", "engine": "onnxruntime", "precision": "fp32", "own_size": True, "network_size": [160, 208]}
        machine = MACHINE | {"load": load}
        return {"machine": machine, "settings": {"rounds": 4}, "rows": [row | {"cpu_ms": ms, "ratio_to_peer": 1 / ms}]}

    (found,) = speeds({"runs": [run(1.79, 8.0), run(0.35, 10.0), run(0.1, 9.0)]}).values()
    assert found.cpu_ms == Range(9.0, 8.0, 10.0, 3)
    assert found.cpu_ms.shown() == "9.0 (8.0 to 10.0)"


# The page


def test_what_was_not_measured_is_named_with_its_command(tmp_path: Path) -> None:
    text, page = pages(tmp_path)
    for name in (
        "lenet_mnist",
        "figure1",
        "figure1-lenet",
        "front",
        "maps",
        "search",
        "equal_cost",
        "choices",
        "speed",
        "cluster_speed",
        "cluster",
    ):
        assert f"Run `{COMMANDS[name]}`" in text, name
    assert "![" not in text
    assert "<img" not in page
    assert page.count('class="missing"') == text.count("**Not measured yet**")
    assert "0 contradicted" in text


def test_the_papers_numbers_are_there_without_any_of_ours(tmp_path: Path) -> None:
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


def test_only_points_that_no_faster_one_reaches_are_pareto_optimal() -> None:
    assert front_of([(30, 0.5), (10, 0.3), (20, 0.2), (40, 0.5), (50, 0.9)]) == [(10, 0.3), (30, 0.5), (50, 0.9)]


class _Words(HTMLParser):
    """Text and tags of a page; every tag that is opened is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.cells = 0

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.cells += tag in ("td", "th")
        if tag not in ("meta", "img", "wbr", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_has_the_same_cells_and_needs_nothing_from_elsewhere(tmp_path: Path) -> None:
    text, page = pages(put(tmp_path, front=front(), figure1=curves(), lenet_mnist=lenet()))
    words = _Words()
    words.feed(page)
    assert not words.open
    rows = [line for line in text.splitlines() if line.startswith("| ") and not line.startswith("| ---")]
    assert words.cells == sum(line.count(" | ") + 1 for line in rows)
    assert "<script" not in page
    assert not re.search(r'(?:src|<link[^>]*href)="(?:https?:)?//', page)
    assert "prefers-color-scheme: dark" in page


def test_the_committed_pages_are_the_generated_ones() -> None:
    text, page = pages(RESULTS)
    assert (DOCS / "results.md").read_text() == text, "run: python -m experiments.report"
    assert (DOCS / "results.html").read_text() == page, "run: python -m experiments.report"
    for picture in re.findall(r"!\[[^\]]*\]\(([^)]+)\)", text):
        assert (DOCS / picture).is_file(), picture
