"""The hostile clients of experiments/soak.py: what they send, and how they behave."""

import asyncio
import contextlib
import io
import os
import random
import re
import struct
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection

from PIL import Image

from experiments.load_test import hostile_uploads, photograph, post

HOST = "127.0.0.1"
MOST_SECONDS = 600.0

Address = tuple[str, int]


def head(length: int | str, path: str = "/v1/gaze") -> bytes:
    framing = f"Content-Length: {length}" if isinstance(length, int) else length
    return f"POST {path} HTTP/1.1\r\nHost: {HOST}\r\n{framing}\r\n\r\n".encode()


async def slow_reader(address: Address, rng: random.Random, kit: "Kit") -> None:
    """Ask for 64 MB and read a kilobyte now and then."""
    reader, writer = await asyncio.open_connection(*address, limit=1024)
    writer.write(head(len(kit.small), f"/v1/gaze?format=npy&size={rng.choice(('4000x4000', '2000x2000'))}") + kit.small)
    for _ in range(20):
        await reader.read(1024)
        await asyncio.sleep(rng.uniform(0.1, 1))
    writer.transport.abort()


async def slow_writer(address: Address, rng: random.Random, kit: "Kit") -> None:
    """Announce a megabyte and send a byte now and then."""
    _, writer = await asyncio.open_connection(*address)
    writer.write(head(1 << 20) + kit.small[:10])
    for _ in range(30):
        writer.write(b"x")
        await writer.drain()
        await asyncio.sleep(rng.uniform(0.05, 0.5))
    writer.transport.abort()


async def chunk_storm(address: Address, _: random.Random, kit: "Kit") -> None:
    await send(address, head("Transfer-Encoding: chunked") + kit.chunks)


async def scan_bomb(address: Address, _: random.Random, kit: "Kit") -> None:
    await send(address, head(len(kit.scans)) + kit.scans)


async def memory_bomb(address: Address, rng: random.Random, _: "Kit") -> None:
    content = webp(*rng.choice(((16383, 16383), (7000, 7000), (4000, 4000))))
    await send(address, head(len(content)) + content)


async def largest(address: Address, rng: random.Random, kit: "Kit") -> None:
    content = rng.choice((kit.large_png, kit.large_jpeg))
    await send(address, head(len(content), rng.choice(("/v1/gaze", "/v1/gaze?format=overlay"))) + content)


async def long_one(address: Address, _: random.Random, kit: "Kit") -> None:
    """A good picture in a tiny file that takes long to decode, again and again over one connection."""
    reader, writer = await asyncio.open_connection(*address)
    try:
        async with asyncio.timeout(10):
            for _turn in range(5):
                await post(reader, writer, "/v1/gaze", kit.long, "image/png")
    finally:
        writer.transport.abort()


async def damaged(address: Address, rng: random.Random, kit: "Kit") -> None:
    _, content, content_type = rng.choice(kit.damaged)
    request = head(len(content)).replace(b"\r\n\r\n", f"\r\nContent-Type: {content_type}\r\n\r\n".encode())
    await send(address, request + content)


