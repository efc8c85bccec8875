"""``fastgaze train``: a network for your own fixations, without a teacher and without a file of settings."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fastgaze.app.cli.common import Json, complete_models, note, print_result, read_size
from fastgaze.app.cli.workshop import RunFolder, training_bar
from fastgaze.core.errors import ArgumentError, require

if TYPE_CHECKING:
    from fastgaze.training.finetune import OwnSettings

# Fine-tuning starts near a good solution; a new readout on a pretrained trunk does not.
_TUNING, _FRESH = 0.0002, 0.001

_START_HELP = "Network to fine-tune: a bundled model, an .onnx file or a .safetensors checkpoint."
Start = Annotated[str | None, typer.Option(help=_START_HELP, autocompletion=complete_models, show_default=False)]


def train(
    data: Annotated[Path, typer.Option(help="Folder with images and fixations.", show_default=False)],
    out_folder: RunFolder,
    start: Start = None,
    architecture: Annotated[
        str | None,
        typer.Option(
            help="Instead of --start: a new fastgaze, densegaze or litegaze; needs --backbone.", show_default=False
        ),
    ] = None,
    backbone: Annotated[
        str | None, typer.Option(help="Name or file of the pretrained weights for --architecture.", show_default=False)
    ] = None,
    layout: Annotated[str, typer.Option(help="Layout of the data; `fastgaze data layouts` lists them.")] = "auto",
    steps: Annotated[int, typer.Option(min=1, help="The most training steps.")] = 2000,
    learning_rate: Annotated[
        float | None,
        typer.Option(
            help=f"Learning rate at the beginning. By default {_TUNING} with --start and {_FRESH} without.",
            show_default=False,
        ),
    ] = None,
    batch: Annotated[int, typer.Option(min=1, help="Images per step.")] = 8,
    size: Annotated[
        str,
        typer.Option(
            metavar="WIDTHxHEIGHT", help="Each image is scaled to as many pixels as this has and keeps its shape."
        ),
    ] = "320x240",
    validation_share: Annotated[
        float, typer.Option(help="Share of the images that decides when to stop, and is not trained on.")
    ] = 0.1,
    prune_to: Annotated[
        float, typer.Option(min=0, help="Prune the network to this many GFLOP at 640x480 first; 0 turns it off.")
    ] = 0,
    json: Json = False,
) -> None:
    """Train a model on your own fixations, from an existing network or from a backbone.

    A run that was interrupted continues where it stopped when it is started again with the same arguments.
    """
    if (start is None) == (architecture is None):
        raise ArgumentError("give either --start NETWORK, or --architecture NAME with --backbone FILE")
    if (architecture is None) != (backbone is None):
        raise ArgumentError(
            "give both, such as --architecture litegaze --backbone efficientnet-lite0: "
            "a new network needs pretrained weights"
        )
    require("torch", "train")
    require("safetensors", "train")
    from fastgaze.data import formats
    from fastgaze.training.finetune import Start, train_own

    begin = Start(start) if architecture is None else Start(None, architecture, str(backbone))
    rate = learning_rate or (_FRESH if start is None else _TUNING)
    settings = _settings(begin.network is None, steps, rate, batch, read_size(size), validation_share, prune_to)

    fixations = formats.load(layout, data)
    with training_bar(out_folder.name) as report:
        result = train_own(fixations, data.name, begin, settings, out_folder, report)
    note(f"{result.images} images to train on, {result.validation_images} to validate")
    facts = {key: getattr(result, key) for key in ("best_step", "loss", "start_loss", "center_bias_loss", "gflop")}
    print_result({"checkpoint": str(result.checkpoint), **facts}, json)
    if result.loss >= min(result.start_loss, result.center_bias_loss):
        note("training did not help: the start, or the centre bias alone, predicts the validation images better")


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
