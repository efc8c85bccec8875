"""``fastgaze export``: from a checkpoint to the file that ships."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fastgaze.app.cli.common import print_json
from fastgaze.core.errors import ArgumentError, ExportError, require

if TYPE_CHECKING:
    from fastgaze.networks import GazeModel
    from fastgaze.onnx.write import Facts

MOST_IMAGES = 128
"""Calibration images used at most, spread evenly over the folder."""


def export(
    checkpoint: Annotated[Path, typer.Argument(help="A .safetensors checkpoint.", show_default=False)],
    to: Annotated[str, typer.Option(help="File format: onnx.")] = "onnx",
    out: Annotated[Path | None, typer.Option(help="File to write; CHECKPOINT.onnx by default.")] = None,
    name: Annotated[str | None, typer.Option(help="Name of the model; the file's name by default.")] = None,
    pixels: Annotated[int | None, typer.Option(min=1024, help="Working size, height times width.")] = None,
    full: Annotated[bool, typer.Option("--full", help="Store weights as float32; float16 by default.")] = False,
    int8: Annotated[bool, typer.Option("--int8", help="Also write NAME.int8.onnx.")] = False,
    calibrate: Annotated[Path | None, typer.Option(help="Folder of images for --int8.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Write the ONNX file of a checkpoint, checked against torch; a file that differs is refused."""
    if to != "onnx":
        raise ArgumentError(f"--to {to!r} is not onnx")
    if int8 != (calibrate is not None):
        raise ArgumentError("--int8 and --calibrate DIR go together: 8-bit ranges are measured on real images")
    require("torch", "train")
    require("onnx", "train")
    from fastgaze.onnx.write import export_int8, export_onnx

    path = checkpoint.with_suffix(".onnx") if out is None else out
    model, facts = _read(checkpoint, name or path.stem, pixels)
    cards = {path: export_onnx(model, path, facts, half=not full)}
    if calibrate is not None:
        small = path.with_name(f"{path.stem}.int8.onnx")
        cards[small] = export_int8(model, small, facts, _images(calibrate))
    written = [_facts(file, card) for file, card in cards.items()]
    if json:
        print_json(written)
        return
    for fact in written:
        typer.echo(f"{fact['file']}: {fact['parameters']:,} parameters, {fact['bytes'] / 1e6:.2f} MB, same as torch")


def _read(checkpoint: Path, name: str, pixels: int | None) -> "tuple[GazeModel, Facts]":
    from fastgaze.networks import GazeModel, load_checkpoint
    from fastgaze.onnx.write import Facts
    from fastgaze.runtime.card import WorkingSize

    model, record = load_checkpoint(checkpoint)
    if not isinstance(model, GazeModel):
        raise ExportError(f"{checkpoint} holds a {model.spec.architecture}, which predicts no gaze; nothing to export")
    size = WorkingSize(pixels=pixels or int(record.get("working_pixels", WorkingSize.pixels)))
    scores = record.get("scores", {})
    facts = Facts(name, scores, str(record.get("data", "")), str(record.get("licence", "Apache-2.0")), size)
    return model, facts


def _images(folder: Path) -> list[Path]:
    from fastgaze.core.pictures import image_files

    if not folder.is_dir():
        raise ArgumentError(f"--calibrate {folder} is no folder of images")
    found = image_files(folder, below=True)
    return found[:: max(len(found) // MOST_IMAGES, 1)][:MOST_IMAGES]


def _facts(file: Path, card: Any) -> dict[str, Any]:
    facts = {key: getattr(card, key) for key in ("name", "precision", "parameters", "maps", "gflop_640x480", "sigma")}
    return {"file": str(file), "bytes": file.stat().st_size, **facts}
