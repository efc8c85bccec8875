"""Every command that the report prints: its flags and paths exist, paper.sh runs it, and its tiny form works."""

import argparse
import importlib
import itertools
import json
import re
import shlex
import subprocess
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import typer

from experiments import equal_cost, pruning_comparison, random_search, ship
from experiments.common import CONFIGS, ROOT, read_record
from experiments.entries import read_entries
from experiments.reporting.inputs import COMMANDS, Inputs
from experiments.reporting.lenet_sections import table1
from experiments.reporting.pruning_sections import figure1
from experiments.starts import tiny_workshop
from fastgaze.app.cli import app
from fastgaze.training.config import Config, read_config, read_settings

PAPER = (ROOT / "experiments" / "paper.sh").read_text()
PAGE = (ROOT / "docs" / "results.md").read_text()


def split(command: str) -> tuple[ModuleType, list[str]]:
    """The module that a command runs, and the arguments it gets."""
    python, flag, module, *arguments = shlex.split(command)
    assert (python, flag) == ("python", "-m")
    return importlib.import_module(module), arguments


def printed() -> list[str]:
    """Commands of the committed report: its code blocks, its opening table and its 'Not measured yet' lines."""
    blocks = re.findall(r"```sh\n(.*?)```", PAGE, re.S)
    codes = re.findall(r"`(python -m [^`]+)`", PAGE)
    found = [line for block in blocks for line in block.split("\n")]
    found += [part for code in codes for part in code.split(" && ")]
    return sorted({command for command in found if command})


def is_verb(command: str) -> bool:
    """Whether it is one of the product's own verbs, and not an experiment."""
    return command.startswith("fastgaze ")


def test_the_report_prints_commands() -> None:
    assert len(printed()) > 8
    assert any(is_verb(command) for command in printed())


@pytest.mark.parametrize("command", sorted(filter(is_verb, printed())))
def test_verbs_and_files_of_a_printed_command_exist(command: str) -> None:
    _, *words = shlex.split(command)
    verb: Any = typer.main.get_command(app)
    while hasattr(verb, "commands"):
        verb = verb.commands[words.pop(0)]
    options = {name for parameter in verb.params for name in parameter.opts}
    assert {word for word in words if word.startswith("-")} <= options
    for word in words:
        if Path(word).suffix in (".toml", ".safetensors"):
            assert (ROOT / word).is_file(), word


@pytest.mark.parametrize("command", sorted({*COMMANDS.values(), *itertools.filterfalse(is_verb, printed())}))
def test_flags_and_paths_of_a_printed_command_exist(command: str) -> None:
    module, arguments = split(command)
    options: argparse.Namespace = module.make_parser().parse_args(arguments)
    for value in vars(options).values():
        if isinstance(value, Path) and value.suffix == ".toml":
            assert (ROOT / value).is_file(), value
    name = module.__name__.removeprefix("experiments.")
    assert re.search(rf"measure {name}\b|experiments\.{name}\b", PAPER), f"paper.sh does not run {name}"


KINDS: dict[str, type] = {
    "figure1": pruning_comparison.Settings,
    "figure1-lenet": pruning_comparison.Settings,
    "equal_cost": equal_cost.Comparison,
    "equal_cost-densegaze": equal_cost.Comparison,
    "equal_cost-litegaze": equal_cost.Comparison,
    "choices": equal_cost.Comparison,
    "sweep": random_search.Search,
}


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.toml")), ids=lambda path: path.stem)
def test_every_file_of_settings_is_read(path: Path) -> None:
    if path.stem == "front":
        assert read_entries(path, ["fastgaze-m"])
    elif path.stem == "ship":
        settings = tomllib.loads(path.read_text())
        assert settings["default"] in [name for name, entry in settings["models"].items() if ship.Model(**entry)]
    else:
        assert read_settings(KINDS.get(path.stem, Config), path)


def run(name: str, data: Path, out: Path, *more: str) -> dict[str, Any]:
    """A command of the report in its tiny form; what it wrote."""
    module, arguments = split(COMMANDS[name])
    module.main([*arguments, "--tiny", "--data", str(data), "--out", str(out), *more])
    record = read_record(out)
    assert record is not None
    return record


def test_lenet_and_its_figure_in_their_tiny_form(small_data: Path, tmp_path: Path) -> None:
    work = tmp_path / "lenet"
    run("lenet_mnist", small_data, tmp_path / "lenet_mnist.json", "--work", str(work))
    network = str(work / "unpruned-seed1.safetensors")
    record = run("figure1-lenet", small_data, tmp_path / "figure1-lenet.json", "--model", network)
    for found in record["curves"].values():
        costs = [point["cost_percent"] for point in found["measured"]]
        assert costs[0] == 100
        assert costs == sorted(costs, reverse=True)
        assert costs[-1] <= 10
        assert found["measured"][0]["losses"] == record["curves"]["L1W"]["measured"][0]["losses"]
    blocks, claims = table1(Inputs(tmp_path))
    assert {claim.verdict for claim in claims} == {"undecided"}, "one seed decides nothing"
    blocks, claims = figure1(Inputs(tmp_path), tmp_path / "images")
    assert blocks
    assert {claim.ours for claim in claims} == {"not measured yet"}, "the paper says nothing of LeNet-5 there"
    assert (tmp_path / "images" / "figure1-lenet.png").is_file()


