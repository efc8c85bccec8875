"""``fastgaze train``: a network for a user's own fixations, without a teacher and without a configuration file."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fastgaze.app.cli.common import note
from fastgaze.app.cli.workshop import Json, Out, print_result, training_bar
from fastgaze.core.errors import ArgumentError, require
from fastgaze.core.sizes import parse_size

if TYPE_CHECKING:
    from fastgaze.training.finetune import OwnSettings

# Fine-tuning starts near a good place; a new readout on a pretrained trunk does not.
_TUNING, _FRESH = 0.0002, 0.001


def train(
    data: Annotated[Path, typer.Option(help="Folder with images and fixations.")],
    out_folder: Out,
    start: Annotated[
        str | None, typer.Option(help="Network to fine-tune: a checkpoint, an .onnx file or a bundled name.")
    ] = None,
    architecture: Annotated[
        str | None, typer.Option(help="Without --start: fastgaze or densegaze, from a backbone.")
    ] = None,
    backbone: Annotated[str | None, typer.Option(help="File or name of the backbone's weights.")] = None,
    format: Annotated[str, typer.Option(help="Layout of the data; `fastgaze data formats` lists them.")] = "auto",
    steps: Annotated[int, typer.Option(min=1, help="Training steps at most.")] = 2000,
    learning_rate: Annotated[
        float | None, typer.Option(help=f"At the start; default {_TUNING} with --start, else {_FRESH}.")
    ] = None,
    batch: Annotated[int, typer.Option(min=1, help="Images a step.")] = 8,
    size: Annotated[str, typer.Option(help="WIDTHxHEIGHT; images are scaled to its area at their own shape.")] = (
        "240x320"
    ),
    validation_share: Annotated[float, typer.Option(help="Share of the images to stop on.")] = 0.1,
    prune_to: Annotated[float, typer.Option(min=0, help="GFLOP at 640x480 to prune down to first; 0: no pruning.")] = 0,
    json: Json = False,
) -> None:
    """Train on your own fixations: fine-tune a network, or start from a backbone."""
    if (start is None) == (architecture is None):
        raise ArgumentError("give one of --start NETWORK and --architecture NAME --backbone FILE, to start from")
    if (architecture is None) != (backbone is None):
        raise ArgumentError("--architecture and --backbone go together: a network starts from pretrained weights")
    require("torch", "train")
    require("safetensors", "train")
    from fastgaze.data import formats
    from fastgaze.pruning import Removal
    from fastgaze.training.finetune import Start, train_own

    begin = Start(start) if architecture is None else Start(None, architecture, str(backbone))
    rate = learning_rate or (_FRESH if start is None else _TUNING)
    settings = _settings(begin.network is None, steps, rate, batch, parse_size(size), validation_share, prune_to)

    def on_removal(removal: Removal) -> None:
        note(f"step {removal.step}: {removal.left} maps, {removal.cost / 1e9:.2f} GFLOP, loss {removal.loss:.4f}")

    fixations = formats.load(format, data)
    with training_bar(out_folder.name) as report:
        result = train_own(fixations, data.name, begin, settings, out_folder, note, report, on_removal)
    facts = {key: getattr(result, key) for key in ("best_step", "loss", "start_loss", "center_bias_loss", "gflop")}
    print_result({"checkpoint": str(result.checkpoint), **facts}, json)
    if result.loss >= min(result.start_loss, result.center_bias_loss):
        note("training did not help: the start or the centre bias alone predicts the validation images better")


def _settings(
    fresh: bool, steps: int, rate: float, batch: int, size: tuple[int, int], share: float, prune_to: float
) -> "OwnSettings":
    from fastgaze.training.finetune import OwnSettings
    from fastgaze.training.fit import FitSettings

    fit = FitSettings(
        steps=steps,
        batch=batch,
        learning_rate=rate,
        trunk_rate=0.1 if fresh else 1.0,
        warmup=min(50, steps // 10),
        validate_every=max(steps // 20, 1),
        average=0.98,
    )
    return OwnSettings(size, share, prune_to, fit)
