"""``fastgaze models``: what comes with the package."""

from typing import Annotated

import typer

from fastgaze.app.cli.common import out, print_json


def models(json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """The bundled models: cost, size and scores."""
    from fastgaze.runtime.zoo import models as bundled

    listed = bundled()
    if json:
        print_json([model.to_json() for model in listed])
        return
    if not listed:
        typer.echo("no trained model is bundled yet; make one with `fastgaze export CHECKPOINT` and give its path")
        return
    from rich.table import Table

    table = Table("model", "parameters", "GFLOP 640x480", "GFLOP own size", "file", "scores")
    for model in listed:
        name = f"{model.name} (default)" if model.default else model.name
        scores = ", ".join(f"{key} {value}" for key, value in model.scores.items() if not isinstance(value, dict))
        size = f"{model.bytes / 1e6:.2f} MB"
        table.add_row(name, f"{model.parameters:,}", f"{model.gflop_640x480:.2f}", f"{model.gflop:.2f}", size, scores)
    out.print(table)
