"""The shape of the command line: verbs, one meaning per option, plain help texts, old spellings, quiet, completion."""

import io
import os
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from PIL import Image

from fastgaze.app.cli import app
from fastgaze.app.cli.common import complete_models
from tests.commands import run
from tests.wording import DIALECT

WORKSHOP = {"teacher", "distill", "tune", "soft-targets", "prune", "narrow", "sweep"}
OLD_SPELLINGS = [
    ("teacher --config run.toml", "fastgaze workshop teacher"),
    ("distill --config run.toml --out runs", "fastgaze workshop distill"),
    ("distill --config run.toml --start a.safetensors --out runs", "fastgaze workshop tune --start"),
    ("workshop distill --config run.toml --start a.safetensors --out runs", "fastgaze workshop tune --start"),
    ("maps runs/student --config run.toml", "fastgaze workshop soft-targets"),
    ("prune --config run.toml --start a.safetensors --out runs", "fastgaze workshop prune"),
    ("narrow --config run.toml", "fastgaze workshop narrow"),
    ("sweep --config run.toml", "fastgaze workshop sweep"),
    ("--debug sweep --config run.toml", "fastgaze workshop sweep"),
    ("batch photos rows --engine ray", "--runner"),
    ("batch photos rows --ratios 1:1,16:9", "--ratio"),
    ("batch photos rows --crops=3", "--candidates"),
    ("batch photos rows --density 24x32", "--size"),
    ("predict a.jpg --output-size 480x640", "--size"),
    ("evaluate small --data set --format npz", "--layout"),
    ("train --data set --out runs --format npz", "--layout"),
    ("data convert auto set --to npz --out new", "--format"),
    ("data formats", "fastgaze data layouts"),
    ("export a.safetensors --to onnx", "always writes ONNX"),
]


def verbs() -> Iterator[tuple[str, Any]]:
    """Every verb with its command, those inside groups as ``group verb``."""
    command: Any = typer.main.get_command(app)
    for name, found in command.commands.items():
        for inner, verb in getattr(found, "commands", {"": found}).items():
            yield f"{name} {inner}".strip(), verb


def options(command: Any) -> Iterator[Any]:
    for parameter in command.get_params(typer.Context(command)):
        if parameter.param_type_name == "option":
            yield parameter


VERBS = dict(verbs())


def test_the_workshop_is_a_group_and_nothing_of_it_is_left_outside() -> None:
    assert {name.split()[1] for name in VERBS if name.startswith("workshop ")} == WORKSHOP
    assert not WORKSHOP & set(VERBS)


@pytest.mark.parametrize(("typed", "new"), OLD_SPELLINGS)
def test_an_old_spelling_fails_with_one_line_that_names_the_new_one(
    typed: str, new: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*typed.split()) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    (line,) = shown.err.splitlines()
    assert new in line


@pytest.mark.parametrize(("typed", "new"), OLD_SPELLINGS)
def test_what_an_old_spelling_is_sent_to_exists(typed: str, new: str) -> None:
    words = new.split()
    if words[0] == "fastgaze":
        verb = " ".join(word for word in words[1:] if not word.startswith("-"))
    else:
        verb = next(name for name in sorted(VERBS, key=len, reverse=True) if typed.startswith(name))
    known = {spelling for option in options(VERBS[verb]) for spelling in option.opts}
    assert {word for word in words if word.startswith("--")} <= known


# What the verb works on differs, and the text says so: names with one meaning that is put in several ways.
SEVERAL_TEXTS = {"--out", "--size", "--format", "--start", "--images", "--data", "--model", "--ratio", "--candidates"}
SEVERAL_TEXTS |= {"--peaks", "--workers", "--center-bias", "--threads", "--opacity", "--steps", "--crf"}


def test_an_option_has_one_meaning_in_all_verbs() -> None:
    texts, kinds = defaultdict(set), defaultdict(set)
    for command in VERBS.values():
        for option in options(command):
            texts[option.opts[0]].add(option.help)
            kinds[option.opts[0]].add((type(option.type).__name__, option.is_flag))
    assert {name for name, found in texts.items() if len(found) > 1} <= SEVERAL_TEXTS
    assert {name: found for name, found in kinds.items() if len(found) > 1} == {
        # `train` also starts from a bundled model, by name.
        "--start": {("TyperPath", False), ("StringParamType", False)}
    }
    sizes = {option.metavar for command in VERBS.values() for option in options(command) if "--size" in option.opts}
    assert sizes == {"WIDTHxHEIGHT"}


def test_every_verb_can_be_quiet_and_every_one_that_measures_speaks_json() -> None:
    for name, command in VERBS.items():
        known = {spelling for option in options(command) for spelling in option.opts}
        assert "--quiet" in known, name
        assert "--json" in known or name in ("serve", "roi"), name


@pytest.mark.parametrize("name", VERBS)
def test_help_is_written_in_whole_sentences(name: str) -> None:
    command = VERBS[name]
    texts = [command.help, *(parameter.help for parameter in command.params)]
    for text in texts:
        assert re.match(r"[A-Z]|\S+ \(|model, |model or|own \(|local ", text), f"{name}: {text!r}"
        assert text.rstrip().endswith("."), f"{name}: {text!r}"
        for phrase in DIALECT:
            assert not re.search(phrase, text), f"{name}: {phrase!r} in {text!r}"


