"""Ten thousand damaged and hostile files through ``fastgaze predict``, in a process with limited memory.

    python -m experiments.hostile_files --model small --count 10000

Every file must be answered, the good ones with a map, and no process may crash, hang or outgrow its memory. Files are
made from a seed: truncated, bit-flipped, with a wrong suffix, with a header that promises gigapixels, empty, noise,
folders and links of every wrong kind, and good pictures among them.
"""

import argparse
import io
import json
import os
import struct
import subprocess
import sys
import tempfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from experiments.common import DOCS, write_record
from experiments.pages import fill

FORMATS = {"jpg": "JPEG", "png": "PNG", "webp": "WEBP", "gif": "GIF", "bmp": "BMP", "tif": "TIFF", "ppm": "PPM"}
FORMATS |= {"avif": "AVIF", "jp2": "JPEG2000", "ico": "ICO"}
PART = 1000  # files a process
CPU_SECONDS, WALL_SECONDS = 600, 3600  # for one part; far more than it takes, so that a hang shows


def make_files(folder: Path, count: int, seed: int = 0) -> Counter[str]:
    """Write ``count`` files; how many of each kind."""
    folder.mkdir(parents=True)
    generator = np.random.default_rng(seed)
    kinds: dict[str, tuple[float, Callable[[Path, np.random.Generator], None]]] = {
        "good": (0.10, make_good),
        "suffix": (0.05, make_wrong_suffix),
        "cut": (0.25, make_truncated),
        "flip": (0.35, make_flipped),
        "noise": (0.07, make_noise),
        "empty": (0.03, make_empty),
        "bomb": (0.08, make_bomb),
        "place": (0.07, make_place),
    }
    names = generator.choice(list(kinds), size=count, p=[share for share, _ in kinds.values()])
    names[: len(kinds)] = list(kinds)[:count]
    for index, name in enumerate(names):
        suffix = generator.choice(list(FORMATS))
        kinds[str(name)][1](folder / f"{name}-{index:05d}.{suffix}", generator)
    return Counter(str(name) for name in names)


def picture(generator: np.random.Generator, suffix: str) -> bytes:
    """A small valid file of the format that belongs to ``suffix``, in one of many modes."""
    height, width = generator.integers(1, 120, 2)
    image = Image.fromarray(generator.integers(0, 256, (height, width, 3), dtype=np.uint8))
    modes = {"jpg": ["RGB", "L", "CMYK"], "ppm": ["RGB", "L"], "jp2": ["RGB", "L"]}
    modes |= {suffix: ["RGB", "RGBA"] for suffix in ("webp", "avif", "ico")}
    image = image.convert(str(generator.choice(modes.get(suffix, ["RGB", "L", "P", "1"]))))
    buffer = io.BytesIO()
    image.save(buffer, FORMATS[suffix])
    return buffer.getvalue()


def make_good(path: Path, generator: np.random.Generator) -> None:
    path.write_bytes(picture(generator, path.suffix[1:]))


def make_empty(path: Path, _generator: np.random.Generator) -> None:
    path.touch()


def make_wrong_suffix(path: Path, generator: np.random.Generator) -> None:
    path.write_bytes(picture(generator, str(generator.choice(list(FORMATS)))))


def make_truncated(path: Path, generator: np.random.Generator) -> None:
    content = picture(generator, path.suffix[1:])
    path.write_bytes(content[: generator.integers(1, len(content))])


def make_flipped(path: Path, generator: np.random.Generator) -> None:
    """Flip 1 to 64 bits, mostly near the beginning, where the headers are."""
    content = bytearray(picture(generator, path.suffix[1:]))
    for _ in range(2 ** int(generator.integers(0, 7))):
        reach = len(content) if generator.random() < 0.5 else min(len(content), 200)
        content[generator.integers(reach)] ^= 1 << int(generator.integers(8))
    path.write_bytes(content)


def make_noise(path: Path, generator: np.random.Generator) -> None:
    """Random bytes, half of them behind the first bytes of a real format."""
    head = picture(generator, path.suffix[1:])[:16] if generator.random() < 0.5 else b""
    path.write_bytes(head + generator.bytes(int(generator.integers(1, 4000))))


def make_bomb(path: Path, generator: np.random.Generator) -> None:
    """Few bytes that promise, or hold, very many pixels or very much text."""
    # The first is within the limit: few of them, since a map of 81 megapixels takes seconds.
    side = int(generator.choice([9_000, 11_500, 20_000, 65_000], p=[0.04, 0.32, 0.32, 0.32]))
    bombs: list[Callable[[int], bytes]] = [_png_promise, _gif_promise, _bmp_promise, _jpeg_promise, _ppm_promise]
    if generator.random() < 0.05:
        bombs = [_png_of_zeros, _png_text]
    path.write_bytes(bombs[generator.integers(len(bombs))](side))


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def _png(side: int, data: bytes, before: bytes = b"") -> bytes:
    header = _chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 1, 0, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + before + _chunk(b"IDAT", data) + _chunk(b"IEND", b"")


def _png_promise(side: int) -> bytes:
    return _png(side, zlib.compress(bytes(1000)))


