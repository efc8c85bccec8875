"""``fastgaze models`` and ``fastgaze info``: what comes with the package, what a model is and what it costs."""

from typing import TYPE_CHECKING, Annotated

import typer

from fastgaze.app.cli import common
from fastgaze.core.errors import require
from fastgaze.core.jsonable import Document
from fastgaze.core.sizes import format_size, parse_size, size_to_json

if TYPE_CHECKING:
    from fastgaze.core.spec import Spec

SET = "salicon-val"


def models(json: common.Json = False) -> None:
    """List the bundled models with their cost, size and scores."""
    from fastgaze.runtime.zoo import models as bundled

    listed = bundled()
    if json:
        common.print_json([model.to_json() for model in listed])
        return
    if not listed:
        common.say("no trained model is bundled yet; make one with `fastgaze export CHECKPOINT` and give its path")
        return
    from rich.table import Table

    table = Table("", "model", "parameters", "GFLOP", "file", "one core", "AUC", "NSS", "bits", box=None)
    for model in listed:
        cost = [f"{model.parameters:,}", f"{model.gflop_640x480:.2f}", f"{model.bytes / 1e6:.2f} MB"]
        time = "" if model.cpu_ms is None else f"{model.cpu_ms:.1f} ms"
        means = model.scores.get(SET, {}).get("means", {})
        scores = [f"{means[key]:.3f}" if key in means else "" for key in ("auc", "nss", "log_likelihood_bits")]
        table.add_row("*" if model.default else "", model.name, *cost, time, *scores)
    common.out.print(table)
    common.say(f"* is the default. GFLOP at 640x480. Scores on {SET}, protocol tuebingen; bits over a uniform density.")
    common.say("One core: a 512x384 picture to its log density, measured when the model was shipped.")


def info(
    model: Annotated[
        str,
        typer.Argument(
            help="An architecture, a bundled model, a .safetensors checkpoint or an .onnx file.",
            autocompletion=common.complete_models,
            show_default=False,
        ),
    ],
    size: Annotated[
        str, typer.Option(metavar="WIDTHxHEIGHT", help="Size of the network's input, for the cost.")
    ] = "640x480",
    json: common.Json = False,
) -> None:
    """Show the layers, feature maps, parameters and GFLOP of a model."""
    facts = describe(model, parse_size(size))
    if json:
        common.print_json(facts)
    else:
        _print_table(facts)


def describe(model: str, size: tuple[int, int]) -> Document:
    """Facts of a model for an input of ``size`` (height, width), ready for JSON."""
    from fastgaze.core import cost
    from fastgaze.core.spec import architectures, spec_for, spec_from_json
    from fastgaze.runtime import zoo

    record: Document = {}
    if model in architectures():
        spec = spec_for(model)
    elif model.endswith(".safetensors"):
        spec, record = _read_checkpoint(model)
    else:
        others = f"that of a .safetensors checkpoint, or an architecture ({', '.join(architectures())})"
        metadata = zoo.describe(model, others=others)
        spec, record = spec_from_json(metadata["spec"]), metadata
    layers = cost.layers(spec, size)
    return {
        "model": model,
        "architecture": spec.architecture,
        "size": size_to_json(size),
        "maps": cost.prunable_maps(spec),
        "parameters": cost.parameters(spec),
        "gflop": sum(layer.flops for layer in layers) / 1e9,
        "formula": "H*W*Cout*(2*Cin*K^2+1), the +1 also where a convolution has no bias",
        "layers": [
            {"name": a.name, "maps_in": a.maps_in, "maps": a.maps, "kernel": a.kernel}
            | {"size": size_to_json((a.height, a.width)), "parameters": a.parameters, "gflop": a.flops / 1e9}
            for a in layers
        ],
        "record": record,
    }


def _read_checkpoint(path: str) -> "tuple[Spec, Document]":
    require("torch", "train")
    from fastgaze.networks.checkpoint import load_checkpoint

    model, record = load_checkpoint(path)
    return model.spec, record.to_json()


def _print_table(facts: Document) -> None:
    from rich.table import Table

    common.say(
        f"{facts['model']} ({facts['architecture']}): {facts['maps']} feature maps, "
        f"{facts['parameters']:,} parameters, {facts['gflop']:.2f} GFLOP at {_size_of(facts)}"
    )
    table = Table("layer", "maps in", "maps", "kernel", "output", "parameters", "GFLOP", "share", box=None)
    for layer in facts["layers"]:
        share = layer["gflop"] / facts["gflop"]
        cells = [layer["maps_in"], layer["maps"], f"{layer['kernel']}x{layer['kernel']}", _size_of(layer)]
        table.add_row(
            layer["name"].replace("block", ""),
            *map(str, cells),
            f"{layer['parameters']:,}",
            f"{layer['gflop']:.3f}",
            f"{share:.1%}",
        )
    common.out.print(table)


def _size_of(facts: Document) -> str:
    return format_size((facts["size"]["height"], facts["size"]["width"]))