@pytest.mark.parametrize("name", VERBS)
def test_help_shows_what_was_written(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Square brackets would be swallowed as markup."""
    assert run(*name.split(), "--help") == 0
    shown = re.sub(r"\W+", "", capsys.readouterr().out)
    assert re.sub(r"\W+", "", VERBS[name].help) in shown


@pytest.fixture
def photo(tmp_path: Path) -> Path:
    path = tmp_path / "a.jpg"
    Image.new("RGB", (80, 60), "white").save(path)
    return path


def test_quiet_leaves_results_and_errors(
    photo: Path, bright_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert run("predict", photo, "--model", bright_file, "--out", out, "--quiet") == 0
    assert capsys.readouterr() == ("", "")
    assert (out / "a.gaze.png").is_file()
    assert run("crop", photo, "--ratio", "1:1", "--model", bright_file, "-q") == 0
    assert "1:1" in capsys.readouterr().out, "windows that are written nowhere else are the result"
    assert run("crop", photo, "--ratio", "1:1", "--model", bright_file, "--out", out, "-q") == 0
    assert capsys.readouterr().out == ""
    assert run("predict", tmp_path / "none.jpg", "--model", bright_file, "-q") == 1
    assert "none.jpg" in capsys.readouterr().err
    assert run("predict", photo, "--model", bright_file, "--out", out) == 0
    assert "a.gaze.png" in capsys.readouterr().out, "the next run is not quiet"


def fresh(*arguments: object, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "fastgaze", *map(str, arguments)]
    return subprocess.run(command, input=stdin, capture_output=True, check=False)


def test_a_dash_as_out_is_stdout(photo: Path, bright_file: Path) -> None:
    overlay = fresh("predict", photo, "--out", "-", "--model", bright_file)
    assert Image.open(io.BytesIO(overlay.stdout)).size == (80, 60)
    window = fresh("crop", photo, "--ratio", "1:1", "--out", "-", "--model", bright_file)
    assert Image.open(io.BytesIO(window.stdout)).size == (60, 60)
    through = fresh("crop", "-", "--ratio", "1:1", "--out", "-", "--model", bright_file, stdin=photo.read_bytes())
    assert through.stdout == window.stdout
    assert [path.name for path in photo.parent.iterdir()] == ["a.jpg"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["predict", "PHOTO", "--out", "-", "--json"],
        ["predict", "PHOTO", "--out", "-", "--format", "png,npy"],
        ["predict", "PHOTO", "OTHER", "--out", "-"],
        ["crop", "PHOTO", "--out", "-", "--ratio", "1:1", "--ratio", "16:9"],
        ["demo", "--out", "-"],
    ],
)
def test_what_does_not_fit_stdout_is_refused(
    arguments: list[str], photo: Path, bright_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Image.new("RGB", (80, 60)).save(photo.with_name("b.jpg"))
    places = {"PHOTO": photo, "OTHER": photo.with_name("b.jpg")}
    assert run(*(places.get(word, word) for word in arguments), "--model", bright_file) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert len(shown.err.splitlines()) == 1


@pytest.mark.parametrize(
    ("verb", "code"),
    [(["predict"], 2), (["crop", "--ratio", "1:1", "--out", "-"], 2), (["predict", "--format", "json"], 0)],
)
def test_a_terminal_is_never_filled_with_bytes(verb: list[str], code: int, photo: Path, bright_file: Path) -> None:
    terminal, other_end = os.openpty()
    command = [sys.executable, "-m", "fastgaze", *verb, "-", "--model", str(bright_file)]
    done = subprocess.run(command, input=photo.read_bytes(), stdout=other_end, stderr=subprocess.PIPE, check=False)
    os.close(other_end)
    try:
        shown = os.read(terminal, 100_000)
    except OSError:  # nothing was written and the other end is closed
        shown = b""
    os.close(terminal)
    assert done.returncode == code, done.stderr
    assert b"PNG" not in shown
    assert (b"terminal" in done.stderr) == (code == 2)


def test_models_are_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "family.onnx").touch()
    (tmp_path / "family.txt").touch()
    assert complete_models("fa") == ["family.onnx"]
    assert complete_models("sm")[0] == "small"
    assert complete_models("nothing") == []
    environment = os.environ | {
        "_FASTGAZE_COMPLETE": "complete_bash",
        "COMP_WORDS": "fastgaze predict --model ti",
    }
    command = [sys.executable, "-c", "from fastgaze.app.cli import main; main()"]
    done = subprocess.run(command, env=environment | {"COMP_CWORD": "3"}, capture_output=True, text=True, check=False)
    assert "tiny" in done.stdout.split()


@pytest.mark.parametrize("verb", [["demo", "--out", "demo"], ["models"], ["info", "small"]])
def test_tables_fit_80_columns(verb: list[str], tmp_path: Path) -> None:
    environment = os.environ | {"COLUMNS": "80"}
    command = [sys.executable, "-m", "fastgaze", *verb]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, cwd=tmp_path)
    table = [line for line in done.stdout.splitlines() if not line.startswith(("* ", "One core", "small ("))]
    assert len(table) > 4
    assert max(map(len, table)) <= 80
    assert "…" not in done.stdout
