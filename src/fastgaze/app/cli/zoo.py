"""``fastgaze models``: what comes with the package."""

from typing import Annotated

import typer

from fastgaze.app.cli.common import out, print_json, say

SET = "salicon-val"


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

    table = Table(
        "", "model", "parameters", "GFLOP 640x480", "working", "file", "one core", "AUC", "NSS", "bits", box=None
    )
    for model in listed:
        cost = [f"{model.parameters:,}", f"{model.gflop_640x480:.2f}", f"{model.gflop_working:.2f}"]
        # As measured when the model was shipped; `fastgaze bench` measures here and now.
        time = "" if model.cpu_ms is None else f"{model.cpu_ms:.1f} ms"
        means = model.scores.get(SET, {}).get("means", {})
        scores = [f"{means[key]:.3f}" if key in means else "" for key in ("auc", "nss", "log_likelihood_bits")]
        size = f"{model.bytes / 1e6:.2f} MB"
        table.add_row("*" if model.default else "", model.name, *cost, size, time, *scores)
    out.print(table)
    say("* default. GFLOP at 640x480, and at the working size that a picture of 640x480 is scaled to;")
    say(f"AUC, NSS and bits over uniform on {SET}, tuebingen protocol;")
    say("one core: a 512x384 picture to its log density at the model's own working size, when it was shipped")
