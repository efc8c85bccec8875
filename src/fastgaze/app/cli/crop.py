"""``fastgaze crop``: the best windows of a ratio."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fastgaze.app.cli import pictures
from fastgaze.app.cli.common import print_json
from fastgaze.core.errors import ArgumentError

if TYPE_CHECKING:
    from fastgaze.core.pictures import Picture
    from fastgaze.runtime.crop import Crop

Ratio = Annotated[list[str], typer.Option(help="Width:height, such as 16:9; repeat it for several.")]


def crop(
    images: pictures.Images,
    ratio: Ratio,
    candidates: Annotated[int, typer.Option("-n", "--candidates", min=1, max=64, help="Windows for each ratio.")] = 3,
    out: Annotated[Path | None, typer.Option(help="Folder for the cropped files; without it none is written.")] = None,
    model: pictures.Model = None,
    threads: pictures.Threads = 1,
    engine: pictures.EngineName = "onnxruntime",
    center_bias: pictures.Bias = "model",
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Best windows of a ratio by the attention they keep, with alternatives, confidence and focal point.

    With --out the best window of each ratio is written as NAME.16x9.png or in the picture's own format.
    """
    predictor = pictures.load_model(model, engine, threads)
    from fastgaze.core.pictures import open_picture
    from fastgaze.runtime.crop import parse_ratio

    for text in ratio:
        parse_ratio(text)
    if out is None and not json and "-" in images and len(images) > 1:
        raise ArgumentError("one picture can come through a pipe; give --out DIR or --json for more")
    bias = pictures.read_bias(center_bias)
    jobs = pictures.find_jobs(images, out)

    def work(job: pictures.Job) -> dict[str, Any]:
        picture = open_picture(job.source)
        cutting = out is not None and job.stem is not None
        gaze = predictor.look(picture, picture.size if cutting else None).at(None, bias)
        found = {text: gaze.crop(text, candidates) for text in ratio}
        written = (
            []
            if out is None or job.stem is None
            else _write(picture, job.stem, {t: c[0].box for t, c in found.items()})
        )
        if not json:
            for text, crops in found.items():
                for candidate in crops:
                    typer.echo(pictures.printable(f"{job.label} {text}: {_line(candidate)}"))
        facts = gaze.to_json(ratios=ratio, n=candidates) if json else {}
        return {"image": job.label, **facts, "written": written}

    results, failures = pictures.run_jobs(jobs, work, "crop")
    if json:
        print_json(results)
    pictures.finish(len(jobs), failures)


def _write(picture: "Picture", stem: Path, boxes: dict[str, tuple[int, int, int, int]]) -> list[str]:
    from fastgaze.core.pictures import cut

    photo = picture.rgb()
    suffix = ".jpg" if picture.format in ("JPEG", "MPO") else ".png"
    stem.parent.mkdir(parents=True, exist_ok=True)
    written = []
    for text, box in boxes.items():
        path = stem.with_name(f"{stem.name}.{text.replace(':', 'x').replace('/', 'x').strip()}{suffix}")
        if suffix == ".jpg":
            cut(photo, box).save(path, quality=92)
        else:
            cut(photo, box).save(path)
        written.append(str(path))
    return written


def _line(crop: "Crop") -> str:
    left, top, right, bottom = crop.box
    x, y = crop.focal_point
    place = f"{right - left}x{bottom - top}+{left}+{top}"
    return f"{place} keeps {crop.mass:.0%}, confidence {crop.confidence:.2f}, focal point ({x:.0f}, {y:.0f})"
