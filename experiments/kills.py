"""Is anything lost or truncated when programs are killed with SIGKILL again and again, or when the disk is full?

    python -m experiments.kills --out results/kills.json                  # everything: about half an hour
    python -m experiments.kills batch sweep --out results/kills.json      # these alone; other rows of the file stay

Every program is killed 25 times, each time at a random moment, and then left alone. Batch jobs lose the driver or one
of its workers in turns. At the end everything must be there exactly once and as after a run that was not disturbed, and
whatever has its final name must be whole at any moment. The verbs of the workshop are killed by
tests/training/test_kills.py, and what happens on a full disk is in tests/runtime/test_full_disk.py and
tests/training/test_hostile.py: this recipe runs those and counts.
"""

import argparse
import contextlib
import hashlib
import io
import json
import os
import random
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from experiments.load_test import photograph, tree
from experiments.pages import table

ROOT = Path(__file__).parents[1]
KILLS = 25
_PICTURES = 48


@dataclass(frozen=True)
class Outcome:
    """Of one kind of program."""

    program: str
    """Its name on the command line of this recipe."""
    what: str
    kills: int
    """With SIGKILL."""
    checked: str
    wrong: int
    """Things that were lost, doubled, truncated or different."""
    seconds: float
    load_average: float
    """At the end; above 2, other work ran at the same time."""


@dataclass(frozen=True)
class Job:
    """One program, and how its results are judged."""

    program: str
    what: str
    command: list[str]
    out: Path
    checked: str
    wrong_now: Callable[[], int]
    """After a kill."""
    result: Callable[[], object]
    """At the end, to be equal to that of a run that was not disturbed."""
    workers: bool = False
    """Whether to kill one of its processes every other time, and not the program itself."""


