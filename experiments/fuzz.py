"""Feed damaged bytes to every reader of untrusted bytes: a refusal is fine, any other error or a crash is a finding.

    python -m experiments.fuzz                       # every target for a minute
    python -m experiments.fuzz picture mat --seconds 600

Inputs are changed copies of small good files: bits turned, numbers made extreme, pieces cut out, doubled and swapped.
Each target runs in a process of its own with a limit of memory and time; the input that ended it is kept. Findings go
to --out, and from there, once fixed, to tests/corpus, which the tests run again.
"""

import argparse
import io
import json
import mmap
import os
import random
import resource
import signal
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h11
import numpy as np
from PIL import Image

from fastgaze.app.server import wire
from fastgaze.app.server.access import Access, sign
from fastgaze.app.server.connection import HEAD_BYTES, BoundedConnection
from fastgaze.app.server.forms import parse_form
from fastgaze.app.server.limits import ApiError, Limits
from fastgaze.app.server.options import parse_request
from fastgaze.core.errors import FastGazeError
from fastgaze.core.pictures import open_picture
from fastgaze.data.formats import folder, hdf5, npz
from fastgaze.data.formats.mat import read_mat
from fastgaze.runtime import zoo
from fastgaze.runtime.batch.job import find_images
from fastgaze.runtime.card import identity, parse_card
from fastgaze.runtime.cutting import Cutter

CORPUS = Path(__file__).parents[1] / "tests" / "corpus"
_MEMORY = 2 << 30  # bytes that an input may take, beyond what the process had before
_SECONDS_PER_INPUT = 20
_ROOM = 4 << 20
_LEAST_INPUTS = 10
_EXTREME = [struct.pack("<i", number) for number in (0, 1, -1, 2**31 - 1, -(2**31))] + [struct.pack(">i", 2**31 - 1)]


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


def _options(content: bytes, _: Path) -> object:
    text = content.decode("utf-8", "replace")
    pairs = [(pair.partition("=")[0], pair.partition("=")[2]) for pair in text.split("&")]
    return parse_request("gaze", pairs, ["m"], Limits())


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


# -- the loop ---------------------------------------------------------------------------------------------------------


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
