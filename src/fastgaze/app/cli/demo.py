"""``fastgaze demo``: the example photographs, predicted."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fastgaze.app.cli import common, pictures
from fastgaze.core.sizes import format_size

if TYPE_CHECKING:
    from fastgaze.app.demo import DemoPhoto


def demo(
    out_folder: Annotated[
        Path, typer.Option("--out", help="Folder for the pictures and index.html.", callback=common.refuse_stdout)
    ] = Path("demo"),
    images: Annotated[
        Path | None, typer.Option(help="Folder of .jpg photographs to use instead of the examples.", show_default=False)
    ] = None,
    model: common.Model = None,
    threads: common.Threads = 1,
    json: common.Json = False,
) -> None:
    """Predict the example photographs, print a table, and write overlays and one HTML page."""
    common.limit_blas(threads)
    from fastgaze.runtime.zoo import models

    if model is None and not models():
        common.say("no trained model is bundled yet, so there is nothing to show; give one with --model FILE.onnx")
        return
    predictor = pictures.load_model(model, "onnxruntime", threads)
    from fastgaze.app.demo import EXAMPLES, make_demo, photographs

    rows = make_demo(predictor, photographs(images or EXAMPLES), out_folder)
    if json:
        common.print_json([row.to_json() for row in rows])
        return
    _print(rows)
    common.report(f"open {out_folder / 'index.html'} in a browser")


def _print(rows: "list[DemoPhoto]") -> None:
    from rich.table import Table

    table = Table(box=None)
    # Bounded, so that the numbers of any picture fit beside it into 80 columns.
    table.add_column("photo", no_wrap=True, overflow="ellipsis", max_width=18)
    for column in ("size", "network", "in all", "first peak", "16:9 keeps"):
        table.add_column(column, no_wrap=True, justify="right")
    for row in rows:
        times, peak = row.gaze.milliseconds, row.gaze.peaks(1)[0]
        cells = [
            format_size(row.gaze.size),
            f"{times['network']:.1f} ms",
            f"{sum(times.values()):.1f} ms",
            f"({peak.x:.0f}, {peak.y:.0f})",
        ]
        table.add_row(row.name, *cells, f"{row.crop.mass:.0%}")
    common.out.print(table)