def run(job: Job, kills: int) -> Outcome:
    began, rng = time.monotonic(), random.Random(job.what)
    finish(job)
    shutil.rmtree(job.out, ignore_errors=True)
    start = time.monotonic()
    finish(job)
    whole, expected = time.monotonic() - start, job.result()
    if job.workers:
        shutil.rmtree(job.out)
    killed = wrong = 0
    while killed < kills:
        with subprocess.Popen(job.command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(rng.uniform(0.2, 0.95) * whole)
            if process.poll() is None:
                killed += kill(process, job.workers and killed % 2 == 1)
            elif job.workers:  # the job is done: from the beginning
                wrong += job.result() != expected
                shutil.rmtree(job.out)
        wrong += job.wrong_now()
    finish(job)
    wrong += job.result() != expected
    return outcome(job.program, job.what, killed, job.checked, wrong, began)


def outcome(program: str, what: str, kills: int, checked: str, wrong: int, began: float) -> Outcome:
    seconds, load = round(time.monotonic() - began, 1), round(os.getloadavg()[0], 1)
    return Outcome(program, what, kills, checked, wrong, seconds, load)


def kill(process: "subprocess.Popen[bytes]", a_worker: bool) -> int:
    """Kill the program, or the last process that it started and then let it run to its end; how many were killed."""
    victims = tree(process.pid)
    with contextlib.suppress(ProcessLookupError):
        os.kill(victims[-1] if a_worker else process.pid, signal.SIGKILL)
    process.wait(300)
    return 1


def finish(job: Job) -> None:
    subprocess.run(job.command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=600)


# -- the programs -----------------------------------------------------------------------------------------------------


def batch_job(folder: Path) -> Job:
    import pyarrow.parquet

    out = folder / "rows"
    timed = ("milliseconds",)

    def rows() -> list[dict[str, object]]:
        parts = sorted(out.glob("part-*.parquet"))
        found = [row for part in parts for row in pyarrow.parquet.read_table(part).to_pylist()]
        return [{name: value for name, value in row.items() if name not in timed} for row in found]

    def wrong() -> int:
        return sum(n > 1 for n in Counter(str(row["path"]) for row in rows()).values())

    command = [sys.executable, "-m", "fastgaze", "batch", str(folder / "photos"), str(out), "--workers", "2"]
    checked = f"{_PICTURES} pictures, each exactly once, rows as without kills"
    what = "`batch`, driver and workers in turns"
    return Job("batch", what, [*command, "--shard", "4"], out, checked, wrong, rows, True)


def video_job(folder: Path) -> Job:
    import av

    clip, out = folder / "clip.mp4", folder / "videos"
    with av.open(str(clip), "w") as container:
        stream = container.add_stream("libx264", rate=25, options={"preset": "ultrafast"})
        stream.width, stream.height, stream.pix_fmt = 320, 240, "yuv420p"
        for n in range(75):
            pixels = np.asarray(Image.open(io.BytesIO(photograph(320, 240, n // 10))))
            frame = av.VideoFrame.from_ndarray(pixels, format="rgb24")
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    earlier: list[str] = []

    def digest() -> str:
        content = (out / "out.mp4").read_bytes()
        return hashlib.sha256(content).hexdigest()

    def wrong() -> int:
        earlier.append(digest())
        return int(earlier[-1] != earlier[0])

    def frames() -> int:
        with av.open(str(out / "out.mp4")) as container:
            return sum(1 for _ in container.decode(video=0))

    code = "import pathlib, sys; pathlib.Path(sys.argv[1]).mkdir(exist_ok=True); from fastgaze.app.cli import main; "
    code += "main(['video', sys.argv[2], sys.argv[1] + '/out.mp4'])"
    command = [sys.executable, "-c", code, str(out), str(clip)]
    return Job("video", "`video`, written again", command, out, "the earlier video stays as it was", wrong, frames)


def predict_job(folder: Path) -> Job:
    out = folder / "maps"

    def maps() -> list[Path]:
        return sorted(path for path in out.glob("*.png") if not path.name.startswith("."))

    def wrong() -> int:
        return sum(not is_whole(path) for path in maps())

    def is_whole(path: Path) -> bool:
        try:
            with Image.open(path) as image:
                image.load()
        except OSError:
            return False
        return True

    def pixels() -> dict[str, str]:
        return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in out.iterdir()}

    command = [sys.executable, "-m", "fastgaze", "predict", str(folder / "photos"), "--out", str(out)]
    what, checked = "`predict` of a folder", "every PNG file is whole, at any moment; nothing else is left"
    return Job("predict", what, command, out, checked, wrong, pixels)


JOBS = {"batch": batch_job, "video": video_job, "predict": predict_job}
VERBS = ("teacher", "soft-targets", "distill", "prune", "tune", "sweep")
"""Of the workshop."""
DISK = "disk"
PROGRAMS = (*JOBS, *VERBS, DISK)


def measure(program: str, folder: Path, kills: int) -> Outcome:
    if program in JOBS:
        return run(JOBS[program](folder), kills)
    if program in VERBS:
        checked = "what it leaves, bit by bit as without kills"
        if program == "sweep":
            checked = "as many trials as asked for, each finished"
        tests = ("tests/training/test_kills.py", "-k", f"[{program}]", "-m", "slow")
        return tested(program, f"`workshop {program}`", checked, KILLS, *tests)
    disk = ("tests/runtime/test_full_disk.py", "tests/training/test_hostile.py", "-k", "disk or room or fit or save")
    return tested(program, "on a full disk", "an error says so, and earlier files stay", 0, *disk)


def tested(program: str, what: str, checked: str, kills: int, *arguments: str) -> Outcome:
    """Tests as a row: how many of them failed."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.xml")
        command = [sys.executable, "-m", "pytest", "-q", f"--junitxml={report}", *arguments]
        subprocess.run(command, cwd=ROOT, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        suites = list(ElementTree.parse(report).getroot().iter("testsuite"))
    wrong = sum(int(suite.get(name, 0)) for suite in suites for name in ("failures", "errors"))
    done = sum(int(suite.get("tests", 0)) - int(suite.get("skipped", 0)) for suite in suites)
    if not done:
        sys.exit(f"{program}: no test ran; a backbone or the disk of the test may be missing: {shlex.join(arguments)}")
    return outcome(program, what, kills * done, checked if kills else f"{done} tests: {checked}", wrong, began)


def shown(outcomes: list[Outcome]) -> str:
    """For the documents."""
    rows = [[row.what, row.kills, row.checked, row.wrong] for row in outcomes]
    return table(["program", "kills", "checked", "lost or wrong"], rows)


def read(path: Path | None) -> dict[str, Outcome]:
    """Rows of an earlier run by program."""
    if path is None or not path.is_file():
        return {}
    return {row["program"]: Outcome(**row) for row in json.loads(path.read_text())["programs"]}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", nargs="*", help=f"of {', '.join(PROGRAMS)}; unless given, all of them")
    parser.add_argument("--kills", type=int, default=KILLS, help="of batch, video and predict, each")
    parser.add_argument("--out", type=Path, help="JSON file to write, after every program")
    arguments = parser.parse_args()
    if unknown := set(arguments.programs) - set(PROGRAMS):
        parser.error(f"there is no program {', '.join(sorted(unknown))}; choose from {', '.join(PROGRAMS)}")
    wrong = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "photos").mkdir()
        for n in range(_PICTURES):
            (folder / "photos" / f"{n:03d}.jpg").write_bytes(photograph(320, 240, n))
        for program in arguments.programs or PROGRAMS:
            found = measure(program, folder, arguments.kills)
            print(json.dumps(asdict(found)), flush=True)
            wrong += found.wrong
            if arguments.out:
                every = read(arguments.out) | {program: found}
                rows = [asdict(every[name]) for name in PROGRAMS if name in every]
                arguments.out.write_text(json.dumps({"programs": rows}, indent=2) + "\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
