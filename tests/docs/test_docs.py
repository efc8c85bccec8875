"""What the guides say is true: their code runs, their verbs, options and names exist, their links lead somewhere.

Blocks marked ``python run`` and ``sh run`` are run in order, in one folder a guide, which holds what a reader is said
to have: a study of their own (``my-study``), a model to start from (``start.onnx``), an exported one (``mine.onnx``)
and a picture (``photo.png``). Training is cut to a few steps on small images.
"""

import ast
import re
import shlex
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import typer
from PIL import Image

from fastgaze.app.cli import app
from fastgaze.onnx.write import Facts, export_onnx
from fastgaze.training.config import read_config
from tests.commands import run
from tests.small_models import bright_model
from tests.training.helpers import bright_squares, tiny_model

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
BUNDLED = ROOT / "src" / "fastgaze" / "runtime" / "bundled"
GUIDES = ("method.md", "train-your-own.md", "calibrate.md", "prune-your-own.md", "deploy.md")
ROOMS = "core|data|networks|pruning|training|onnx|evaluation|runtime|app"


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, whether it is marked ``run``, and the line on which its code begins."""

    language: str
    runs: bool
    line: int
    code: str


def blocks(guide: str) -> Iterator[Block]:
    """The fenced blocks of a guide, in order."""
    text = (DOCS / guide).read_text()
    for match in re.finditer(r"^```(\w+)( run)?\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        yield Block(match[1], bool(match[2]), text[: match.start(3)].count("\n"), match[3])


@pytest.fixture(scope="module")
def belongings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a reader has before the first command."""
    folder = tmp_path_factory.mktemp("reader")
    (folder / "my-study").mkdir()
    lines = ["image,x,y"]
    for kind, size in (("street", (64, 96)), ("tower", (96, 64))):
        squares = bright_squares(12, size)
        for i, (image, counts) in enumerate(zip(squares.images, squares.counts, strict=True)):
            name = f"{kind}{i or ''}.png"
            Image.fromarray(image).save(folder / "my-study" / name)
            rows, columns = np.nonzero(counts)
            lines += [f"{name},{4 * x + 2},{4 * y + 2}" for x, y in zip(columns, rows, strict=True)]
    (folder / "my-study" / "fixations.csv").write_text("\n".join(lines))
    export_onnx(tiny_model(), folder / "start.onnx", Facts("start"))
    export_onnx(bright_model(), folder / "mine.onnx", Facts("mine"))
    noise = np.random.default_rng(0).integers(0, 256, (6, 8, 3), dtype=np.uint8)
    Image.fromarray(noise).resize((640, 480), Image.Resampling.BICUBIC).save(folder / "photo.png")
    return folder


