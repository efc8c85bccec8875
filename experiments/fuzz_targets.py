"""Every reader of untrusted bytes, with small good files for `experiments/fuzz.py` to damage."""

import io
import json
import struct
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import h11
import numpy as np
from PIL import Image

from fastgaze.app.server import wire
from fastgaze.app.server.access import Access, sign
from fastgaze.app.server.connection import HEAD_BYTES, BoundedConnection
from fastgaze.app.server.forms import parse_form
from fastgaze.app.server.limits import Limits
from fastgaze.app.server.options import parse_request
from fastgaze.core.pictures import open_picture
from fastgaze.data.formats import folder, hdf5, npz
from fastgaze.data.formats.mat import read_mat
from fastgaze.runtime import zoo
from fastgaze.runtime.batch.job import find_images
from fastgaze.runtime.card import ModelCard, identity, parse_card
from fastgaze.runtime.cutting import Cutter


@dataclass(frozen=True)
class Target:
    """A reader, and good files to start from."""

    read: Callable[[bytes, Path], object]
    """The bytes, and an empty folder for readers that want a file."""
    seeds: Callable[[], list[bytes]]


# -- readers ----------------------------------------------------------------------------------------------------------


def _picture(content: bytes, _: Path) -> object:
    found = open_picture(content)
    return found.pixels((24, 32)) if found.size[0] * found.size[1] < 1_000_000 else None


