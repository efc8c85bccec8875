"""What every experiment shares: folders, command lines, facts about the machine, and result files."""

import argparse
import json
import os
import platform
import re
import shlex
import sys
import textwrap
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from time import monotonic, sleep, strftime
from typing import Any

from fastgaze.core.files import replacing

ROOT = Path(__file__).parents[1]
RESULTS, DOCS, CONFIGS, RUNS = ROOT / "results", ROOT / "docs", ROOT / "experiments" / "configs", ROOT / "runs"
EXAMPLES = ROOT / "src" / "fastgaze" / "app" / "server" / "examples"
DATA = Path(os.environ.get("FASTGAZE_DATA", ROOT / "data"))
"""The data sets: data/ in the checkout, or the folder that FASTGAZE_DATA names. docs/data.md describes the layout."""
PEER = DATA.parent / "peers" / "twitter-fastgaze.vxm"
PACKAGES = ("torch", "onnxruntime", "openvino", "numpy")
Record = dict[str, Any]
TURN = 240  # seconds after which others get a lock, if they wait for it


def make_parser(
    doc: str | None,
    file: str,
    data: bool = True,
    out: Path | None = None,
    tiny: str = "",
    threads: bool = False,
    rounds: int = 0,
) -> argparse.ArgumentParser:
    """A parser for the script ``file`` that shows ``doc`` as it is.

    What several scripts have, it adds for those that ask for it: ``--data``, ``--out`` and ``--rounds`` with these
    defaults, ``--tiny``, where ``tiny`` says what such a run consists of, and ``--threads``, which ``parse`` hands to
    torch.
    """
    name, shape = f"python -m experiments.{Path(file).stem}", argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog=name, description=doc, formatter_class=shape)
    if data:
        parser.add_argument("--data", type=Path, default=DATA, help="folder of the data sets (or set FASTGAZE_DATA)")
    if rounds:
        parser.add_argument("--rounds", type=int, default=rounds)
    if threads:
        parser.add_argument("--threads", type=int, default=1)
    if tiny:
        parser.add_argument("--tiny", action="store_true", help=f"{tiny}: shows that it runs")
    if out:
        parser.add_argument("--out", type=Path, default=out)
    return parser


def make_settings_parser(doc: str | None, file: str, example: str, tiny: str) -> argparse.ArgumentParser:
    """A parser for a script that trains as a file of settings says, and names its result after that file."""
    parser = make_parser(doc, file, tiny=tiny, threads=True)
    parser.add_argument("config", type=Path, help=f"settings, such as experiments/configs/{example}")
    parser.add_argument("--out", type=Path, help="results/NAME.json, by the name of the settings, unless given")
    return parser


def parse(parser: argparse.ArgumentParser, arguments: Sequence[str] | None) -> argparse.Namespace:
    """The options; ``command`` among them is the line that gives the same run again."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    options = parser.parse_args(given)
    options.command = shlex.join([*parser.prog.split(), *given])
    if "threads" in options:
        import torch  # most scripts work without it

        torch.set_num_threads(options.threads)
    return options


def about(options: argparse.Namespace, **settings: Any) -> Record:
    """How a result came to be: the command, the settings that were really used, and the machine."""
    return {"command": options.command, "settings": settings, "machine": machine()}


def machine() -> Record:
    """Processor, cores, versions, date, and how busy the machine is now."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").is_file() else []
    name = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "")
    facts = {"processor": name or platform.processor(), "cores": os.cpu_count(), "load": round(os.getloadavg()[0], 2)}
    return facts | {"date": strftime("%Y-%m-%d"), "python": platform.python_version(), **_versions()}


def _versions() -> dict[str, str]:
    found = {}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def read_record(path: Path) -> Record | None:
    """A result file, None if it is not there yet."""
    if not path.is_file():
        return None
    record: Record = json.loads(path.read_text())
    return record


def write_record(path: Path, record: Any) -> None:
    """Replace a result file in one step. Lists of numbers fill lines, of which they would take one each."""
    text = re.sub(r'\[[^][{}"]+\]', _in_few_lines, json.dumps(record, indent=1))
    with replacing(path) as part:
        part.write_text(text + "\n")


def _in_few_lines(found: re.Match[str]) -> str:
    return textwrap.fill(f"[{' '.join(found[0][1:-1].split())}]", 120, break_on_hyphens=False)


class Turns:
    """The lock that heavy jobs of a shared machine take, held for about TURN seconds at a time."""

    def __init__(self, lock: Path | None) -> None:
        self._file = None if lock is None else lock.open("a")
        self._since = float("-inf")

    def take(self) -> None:
        """Wait for a turn, unless the present one still lasts."""
        if self._file is not None and monotonic() - self._since > TURN:
            import fcntl  # not on Windows

            fcntl.flock(self._file, fcntl.LOCK_UN)
            sleep(0.5)  # whoever waits wakes up meanwhile; without it the lock would be taken again before
            fcntl.flock(self._file, fcntl.LOCK_EX)
            self._since = monotonic()
