"""``fastgaze data``: check and convert data sets, and list the layouts that can be read."""

from collections.abc import Callable, Iterable
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fastgaze.app.cli.common import Json, OutFolder, Verb, note, print_json, print_result, progress, say

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fastgaze.data.check import DataReport

app = typer.Typer(help="Check and convert data sets of images and fixations.", no_args_is_help=True)
Layout = Annotated[
    str,
    typer.Argument(help="Layout of the data, or auto; `fastgaze data layouts` lists them.", show_default=False),
]
Folder = Annotated[Path, typer.Argument(help="Folder of the data set.", show_default=False)]
_SHADES = " .:-=+*#%@"
_SHOWN = 20


@contextmanager
def _tracker(description: str) -> "Iterator[Callable[[Iterable[int]], Iterable[int]]]":
    with progress() as bar:
        yield lambda items: bar.track(list(items), description=description)


@app.command("check", cls=Verb)
def check(
    layout: Layout,
    path: Folder,
    quick: Annotated[bool, typer.Option("--quick", help="Read only the headers of the images.")] = False,
    json: Json = False,
) -> None:
    """Count images and fixations, show sizes and centre bias, and list every defect.

    The exit code is 1 if there is a defect.
    """
    from fastgaze.data.check import check as run

    with _tracker("check") as track:
        report = run(layout, path, pixels=not quick, track=track)
    if json:
        print_json(report.to_json())
    else:
        _print_report(report)
    if report.defects:
        raise typer.Exit(1)


@app.command("convert", cls=Verb)
def convert(
    layout: Layout,
    path: Folder,
    out_folder: OutFolder,
    format: Annotated[str, typer.Option(help="What to write: npz, folder or hdf5.")] = "npz",
    longest: Annotated[
        int | None, typer.Option(min=16, help="Scale images down to this many pixels on their longer side.")
    ] = None,
    json: Json = False,
) -> None:
    """Write a data set in another layout.

    Images are copied (npz, folder) or referred to (hdf5).
    """
    from fastgaze.data.convert import convert as run
    from fastgaze.data.formats import load

    data = load(layout, path)
    with _tracker("convert") as track:
        run(data, format, out_folder, longest=longest, track=track)
    print_result({"images": len(data), "fixations": len(data.x), "layout": format, "out": str(out_folder)}, json)


@app.command("layouts", cls=Verb)
def layouts(json: Json = False) -> None:
    """List the layouts that can be read."""
    from fastgaze.data.formats import LAYOUTS

    if json:
        print_json(LAYOUTS)
        return
    for name, layout in LAYOUTS.items():
        say(f"{name:9} {layout}")


def _print_report(report: "DataReport") -> None:
    per_image = report.fixations_per_image
    say(f"{report.path} ({report.format}): {report.images} images, {report.fixations} fixations inside")
    say(f"per image: least {per_image['least']:g}, mean {per_image['mean']:.1f}, most {per_image['most']:g}")
    say(f"observers: {report.observers or 'pooled'}; images without fixations: {report.images_without_fixations}")
    shown = [f"{size} ({number})" for size, number in list(report.sizes.items())[:8]]
    say(f"sizes: {', '.join(shown)}{', ...' if len(report.sizes) > 8 else ''}")
    if report.center_bias:
        say("centre bias:")
        top = max(map(max, report.center_bias))
        for row in report.center_bias:
            say("  " + "".join(2 * _SHADES[min(9, int(10 * share / top))] for share in row))
    say(f"defects: {len(report.defects) or 'none'}")
    for defect in report.defects[:_SHOWN]:
        say(f"  {defect['kind']}: {defect['where']}: {defect['what']}")
    if len(report.defects) > _SHOWN:
        note(f"  and {len(report.defects) - _SHOWN} more; --json lists all")
