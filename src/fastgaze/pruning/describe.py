"""A network's maps as a table for people."""

import torch

from fastgaze.pruning.cost import Cost, Flops
from fastgaze.pruning.graph import ChannelGraph
from fastgaze.pruning.layers.layer import Layer

HEAD = ("layer", "kind", "in", "out", "prunable", "cost", "saved per map")


def describe(graph: ChannelGraph, cost: Cost | None = None) -> str:
    """One line for each layer that reads or costs something, then what stays and why.

    ``cost`` is FLOPs at the traced size unless told; costs of single layers are given where the cost knows them.
    """
    chosen = Flops() if cost is None else cost
    delta = chosen.delta_cost(graph, graph.alive)
    by_layer = chosen.by_layer(graph, graph.alive) if hasattr(chosen, "by_layer") else None
    rows: list[tuple[str, ...]] = [HEAD]
    readers = ["readers (channel offset)"]
    for number, layer in enumerate(graph.layers):
        if layer.makes or layer.engine:
            price = "-" if by_layer is None else f"{int(by_layer[number]):,}"
            rows.append(_row(graph, layer, delta, price))
            readers.append(_readers(graph, layer))
    widths = [max(len(row[k]) for row in rows) for k in range(len(HEAD))]
    lines = [
        "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=True)), reader])
        for row, reader in zip(rows, readers, strict=True)
    ]
    return "\n".join([*lines, *_footer(graph, chosen)])


def _row(graph: ChannelGraph, layer: Layer, delta: torch.Tensor, price: str) -> tuple[str, ...]:
    maps = torch.unique(layer.outputs)
    maps = maps[maps < len(graph.maps)]
    free = maps[graph.candidates()[maps]]
    saved = f"{-float(delta[free].double().mean()):.6g}" if len(free) else "-"
    inside = len(layer.inputs) if layer.reads else len(layer.outputs)
    return layer.name, layer.kind, str(inside), str(len(layer.outputs)), str(len(free)), price, saved


def _readers(graph: ChannelGraph, layer: Layer) -> str:
    found = []
    own = layer.outputs[layer.outputs < len(graph.maps)]
    for reader in graph.readers:
        positions = torch.isin(reader.inputs, own).nonzero().flatten()
        if len(positions):
            found.append(f"{reader.name}@{int(positions[0])}")
    return ", ".join(found) or "(output)"


def _footer(graph: ChannelGraph, cost: Cost) -> list[str]:
    present, free = int(graph.alive[:-1].sum()), int(graph.candidates().sum())
    lines = [f"{present} maps, {free} prunable, {type(cost).__name__} {cost.total(graph, graph.alive):,}"]
    lines += [f"stays: {kept}" for kept in graph.kept]
    if graph.uncounted:
        lines.append(f"not counted in any cost: {', '.join(graph.uncounted)}")
    if graph.unreached:
        lines.append(f"not reached by the example input, and unknown: {', '.join(graph.unreached)}")
    return lines
