"""``fastgaze compare``: what changes from one picture to others."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fastgaze.app.cli import common, pictures
from fastgaze.core.errors import ArgumentError
from fastgaze.core.files import HEAT_MAP, printable, write_whole
from fastgaze.runtime.regions import FIXATIONS

if TYPE_CHECKING:
    from fastgaze.runtime.compare import Comparison
    from fastgaze.runtime.regions import RegionAttention


def compare(
    images: Annotated[
        list[str], typer.Argument(metavar="A B [C...]", help="Picture files, the first being the one to compare with.")
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            help="PNG file for the pictures side by side, or - for stdout. By default A-B.gaze.png beside the first "
            "picture.",
            show_default=False,
        ),
    ] = None,
    region: pictures.Regions = None,
    fixations: pictures.Fixations = FIXATIONS,
    style: pictures.Style = "heat",
    model: common.Model = None,
    threads: common.Threads = 1,
    engine: common.Engine = "onnxruntime",
    center_bias: pictures.Bias = "model",
    json: common.Json = False,
) -> None:
    """Compare where people look in two or more pictures, such as two designs of a page.

    Regions are the same in all pictures; NAME@2=LEFT,TOP,WIDTH,HEIGHT is the box of the second picture alone.
    """
    piped = _check_out(out, json)
    predictor = pictures.load_model(model, engine, threads)
    from fastgaze.core.encoding import encode_png
    from fastgaze.runtime.compare import MOST_PICTURES, Comparison, names_of
    from fastgaze.runtime.regions import boxes_in, check_pictures, parse_regions

    if not 2 <= len(images) <= MOST_PICTURES:
        raise ArgumentError(f"give 2 to {MOST_PICTURES} pictures to compare, not {len(images)}")
    regions, bias = parse_regions(region or []), pictures.read_bias(center_bias)
    check_pictures(regions, len(images))
    gazes = [predictor.predict(image, center_bias=bias) for image in images]
    boxes = [boxes_in(regions, gaze.picture_size, number) for number, gaze in enumerate(gazes, 1)]
    found = Comparison(gazes, names_of(images), boxes, fixations)
    content = encode_png(found.image(style))
    if piped:
        sys.stdout.buffer.write(content)
        sys.stdout.buffer.flush()
        return
    path = out or _beside(images)
    write_whole(path, content)
    if json:
        common.print_json({**found.to_json(), "written": str(path)})
        return
    _print(found)
    common.report(f"-> {path}")


def _check_out(out: Path | None, json: bool) -> bool:
    """Whether the picture goes to stdout; ArgumentError for a name that is not one of a PNG file."""
    if out is None:
        return False
    if pictures.is_stdout(out, json):
        pictures.refuse_terminal("a picture", "or leave out --out to write it beside the first picture")
        return True
    if out.suffix.lower() != ".png":
        raise ArgumentError(f"--out {out} is not the name of a PNG file, such as compared.png")
    return False


def _beside(images: list[str]) -> Path:
    stems = "-".join(Path(image).stem for image in images)
    return Path(images[0]).parent / f"{stems[:100]}{HEAT_MAP}.png"


def _print(found: "Comparison") -> None:
    for index, name in enumerate(found.names[1:], 1):
        same = f"{found.overlap(index):.0%} of the attention at the same places as in {found.names[0]}"
        common.say(printable(f"{name}: {same}"))
    if not any(found.regions):
        return
    from rich.table import Table

    table = Table(box=None)
    table.add_column("region", no_wrap=True, overflow="ellipsis")
    for name in found.names:
        table.add_column(printable(name), justify="right", overflow="fold")
    for change in found.changes():
        cells = zip(change.found, change.changes, strict=True)
        table.add_row(printable(change.name), *(_cell(*cell, index > 0) for index, cell in enumerate(cells)))
    common.out.print(table)


def _cell(found: "RegionAttention | None", change: float | None, later: bool) -> str:
    if found is None:
        return "-"
    moved = f" ({100 * change:+.1f} points)" if later and change is not None else ""
    return f"{found.share:.1%}{moved}"
