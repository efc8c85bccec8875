"""Figures 1 to 4, drawn from what was measured; colours of Okabe and Ito, which colour-blind readers tell apart."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

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
    family: str
    kind: str


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


def line_style(method: str) -> tuple[str, str]:
    """Colour as in the paper (Fisher blue, beta* red, frozen orange, Molchanov grey, naive green), and dashes."""
    if "frozen" in method:
        return ORANGE, "-" if "beta*" in method else "--"
    if method.startswith("Molchanov"):
        dashes = ("-.", ":") if method.endswith("cost") else ("-", "--")
        return GREY, dashes[", unnormalised" in method]
    if method in ("L1A", "L1W", "random"):
        return GREEN, {"L1A": "-", "L1W": "--"}.get(method, ":")
    return (VERMILION, "-") if "beta*" in method else (BLUE, "-")


def figure1(curves: dict[str, list[dict[str, float]]], path: Path) -> None:
    """Loss over cost, a line a method."""
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(8, 5.4), layout="constrained")
        axes = figure.subplots()
        fixed = [name for name in curves if line_style(name) == (BLUE, "-")]
        dashes = dict(zip(fixed, ["-", (0, (6, 1.5)), (0, (3, 1.5)), (0, (1, 1)), (0, (5, 1, 1, 1))], strict=False))
        for name, points in curves.items():
            color, style = line_style(name)
            x, y = [p["cost_percent"] for p in points], [p["loss"] for p in points]
            label = name.replace("beta", "β")
            axes.plot(x, y, color=color, linestyle=dashes.get(name, style), linewidth=1.6, label=label)
        start = min(points[0]["loss"] for points in curves.values())
        axes.set(xlabel="cost, per cent of the unpruned network's FLOPs", ylabel="loss, nats", xlim=(100, 0))
        top = max(p["loss"] for name in fixed for p in curves[name] if p["cost_percent"] > 10) if fixed else start + 1
        axes.set_ylim(start - 0.03 * (top - start), start + 1.6 * (top - start))
        axes.grid(alpha=0.25)
        axes.legend(loc="upper left", ncols=2)
        _save(figure, path)


# Figure 2

METRICS = {
    "auc": "AUC",
    "log_likelihood_bits": "log-likelihood, bits over uniform",
    "nss": "NSS",
    "sim": "SIM",
}
# Marker and words of each kind; the last three are snapshots of comparison runs that were tuned alike.
KINDS = {
    "unpruned": ("s", "unpruned"),
    "shipped": ("^", "shipped"),
    "regularised": ("o", "β > 0"),
    "unregularised": ("o", "β = 0"),
    "frozen": ("x", "β*, frozen costs"),
}
FRONTS = (("shipped", "-", 4.0, 0.3), ("regularised", "-", 1.6, 1.0), ("unregularised", "--", 1.6, 1.0))


def pareto(points: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """(milliseconds, score) of those that no faster point reaches in score, from fast to slow."""
    front: list[tuple[float, float]] = []
    for ms, score in sorted(points, key=lambda point: (point[0], -point[1])):
        if not front or score > front[-1][1]:
            front.append((ms, score))
    return front


def figure2(points: Sequence[Point], path: Path) -> None:
    """Speed against four metrics, a front for every family, regularised and not."""
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(8, 7.2), layout="constrained")
        panels = figure.subplots(2, 2).flat
        for axes, (metric, title) in zip(panels, METRICS.items(), strict=True):
            _panel(axes, points, metric)
            axes.set(title=title, xscale="log", xlabel="ms on one core, 384x512")
            axes.xaxis.set_major_formatter(matplotlib.ticker.FuncFormatter(lambda value, _: f"{value:g}"))
            axes.grid(alpha=0.25, which="both")
        handles, labels = axes.get_legend_handles_labels()
        unique = dict(zip(labels, handles, strict=True))
        figure.legend(unique.values(), unique.keys(), loc="outside lower center", ncols=3)
        _save(figure, path)


def _panel(axes: Any, points: Sequence[Point], metric: str) -> None:
    for family in ("FastGaze", "DenseGaze"):
        for kind in KINDS:
            own = [(p.ms, p.means[metric]) for p in points if (p.family, p.kind) == (family, kind)]
            if own:
                _marks(axes, own, family, kind)
        for kind, dash, width, alpha in FRONTS:
            own = [
                (p.ms, p.means[metric]) for p in points if (p.family, p.kind) in ((family, kind), (family, "unpruned"))
            ]
            if _has(points, family, kind) and len(front := pareto(own)) > 1:
                axes.plot(*zip(*front, strict=True), dash, color=FAMILY[family], linewidth=width, alpha=alpha)
    _others(axes, points, metric)


def _others(axes: Any, points: Sequence[Point], metric: str) -> None:
    """DeepGaze II, with a line at its height, and the peer."""
    for p in points:
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


def _marks(axes: Any, own: list[tuple[float, float]], family: str, kind: str) -> None:
    color = FAMILY[family]
    marker, name = KINDS[kind]
    fill = "white" if kind == "unregularised" else color
    x, y = zip(*own, strict=True)
    label = f"{family}, {name}"
    axes.plot(x, y, marker, color=color, markerfacecolor=fill, markersize=6.5, markeredgewidth=1.5, label=label)


# Figure 3

MANY = 30  # layers; more are drawn without numbers
WHITE = {"facecolor": "white", "edgecolor": "none", "pad": 0.6}


class Architecture(NamedTuple):
    """A row of Figure 3: maps of every layer, a label, and the file of its saliency map."""

    label: str
    layers: list[tuple[str, int]]
    map_file: Path | None


def figure3(rows: Sequence[Architecture], photo: Path, path: Path) -> None:
    """Bars with the number of maps of each layer, the unpruned network's as outlines behind, and one image's maps."""
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(8, 1.75 * (len(rows) + 1)), layout="constrained")
        grid = figure.subplots(len(rows) + 1, 2, width_ratios=[3.2, 1], squeeze=False)
        grid[0, 0].axis("off")
        grid[0, 0].text(0, 0.5, _explain(rows[0].layers), va="center", transform=grid[0, 0].transAxes)
        _picture(grid[0, 1], photo, "photograph")
        for (axes, right), row in zip(grid[1:], rows, strict=True):
            _bars(axes, row, rows[0].layers)
            _picture(right, row.map_file, "")
        _save(figure, path)


def _explain(layers: list[tuple[str, int]]) -> str:
    lines = [
        "Maps of every convolution of trunk and",
        "readout (r), filled; as outlines those of",
        "the unpruned network.",
    ]
    lines += ["Light: 3x3 convolutions; dark: 1x1", "(the very first: 7x7)."] if len(layers) >= MANY else []
    return "\n".join([*lines, "Heights are square roots."])


def _bars(axes: Any, row: Architecture, unpruned: list[tuple[str, int]]) -> None:
    many = len(row.layers) >= MANY
    full = dict(unpruned)
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
