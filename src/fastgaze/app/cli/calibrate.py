"""``fastgaze calibrate``: a bundled or exported model, adjusted to other pictures and viewers."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from fastgaze.app.cli.common import Json, Model, out, print_json, progress, refuse_stdout, report, say
from fastgaze.app.cli.evaluate import ComputeThreads

if TYPE_CHECKING:
    from fastgaze.evaluation.calibrate import Calibration, Part

_LABELS = {
    "temperature": "temperature",
    "blur": "blur, pixels",
    "center_bias": "centre bias of",
    "center_bias_weight": "its weight",
}


def calibrate(
    data: Annotated[Path, typer.Option(help="Folder with images and fixations.", show_default=False)],
    model: Model = None,
    out_path: Annotated[
        Path | None,
        typer.Option(
            "--out",
            help="File to write. By default the model's name with -calibrated.onnx.",
            callback=refuse_stdout,
            show_default=False,
        ),
    ] = None,
    layout: Annotated[str, typer.Option(help="Layout of the data; `fastgaze data layouts` lists them.")] = "auto",
    threads: ComputeThreads = None,
    json: Json = False,
) -> None:
    """Adjust temperature, blur and centre bias of a model to your own fixations.

    A few dozen images are enough. What does not help on images that it was not fitted to stays as it is.
    """
    from fastgaze.data import formats
    from fastgaze.evaluation.calibrate import calibrate as run

    fixations = formats.load(layout, data)
    with progress() as bar:

        def track(images: Iterable[int]) -> Iterable[int]:
            return bar.track(list(images), description="calibrate")

        found = run(model, fixations, data.resolve().name, threads, track)
    path = Path(f"{found.model}-calibrated.onnx") if out_path is None else out_path
    if found.changed:
        found.write(path)
    if json:
        print_json(found.to_json() | {"file": str(path) if found.changed else None})
        return
    _print(found)
    if found.changed:
        report(f"wrote {path}; use it with --model {path}")
    else:
        say("The model fits these images as it is; no file was written.")


def _print(found: "Calibration") -> None:
    say(f"{found.model} on {found.data}: {found.images} images, {found.fixations:,} fixations")
    table = Table(box=None, pad_edge=False)  # fits 80 columns
    for column in ("", "before", "fitted", "gain", "error", ""):
        table.add_column(column, justify="right" if column else "left", no_wrap=True)
    for part in found.parts:
        table.add_row(_LABELS[part.name], _shown(part.before), _shown(part.after), *_verdict(part))
    out.print(table)
    say(f"log-likelihood: {found.before:.3f} bits before, {found.after:.3f} after; error of the gain {found.error:.3f}")
    say("Gains are in bits per fixation, on images that were left out of the fit.")


def _shown(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.3g}"


def _verdict(part: "Part") -> tuple[str, str, str]:
    from fastgaze.evaluation.calibrate import NEEDED

    if part.gain is None or part.error is None:
        return "", "", f"unchanged: needs {NEEDED[part.name]} images"
    verdict = "adopted" if part.adopted else "unchanged: uncertain gain"
    return f"{part.gain:+.3f}", f"{part.error:.3f}", verdict
