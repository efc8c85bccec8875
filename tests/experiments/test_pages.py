"""What scripts write into the guides is what results/ says now, and nothing in results/ is without a reader."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from experiments import (
    border,
    calibration,
    cluster_speed,
    crop_prices,
    crop_speed,
    crops,
    hostile_files,
    install_size,
    leave_out,
    pruning_gain,
    server_docs,
    site_docs,
    softness,
    teacher_ladder,
    temperatures,
    unisal,
    video_docs,
)  # fmt: skip
from experiments.common import DOCS, RESULTS, read_record, write_record
from experiments.pages import filled, table

# (page, mark) -> result file, and what makes the part of it
PARTS: dict[tuple[str, str], tuple[str, Callable[[Any], str]]] = {
    ("calibrate", "screens"): ("calibration", calibration.shown),
    ("runtime", "hostile"): ("hostile_files", hostile_files.shown),
    ("runtime", "size"): ("install_size", install_size.shown),
    ("batch", "nodes"): ("cluster_speed", cluster_speed.sentence),
    ("crops", "speed"): ("crop_speed", crop_speed.shown),
    ("crops", "crops"): ("crops", lambda record: crops.tables(record["rows"])),
    ("crops", "prices"): ("crop_prices", lambda record: crop_prices.shown(record["rows"])),
    ("deploy", "kills"): ("kills", server_docs.kills_part),
    ("models", "border"): ("border", border.shown),
    ("models", "categories"): ("temperatures", temperatures.shown),
    ("models", "ladder"): ("teacher_ladder", teacher_ladder.shown),
    ("models", "leave-out"): ("leave_out", leave_out.shown),
    ("models", "softness"): ("softness", softness.shown),
    ("models", "unisal"): ("unisal", unisal.shown),
    ("pruning", "gain"): ("pruning_gain", lambda record: pruning_gain.shown(record["rows"])),
    **{("site", mark): ("site_speed", write) for mark, write in site_docs.PARTS.items()},
    **{("video", mark): (f"video_{mark}", write) for mark, write in video_docs.PARTS.items()},
}


@pytest.mark.parametrize(("page", "mark"), PARTS)
def test_a_part_of_a_guide_is_what_its_result_file_says(page: str, mark: str) -> None:
    name, write = PARTS[page, mark]
    record = read_record(RESULTS / f"{name}.json")
    assert record is not None
    text = (DOCS / f"{page}.md").read_text()
    assert filled(text, mark, write(record)) == text


def test_the_part_about_hostile_clients_is_what_its_result_files_say() -> None:
    text = (DOCS / "server.md").read_text()
    assert filled(text, "soak", server_docs.soak_part()) == text


def test_every_result_file_is_listed_with_its_script() -> None:
    listed = (RESULTS / "README.md").read_text()
    names = [path.name for path in sorted(RESULTS.glob("*.json"))]
    missing = [name for name in names if f"`{name}`" not in listed and not name.startswith("crop_audit-")]
    assert missing == []


def test_a_page_without_a_place_for_a_part_is_refused() -> None:
    text = "<!-- a: somebody writes this -->\nold\n<!-- /a -->\n"
    assert filled(text, "a", "new") == "<!-- a: somebody writes this -->\nnew\n<!-- /a -->\n"
    with pytest.raises(SystemExit, match="0 places for 'b'"):
        filled(text, "b", "new")


def test_a_table_has_a_rule_below_its_head() -> None:
    assert table(["a", "b"], [["x", 1]]) == "| a | b |\n|---|---|\n| x | 1 |"


def test_numbers_of_a_result_file_fill_lines_and_keep_their_values(tmp_path: Path) -> None:
    record = {"a": [1e-05, -0.25, 3] * 50, "b": ["[1, 2]", 4], "c": [], "d": [{"e": [True, None]}]}
    write_record(tmp_path / "record.json", record)
    assert read_record(tmp_path / "record.json") == record
    assert len((tmp_path / "record.json").read_text().splitlines()) < 30