@pytest.mark.parametrize("guide", GUIDES)
def test_marked_code_runs(
    guide: str, belongings: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(belongings, tmp_path / "reader")
    monkeypatch.chdir(tmp_path / "reader")
    names: dict[str, Any] = {"__name__": guide}
    ran = 0
    for block in blocks(guide):
        if not block.runs:
            continue
        ran += 1
        if block.language == "python":
            # Line numbers of a failure are those of the guide.
            exec(compile("\n" * block.line + block.code, str(DOCS / guide), "exec"), names)
            continue
        for words in commands(block.code):
            assert run(*quick(words)) == 0, f"{guide}: {shlex.join(words)}: {capsys.readouterr().err}"
    assert ran


def commands(code: str) -> Iterator[list[str]]:
    """The words after ``fastgaze`` of every line that begins with it."""
    for line in code.splitlines():
        words = shlex.split(line, comments=True)
        if words and words[0] == "fastgaze":
            yield words[1:]


def quick(words: list[str]) -> list[str]:
    """The same command with 2 training steps on small images, pruning to what the small network can reach."""
    fast = {"--steps": "2", "--prune-to": "0.08"}
    words = [fast.get(words[i - 1], word) if i else word for i, word in enumerate(words)]
    return [*words, "--size", "96x64", "--validation-share", "0.2"] if words[0] == "train" else words


@pytest.mark.parametrize("guide", [*GUIDES, "data.md", "batch.md", "server.md", "video.md"])
def test_every_verb_and_option_exists(guide: str) -> None:
    checked = 0
    for block in blocks(guide):
        for words in commands(block.code) if block.language == "sh" else ():
            command: Any = typer.main.get_command(app)
            while hasattr(command, "commands"):
                assert words[0] in command.commands, f"{guide}: no verb {words[0]!r}"
                command, words = command.commands[words[0]], words[1:]
            known = {option for parameter in command.params for option in [*parameter.opts, *parameter.secondary_opts]}
            used = {word.split("=")[0] for word in words if re.match(r"--?[a-z]", word)}
            assert used <= known, f"{guide}: {command.name} has no {sorted(used - known)}"
            checked += 1
    assert checked or guide in ("method.md", "prune-your-own.md", "data.md")


@pytest.mark.parametrize("guide", [*GUIDES, "data.md", "batch.md", "server.md", "video.md", "runtime.md"])
def test_commands_miss_no_option_that_is_needed(guide: str) -> None:
    # In a sentence, an option with a value makes a command; `fastgaze distill --grow` is just a name, [...] a synopsis.
    inline = re.findall(r"`(fastgaze [^`\n\[]*--[\w-]+ [^`\n\[]*)`", (DOCS / guide).read_text())
    found = list(commands("\n".join([block.code for block in blocks(guide) if block.language == "sh"] + inline)))
    assert found or guide in ("method.md", "prune-your-own.md", "data.md")
    for words in found:
        command: Any = typer.main.get_command(app)
        rest = list(takewhile(lambda word: word not in ("|", ">"), words))
        while hasattr(command, "commands"):
            command, rest = command.commands[rest[0]], rest[1:]
        try:
            command.make_context(command.name, rest)
        except typer.TyperException as error:
            raise AssertionError(f"{guide}: {shlex.join(words)}: {error.format_message()}") from error


def test_the_operators_of_the_bundled_models_are_listed() -> None:
    row = next(line for line in (DOCS / "deploy.md").read_text().splitlines() if line.startswith("| opset 17 |"))
    used = {node.op_type for path in BUNDLED.glob("*.onnx") for node in onnx.load(path).graph.node}
    assert used
    assert used <= set(re.findall(r"[A-Z]\w+", row))


@pytest.mark.parametrize("guide", GUIDES)
def test_every_import_of_the_other_blocks_exists(guide: str) -> None:
    for block in blocks(guide):
        for node in ast.walk(ast.parse(block.code)) if block.language == "python" else ():
            if isinstance(node, ast.ImportFrom) and node.module:
                module = import_module(node.module)
                for alias in node.names:
                    assert hasattr(module, alias.name), f"{guide}: {node.module} has no {alias.name}"


@pytest.mark.parametrize("guide", GUIDES)
def test_every_name_in_the_text_is_in_the_code(guide: str) -> None:
    names = re.findall(rf"`(?:fastgaze\.)?((?:{ROOMS})\.[a-z_.]+[\w.]*)(?:\(.*?\))?`", (DOCS / guide).read_text())
    names = [name for name in names if not name.endswith(("py", "md", "toml"))]
    for name in names:
        resolve(f"fastgaze.{name}")
    assert guide != "method.md" or len(names) > 40


def resolve(name: str) -> Any:
    """The object of a dotted name: the longest module of it, then attributes."""
    parts = name.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            found = import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        for part in parts[cut:]:
            assert hasattr(found, part), f"{name}: no {part} in {found.__name__}"
            found = getattr(found, part)
        return found
    raise AssertionError(f"no module of {name}")


def test_the_explained_settings_are_settings(tmp_path: Path) -> None:
    (block,) = (block for block in blocks("train-your-own.md") if block.language == "toml")
    (tmp_path / "run.toml").write_text(block.code)
    config = read_config(tmp_path / "run.toml")
    assert config.prune.marks == (10.0, 2.8, 1.25)
    assert config.teacher.folds.steps == 600


@pytest.mark.parametrize("page", sorted(path.name for path in DOCS.glob("*.md")))
def test_links_and_files_lead_somewhere(page: str) -> None:
    text = (DOCS / page).read_text()
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
        assert (DOCS / target).exists(), f"{page}: no {target}"
    for file in re.findall(r"`((?:experiments|tests|examples)/[\w./-]+)`", text):
        assert (ROOT / file).exists(), f"{page}: no {file}"


def test_the_index_names_every_page() -> None:
    index = (DOCS / "README.md").read_text()
    missing = [path.name for path in DOCS.glob("*.md") if path.name != "README.md" and f"({path.name})" not in index]
    assert not missing
