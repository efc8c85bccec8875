"""Small models that respond to something visible, pictures, and a real server on loopback."""

import contextlib
import io
import json
import re
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import numpy as np
import onnx
from PIL import Image

from fastgaze.app.server import run
from fastgaze.app.server.access import Access
from fastgaze.app.server.api import Outermost, ServerSettings, create_app
from fastgaze.app.server.limits import Limits
from fastgaze.runtime.card import KEY, ModelCard

if TYPE_CHECKING:
    from playwright import sync_api as playwright

GAIN = 4.0


def write_model(path: Path, name: str, gain: float = GAIN) -> Path:
    """A model whose saliency is ``gain`` times the mean brightness of every 16x16 cell, as an exported file."""
    helper, numpy_helper = onnx.helper, onnx.numpy_helper
    weight = np.full((1, 3, 1, 1), gain / 3, np.float32)
    graph = helper.make_graph(
        [
            helper.make_node("Conv", ["image", "weight"], ["grey"]),
            helper.make_node("AveragePool", ["grey"], ["saliency"], kernel_shape=[16, 16], strides=[16, 16]),
        ],
        "brightness",
        [helper.make_tensor_value_info("image", onnx.TensorProto.FLOAT, ["n", 3, "h", "w"])],
        [helper.make_tensor_value_info("saliency", onnx.TensorProto.FLOAT, ["n", 1, "y", "x"])],
        [numpy_helper.from_array(weight, "weight")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    rows, columns = np.mgrid[-1:1:48j, -1:1:64j]
    bias = (-(rows**2) - columns**2).astype(np.float32)
    card = ModelCard(name, "fastgaze", 3, 0.0021, 8.0, bias, data="none: made for a test", licence="CC0-1.0")
    helper.set_model_props(model, {KEY: json.dumps(card.to_json())})
    path.write_bytes(model.SerializeToString())
    return path


def make_models(folder: Path) -> list[Path]:
    """``bright`` looks at what is bright, ``dark`` at what is dark."""
    return [write_model(folder / "bright.onnx", "bright"), write_model(folder / "dark.onnx", "dark", -GAIN)]


def picture(width: int = 320, height: int = 240, spot: tuple[int, int] = (240, 60)) -> Image.Image:
    """Dark grey with a white disc around ``spot`` (x, y) and a black one in the opposite corner."""
    rows, columns = np.mgrid[:height, :width]
    pixels = np.full((height, width, 3), 90, np.uint8)
    pixels[np.hypot(columns - spot[0], rows - spot[1]) < 30] = 255
    pixels[np.hypot(columns - width + spot[0], rows - height + spot[1]) < 30] = 0
    return Image.fromarray(pixels)


def edges(box: Mapping[str, int]) -> tuple[int, int, int, int]:
    """Left, top, right and bottom of a box as JSON has it."""
    return box["left"], box["top"], box["left"] + box["width"], box["top"] + box["height"]


def encoded(image: Image.Image, format: str = "PNG") -> bytes:
    """The bytes of an image file."""
    buffer = io.BytesIO()
    image.save(buffer, format)
    return buffer.getvalue()


@contextlib.contextmanager
def serving_app(
    models: list[Path],
    limits: Limits | None = None,
    workers: int = 2,
    examples: Path | None = None,
    access: Access | None = None,
) -> Iterator[tuple[str, Outermost]]:
    """The address of a server in a thread of this process, and its application."""
    limits = limits or Limits()
    listening = run.bind("127.0.0.1", 0)
    settings = ServerSettings(models, workers=workers, examples=examples, access=access or Access())
    app = create_app(settings, limits)
    server = run.make_server(app, limits)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        deadline = time.monotonic() + 30
        while not (server.started and app.pool.ready):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        yield run.address(listening), app
    finally:
        server.should_exit = True
        thread.join(15)
        assert not thread.is_alive()


@contextlib.contextmanager
def serving(models: list[Path], limits: Limits | None = None, **settings: Any) -> Iterator[str]:
    """The address of a server in a thread of this process; ``settings`` as for ``serving_app``."""
    with serving_app(models, limits, **settings) as (url, _):
        yield url


def raw(url: str, receive_buffer: int = 0) -> socket.socket:
    """A connection to the server, with a small buffer for what it reads if that is asked for."""
    connection = socket.socket()
    if receive_buffer:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    connection.settimeout(20)
    connection.connect(("127.0.0.1", int(url.rsplit(":", 1)[1])))
    return connection


def head(length: int | str, path: str = "/v1/gaze", more: str = "") -> bytes:
    """The head of a request that sends a picture; ``length``: of its body, or the header that says how it is framed."""
    framing = f"Content-Length: {length}" if isinstance(length, int) else length
    return f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{framing}\r\n{more}\r\n".encode()


def metric(url: str, name: str) -> float:
    """A number of ``GET /metrics``."""
    found = re.search(rf"^{re.escape(name)} (\S+)$", httpx.get(f"{url}/metrics", timeout=20).text, re.MULTILINE)
    assert found is not None, name
    return float(found[1])


def wait_for(condition: object, seconds: float = 15) -> None:
    """Wait until ``condition()`` holds."""
    deadline = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline
        time.sleep(0.02)


def until(page: "playwright.Page", condition: str) -> None:
    """Wait for a condition; Playwright's own waiting evaluates text, which the page's policy forbids."""
    deadline = time.monotonic() + 30
    while not page.evaluate(condition):
        assert time.monotonic() < deadline, condition
        time.sleep(0.02)
