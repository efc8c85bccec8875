"""``fastgaze demo``: the example photographs, predicted."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fastgaze.app.cli import pictures
from fastgaze.app.cli.common import limit_blas, print_json
from fastgaze.app.cli.common import out as console

if TYPE_CHECKING:
    from fastgaze.app.demo import DemoRow


def demo(
    out: Annotated[Path, typer.Option(help="Folder for pictures and index.html.")] = Path("demo"),
    images: Annotated[Path | None, typer.Option(help="Folder of .jpg photographs in place of the examples.")] = None,
    model: pictures.Model = None,
    threads: pictures.Threads = 1,
    json: Annotated[bool, typer.Option("--json", help="Print the rows as JSON.")] = False,
) -> None:
    """Predict the example photographs, print a table and leave overlays and one HTML page."""
    limit_blas(threads)
    from fastgaze.runtime.zoo import models

    if model is None and not models():
        typer.echo("no trained model is bundled yet, so there is nothing to show; give one with --model FILE.onnx")
        return
    predictor = pictures.load_model(model, "onnxruntime", threads)
    from fastgaze.app.demo import EXAMPLES, make_demo, photographs

    rows = make_demo(predictor, photographs(images or EXAMPLES), out)
    if json:
        print_json([row.to_json() for row in rows])
        return
    _print(rows)
    typer.echo(f"open {out / 'index.html'}")


def _print(rows: "list[DemoRow]") -> None:
    from rich.table import Table

    table = Table("photo", "size", "network ms", "all ms", "first peak (x, y)", "16:9 window keeps", "over the middle")
    for row in rows:
        height, width = row.gaze.size
        times, peak = row.gaze.milliseconds, row.gaze.peaks(1)[0]
        cells = [
            f"{width}x{height}",
            f"{times['network']:.1f}",
            f"{sum(times.values()):.1f}",
            f"({peak.x:.0f}, {peak.y:.0f})",
        ]
        table.add_row(row.name, *cells, f"{row.crop.mass:.0%}", f"{100 * row.crop.gain:+.0f}")
    console.print(table)
