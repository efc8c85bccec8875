"""Feed damaged bytes to every reader of untrusted bytes: a refusal is fine, any other error or a crash is a finding.

    python -m experiments.fuzz                       # every target for a minute
    python -m experiments.fuzz picture mat --seconds 600

Inputs are changed copies of small good files: bits turned, numbers made extreme, pieces cut out, doubled and swapped.
Each target runs in a process of its own with a limit of memory and time; the input that ended it is kept. Findings go
to --out, and from there, once fixed, to tests/corpus, which the tests run again.
"""

import argparse
import mmap
import os
import random
import resource
import signal
import struct
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from experiments.fuzz_targets import TARGETS, Target
from fastgaze.app.server.limits import ApiError
from fastgaze.core.errors import FastGazeError

CORPUS = Path(__file__).parents[1] / "tests" / "corpus"
_MEMORY = 2 << 30  # bytes that an input may take, beyond what the process had before
_SECONDS_PER_INPUT = 20
_ROOM = 4 << 20
_LEAST_INPUTS = 10
_EXTREME = [struct.pack("<i", number) for number in (0, 1, -1, 2**31 - 1, -(2**31))] + [struct.pack(">i", 2**31 - 1)]


def mutations(seeds: list[bytes], rng: random.Random) -> Iterator[bytes]:
    """Damaged copies, without end."""
    while True:
        content = bytearray(rng.choice(seeds))
        for _ in range(rng.choice((1, 1, 2, 4, 16))):
            place = rng.randrange(len(content) + 1)
            kind = rng.randrange(5)
            if kind == 0 and place < len(content):
                content[place] ^= 1 << rng.randrange(8)
            elif kind == 1:
                content[place : place + 4] = rng.choice(_EXTREME)
            elif kind == 2:
                del content[place : place + rng.randrange(1, 64)]
            elif kind == 3:
                content[place:place] = content[place : place + rng.randrange(1, 64)] * rng.choice((1, 2, 50))
            else:
                content[place:place] = rng.randbytes(rng.randrange(1, 16))
        yield bytes(content[:_ROOM])


def try_one(target: Target, content: bytes) -> str | None:
    """What is wrong with how the reader took it; None when it read or refused it."""
    with tempfile.TemporaryDirectory() as place:
        try:
            target.read(content, Path(place))
        except (FastGazeError, ApiError) as error:
            return "the message has several lines" if "\n" in str(error) else None
        except Exception as error:
            return f"{type(error).__name__}: {error}"
    return None


def fuzz(name: str, seconds: float, seed: int, out: Path) -> tuple[int, list[str]]:
    """Number of inputs tried, and the findings, whose inputs are in ``out``."""
    findings: list[str] = []
    until, tried = time.monotonic() + seconds, 0
    while time.monotonic() < until and len(findings) < 5:
        count, finding, content = _in_process(name, until - time.monotonic(), seed + len(findings))
        tried += count
        if finding is None:
            break
        findings.append(finding)
        out.mkdir(parents=True, exist_ok=True)
        (out / f"{name}-{len(findings)}-{seed}").write_bytes(content)
    return tried, findings


def _in_process(name: str, seconds: float, seed: int) -> tuple[int, str | None, bytes]:
    """Until the first finding. The input in hand lies in shared memory, so that it outlives its process."""
    shared = mmap.mmap(-1, _ROOM + 4096)
    child = os.fork()
    if child == 0:
        _loop(name, seconds, seed, shared)
    _, status = os.waitpid(child, 0)
    count, size, length = struct.unpack("<QQQ", shared[:24])
    finding = shared[24 : 24 + length].decode() or None
    if os.WIFSIGNALED(status):
        finding = f"the process ended by {signal.Signals(os.WTERMSIG(status)).name}"
    return count, finding, shared[4096 : 4096 + size]


def _address_space() -> int:
    """Bytes that this process has mapped; a parent that has loaded torch leaves it several gigabytes."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    return pages * resource.getpagesize()


def _loop(name: str, seconds: float, seed: int, shared: mmap.mmap) -> None:
    limit = _address_space() + _MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 2)  # decoders write what they think of the input
    target = TARGETS[name]
    seeds = target.seeds()
    try_one(target, seeds[0])  # what is loaded at first use does not count
    until = time.monotonic() + seconds
    for count, content in enumerate(mutations(seeds, random.Random(seed))):
        shared[4096 : 4096 + len(content)] = content
        shared[:24] = struct.pack("<QQQ", count, len(content), 0)
        if count >= _LEAST_INPUTS and time.monotonic() > until:
            break
        signal.alarm(_SECONDS_PER_INPUT)
        finding = (try_one(target, content) or "").encode()[:3000]
        shared[:24] = struct.pack("<QQQ", count + 1, len(content), len(finding))
        shared[24 : 24 + len(finding)] = finding
        if finding:
            break
    os._exit(0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("targets", nargs="*", help=f"of {', '.join(TARGETS)}; all by default")
    parser.add_argument("--seconds", type=float, default=60.0, help="for each target")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("fuzz-findings"), help="folder for inputs that are findings")
    arguments = parser.parse_args()
    failed = False
    for name in arguments.targets or TARGETS:
        tried, findings = fuzz(name, arguments.seconds, arguments.seed, arguments.out)
        print(f"{name:<12} {tried:>8} inputs  {len(findings)} findings", *findings, sep="\n    ", flush=True)
        failed |= bool(findings)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
