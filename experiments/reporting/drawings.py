"""Figures 1 to 4, drawn from what was measured; colours of Okabe and Ito, which colour-blind readers tell apart."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

from fastgaze.core.pareto import pareto

BLUE, ORANGE, GREEN, VERMILION = "#0072B2", "#E69F00", "#009E73", "#D55E00"
GREY, BLACK = "#8c8c8c", "#000000"
FAMILY = {"FastGaze": BLUE, "DenseGaze": VERMILION, "DeepGaze II": BLACK, "peer": GREEN}
DOTS = 200  # an inch; figures are 8 inches wide
_STYLE: dict[Any, Any] = {
    "font.family": ["DejaVu Sans"],
    "font.size": 9.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#606060",
    "axes.titlesize": 10.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "legend.frameon": False,
    "legend.fontsize": 8.5,
}


class Point(NamedTuple):
    """A model in Figure 2: milliseconds, metrics, family and kind."""

    name: str
    ms: float
    means: dict[str, float]
    intervals: dict[str, list[float]]
    family: str
    kind: str

    def error(self, metric: str) -> list[list[float]]:
        """Distances down and up to the ends of the 95% interval, as matplotlib wants them."""
        low, high = self.intervals[metric]
        return [[self.means[metric] - low], [high - self.means[metric]]]


def _save(figure: Figure, path: Path) -> None:
    """PNG of 256 colours, which is a third of the size, or JPEG for photographs."""
    path.parent.mkdir(parents=True, exist_ok=True)
    canvas: Any = FigureCanvasAgg(figure)
    figure.set_dpi(DOTS)
    figure.set_facecolor("white")
    canvas.draw()
    drawn = Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB")
    if path.suffix == ".png":
        drawn.quantize(256).save(path, optimize=True)
    else:
        drawn.save(path, quality=90, optimize=True)


# Figure 1

PANELS = {
    "Fisher": "Fisher: a weight on the cost, live",
    "frozen costs": "Fisher: costs frozen at their first estimate",
    "Molchanov": "Molchanov et al.",
    "naive": "naive signals",
}
REFERENCES = {"Fisher, beta = 0": BLACK, "Fisher, beta*": VERMILION}
LOWEST_RISE = 0.002  # nats; the log axis begins here
# Colours of the lines by what their names contain, the first that fits; dashes tell the betas of a method apart.
_COLORS = {
    "first-order": "#CC79A7",
    "beta*, frozen": "#CC79A7",
    "unnormalised": GREEN,
    "normalised": BLUE,
    "L1A": GREEN,
    "L1W": BLUE,
    "random": GREY,
    "beta at": BLUE,
}
_DASHES = {"25%": "-", "50%": "--", "90%": ":"}


def figure1(curves: dict[str, Any], path: Path) -> None:
    """Rise of the loss over cost, a panel for each group of methods, two Fisher lines in all of them."""
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(8, 7.8), layout="constrained")
        panels = figure.subplots(2, 2, sharex=True, sharey=True)
        for axes, (group, title) in zip(panels.flat, PANELS.items(), strict=True):
            own = [name for name, found in curves.items() if found["group"] == group and name not in REFERENCES]
            for name in own:
                color = next((color for part, color in _COLORS.items() if part in name), GREY)
                dash = next((dash for part, dash in _DASHES.items() if part in name), "-")
                weighted = curves[name]["beta"] is not None and group == "Molchanov"
                _curve(axes, curves[name], name, color, 1.0 if weighted else 1.5, dash)
            for name, color in REFERENCES.items():
                if name in curves:
                    _curve(axes, curves[name], name if group == "Fisher" else "", color, 2.4, "-")
            axes.set_title(title)
            axes.grid(alpha=0.25)
            if axes.get_legend_handles_labels()[0]:  # none of its methods may have been measured yet
                axes.legend(loc="lower right", fontsize=7.5, handlelength=2.6)
        _curve_axes(panels)
        _save(figure, path)


def _curve(axes: Any, found: dict[str, Any], name: str, color: str, width: float, dash: str) -> None:
    """A line through the means and a band of 95% intervals over images; the unpruned network has no place on it."""
    start, *pruned = found["measured"]
    x = [point["cost_percent"] for point in pruned]
    risen = [np.array(point["losses"]) - np.array(start["losses"]) for point in pruned]
    means = np.array([values.mean() for values in risen])
    half = np.array([1.96 * values.std(ddof=1) / len(values) ** 0.5 for values in risen])
    label = name.replace("beta", "β").replace("frozen costs, ", "").replace("Molchanov, ", "") or None
    low, high = (np.maximum(edge, LOWEST_RISE / 10) for edge in (means - half, means + half))
    axes.plot(x, means, dash, color=color, linewidth=width, marker="o", markersize=2.2 * width**0.5, label=label)
    axes.fill_between(x, low, high, color=color, alpha=0.12, linewidth=0)


def _curve_axes(panels: Any) -> None:
    """Per cent from right to left, both axes logarithmic."""
    for axes in panels[-1]:
        axes.set_xlabel("cost left, per cent of the FLOPs")
    for axes in panels[:, 0]:
        axes.set_ylabel("rise of the loss, nats")
    first = panels[0, 0]
    first.set_xscale("log")
    first.set_yscale("log")
    first.set_xlim(80, 8.2)
    first.set_ylim(bottom=LOWEST_RISE)
    ticks = (75, 50, 35, 25, 18, 13, 10)
    first.set_xticks(ticks, [str(tick) for tick in ticks])
    first.xaxis.set_minor_locator(matplotlib.ticker.NullLocator())
    first.yaxis.set_major_formatter(matplotlib.ticker.FuncFormatter(lambda value, _: f"{value:g}"))


# Figure 2

METRICS = {
    "auc": "AUC",
    "log_likelihood_bits": "log-likelihood, bits over uniform",
    "nss": "NSS",
    "sim": "SIM",
}
# Marker and words of each kind; the last three are networks of experiments.
KINDS = {
    "unpruned": ("s", "unpruned"),
    "finished": ("^", "finished"),
    "regularised": ("o", "β > 0"),
    "unregularised": ("o", "β = 0"),
    "frozen": ("x", "β*, frozen costs"),
}
FRONTS = (
    ("finished", "-", 4.0, 0.3),
    ("regularised", "-", 1.6, 1.0),
    ("unregularised", "--", 1.6, 1.0),
)


def front_of(points: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """(milliseconds, score) of those that no faster point reaches in score, from fast to slow."""
    return pareto(points, cost=lambda point: point[0], loss=lambda point: -point[1])


def figure2(points: Sequence[Point], path: Path) -> None:
    """Speed against four metrics, a front for every family, regularised and not."""
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(8, 7.2), layout="constrained")
        panels = figure.subplots(2, 2).flat
        for axes, (metric, title) in zip(panels, METRICS.items(), strict=True):
            _panel(axes, points, metric)
            axes.set(title=title, xscale="log", xlabel="ms on one core, 512x384")
            axes.xaxis.set_major_formatter(matplotlib.ticker.FuncFormatter(lambda value, _: f"{value:g}"))
            axes.grid(alpha=0.25, which="both")
        handles, labels = axes.get_legend_handles_labels()
        unique = dict(zip(labels, handles, strict=True))
        figure.legend(unique.values(), unique.keys(), loc="outside lower center", ncols=3)
        _save(figure, path)


def _panel(axes: Any, points: Sequence[Point], metric: str) -> None:
    for family in ("FastGaze", "DenseGaze"):
        for kind in KINDS:
            own = [p for p in points if (p.family, p.kind) == (family, kind)]
            if own:
                _marks(axes, own, metric)
        for kind, dash, width, alpha in FRONTS:
            kinds = ((family, kind), (family, "unpruned"))
            ends = [(p.ms, p.means[metric]) for p in points if (p.family, p.kind) in kinds]
            if _has(points, family, kind) and len(front := front_of(ends)) > 1:
                axes.plot(*zip(*front, strict=True), dash, color=FAMILY[family], linewidth=width, alpha=alpha)
    _others(axes, points, metric)


def _others(axes: Any, points: Sequence[Point], metric: str) -> None:
    """DeepGaze II, with a line at its height, and the peer."""
    for p in points:
        if p.kind in ("teacher", "teacher, onnxruntime", "peer"):
            _bar(axes, p, metric, GREEN if p.kind == "peer" else BLACK)
        if p.kind in ("teacher", "teacher, onnxruntime"):
            hollow = p.kind != "teacher"
            label = "DeepGaze II, onnxruntime" if hollow else "DeepGaze II, eager torch"
            fill = "white" if hollow else BLACK
            axes.plot(p.ms, p.means[metric], "*", color=BLACK, markerfacecolor=fill, markersize=13, label=label)
            axes.axhline(p.means[metric], color=BLACK, linewidth=0.8, linestyle=":")
        if p.kind == "peer":
            axes.plot(p.ms, p.means[metric], "D", color=GREEN, markersize=7, label=f"{p.name} (peer)")


def _has(points: Sequence[Point], family: str, kind: str) -> bool:
    return any((p.family, p.kind) == (family, kind) for p in points)


def _marks(axes: Any, own: list[Point], metric: str) -> None:
    color = FAMILY[own[0].family]
    marker, name = KINDS[own[0].kind]
    fill = "white" if own[0].kind == "unregularised" else color
    for number, p in enumerate(own):
        _bar(axes, p, metric, color)
        label = f"{p.family}, {name}" if number == 0 else None
        axes.plot(p.ms, p.means[metric], marker, color=color, markerfacecolor=fill, markersize=6, mew=1.4, label=label)


def _bar(axes: Any, p: Point, metric: str, color: str) -> None:
    """The 95% interval over images, thin, since points share their images and move together."""
    axes.errorbar(p.ms, p.means[metric], p.error(metric), fmt="none", ecolor=color, elinewidth=0.7, alpha=0.45)


# Random search


def search(points: Sequence[dict[str, Any]], path: Path) -> None:
    """Loss over cost of every trial, and for beta > 0 and beta = 0 the best loss up to a cost, with a band."""
    kinds = {"beta": (BLUE, "β > 0"), "none": (BLACK, "β = 0")}
    found = {kind: np.array([(p["gflop"], p["loss"]) for p in points if p["objective"] == kind]) for kind in kinds}
    few = min(len(trials) for trials in found.values())
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(8, 4.4), layout="constrained")
        axes: Any = figure.subplots()
        grid = np.geomspace(min(p["gflop"] for p in points), max(p["gflop"] for p in points), 200)
        for kind, (color, name) in kinds.items():
            if len(found[kind]):
                _search_front(axes, found[kind], grid, few, color, name)
        betas = [np.log10(p["beta"]) for p in points if p["objective"] == "beta"]
        if betas:
            dots = axes.scatter(*found["beta"].T, s=34, c=betas, cmap="viridis_r", edgecolors=BLUE, zorder=3)
            figure.colorbar(dots, ax=axes, label="log10 of β, nats per GFLOP", pad=0.02)
        axes.scatter(*found["none"].reshape(-1, 2).T, s=34, c="white", edgecolors=BLACK, zorder=3)
        axes.set(xscale="log", xlabel="GFLOP at 640x480", ylabel="validation loss, nats per fixation")
        for axis_format in (axes.xaxis.set_major_formatter, axes.xaxis.set_minor_formatter):
            axis_format(matplotlib.ticker.FuncFormatter(lambda value, _: f"{value:g}"))
        axes.grid(alpha=0.25)
        axes.legend(loc="upper right")
        _save(figure, path)


def _search_front(axes: Any, trials: Any, grid: Any, few: int, color: str, name: str) -> None:
    """The best loss of the trials up to each cost; the band is of draws of ``few`` trials with replacement."""

    def best(drawn: Any) -> Any:
        reached = np.where(drawn[:, :1] <= grid[None], drawn[:, 1:], np.inf).min(axis=0)
        return np.where(np.isinf(reached), np.nan, reached)

    rng = np.random.default_rng(0)
    draws = np.array([best(trials[rng.integers(len(trials), size=max(few, 1))]) for _ in range(500)])
    known = np.isfinite(draws).mean(axis=0) > 0.95
    if known.any():
        low, high = np.nanquantile(draws[:, known], [0.025, 0.975], axis=0)
        axes.fill_between(grid[known], low, high, color=color, alpha=0.15, linewidth=0, step="post")
    axes.step(grid, best(trials), where="post", color=color, linewidth=1.8, label=name)


# Figure 3

MANY = 30  # layers; more are drawn without numbers
WHITE = {"facecolor": "white", "edgecolor": "none", "pad": 0.6}


class Architecture(NamedTuple):
    """A row of Figure 3: maps of every layer, and a label."""

    label: str
    layers: list[tuple[str, int]]


def figure3(rows: Sequence[Architecture], start: list[tuple[str, int]], path: Path) -> None:
    """Bars with the number of maps of each layer; as outlines behind them those of the network before pruning."""
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(8, 1.55 * len(rows)), layout="constrained")
        panels = figure.subplots(len(rows), 1, squeeze=False)[:, 0]
        for axes, row in zip(panels, rows, strict=True):
            _bars(axes, row, start)
        _save(figure, path)


def _bars(axes: Any, row: Architecture, start: list[tuple[str, int]]) -> None:
    many = len(row.layers) >= MANY
    full = dict(start)
    places = range(len(row.layers))
    heights = [maps**0.5 for _, maps in row.layers]
    colors = [("#f0a06a" if name.endswith("conv2") else VERMILION) if many else BLUE for name, _ in row.layers]
    outline = [full.get(name, 0) ** 0.5 for name, _ in row.layers]
    axes.bar(places, outline, 0.86, facecolor="none", edgecolor="#b0b0b0", linewidth=0.6)
    axes.bar(places, heights, 0.86, color=colors)
    if not many:
        for place, (_, maps) in enumerate(row.layers):
            axes.text(place, maps**0.5 + 0.5, str(maps), ha="center", va="bottom", fontsize=8.5, bbox=WHITE)
    _ticks(axes, [name for name, _ in row.layers], many)
    axes.set_title(row.label, fontsize=9.5)
    axes.set(ylim=(0, 1.22 * max(full.values()) ** 0.5), yticks=[], xlim=(-0.7, len(row.layers) - 0.3))
    axes.spines["left"].set_visible(False)


def _ticks(axes: Any, names: list[str], many: bool) -> None:
    if not many:
        axes.set_xticks(range(len(names)), [name.replace("readout", "r").replace("conv", "") for name in names])
        axes.tick_params(length=0, labelsize=7.5, colors="#606060")
        return
    starts = {"denseblock1": "block 1", "denseblock2": "block 2", "denseblock3": "block 3", "readout": "readout"}
    places = [next((i for i, name in enumerate(names) if name.startswith(key)), None) for key in starts]
    found = [(place, label) for place, label in zip(places, starts.values(), strict=True) if place is not None]
    axes.set_xticks([place for place, _ in found], [label for _, label in found], ha="left")
    axes.tick_params(labelsize=7.5, colors="#606060")


def _picture(axes: Any, path: Path | None, title: str) -> None:
    axes.set(xticks=[], yticks=[])
    for spine in axes.spines.values():
        spine.set_visible(False)
    axes.set_title(title, fontsize=8.5, fontweight="normal")
    if path is not None and path.is_file():
        with Image.open(path) as picture:
            axes.imshow(picture.convert("RGB"), interpolation="bilinear")


# Figure 4


def figure4(photos: Sequence[Path], rows: Sequence[tuple[str, Sequence[Path]]], path: Path) -> None:
    """Photographs in the first row, then a row of saliency maps for each model (label, files)."""
    shapes = []
    for photo in photos:
        with Image.open(photo) as picture:
            shapes.append(picture.width / picture.height)
    left, width = 1.25, 8.0
    height = (width - left - 0.06 * len(photos)) / sum(shapes)
    total = (height + 0.06) * (len(rows) + 1)
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(width, total))
        for number, (label, files) in enumerate([("photograph", list(photos)), *rows]):
            bottom = total - (number + 1) * (height + 0.06) + 0.03
            figure.text(0.02, (bottom + height / 2) / total, label, va="center", fontsize=9)
            x = left
            for file, shape in zip(files, shapes, strict=True):
                box = (x / width, bottom / total, height * shape / width, height / total)
                _picture(figure.add_axes(box), file, "")
                x += height * shape + 0.06
        _save(figure, path)
