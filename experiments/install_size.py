"""How large is the core install? `pip install .` into a fresh environment, weighed before and after.

    python -m experiments.install_size [--limit 150]

Counts what the files of site-packages take on the disk, less what an empty environment has there; with and without
the bytecode that pip compiles beside them. Exits 1 if the install without bytecode is over the limit (in units of 2^20
bytes, as `du -m` counts). The numbers go to results/install_size.json.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from experiments import common
from experiments.common import DOCS, RESULTS, ROOT
from experiments.pages import fill

LISTED = 5.0  # million bytes that a package has at least to be named on the page


def weigh(folder: Path) -> dict[str, Counter[str]]:
    """Bytes on the disk by top-level name: of "files" and of their "bytecode"."""
    found: dict[str, Counter[str]] = {"files": Counter(), "bytecode": Counter()}
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink():
            kind = "bytecode" if "__pycache__" in path.parts else "files"
            found[kind][_package(path.relative_to(folder).parts[0])] += 512 * path.stat().st_blocks
    return found


def _package(name: str) -> str:
    """``numpy``, ``numpy.libs`` and ``numpy-2.4.dist-info`` are one package."""
    return name.split("-")[0].removesuffix(".libs").removesuffix(".py").lower()


def environment(folder: Path) -> tuple[Path, Path]:
    """A new virtual environment: its Python and its site-packages."""
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    return folder / "bin" / "python", next(folder.glob("lib/python*/site-packages"))


def shown(record: common.Record) -> str:
    """The part of the page."""
    largest = [f"{name} {size:.1f}" for name, size in record["largest"].items() if size >= LISTED]
    return (
        f"{record['mebibytes']:.0f} MB as `du -m` counts ({record['megabytes']:.1f} million bytes) without bytecode, "
        f"and {record['megabytes_of_bytecode']:.0f} million bytes more of bytecode that pip compiles (Python "
        f"{record.get('machine', record)['python']}). In millions of bytes: {', '.join(largest)}."
    )


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = common.make_parser(__doc__, __file__, data=False, out=RESULTS / "install_size.json")
    parser.add_argument("--limit", type=float, default=150)
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    """Install, weigh, print the largest packages."""
    options = common.parse(make_parser(), arguments)
    record = common.about(options)
    with tempfile.TemporaryDirectory() as name:
        python, packages = environment(Path(name, "env"))
        before = weigh(packages)
        subprocess.run([python, "-m", "pip", "install", "--quiet", str(ROOT)], check=True)
        after = weigh(packages)
    added = {kind: after[kind] - before[kind] for kind in after}
    files, bytecode = (round(added[kind].total() / 1e6, 1) for kind in ("files", "bytecode"))
    largest = {package: round(size / 1e6, 2) for package, size in added["files"].most_common(16)}
    result = {
        "megabytes": files,
        "mebibytes": round(added["files"].total() / 2**20, 1),
        "megabytes_of_bytecode": bytecode,
        "largest": largest,
    }
    print(json.dumps(result, indent=2))
    common.write_record(options.out, record | result)
    if options.out == RESULTS / "install_size.json":
        fill(DOCS / "runtime.md", "size", shown(record | result))
    raise SystemExit(result["mebibytes"] > options.limit)


if __name__ == "__main__":
    main()