async def huge_head(address: Address, rng: random.Random, _: "Kit") -> None:
    more = rng.choice((b"X: " + b"y" * 60_000 + b"\r\n", b"X: y\r\n" * 5_000, b"X: y\r\n" * 90))
    await send(address, b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\n" + more + b"\r\n")


async def pipeline(address: Address, _: random.Random, __: "Kit") -> None:
    await send(address, b"GET /v1/models HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" * 500)


async def visitor(address: Address, rng: random.Random, _: "Kit") -> None:
    """Ask for pages again and again, as fast as they come, with many options or none."""
    path = rng.choice(("/docs", "/v1/models", "/metrics", "/nothing", f"/v1/models?{'&'.join(['ratio=16:9'] * 1300)}"))
    reader, writer = await asyncio.open_connection(*address)
    try:
        async with asyncio.timeout(5):
            for _turn in range(200):
                writer.write(f"GET {path} HTTP/1.1\r\nHost: {HOST}\r\n\r\n".encode())
                found = await reader.readuntil(b"\r\n\r\n")
                await reader.readexactly(int(re.search(rb"content-length: (\d+)", found)[1]))  # type: ignore[index]
    finally:
        writer.transport.abort()


async def trailers(address: Address, _: random.Random, __: "Kit") -> None:
    """Ten thousand headers behind a body."""
    await send(address, head("Transfer-Encoding: chunked") + b"3\r\nabc\r\n0\r\n" + b"a:b\r\n" * 10_000 + b"\r\n")


async def small_chunks(address: Address, _: random.Random, __: "Kit") -> None:
    """Megabytes in the smallest chunks that are accepted."""
    chunk = b"100\r\n" + bytes(256) + b"\r\n"
    await send(address, head("Transfer-Encoding: chunked") + chunk * 8_000)


async def sixteen(address: Address, _: random.Random, kit: "Kit") -> None:
    """Forms of sixteen good pictures."""
    part = b'--b\r\nContent-Disposition: form-data; name="file"; filename="x"\r\n\r\n' + kit.small + b"\r\n"
    form = part * 16 + b"--b--\r\n"
    await send(address, head(f"Content-Type: multipart/form-data; boundary=b\r\nContent-Length: {len(form)}") + form)


async def silent(address: Address, rng: random.Random, _: "Kit") -> None:
    """Thirty connections that say nothing."""
    writers = [(await asyncio.open_connection(*address))[1] for _ in range(30)]
    await asyncio.sleep(rng.uniform(1, 5))
    for writer in writers:
        writer.transport.abort()


async def pretender(address: Address, rng: random.Random, kit: "Kit") -> None:
    """Be a good client first, then send what costs most, over the same connection."""
    reader, writer = await asyncio.open_connection(*address)
    try:
        async with asyncio.timeout(10):
            for content in (kit.small, kit.small, kit.large_jpeg, rng.choice((kit.scans, kit.small))):
                await post(reader, writer, "/v1/gaze", content, "image/jpeg")
    finally:
        writer.transport.abort()


async def crowd(address: Address, rng: random.Random, kit: "Kit") -> None:
    """Many pictures in one request, or many parts that are none."""
    part = b'--b\r\nContent-Disposition: form-data; name="file"; filename="x"\r\n\r\n%s\r\n'
    parts = rng.choice(([kit.small] * 16, [b""] * 5000, [kit.small + b"\r\n--bx" * 20_000] * 2))
    form = b"".join(part % content for content in parts) + b"--b--\r\n"
    request = head(len(form)).replace(b"\r\n\r\n", b"\r\nContent-Type: multipart/form-data; boundary=b\r\n\r\n")
    await send(address, request + form)


async def animation(address: Address, _: random.Random, kit: "Kit") -> None:
    """Ask for every one of thousands of frames, cut."""
    await send(address, head(len(kit.frames), "/v1/crop?ratio=1:1&format=keep") + kit.frames)


async def leaver(address: Address, rng: random.Random, kit: "Kit") -> None:
    """Ask and leave at once."""
    for _ in range(10):
        _, writer = await asyncio.open_connection(*address)
        writer.write(head(len(kit.small)) + kit.small)
        await writer.drain()
        writer.transport.abort()
        await asyncio.sleep(rng.uniform(0, 0.05))


ATTACKS: tuple[Callable[[Address, random.Random, "Kit"], Awaitable[None]], ...] = (
    slow_reader, slow_writer, chunk_storm, scan_bomb, memory_bomb, largest, damaged, huge_head, pipeline, silent,
    pretender, crowd, animation, leaver, long_one, visitor, trailers, small_chunks, sixteen,
)  # fmt: skip


async def send(address: Address, request: bytes) -> None:
    """Send and read what comes, for five seconds at most."""
    reader, writer = await asyncio.open_connection(*address)
    try:
        async with asyncio.timeout(5):
            writer.write(request)
            await writer.drain()
            await reader.read(4096)
    finally:
        writer.transport.abort()


@dataclass(frozen=True)
class Kit:
    """What hostile clients send, made once."""

    small: bytes
    chunks: bytes
    scans: bytes
    large_png: bytes
    large_jpeg: bytes
    frames: bytes
    long: bytes
    damaged: list[tuple[str, bytes, str]]


def make_kit(side: int) -> Kit:
    plain = Image.new("RGB", (side, side), (90, 120, 60))
    png, jpeg, progressive = io.BytesIO(), io.BytesIO(), io.BytesIO()
    plain.save(png, "PNG", compress_level=1)
    plain.save(jpeg, "JPEG", progressive=True, subsampling=0, quality=30)
    Image.effect_noise((2000, 2000), 20).convert("RGB").save(progressive, "JPEG", progressive=True, quality=5)
    content = progressive.getvalue()
    last = content.rindex(b"\xff\xda")
    scans = content[:last] + content[last:-2] * 50 + content[last : last + 14] * 3000 + content[-2:]
    chunks = b"1\r\nx\r\n" * 100_000
    frames, long = io.BytesIO(), io.BytesIO()
    plain.resize((2 * side // 5, 2 * side // 5)).save(long, "PNG")
    shades = [Image.new("L", (200, 200), n % 251) for n in range(3000)]
    shades[0].save(frames, "GIF", save_all=True, append_images=shades[1:])
    made = (
        photograph(48, 48, 1, "PNG"),
        chunks,
        scans,
        png.getvalue(),
        jpeg.getvalue(),
        frames.getvalue(),
        long.getvalue(),
    )
    return Kit(*made, list(hostile_uploads(200)))


def webp(width: int, height: int) -> bytes:
    """34 bytes that announce a picture of this size."""
    frame = b"VP8L" + struct.pack("<I", 9) + b"\x2f" + struct.pack("<I", (width - 1) | (height - 1) << 14) + bytes(5)
    return b"RIFF" + struct.pack("<I", 4 + len(frame)) + b"WEBP" + frame


def attack(port: int, kit: Kit, clients: int, seconds: float, niceness: int, results: Connection) -> None:
    """In a process of its own."""
    counts = Counter[str]()
    until = time.monotonic() + min(seconds, MOST_SECONDS)
    os.nice(niceness)
    results.send("ready")

    async def client(seed: int) -> None:
        rng = random.Random(seed)
        while time.monotonic() < until:
            kind = rng.choice(ATTACKS)
            counts[kind.__name__] += 1
            with contextlib.suppress(OSError, asyncio.IncompleteReadError, TimeoutError):
                await asyncio.wait_for(kind((HOST, port), rng, kit), max(until - time.monotonic(), 0.1))

    async def everybody() -> None:
        await asyncio.gather(*(client(seed) for seed in range(clients)))

    asyncio.run(everybody())
    results.send(dict(counts))
