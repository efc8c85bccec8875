"""How long does it take to crop a folder of large photographs? Ours, sharp and libvips, one thread each.

    pip install 'fastgaze[fast]'
    python -m experiments.crop_speed --count 200        # results/crop_speed.json and the table of docs/crops.md

Every photograph has 12 megapixels and is cut to 1200x630. Each cropper handles the whole folder in one process, from
file to file; what counts is the CPU time of that process (user and system), in turns, the median of the rounds. Every
one decodes at half the size and writes JPEG of quality 90, which is also that of the photographs. sharp and ours halve
the chroma; libvips does not at this quality. The row of Pillow cuts the middle out of every photograph, with the
decoder, the filter and the encoder that ours uses without the extra ``fast``. See ``experiments.crops`` for what else
has to be installed.
"""

import os
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean, median
from typing import Any

from PIL import Image

from experiments.common import DOCS, EXAMPLES, RESULTS, about, make_parser, parse, write_record
from experiments.crops import FOLDER
from experiments.pages import fill, table
from fastgaze.runtime.zoo import models

PIXELS = (4000, 3000)
WIDTH, HEIGHT = 1200, 630
PAGE = DOCS / "crops.md"
_SHARP = f"""
const sharp = require('sharp'), fs = require('fs'), path = require('path');
const [photos, out] = process.argv.slice(1);
sharp.concurrency(1); sharp.cache(false);
(async () => {{
  for (const name of fs.readdirSync(photos))
    await sharp(path.join(photos, name)).resize({WIDTH}, {HEIGHT}, {{ position: 'attention' }}).jpeg({{ quality: 90 }})
      .toFile(path.join(out, name));
}})();
"""
_VIPS = f"""
import os, sys, pyvips
for name in os.listdir(sys.argv[1]):
    cut = pyvips.Image.thumbnail(os.path.join(sys.argv[1], name), {WIDTH}, height={HEIGHT}, crop="attention")
    cut.jpegsave(os.path.join(sys.argv[2], name), Q=90)
"""
_PILLOW = f"""
import os, sys
from PIL import Image
for name in os.listdir(sys.argv[1]):
    with Image.open(os.path.join(sys.argv[1], name)) as photo:
        photo.draft("RGB", ({WIDTH}, {WIDTH} * photo.height // photo.width))
        height = photo.width * {HEIGHT} / {WIDTH}
        box = (0, (photo.height - height) / 2, photo.width, (photo.height + height) / 2)
        cut = photo.resize(({WIDTH}, {HEIGHT}), Image.Resampling.HAMMING, box)
        cut.save(os.path.join(sys.argv[2], name), qtables=photo.quantization)
"""
_WITHOUT_EXTRA = "import sys; sys.modules['cykooz_resizer'] = None; from fastgaze.app.cli import main; main()"


def make_photos(folder: Path, count: int) -> None:
    """Photographs of ``PIXELS`` from the examples, each shifted a little, as JPEG of quality 90."""
    sources = sorted(EXAMPLES.glob("*.jpg"))
    for index in range(count):
        path = folder / f"{index:03}.jpg"
        if index < len(sources):
            with Image.open(sources[index]) as photo:
                photo.convert("RGB").resize(PIXELS, Image.Resampling.BICUBIC).save(path, quality=90)
        else:
            shutil.copy(folder / f"{index % len(sources):03}.jpg", path)


def commands(photos: Path, out: Path, model: str) -> dict[str, list[str]]:
    """What is timed, by name."""
    options = [str(photos), "--size", f"{WIDTH}x{HEIGHT}", "--out", str(out), "--threads", "1", "--model"]
    ours = [sys.executable, "-m", "fastgaze", "crop", *options]
    smaller = f"{model}.int8"
    names = [each.name for each in models()]
    return {
        "fastgaze crop, extra `fast`": [*ours, model],
        **({f"fastgaze crop, extra `fast`, `{smaller}`": [*ours, smaller]} if smaller in names else {}),
        "fastgaze crop": [sys.executable, "-c", _WITHOUT_EXTRA, "crop", *options, model],
        "sharp attention": ["node", "-e", _SHARP, str(photos), str(out)],
        "libvips attention": [sys.executable, "-c", _VIPS, str(photos), str(out)],
        "Pillow, the middle": [sys.executable, "-c", _PILLOW, str(photos), str(out)],
    }


def cpu_seconds(command: Sequence[str]) -> float:
    """CPU time of a process and its children."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = os.environ | {
        "OMP_NUM_THREADS": "1",
        "VIPS_CONCURRENCY": "1",
        "NODE_PATH": str(FOLDER / "node_modules"),
    }
    subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def time_round(todo: dict[str, list[str]], out: Path) -> dict[str, tuple[float, float]]:
    """CPU seconds of every cropper, and the mean bytes of the files it wrote, by name."""
    found = {}
    for name, command in todo.items():
        out.mkdir()
        found[name] = cpu_seconds(command), mean(path.stat().st_size for path in out.iterdir())
        shutil.rmtree(out)
    return found


def figures(rounds: Sequence[dict[str, tuple[float, float]]], count: int) -> dict[str, Any]:
    """Medians and ranges over the rounds, by name."""
    rows = {}
    for name in rounds[0]:
        times = [1e3 * each[name][0] / count for each in rounds]
        rows[name] = {
            "ms_per_photo": round(median(times), 2),
            "range": [round(min(times), 2), round(max(times), 2)],
            "bytes": round(rounds[0][name][1]),
        }
    return rows


def shown(record: Mapping[str, Any]) -> str:
    """For the page."""
    rows = []
    for name, row in record["croppers"].items():
        low, high = row["range"]
        rows.append([name, f"{row['ms_per_photo']:.1f} ms ({low:.1f} to {high:.1f})", f"{row['bytes']:,}"])
    return table(["", "CPU per photograph", "bytes per crop"], rows)


def main(arguments: Sequence[str] | None = None) -> None:
    """Make the photographs, time every cropper in turns."""
    parser = make_parser(__doc__, __file__, data=False, rounds=5)
    parser.add_argument("--count", type=int, default=200, help="photographs in the folder")
    parser.add_argument("--model", default=models()[0].name, help="ours: a bundled model or an .onnx file")
    options = parse(parser, arguments)
    with tempfile.TemporaryDirectory() as folder:
        photos, out = Path(folder, "photos"), Path(folder, "out")
        photos.mkdir()
        make_photos(photos, options.count)
        todo = commands(photos, out, options.model)
        rounds = [time_round(todo, out) for _ in range(options.rounds)]
    record = about(options, pixels=PIXELS, count=options.count, model=options.model, rounds=options.rounds)
    record |= {"croppers": figures(rounds, options.count)}
    write_record(RESULTS / "crop_speed.json", record)
    fill(PAGE, "speed", shown(record))
    print(shown(record))


if __name__ == "__main__":
    main()
