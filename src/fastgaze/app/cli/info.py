"""``fastgaze info``: what a model is and what it costs."""

from typing import Annotated, Any

import typer

from fastgaze.app.cli.common import out, print_json, say
from fastgaze.core.errors import require
from fastgaze.core.sizes import parse_size, size_to_json


def info(
    model: Annotated[str, typer.Argument(help="An architecture, a bundled model, a checkpoint or an .onnx file.")],
    size: Annotated[str, typer.Option(help="Input size for the cost, WIDTHxHEIGHT.")] = "640x480",
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Maps, parameters, GFLOP and layers of a model."""
    facts = describe(model, parse_size(size))
    if json:
        print_json(facts)
    else:
        _print_table(facts)


def describe(model: str, size: tuple[int, int]) -> dict[str, Any]:
    """Facts of a model for an input of ``size`` (height, width), ready for JSON."""
    from fastgaze.core import cost
    from fastgaze.core.spec import LeNetSpec, architectures, spec_for, spec_from_json
    from fastgaze.runtime import zoo

    record: dict[str, Any] = {}
    if model in architectures():
        spec = spec_for(model)
    elif model.endswith(".safetensors"):
        spec, record = _read_checkpoint(model)
    else:
        metadata = zoo.describe(model)
        spec, record = spec_from_json(metadata["spec"]), metadata
    size = (28, 28) if isinstance(spec, LeNetSpec) else size
    layers = cost.layers(spec, size)
    return {
        "model": model,
        "architecture": spec.architecture,
        "size": size_to_json(size),
        "maps": sum(layer.maps for layer in layers),
        "parameters": cost.parameters(spec),
        "gflop": sum(layer.flops for layer in layers) / 1e9,
        "formula": "H*W*Cout*(2*Cin*K^2+1), the +1 also where a convolution has no bias",
        "layers": [
            {
                "name": a.name,
                "maps_in": a.maps_in,
                "maps": a.maps,
                "kernel": a.kernel,
                "size": size_to_json((a.height, a.width)),
            }
            | {"parameters": a.parameters, "gflop": a.flops / 1e9}
            for a in layers
        ],
        "record": record,
    }


def _read_checkpoint(path: str) -> tuple[Any, dict[str, Any]]:
    require("torch", "train")
    from fastgaze.networks.checkpoint import load_checkpoint

    model, record = load_checkpoint(path)
    return model.spec, record


def _print_table(facts: dict[str, Any]) -> None:
    from rich.table import Table

    say(
        f"{facts['model']} ({facts['architecture']}): {facts['maps']} maps, "
        f"{facts['parameters']:,} parameters, {facts['gflop']:.2f} GFLOP at {_shown(facts['size'])}"
    )
    table = Table("layer", "maps in", "maps", "kernel", "output", "parameters", "GFLOP", "share")
    for layer in facts["layers"]:
        share = layer["gflop"] / facts["gflop"]
        cells = [
            layer["maps_in"],
            layer["maps"],
            f"{layer['kernel']}x{layer['kernel']}",
            _shown(layer["size"]),
        ]
        table.add_row(
            layer["name"], *map(str, cells), f"{layer['parameters']:,}", f"{layer['gflop']:.3f}", f"{share:.1%}"
        )
    out.print(table)


def _shown(size: dict[str, int]) -> str:
    return f"{size['width']}x{size['height']}"
