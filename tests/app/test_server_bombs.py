"""Small files that would cost much: refused, or given to a heavy worker, and no light worker is held up by them."""

import io
import struct
import zlib
from collections.abc import Callable, Iterator

import httpx
import pytest
from PIL import Image

from fastgaze.app.server.api import Outermost
from tests.app.serving import encoded, make_models, picture, serving_app

ROWS = zlib.compress(bytes((64 * 3 + 1) * 48))
LARGE = zlib.compress(bytes(100 << 20), 9)
FORM = "multipart/form-data; boundary=b"
NAMED = b'--b\r\nContent-Disposition: form-data; name="'
PART = b'--b\r\nContent-Disposition: form-data; name="file"; filename="x"\r\n\r\n'


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Outermost]]:
    with serving_app(make_models(tmp_path_factory.mktemp("models"))) as found:
        yield found


def chunk(kind: bytes, data: bytes = b"") -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(before: bytes = b"", after: bytes = b"", rows: bytes = ROWS) -> bytes:
    head = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 64, 48, 8, 2, 0, 0, 0))
    return head + before + chunk(b"IDAT", rows) + after + chunk(b"IEND")


def jpeg(inside: bytes) -> bytes:
    content = encoded(picture(64, 48), "JPEG")
    return content[:2] + inside + content[2:]


def tiff(entries: list[tuple[int, int, int, int]], following: int = 0) -> bytes:
    """64x48 grey pixels; more entries (tag, type, count, value), and where the next picture of the file begins."""
    tags = [(256, 64), (257, 48), (258, 8), (259, 1), (262, 1), (277, 1), (278, 48)]
    every = [(tag, 3, 1, value) for tag, value in tags] + [(273, 4, 1, 400), (279, 4, 1, 64 * 48), *entries]
    directory = b"".join(struct.pack("<HHII", *entry) for entry in sorted(every))
    head = b"II*\0" + struct.pack("<IH", 8, len(every)) + directory + struct.pack("<I", following)
    return head.ljust(400, b"\0") + bytes(64 * 48)


def frames(format: str, count: int) -> bytes:
    made = [Image.new("RGB", (64, 64), (n % 251, n % 7, 9)) for n in range(count)]
    buffer = io.BytesIO()
    made[0].save(buffer, format, save_all=True, append_images=made[1:])
    return buffer.getvalue()


BOMBS: dict[str, Callable[[], bytes]] = {
    "a profile of 100 MB": lambda: png(chunk(b"iCCP", b"x\0\0" + LARGE)),
    "a text of 100 MB": lambda: png(chunk(b"zTXt", b"x\0\0" + LARGE)),
    "an international text of 100 MB": lambda: png(chunk(b"iTXt", b"x\0\1\0\0\0" + LARGE)),
    "texts of 200 MB": lambda: png(chunk(b"zTXt", b"x\0\0" + zlib.compress(bytes(1_000_000))) * 200),
    "a million chunks": lambda: png(chunk(b"tEXt", b"a\0b") * 1_000_000),
    "a million empty chunks of pixels": lambda: png(chunk(b"IDAT") * 1_000_000),
    "more pixels than announced": lambda: png(rows=LARGE),
    "a million empty comments": lambda: jpeg(b"\xff\xfe\0\2" * 1_000_000),
    "a million empty tables": lambda: jpeg(b"\xff\xdb\0\2" * 1_000_000),
    "megabytes of fill": lambda: jpeg(b"\xff" * (8 << 20)),
    "hundreds of blocks of EXIF": lambda: jpeg((b"\xff\xe1\xff\xffExif\0\0" + bytes(65527)) * 300),
    "a million extensions": lambda: b"GIF89a\1\0\1\0\0\0\0" + b"!\xfe\1a\0" * 1_000_000 + b",",
    "directories in a circle": lambda: tiff([], following=8),
    "a tag of 4 GB": lambda: tiff([(270, 2, 0xFFFFFFF0, 8)]),
    "a million comments": lambda: b"P6\n" + b"#\n" * 1_000_000 + b"64 48\n255\n" + bytes(64 * 48 * 3),
    "HEIC": lambda: b"\0\0\0\x18ftypheic\0\0\0\0heicmif1" + bytes(1000),
    "thousands of frames": lambda: frames("GIF", 2000),
    "thousands of frames in WebP": lambda: frames("WEBP", 2000),
}  # fmt: skip


@pytest.mark.parametrize("name", BOMBS)
def test_a_small_file_costs_no_light_worker_much(served: tuple[str, Outermost], name: str) -> None:
    url, app = served
    before = dict(app.pool.light.cpu_seconds), dict(app.pool.events)
    answer = httpx.post(f"{url}/v1/gaze", content=BOMBS[name](), timeout=30)
    assert answer.status_code in (200, 400, 413, 415), answer.text
    assert sum(app.pool.light.cpu_seconds.values()) - sum(before[0].values()) < 1.5
    assert app.pool.events["died"] == before[1].get("died", 0)
    assert app.pool.events["too_slow"] == before[1].get("too_slow", 0)


FORMS: dict[str, Callable[[], bytes]] = {
    "thousands of parts": lambda: (PART + b"\r\n") * 50_000 + b"--b--\r\n",
    "almost boundaries": lambda: PART + b"\r\n--bx" * 1_000_000 + b"\r\n--b--\r\n",
    "a million headers": lambda: b"--b\r\n" + b"a: b\r\n" * 1_000_000 + b"\r\n\r\n--b--\r\n",
    "a long header": lambda: NAMED + b"a" * (8 << 20) + b'"\r\n\r\n\r\n--b--',
    "many spaces": lambda: b"--b\r\nContent-Disposition:" + b" " * (8 << 20) + b"\r\n\r\nx\r\n--b--\r\n",
    "many lines": lambda: b"\r\n" * (4 << 20) + PART,
    "a long option": lambda: NAMED + b'ratio"\r\n\r\n' + b"1," * (4 << 20) + b"\r\n--b--",
}  # fmt: skip


@pytest.mark.parametrize("name", FORMS)
def test_a_form_costs_no_worker_much(served: tuple[str, Outermost], name: str) -> None:
    url, app = served
    before = dict(app.pool.light.cpu_seconds)
    answer = httpx.post(f"{url}/v1/gaze", content=FORMS[name](), headers={"content-type": FORM}, timeout=30)
    assert answer.status_code == 400, answer.text
    assert sum(app.pool.light.cpu_seconds.values()) - sum(before.values()) < 1.0


def test_every_frame_of_an_animation_is_cut_by_a_heavy_worker(served: tuple[str, Outermost]) -> None:
    url, app = served
    before = app.pool.heavy.tasks
    answer = httpx.post(f"{url}/v1/crop?ratio=1:1&format=keep", content=frames("GIF", 5), timeout=30)
    assert answer.status_code == 200, answer.text
    assert getattr(Image.open(io.BytesIO(answer.content)), "n_frames", 1) == 5
    assert app.pool.heavy.tasks == before + 1
    many = httpx.post(f"{url}/v1/crop?ratio=1:1&format=keep&size=4000x4000", content=frames("GIF", 12), timeout=30)
    assert many.status_code == 413, many.text
