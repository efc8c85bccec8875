"""What a user installs works by itself: a wheel in an empty environment, far from the checkout.

The environment holds the wheel and the packages that the wheel's metadata asks for, linked from this environment so
that nothing is downloaded; anything else that the package needed would be missing.
"""

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from importlib.metadata import Distribution, distribution
from pathlib import Path

import numpy as np
import pytest
from packaging.requirements import Requirement
from PIL import Image

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def fastgaze(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The command ``fastgaze`` of an environment into which a freshly built wheel was installed."""
    folder = tmp_path_factory.mktemp("wheel")
    _python("-m", "hatchling", "build", "--target", "wheel", "--directory", folder, cwd=ROOT)
    (wheel,) = folder.glob("*.whl")
    _python("-m", "venv", "--without-pip", folder / "empty")
    python = folder / "empty" / "bin" / "python"
    _python("-m", "pip", "--python", python, "install", "--quiet", "--no-deps", "--no-index", wheel)
    (site,) = (folder / "empty" / "lib").glob("python*/site-packages")
    (metadata,) = site.glob("fastgaze-*.dist-info")
    for needed in _requirements(Distribution.at(metadata), {"serve"}):
        _link(needed, site)
    return python.with_name("fastgaze")


def _python(*arguments: object, cwd: Path | None = None) -> None:
    subprocess.run([sys.executable, *map(str, arguments)], check=True, capture_output=True, cwd=cwd)


def _requirements(package: Distribution, extras: set[str]) -> Iterator[Distribution]:
    """The packages that ``package`` needs with these extras, directly or through others, each once or more."""
    for line in package.requires or []:
        requirement = Requirement(line)
        if requirement.marker is None or any(requirement.marker.evaluate({"extra": e}) for e in ("", *extras)):
            found = distribution(requirement.name)
            yield found
            yield from _requirements(found, requirement.extras)


def _link(package: Distribution, site: Path) -> None:
    for top in {file.parts[0] for file in package.files or [] if file.parts[0] not in ("..", "__pycache__")}:
        if not (site / top).exists():
            (site / top).symlink_to(str(package.locate_file(top)))


def _environment() -> dict[str, str]:
    """Without what would lead back to the checkout."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}


def _run(fastgaze: Path, *arguments: object, cwd: Path) -> str:
    command = [str(fastgaze), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd, env=_environment())
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def photo(tmp_path: Path) -> Path:
    noise = np.random.default_rng(0).integers(0, 256, (6, 8, 3), dtype=np.uint8)
    Image.fromarray(noise).resize((320, 240)).save(tmp_path / "photo.jpg")
    return tmp_path / "photo.jpg"


def test_the_package_is_that_of_the_wheel_and_needs_nothing_else(fastgaze: Path, tmp_path: Path) -> None:
    code = "import fastgaze, importlib.util as u; print(fastgaze.__file__); print(u.find_spec('torch'))"
    command = [str(fastgaze.with_name("python")), "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path, env=_environment())
    place, torch = done.stdout.splitlines()
    assert Path(place).is_relative_to(fastgaze.parents[1])
    assert torch == "None"


def test_demo_shows_the_examples(fastgaze: Path, tmp_path: Path) -> None:
    rows = json.loads(_run(fastgaze, "demo", "--json", cwd=tmp_path))
    assert len(rows) >= 3
    page = (tmp_path / "demo" / "index.html").read_text()
    for row in rows:
        assert f'src="{row["photo"]}.gaze.jpg"' in page
        assert (tmp_path / "demo" / f"{row['photo']}.gaze.jpg").is_file()


def test_predict_and_crop_write_pictures(fastgaze: Path, photo: Path, tmp_path: Path) -> None:
    _run(fastgaze, "predict", photo, cwd=tmp_path)
    assert _size(tmp_path / "photo.gaze.png") == (320, 240)
    _run(fastgaze, "crop", photo, "--ratio", "1:1", "--out", tmp_path / "crops", cwd=tmp_path)
    assert _size(tmp_path / "crops" / "photo.1x1.jpg") == (240, 240)


def _size(path: Path) -> tuple[int, int]:
    """(width, height) of a picture."""
    with Image.open(path) as image:
        return image.size


def test_serve_offers_the_page_its_examples_and_the_api(fastgaze: Path, photo: Path, tmp_path: Path) -> None:
    command = [str(fastgaze), "serve", "--port", "0", "--model", "small", "--workers", "1"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=tmp_path, env=_environment()) as server:
        try:
            assert server.stderr is not None
            line = server.stderr.readline()
            assert "http://" in line, line + server.stderr.read()
            url = next(word for word in line.split() if word.startswith("http://"))
            _ask_everything(url.rstrip("/"), photo)
        finally:
            server.terminate()
            server.communicate(timeout=20)


def _ask_everything(url: str, photo: Path) -> None:
    assert b"<html" in _get(f"{url}/")
    assert b"fetch" in _get(f"{url}/page/server.js")
    names = json.loads(_get(f"{url}/examples"))["examples"]
    assert len(names) >= 3
    for name in names:
        assert _get(f"{url}/examples/{name}").startswith(b"\xff\xd8")
    answer = json.loads(_get(f"{url}/v1/gaze?ratio=1:1", photo.read_bytes()))
    assert answer["peaks"]


def _get(url: str, body: bytes | None = None) -> bytes:
    with urllib.request.urlopen(url, data=body, timeout=30) as answer:
        content: bytes = answer.read()
    return content
