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


def tiff_of_strips(count: int) -> bytes:
    """Grey rows of 64 pixels, each of them a strip, all at the same place of the file."""
    tags = [(256, 3, 1, 64), (257, 4, 1, min(count, 60_000)), (258, 3, 1, 8), (259, 3, 1, 1), (262, 3, 1, 1)]
    tags += [(273, 4, count, 400), (277, 3, 1, 1), (278, 3, 1, 1), (279, 4, count, 400 + 4 * count)]
    directory = b"".join(struct.pack("<HHII", *tag) for tag in tags)
    head = (b"II*\0" + struct.pack("<IH", 8, len(tags)) + directory + bytes(4)).ljust(400, b"\0")
    return head + struct.pack("<I", 400) * count + struct.pack("<I", 64) * count


def apng(count: int) -> bytes:
    frame = chunk(b"fcTL", struct.pack(">IIIIIHHBB", 0, 64, 48, 0, 0, 1, 10, 0, 0)) + chunk(b"fdAT", bytes(4) + ROWS)
    return png(chunk(b"acTL", struct.pack(">II", count, 0)), frame * count)


def gif(side: int, count: int) -> bytes:
    head = b"GIF89a" + struct.pack("<HH", side, side) + b"\x80\0\0" + bytes(6)
    return head + b",\0\0\0\0\1\0\1\0\0\2\2D\1\0" * count + b";"


def restarts(count: int) -> bytes:
    content = encoded(picture(64, 48), "JPEG")
    scan = content.index(b"\xff\xda")
    return content[:scan] + b"\xff\xdd\0\4\0\1" + content[scan : scan + 14] + b"\xff\xd0" * count + b"\xff\xd9"


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
    "thousands of strips": lambda: tiff_of_strips(30_000),
    "millions of strips": lambda: tiff_of_strips(2_000_000),
    "thousands of frames in PNG": lambda: apng(10_000),
    "tiny frames of a huge animation": lambda: gif(65_535, 100_000),
    "millions of restarts": lambda: restarts(2_000_000),
    "megabytes of profile": lambda: jpeg((b"\xff\xe2\xff\xffICC_PROFILE\0\1\xff" + bytes(65519)) * 255),
    "Encapsulated PostScript": lambda: b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n{} loop\n",
    "nested JSON": lambda: b"[" * 100_000,
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
    "no end": lambda: PART + encoded(picture(64, 48)),
    "a form in a form": lambda: b"--b\r\nContent-Type: multipart/mixed; boundary=c\r\n\r\n--c\r\n\r\nx\r\n--c--\r\n--b",
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


def cpu_seconds(app: Outermost) -> float:
    """Of all workers so far."""
    return sum(sum(lane.cpu_seconds.values()) for lane in (app.pool.light, app.pool.heavy))


def test_an_animation_of_very_many_frames_is_refused_before_they_are_decoded(served: tuple[str, Outermost]) -> None:
    url, app = served
    before = app.pool.events["too_slow"]
    for content in (frames("WEBP", 2100), gif(8, 100_000)):
        used = cpu_seconds(app)
        answer = httpx.post(f"{url}/v1/crop?ratio=1:1&format=keep", content=content, timeout=30)
        assert answer.status_code == 413, answer.text
        assert cpu_seconds(app) - used < 2
    assert app.pool.events["too_slow"] == before


def test_a_picture_with_megabytes_of_profile_is_cut_without_it(served: tuple[str, Outermost]) -> None:
    url, _ = served
    content = jpeg(b"".join(b"\xff\xe2\xff\xdcICC_PROFILE\0" + bytes([n + 1, 254]) + bytes(65484) for n in range(254)))
    answer = httpx.post(f"{url}/v1/crop?ratio=1:1&format=keep", content=content, timeout=30)
    assert answer.status_code == 200, answer.text


def test_a_compressed_tiff_is_cut_as_one(served: tuple[str, Outermost]) -> None:
    buffer = io.BytesIO()
    picture(320, 240).save(buffer, "TIFF", compression="tiff_lzw")
    answer = httpx.post(f"{served[0]}/v1/crop?ratio=1:1&format=keep", content=buffer.getvalue(), timeout=30)
    assert answer.status_code == 200, answer.text
    assert Image.open(io.BytesIO(answer.content)).size == (240, 240)
