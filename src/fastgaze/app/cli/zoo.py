"""``fastgaze models``: what comes with the package."""

from typing import TYPE_CHECKING, Annotated

import typer

from fastgaze.app.cli.common import out, print_json, say

if TYPE_CHECKING:
    from fastgaze.runtime.zoo import BundledModel

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

    table = Table("", "model", "parameters", "GFLOP", "file", "one core", "AUC", "NSS", "bits", box=None)
    for model in listed:
        mark = "*" if model.default else ""
        size = f"{model.bytes / 1e6:.2f} MB"
        means = model.scores.get(SET, {}).get("means", {})
        scores = [f"{means[key]:.3f}" if key in means else "" for key in ("auc", "nss", "log_likelihood_bits")]
        table.add_row(
            mark, model.name, f"{model.parameters:,}", f"{model.gflop_640x480:.2f}", size, _milliseconds(model), *scores
        )
    out.print(table)
    say(f"* default. GFLOP at 640x480; AUC, NSS and bits over uniform on {SET}, tuebingen protocol;")
    say("one core: a 384x512 picture to its log density at the model's own working size, when it was shipped")


def _milliseconds(model: "BundledModel") -> str:
    """As measured when the model was shipped; ``fastgaze bench`` measures here and now."""
    time = model.scores.get("one_core", {}).get("own_size", {}).get("cpu_ms")
    return "" if time is None else f"{time:.1f} ms"