def test_scores_and_times_of_the_front_in_their_tiny_form(small_data: Path, tmp_path: Path) -> None:
    out = tmp_path / "front.json"
    scored = run("front", small_data, out, "--only", "fastgaze-xs")["models"]["fastgaze-xs"]["scores"]
    assert {name: found["images"] for name, found in scored.items()} == {
        "cat2000": 4,
        "salicon-val": 4,
        "cat2000-legacy": 4,
    }
    rows = json.loads((tmp_path / "rows" / "fastgaze-xs.cat2000.json").read_text())
    assert np.mean(rows["auc"]) == pytest.approx(scored["cat2000"]["means"]["auc"], abs=1e-3)
    record = run("times", small_data, out, "--only", "fastgaze-xs")
    assert set(record["models"]["fastgaze-xs"]["times"]) == {"torch", "onnxruntime", "own size"}
    assert record["models"]["fastgaze-xs"]["scores"] == scored, "timing keeps the scores"
    assert record["timing"]["rounds"] == 2


def test_maps_in_their_tiny_form(tmp_path: Path) -> None:
    module, arguments = split(COMMANDS["maps"])
    module.main([*arguments, "--tiny", "--out", str(tmp_path / "maps.json"), "--images", str(tmp_path)])
    record = read_record(tmp_path / "maps.json")
    assert record is not None
    assert set(record["models"]) >= {"fastgaze-l", "fastgaze-xs", "densegaze-m"}
    assert (tmp_path / "fastgaze-xs-astronaut.png").is_file()


def test_the_peer_in_its_tiny_form(small_data: Path, tmp_path: Path, peer: Path) -> None:
    for name, part in (("peers", "sets"), ("readings", "readings")):
        record = run(name, small_data, tmp_path / "peers.json", "--peer", str(peer), "--sets", "osie-held-out")
        assert set(record[part]["scores"]) == {"osie-held-out"}
    assert set(record) == {"sets", "readings"}, "one does not overwrite the other"


@pytest.fixture
def taught(small_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of runs with a teacher that has soft targets: all places alike."""
    monkeypatch.setenv("FASTGAZE_DATA", str(small_data))
    workshop = tiny_workshop(read_config(ROOT / "experiments" / "configs" / "full.toml").workshop)
    grid = (workshop.size[0] // 4, workshop.size[1] // 4)
    targets = np.ones((24, *grid), np.float16)
    (tmp_path / "tiny" / "teacher").mkdir(parents=True)
    np.save(tmp_path / "tiny" / "teacher" / "maps-24.npy", targets)
    return tmp_path


@pytest.mark.slow
def test_networks_at_equal_cost_in_their_tiny_form(small_data: Path, taught: Path) -> None:
    record = run("choices", small_data, taught / "choices.json", "--runs", str(taught))
    sgd, adam = (record["variants"][name][0] for name in ("sgd", "adam"))
    assert sgd["gflop"] == pytest.approx(adam["gflop"], rel=0.02)
    assert max(sgd["gflop"], adam["gflop"]) <= 3.0
    assert len(sgd["rows"]["salicon-val"]["auc"]) == 4


@pytest.mark.slow
def test_a_random_search_in_its_tiny_form(small_data: Path, taught: Path) -> None:
    module, arguments = split(COMMANDS["search"])
    module.main([*arguments, "--tiny", "--runs", str(taught), "--out", str(taught / "sweep.json")])
    record = read_record(taught / "sweep.json")
    assert record is not None
    assert len(record["points"]) == 2
    assert record["settings"]["start"] == "fastgaze-l"


@pytest.mark.slow
def test_figure_1_in_its_tiny_form(small_data: Path, tmp_path: Path) -> None:
    methods = ["Fisher, beta = 0", "Molchanov, normalised, beta at 25%", "L1A"]
    more = ["--cache", str(tmp_path / "cache"), "--only", *methods]
    record = run("figure1", small_data, tmp_path / "figure1.json", *more)
    assert record["curves"]["Molchanov, normalised, beta at 25%"]["beta"] > 0
    assert [len(point["losses"]) for point in record["curves"]["L1A"]["measured"]] == [8] * 5


@pytest.mark.slow
def test_speed_in_its_tiny_form(small_data: Path, tmp_path: Path) -> None:
    earlier = {"settings": {"rounds": 3}, "rows": []}
    (tmp_path / "speed.json").write_text(json.dumps({"runs": [earlier]}))
    record = run("speed", small_data, tmp_path / "speed.json")
    assert record["runs"][0] == earlier, "every run is kept"
    rows = record["runs"][1]["rows"]
    ratios = [row.get("ratio_same_engine") for row in rows if row["name"] == "fastgaze-xs"]
    assert any(ratio is not None and ratio > 10 for ratio in ratios)


def lines_of_paper() -> list[list[str]]:
    """The commands of paper.sh as words, lines that are continued joined."""
    text = re.sub(r"\\\n\s*", "", PAPER)
    lines = [line.strip().removeprefix('if [ "$scale" = full ]; then ') for line in text.splitlines()]
    return [
        line.replace(";", " ").split()
        for line in lines
        if re.match(r"\$workshop |\$python -m fastgaze |measure [a-z]", line)
    ]


def test_paper_sh_is_valid_and_uses_only_verbs_and_flags_that_exist() -> None:
    subprocess.run(["bash", "-n", str(ROOT / "experiments" / "paper.sh")], check=True)
    root: Any = typer.main.get_command(app)
    workshop = root.commands["workshop"]
    lines = lines_of_paper()
    assert len(lines) > 25
    for words in lines:
        flags = {word for word in words if word.startswith("--")}
        if words[0] == "measure":
            known = set(importlib.import_module(f"experiments.{words[1]}").make_parser()._option_string_actions)
        else:
            verb = workshop.commands[words[1]] if words[0] == "$workshop" else root.commands[words[3]]
            known = {option for parameter in verb.params for option in parameter.opts}
        assert flags <= known, f"{' '.join(words)}: no {flags - known}"