def _png_of_zeros(side: int) -> bytes:
    """All pixels are there: 9,000 x 9,000 is within the limit and must be predicted, more must be refused."""
    return _png(side, zlib.compress(bytes((side + 7) // 8 + 1) * min(side, 9_000)))


def _png_text(_side: int) -> bytes:
    return _png(8, zlib.compress(bytes(16)), _chunk(b"zTXt", b"key\0\0" + zlib.compress(bytes(100_000_000))))


def _gif_promise(side: int) -> bytes:
    size = struct.pack("<HH", side, side)
    return b"GIF89a" + size + b"\x80\0\0" + bytes(6) + b",\0\0\0\0" + size + b"\0\x02\x02\x44\x01\0;"


def _bmp_promise(side: int) -> bytes:
    return b"BM" + struct.pack("<IIIIiiHHIIiiII", 100, 0, 54, 40, side, side, 1, 24, 0, 0, 0, 0, 0, 0) + bytes(46)


def _jpeg_promise(side: int) -> bytes:
    content = bytearray(picture(np.random.default_rng(side), "jpg"))
    frame = content.index(b"\xff\xc0")
    content[frame + 5 : frame + 9] = struct.pack(">HH", side, side)
    return bytes(content)


def _ppm_promise(side: int) -> bytes:
    return b"P6 %d %d 255\n" % (side, side) + bytes(300)


def make_place(path: Path, generator: np.random.Generator) -> None:
    """Something that is not a regular file: a folder, a pipe, or a link to nothing, itself, a device or a folder."""
    kind = generator.choice(["folder", "pipe", "nothing", "itself", "device", "parent"])
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        targets = {
            "nothing": "/nonexistent/file.jpg",
            "itself": path.name,
            "device": "/dev/zero",
            "parent": "/proc/self",
        }
        path.symlink_to(targets[str(kind)])


def run_predict(folder: Path, model: str | Path, megabytes: int = 3000) -> dict[str, Any]:
    """Every file of ``folder`` as an argument of ``fastgaze predict``, in parts; what came of it."""
    files = sorted(str(path) for path in folder.iterdir())
    good = {file for file in files if Path(file).name.startswith("good-")}
    answers: dict[str, dict[str, Any]] = {}
    codes, seconds, memory = [], [], []
    for part in _parts(files):
        code, found, time, peak = _predict(part, model, megabytes)
        codes.append(code)
        seconds.append(time)
        memory.append(peak)
        answers |= {answer["name"]: answer for answer in found}
    return {
        "files": len(files),
        "answered": len(answers.keys() & set(files)),
        "maps": sum("error" not in answer for answer in answers.values()),
        "good": len(good),
        "good_done": sum("error" not in answers.get(file, {"error": ""}) for file in good),
        "crashed": sum(code not in (0, 1) for code in codes),
        "exit_codes": sorted(set(codes)),
        "cpu_s": round(sum(seconds), 1),
        "peak_rss_mb": round(max(memory)),
        "memory_limit_mb": megabytes,
    }


def _parts(files: list[str]) -> Iterator[list[str]]:
    rest = iter(files)
    while part := list(islice(rest, PART)):
        yield part


def _predict(files: list[str], model: str | Path, megabytes: int) -> tuple[int, list[dict[str, Any]], float, float]:
    """Exit code, answers, CPU seconds and peak resident megabytes of one process whose address space is limited."""
    limit = megabytes << 20
    code = (
        f"import resource, sys; resource.setrlimit(resource.RLIMIT_AS, ({limit}, {limit}))\n"
        f"resource.setrlimit(resource.RLIMIT_CPU, ({CPU_SECONDS}, {CPU_SECONDS}))\n"
        "from fastgaze.app.cli import main; main(sys.argv[1:])"
    )
    with tempfile.TemporaryDirectory() as out, tempfile.TemporaryFile() as answers:
        options = ["--json", "--format", "json", "--out", out, "--model", str(model), "--threads", "1"]
        command = [sys.executable, "-c", code, "predict", *options, "--", *files]
        process = subprocess.Popen(["timeout", str(WALL_SECONDS), *command], stdout=answers, stderr=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        answers.seek(0)
        text = answers.read()
    found = json.loads(text) if text else []
    return process.returncode, found, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def shown(report: Mapping[str, Any]) -> str:
    """The part of the page."""
    codes = " or ".join(str(code) for code in report["exit_codes"])
    return (
        f"Of {report['files']:,} such files, {report['answered']:,} were answered, {report['good_done']:,} of "
        f"{report['good']:,} good pictures were predicted, {report['crashed']} crashed the process, and processes "
        f"ended with exit code {codes}. They took {report['cpu_s']:.0f} s of CPU time and at most "
        f"{report['peak_rss_mb']:,} MB."
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="a bundled model or an .onnx file")
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="results/hostile_files.json; docs/runtime.md is written too")
    parser.add_argument("--megabytes", type=int, default=3000, help="limit of the address space")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        kinds = make_files(Path(folder, "files"), arguments.count, arguments.seed)
        report = {"kinds": dict(kinds)} | run_predict(Path(folder, "files"), arguments.model, arguments.megabytes)
    print(json.dumps(report, indent=2))
    if arguments.out is not None:
        write_record(arguments.out, report)
        fill(DOCS / "runtime.md", "hostile", shown(report))
    failed = report["crashed"] or report["answered"] < report["files"] or report["good_done"] < report["good"]
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
