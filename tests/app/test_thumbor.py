"""A real thumbor crops pictures by where people look.

thumbor asks for an older Pillow than these tests run with, so it may live in an environment of its own: install
``fastgaze[thumbor]`` there and set FASTGAZE_THUMBOR to its python.
"""

import io
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

import numpy as np
import pytest
from PIL import Image

from tests.photos import photo

SOURCE = Path(__file__).parents[2] / "src"
WHY = "thumbor is not installed; install fastgaze[thumbor] somewhere and set FASTGAZE_THUMBOR to the python there"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="module")
def thumbor(tmp_path_factory: pytest.TempPathFactory, bright_file: Path) -> Iterator[str]:
    """The address of a thumbor that serves pictures of a folder, with our detector and a storage."""
    python = os.environ.get("FASTGAZE_THUMBOR") or (sys.executable if find_spec("thumbor") else "")
    if not python:
        pytest.skip(WHY)
    folder, port = tmp_path_factory.mktemp("thumbor"), free_port()
    Image.fromarray(photo(300, 900, (750, 150))).save(folder / "right.png")
    Image.fromarray(photo(900, 300, (150, 150))).save(folder / "top.png")
    Image.fromarray(photo(300, 900, (150, 150))[:, :, 0]).save(folder / "grey.png")
    settings = {
        "DETECTORS": ["fastgaze.app.thumbor"],
        "FASTGAZE_MODEL": str(bright_file),
        "LOADER": "thumbor.loaders.file_loader",
        "FILE_LOADER_ROOT_PATH": str(folder),
        "STORAGE": "thumbor.storages.file_storage",
        "FILE_STORAGE_ROOT_PATH": str(folder / "stored"),
        "RESULT_STORAGE": "thumbor.result_storages.no_storage",
        "ALLOW_UNSAFE_URL": True,
    }
    (folder / "thumbor.conf").write_text("".join(f"{name} = {value!r}\n" for name, value in settings.items()))
    command = [python, "-m", "thumbor.server", "-i", "127.0.0.1", "-p", str(port), "-c", str(folder / "thumbor.conf")]
    process = subprocess.Popen(
        command, env=os.environ | {"PYTHONPATH": str(SOURCE)}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    try:
        _wait(f"http://127.0.0.1:{port}/healthcheck", process)
        yield f"http://127.0.0.1:{port}/unsafe"
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)


def _wait(address: str, process: "subprocess.Popen[bytes]") -> None:
    for _ in range(1200):
        try:
            urlopen(address, timeout=60).close()
            return
        except HTTPError:
            raise
        except (URLError, OSError):
            if process.poll() is not None:
                raise AssertionError(process.communicate()[0].decode()) from None
            time.sleep(0.1)
    raise AssertionError("thumbor does not answer")


def brightness(address: str) -> float:
    """Highest level of the picture that thumbor gives."""
    with urlopen(address, timeout=120) as answer, Image.open(io.BytesIO(answer.read())) as image:
        return float(np.asarray(image.convert("L")).max())


@pytest.mark.parametrize("picture", ["right.png", "top.png", "grey.png"])
def test_smart_crops_hold_what_people_look_at(thumbor: str, picture: str) -> None:
    assert brightness(f"{thumbor}/200x200/{picture}") < 100, "a crop of the middle misses it"
    assert brightness(f"{thumbor}/200x200/smart/{picture}") > 200


def test_the_point_is_kept_for_other_sizes(thumbor: str) -> None:
    for size in ("120x160", "300x300", "60x300"):
        assert brightness(f"{thumbor}/{size}/smart/right.png") > 200
