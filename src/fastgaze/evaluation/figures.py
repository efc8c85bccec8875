"""The figure of a random search, with matplotlib and no screen."""

from collections.abc import Sequence
from pathlib import Path

from fastgaze.core.errors import require
from fastgaze.core.pareto import pareto

COLORS = ("#0b6e99", "#d1642a", "#4a8f3c", "#8a5aa8", "#5c5c5c", "#c2a000")


def pareto_figure(points: Sequence[tuple[float, float, str]], path: Path) -> None:
    """Cost against loss: (GFLOP, loss, kind) of every trial, a line through each kind's Pareto front."""
    require("matplotlib", "train")
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.0, 4.2), layout="constrained")
    axes = figure.subplots()
    for color, kind in zip(COLORS, sorted({kind for _, _, kind in points}), strict=False):
        own = sorted((gflop, loss) for gflop, loss, k in points if k == kind)
        front = pareto(own, cost=lambda p: p[0], loss=lambda p: p[1])
        x, y = zip(*own, strict=True)
        axes.scatter(x, y, s=18, color=color, alpha=0.5)
        label = {"beta": "regularised", "none": "beta = 0"}.get(kind, kind)
        axes.plot(*zip(*front, strict=True), color=color, label=label)
    axes.set(xscale="log", xlabel="GFLOP at 640x480", ylabel="validation loss (nats per fixation)")
    for plain in (axes.xaxis.set_major_formatter, axes.xaxis.set_minor_formatter):
        plain("{x:g}")  # the default writes 2 x 10^0
    axes.grid(alpha=0.3)
    if points:
        axes.legend(frameon=False)
    figure.savefig(path, dpi=150)
