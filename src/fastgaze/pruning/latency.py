"""Milliseconds instead of FLOPs: a table of measured layers for one engine.

Engines compute channels in blocks, so that time over width is a staircase and FLOPs mislead. Whoever measures gives
a function LayerShape -> milliseconds (with onnxruntime, say); this module only decides what to measure and reads
the table.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from os import PathLike
from pathlib import Path

import torch
from torch import Tensor

from fastgaze.core.errors import PruningError
from fastgaze.core.files import replacing
from fastgaze.core.jsonable import Document
from fastgaze.pruning.graph import ChannelGraph
from fastgaze.pruning.layers.layer import Layer


@dataclass(frozen=True)
class LayerShape:
    """One layer to measure.

    channels_in    all input channels, those of all groups together
    height, width  of its output; a linear layer has 1 (or its tokens) and 1, a layer over time its length and 1
    kernel, stride, dilation  two numbers, three if there is a ``depth``
    groups         of a convolution; a depthwise one has as many as channels, and says ``depthwise`` instead
    depth          of the output of a three-dimensional layer, else 0
    """

    channels_in: int
    channels_out: int
    height: int
    width: int
    kernel: tuple[int, ...] = (1, 1)
    stride: tuple[int, ...] = (1, 1)
    depthwise: bool = False
    groups: int = 1
    dilation: tuple[int, ...] = (1, 1)
    depth: int = 0
    transposed: bool = False


# A LayerShape without its channels.
Place = tuple[int, int, tuple[int, ...], tuple[int, ...], bool, int, tuple[int, ...], int, bool]


def stair_widths(width: int, step: int = 16) -> list[int]:
    """Widths to measure up to ``width``: every multiple of ``step``, and the one above it, where a block begins."""
    marks = {1, width, *range(step, width + 1, step), *range(step + 1, width + 1, step)}
    return sorted(marks)


class LatencyTable:
    """Measured milliseconds of layers over (channels in, channels out), for each place in a network.

    Between measured widths the table is linear in each direction. It is made monotone first: a layer never costs
    more than a wider one, since it could be padded to it.
    """

    def __init__(self, engine: str, points: dict[LayerShape, float]) -> None:
        self.engine = engine
        self.points = points
        self._grids: dict[Place, _Grid] = {}
        for shape, milliseconds in points.items():
            self._grids.setdefault(_place(shape), _Grid()).add(shape.channels_in, shape.channels_out, milliseconds)

    @staticmethod
    def measure(
        graph: ChannelGraph,
        size: Sequence[int],
        measure: Callable[[LayerShape], float],
        *,
        engine: str,
        step: int = 16,
        widths: Callable[[int, int], list[int]] = stair_widths,
    ) -> LatencyTable:
        """Measure every layer of ``graph`` for inputs of ``size`` (height, width), at all pairs of stair widths."""
        points: dict[LayerShape, float] = {}
        for layer, shape in _shapes(graph, size):
            reads = graph.reads_prunable(layer)
            ins = widths(shape.channels_in, step) if reads else [shape.channels_in]
            for out in _in_groups(widths(shape.channels_out, step), shape):
                for inside in [_filtered(shape, out)] if shape.depthwise else _in_groups(ins, shape):
                    wanted = LayerShape(inside, out, *_place(shape))
                    if wanted not in points:
                        points[wanted] = float(measure(wanted))
        return LatencyTable(engine, points)

    def milliseconds(self, shape: LayerShape) -> float:
        """Read the table; widths beyond the measured ones are refused."""
        grid = self._grids.get(_place(shape))
        if grid is None:
            raise PruningError(f"no measurement for {shape}; the table of {self.engine} is of another network or size")
        return grid.read(shape.channels_in, shape.channels_out)

    def save(self, path: str | PathLike[str]) -> None:
        """Write JSON."""
        rows = [{**asdict(shape), "ms": value} for shape, value in self.points.items()]
        with replacing(Path(path)) as part:
            part.write_text(json.dumps({"engine": self.engine, "points": rows}, indent=1))

    @staticmethod
    def load(path: str | PathLike[str]) -> LatencyTable:
        """Read what :meth:`save` wrote."""
        try:
            content = json.loads(Path(path).read_text())
            return LatencyTable(content["engine"], dict(_point(row) for row in content["points"]))
        except (ValueError, KeyError, TypeError) as error:
            raise PruningError(
                f"{path} is not a latency table, or it is damaged: {error!r}; delete it to measure again"
            ) from error


def _point(row: Document) -> tuple[LayerShape, float]:
    values: Document = {key: tuple(value) if isinstance(value, list) else value for key, value in row.items()}
    milliseconds = float(values.pop("ms"))
    return LayerShape(**values), milliseconds


def _place(shape: LayerShape) -> Place:
    kind = (shape.depthwise, shape.groups, shape.dilation, shape.depth, shape.transposed)
    return shape.height, shape.width, shape.kernel, shape.stride, *kind


def _in_groups(widths: list[int], shape: LayerShape) -> list[int]:
    """Widths that the groups of a layer can have."""
    return sorted({max(shape.groups, width - width % shape.groups) for width in widths})


def _filtered(shape: LayerShape, out: int) -> int:
    """Input channels of a depthwise layer with ``out`` output channels."""
    return max(1, out * shape.channels_in // shape.channels_out)


def _shapes(graph: ChannelGraph, size: Sequence[int] | None) -> list[tuple[Layer, LayerShape]]:
    """Every layer that an engine spends time on, once for each call, at present widths."""
    found, shapes = [], graph.shapes(size)
    for layer in graph.layers:
        if layer.engine:
            found += [(layer, _shape(layer, spatial)) for spatial in shapes[layer.name]]
    return found


def _shape(layer: Layer, spatial: tuple[int, ...]) -> LayerShape:
    depth = spatial[0] if len(spatial) == 3 else 0
    height, width = (*(spatial[1:] if depth else spatial), 1, 1)[:2]
    kernel, stride, dilation = (
        (*numbers, 1, 1)[: 3 if depth else 2] for numbers in (layer.kernel, layer.stride, layer.dilation)
    )
    depthwise, groups = layer.own == 1, layer.groups
    inside = groups if depthwise else len(layer.inputs)
    place = (height, width, kernel, stride, depthwise, 1 if depthwise else groups, dilation, depth)
    return LayerShape(inside, len(layer.outputs), *place, transposed=layer.transposed)


class _Grid:
    """Milliseconds over (channels in, channels out), made monotone when it is first read."""

    def __init__(self) -> None:
        self._values: dict[tuple[int, int], float] = {}
        self._ready: tuple[list[int], list[int], list[list[float]]] | None = None

    def add(self, inside: int, out: int, milliseconds: float) -> None:
        self._values[inside, out] = milliseconds
        self._ready = None

    def read(self, inside: int, out: int) -> float:
        ins, outs, table = self._ready or self._prepare()
        (below, above, t), (left, right, u) = _between(ins, inside), _between(outs, out)
        low = table[below][left] * (1 - u) + table[below][right] * u
        high = table[above][left] * (1 - u) + table[above][right] * u
        return low * (1 - t) + high * t

    def _prepare(self) -> tuple[list[int], list[int], list[list[float]]]:
        """Each entry becomes the least of all entries that are as wide or wider in both directions."""
        ins, outs = sorted({a for a, _ in self._values}), sorted({b for _, b in self._values})
        table = [[self._values.get((a, b), float("inf")) for b in outs] for a in ins]
        for i in reversed(range(len(ins))):
            for j in reversed(range(len(outs))):
                below = table[i + 1][j] if i + 1 < len(ins) else float("inf")
                right = table[i][j + 1] if j + 1 < len(outs) else float("inf")
                table[i][j] = min(table[i][j], below, right)
        self._ready = (ins, outs, table)
        return self._ready


def _between(widths: list[int], width: int) -> tuple[int, int, float]:
    """Indices of both neighbours and the share of the upper one; below the narrowest measured width, that one twice."""
    if width > widths[-1]:
        raise PruningError(f"{width} channels are more than the {widths[-1]} that were measured; measure wider layers")
    k = bisect_left(widths, width)
    if k == 0:
        return 0, 0, 1.0
    return k - 1, k, (width - widths[k - 1]) / (widths[k] - widths[k - 1])


class Latency:
    """A cost in milliseconds from a table, for inputs of ``size`` (height, width).

    ahead  On a stair, removing one map saves nothing, and the edge of the next stair is never seen. So the saving of
           a map is the best average over its next 1 to ``ahead`` companions (maps with the same readers):
           the steepest way down. 1 gives the plain difference.
    """

    def __init__(self, table: LatencyTable, size: Sequence[int], *, ahead: int = 16) -> None:
        self.table, self.size, self.ahead = table, tuple(size), ahead
        self._of: tuple[ChannelGraph, int] | None = None
        self._shapes: list[list[LayerShape]] = []
        self._cache: dict[tuple[int, int, int], float] = {}

    def total(self, graph: ChannelGraph, alive: Tensor | None = None) -> float:
        """Milliseconds of all layers for one image."""
        self._bind(graph)
        out, inside = (width.tolist() for width in graph.widths(alive))
        return sum(self._layer(k, out[k], inside[k]) for k in range(len(graph.layers)))

    def delta_cost(self, graph: ChannelGraph, alive: Tensor | None = None) -> Tensor:
        """float64 (maps,): milliseconds per map that further removals save, negative; 0 for removed maps."""
        self._bind(graph)
        alive = graph.alive if alive is None else alive
        at = graph.incidence
        out, inside = (width.tolist() for width in graph.widths(alive))
        rows: dict[int, list[tuple[int, int, int]]] = {}
        for sort, *row in zip(*(v.tolist() for v in (at.sort, at.layer, at.out, at.inside)), strict=True):
            rows.setdefault(sort, []).append((row[0], row[1], row[2]))
        slopes = torch.zeros(int(at.sort_of.max()) + 1, dtype=torch.float64)
        for sort, places in rows.items():
            slopes[sort] = -max(0.0, *(self._saving(places, out, inside, n) / n for n in range(1, self.ahead + 1)))
        return (slopes[at.sort_of] * alive)[:-1]

    def _saving(self, places: list[tuple[int, int, int]], out: list[int], inside: list[int], count: int) -> float:
        saved = 0.0
        for layer, o, i in places:
            if out[layer] - count * o < 1 or (i and inside[layer] - count * i < 1):
                return 0.0  # would empty a layer
            after = self._layer(layer, out[layer] - count * o, inside[layer] - count * i)
            saved += self._layer(layer, out[layer], inside[layer]) - after
        return saved

    def _layer(self, number: int, out: int, inside: int) -> float:
        key = (number, out, inside)
        if key not in self._cache:
            at = self._shapes[number]
            shapes = (LayerShape(_filtered(s, out) if s.depthwise else inside * s.groups, out, *_place(s)) for s in at)
            self._cache[key] = sum(self.table.milliseconds(shape) for shape in shapes)
        return self._cache[key]

    def _bind(self, graph: ChannelGraph) -> None:
        if self._of == (graph, graph.version):
            return
        shapes: dict[str, list[LayerShape]] = {layer.name: [] for layer in graph.layers}
        for layer, shape in _shapes(graph, self.size):
            shapes[layer.name].append(shape)
        self._shapes, self._cache, self._of = list(shapes.values()), {}, (graph, graph.version)
