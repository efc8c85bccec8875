"""``fastgaze export``: from a checkpoint to the file that ships."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fastgaze.app.cli.common import Json, print_json, refuse_stdout, report
from fastgaze.core.errors import ArgumentError, require
from fastgaze.core.jsonable import Document

if TYPE_CHECKING:
    from fastgaze.networks import GazeModel
    from fastgaze.onnx.write import Facts
    from fastgaze.runtime.card import ModelCard

MOST_IMAGES = 128
"""The most calibration images that are used, spread evenly over the folder."""


def export(
    checkpoint: Annotated[Path, typer.Argument(help="A .safetensors checkpoint.", show_default=False)],
    out: Annotated[
        Path | None,
        typer.Option(
            help="File to write. By default the checkpoint's name with .onnx.",
            callback=refuse_stdout,
            show_default=False,
        ),
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="Name of the model. By default that of the file.", show_default=False)
    ] = None,
    pixels: Annotated[
        int | None,
        typer.Option(min=1024, help="Pixels at which the model works. By default as in training.", show_default=False),
    ] = None,
    full: Annotated[bool, typer.Option("--full", help="Store weights as float32 instead of float16.")] = False,
    int8: Annotated[bool, typer.Option("--int8", help="Also write NAME.int8.onnx; needs --calibrate.")] = False,
    calibrate: Annotated[
        Path | None, typer.Option(help="Folder of images from which --int8 takes its ranges.", show_default=False)
    ] = None,
    json: Json = False,
) -> None:
    """Write the ONNX file of a checkpoint.

    The file is compared with torch, and refused if their predictions differ.
    """
    if int8 != (calibrate is not None):
        raise ArgumentError("give --int8 and --calibrate FOLDER together: 8-bit ranges are measured on real images")
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
        report(f"{fact['file']}: {fact['parameters']:,} parameters, {fact['bytes'] / 1e6:.2f} MB, agrees with torch")


def _read(checkpoint: Path, name: str, pixels: int | None) -> "tuple[GazeModel, Facts]":
    from fastgaze.networks import load_gaze_model
    from fastgaze.onnx.write import Facts

    model, record = load_gaze_model(checkpoint)
    return model, Facts.of(name, record, pixels)


def _images(folder: Path) -> list[Path]:
    from fastgaze.core.pictures import image_files

    if not folder.is_dir():
        raise ArgumentError(f"--calibrate {folder} is not a folder; give one that holds images")
    found = image_files(folder, below=True)
    return found[:: max(len(found) // MOST_IMAGES, 1)][:MOST_IMAGES]


def _facts(file: Path, card: "ModelCard") -> Document:
    facts = {key: getattr(card, key) for key in ("name", "precision", "parameters", "maps", "gflop_640x480", "sigma")}
    return {"file": str(file), "bytes": file.stat().st_size, **facts}
