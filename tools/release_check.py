"""Build the package as it would be released, and try it in empty environments.

    python tools/release_check.py [--python python3.11 --python python3.13 ...]

Builds sdist and wheel, checks their description (twine), contents and size, installs each into an empty environment of
every Python that is here, and predicts, crops and describes a photograph there.
"""

import argparse
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
VERSIONS = ("3.11", "3.12", "3.13", "3.14")
LIMIT = {".whl": 13_000_000, ".gz": 13_000_000}
"""Bytes that a file may have: the models are most of it."""
STRANGERS = re.compile(r"(^|/)(runs|shared|node_modules|__pycache__)/|\.(pt|pth|h5|npz|mat|webp)$")
"""Files that must not leave this machine: runs, data sets and downloaded weights."""
SMOKE = """
import sys, fastgaze
gaze = fastgaze.predict(sys.argv[1])
assert abs(gaze.density.sum() - 1) < 1e-3, gaze.density.sum()
assert gaze.crop("1:1") and gaze.peaks(3)
assert "torch" not in sys.modules
print(fastgaze.__version__, gaze.density.shape)
"""


def main() -> None:
    """Build, look, install, try."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--python", action="append", help="an interpreter to try, repeatable; by default all that are here"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        files = build(Path(folder) / "dist")
        for file in files:
            check_contents(file)
        for number, python in enumerate(options.python or pythons()):
            for file in files:
                try_out(file, python, Path(folder) / f"{number}-{file.suffix[1:]}")


def build(folder: Path) -> list[Path]:
    """The wheel and the sdist, with a description that a registry accepts."""
    _run(sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT))
    files = sorted(folder.iterdir())
    _run(sys.executable, "-m", "twine", "check", "--strict", *map(str, files))
    return files


def check_contents(file: Path) -> None:
    """Refuse a file that is too large, lacks the models or holds what does not belong into it."""
    if file.suffix == ".whl":
        with zipfile.ZipFile(file) as wheel:
            names = wheel.namelist()
    else:
        with tarfile.open(file) as sdist:
            names = sdist.getnames()
    size = file.stat().st_size
    if size > LIMIT[file.suffix]:
        raise SystemExit(f"{file.name} has {size:,} bytes; at most {LIMIT[file.suffix]:,} are allowed")
    strange = [name for name in names if STRANGERS.search(name)]
    if strange:
        raise SystemExit(f"{file.name} holds what does not belong into it: {', '.join(strange[:5])}")
    if not any(name.endswith("runtime/bundled/models.json") for name in names):
        raise SystemExit(f"{file.name} lacks the models")
    print(f"{file.name}: {size / 1e6:.1f} MB, {len(names)} files")


def try_out(file: Path, python: str, folder: Path) -> None:
    """Install one file into an empty environment and predict a photograph with it."""
    _run(python, "-m", "venv", str(folder))
    inside = folder / "bin" / "python"
    _run(str(inside), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", str(file))
    photo = ROOT / "src" / "fastgaze" / "app" / "server" / "examples" / "coffee.jpg"
    said = _run(str(inside), "-c", SMOKE, str(photo), cwd=folder)
    _run(str(folder / "bin" / "fastgaze"), "crop", str(photo), "--ratio", "1:1", "--out", "crops", cwd=folder)
    if not list((folder / "crops").iterdir()):
        raise SystemExit(f"`fastgaze crop` of {file.name} wrote nothing under {python}")
    print(f"{file.name} under {python}: {said.strip()}")


def pythons() -> list[str]:
    """The interpreters that are here, one of each version: on the path, or else pyenv's."""
    found = []
    for version in VERSIONS:
        own = sorted((Path.home() / ".pyenv" / "versions").glob(f"{version}.*/bin/python"))
        path = shutil.which(f"python{version}")
        usable = [name for name in (path, *map(str, own)) if name and _works(name)]  # shims of pyenv may not work
        found += usable[:1]
    return found


def _works(python: str) -> bool:
    return subprocess.run([python, "-c", ""], capture_output=True, check=False).returncode == 0


def _run(*command: str, cwd: Path | None = None) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} ended with status {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    main()