def _cut(content: bytes, _: Path) -> object:
    found = open_picture(content)
    height, width = found.size
    box = (0, 0, max(width // 2, 1), max(height // 2, 1))
    return Cutter(found).cut(box, (16, 16)) if height * width < 1_000_000 else None


def _message(content: bytes, _: Path) -> object:
    """What the server's process reads of its workers; ValueError is its refusal."""
    with suppress(ValueError):
        return wire.unpack(wire.Outcome, content)
    return None


def _access(content: bytes, _: Path) -> object:
    """Host, origin, token and query of a request."""
    host, origin, token, query = [*content.decode("latin-1").split("\n", 3), "", "", ""][:4]
    headers = {"host": host, "origin": origin, "authorization": token}
    rules = Access(hosts=("example.org",), origins=("https://example.org",), secret="0123456789abcdef")
    rules.check_host(headers)
    rules.check_secret("POST", "/v1/gaze", query, headers)
    rules.check_origin(headers)
    return None


def _head(content: bytes, _: Path) -> object:
    """Heads and bodies as HTTP/1.1."""
    connection = BoundedConnection(h11.SERVER, HEAD_BYTES)
    with suppress(h11.RemoteProtocolError):
        connection.receive_data(content)
        connection.receive_data(b"")
        while connection.next_event() not in (h11.NEED_DATA, h11.PAUSED) and connection.their_state is h11.SEND_BODY:
            pass
    return None


def _form(content: bytes, _: Path) -> object:
    return parse_form(content, "multipart/form-data; boundary=b")


@lru_cache(maxsize=1)
def _card() -> ModelCard:
    return zoo.read_model(zoo.default_name())[2]


def _options(content: bytes, _: Path) -> object:
    text = content.decode("utf-8", "replace")
    pairs = [(pair.partition("=")[0], pair.partition("=")[2]) for pair in text.split("&")]
    return parse_request("gaze", pairs, [_card()], Limits())


def _model(content: bytes, _: Path) -> object:
    return parse_card(content, "model"), identity(content)


def _checkpoint(content: bytes, place: Path) -> object:
    from fastgaze.networks.checkpoint import load_gaze_model

    return load_gaze_model(_file(place / "x.safetensors", content))


def _toml(content: bytes, place: Path) -> object:
    from fastgaze.training.config import read_config

    return read_config(_file(place / "x.toml", content))


def _video(content: bytes, place: Path) -> object:
    from fastgaze.runtime.video import Reader

    with Reader(_file(place / "x.mp4", content), threads=1) as reader:
        return sum(1 for _ in reader.frames())


def _hdf5(content: bytes, place: Path) -> object:
    _file(place / "stimuli.hdf5", _hdf5_seeds()[1])
    _file(place / "fixations.hdf5", content)
    return hdf5.read(place)


def _file(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


# -- good files -------------------------------------------------------------------------------------------------------


def _picture_seeds() -> list[bytes]:
    image = Image.effect_noise((64, 48), 60).convert("RGB")
    kinds: list[tuple[str, dict[str, Any]]] = [("JPEG", {}), ("JPEG", {"progressive": True}), ("PNG", {}), ("GIF", {})]
    kinds += [("WEBP", {}), ("BMP", {})]
    kinds += [("TIFF", {}), ("TIFF", {"compression": "tiff_lzw"}), ("PPM", {}), ("AVIF", {}), ("ICO", {})]
    kinds += [("JPEG2000", {})]
    seeds = []
    for format, options in kinds:
        buffer = io.BytesIO()
        with suppress(KeyError, OSError):  # a Pillow without that encoder
            image.save(buffer, format, **options)
            seeds.append(buffer.getvalue())
    return seeds


def _animation_seeds() -> list[bytes]:
    frames = [Image.effect_noise((24, 16), 10 + 20 * n).convert("RGB") for n in range(4)]
    seeds = []
    for format in ("GIF", "WEBP", "PNG", "AVIF", "TIFF"):
        buffer = io.BytesIO()
        with suppress(KeyError, OSError):  # a Pillow without that encoder
            frames[0].save(buffer, format, save_all=True, append_images=frames[1:])
            seeds.append(buffer.getvalue())
    return seeds


def _head_seeds() -> list[bytes]:
    head = b"POST /v1/gaze?ratio=16:9 HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: image/png\r\n"
    return [
        head + b"Content-Length: 3\r\n\r\nabc",
        head + b"Transfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n0\r\nX: y\r\n\r\n",
    ]


def _form_seeds() -> list[bytes]:
    part = b'--b\r\nContent-Disposition: form-data; name="image"; filename="x.png"\r\n\r\nabc\r\n'
    text = b'--b\r\nContent-Disposition: form-data; name="ratio"\r\nContent-Type: text/plain\r\n\r\n16:9\r\n'
    return [part + b"--b--\r\n", part + text + b"--b--\r\n"]


def _model_seeds() -> list[bytes]:
    names = [model.name for model in zoo.models()]
    return [zoo.read_model(name)[1][-60_000:] for name in names[-1:]] + [zoo.read_model(names[-1])[1]]


def _signed_seeds() -> list[bytes]:
    signed = sign("/v1/gaze?ratio=16:9", "0123456789abcdef", 4_000_000_000).partition("?")[2]
    lines = ["127.0.0.1:8000\nhttp://127.0.0.1:8000\nBearer 0123456789abcdef\n", f"[::1]:80\nnull\n\n{signed}"]
    return [line.encode() for line in lines]


def _checkpoint_seeds() -> list[bytes]:
    tensor = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}
    header = json.dumps({"__metadata__": {"format": "1", "spec": "{}"}, "x": tensor})
    return [struct.pack("<Q", len(header)) + header.encode() + bytes(4)]


def _toml_seeds() -> list[bytes]:
    return [path.read_bytes() for path in sorted((Path(__file__).parent / "configs").glob("*.toml"))[:4]]


def _video_seeds() -> list[bytes]:
    import av

    buffer = io.BytesIO()
    with av.open(buffer, "w", format="mp4") as container:
        stream = container.add_stream("libx264", rate=25, options={"preset": "ultrafast"})
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        for level in range(10):
            frame = av.VideoFrame.from_ndarray(np.full((48, 64, 3), 20 * level, np.uint8), format="rgb24")
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return [buffer.getvalue()]


def _npz_seeds() -> list[bytes]:
    buffer = io.BytesIO()
    arrays: dict[str, Any] = {"x": np.zeros(2, "f4"), "y": np.zeros(2, "f4"), "observer": np.zeros(2, "i4")}
    arrays |= {"width": np.array([4]), "height": np.array([4]), "start": np.array([0, 2]), "name": np.array(["a"])}
    np.savez_compressed(buffer, **arrays)
    return [buffer.getvalue()]


def _hdf5_seeds() -> list[bytes]:
    import h5py

    contents = []
    for kind, columns in (("Fixations", {"x": [1.0], "y": [1.0], "n": [0]}), ("FileStimuli", {"shapes": [[4, 4, 3]]})):
        buffer = io.BytesIO()
        with h5py.File(buffer, "w") as file:
            file.attrs["type"], file.attrs["version"] = kind, "2.1"
            for name, values in columns.items():
                file[name] = np.array(values)
            if kind == "FileStimuli":
                file["filenames"] = ["a.png"]
        contents.append(buffer.getvalue())
    return contents


def _mat_seeds() -> list[bytes]:
    import scipy.io

    contents = []
    for packed in (False, True):
        buffer = io.BytesIO()
        values = {"x": np.arange(6.0).reshape(2, 3), "s": {"a": "text", "b": np.array([1, 2])}}
        scipy.io.savemat(buffer, values, do_compression=packed)
        contents.append(buffer.getvalue())
    return contents


def _parquet_seeds() -> list[bytes]:
    import pyarrow
    import pyarrow.parquet

    contents = []
    for compression in ("zstd", "snappy", "none"):
        buffer = io.BytesIO()
        table = pyarrow.table({"path": [f"/photos/{n}.jpg" for n in range(20)]})
        pyarrow.parquet.write_table(table, buffer, compression=compression)
        contents.append(buffer.getvalue())
    return contents


TARGETS = {
    "picture": Target(_picture, _picture_seeds),
    "cut": Target(_cut, lambda: _animation_seeds() + _picture_seeds()),
    "head": Target(_head, _head_seeds),
    "access": Target(_access, _signed_seeds),
    "message": Target(_message, lambda: [wire.pack(wire.Outcome("parts", parts=[[0, 5]]))[wire.HEADER.size :]]),
    "form": Target(_form, _form_seeds),
    "options": Target(_options, lambda: [b"ratio=16:9,1:1&size=640x480&peaks=3&opacity=0.5&format=npy&heat=true&n=2"]),
    "model": Target(_model, _model_seeds),
    "checkpoint": Target(_checkpoint, _checkpoint_seeds),
    "toml": Target(_toml, _toml_seeds),
    "video": Target(_video, _video_seeds),
    "npz": Target(lambda content, place: (_file(place / npz.FILE, content), npz.read(place)), _npz_seeds),
    "hdf5": Target(_hdf5, lambda: _hdf5_seeds()[:1]),
    "mat": Target(lambda content, place: read_mat(_file(place / "x.mat", content)), _mat_seeds),
    "list": Target(
        lambda content, place: find_images(str(_file(place / "x.txt", content))),
        lambda: [b"/photos/a.jpg\nhttp://127.0.0.1/b.jpg\n\n# c\n"],
    ),
    "parquet": Target(lambda content, place: find_images(str(_file(place / "x.parquet", content))), _parquet_seeds),
    "csv": Target(
        lambda content, place: (_file(place / folder.FILE, content), folder.read(place)),
        lambda: [b"image,x,y,observer\na.png,1,2,3\n", b"image;x;y\n\xef\xbb\xbfb.png;1.5;2\n"],
    ),
}
