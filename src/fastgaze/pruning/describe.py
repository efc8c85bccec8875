"""A network's maps as a table for people."""

import torch

from fastgaze.pruning.cost import Cost, Flops
from fastgaze.pruning.graph import ChannelGraph, Layer


def describe(graph: ChannelGraph, cost: Cost | None = None) -> str:
    """One line a convolution or linear layer: widths, prunable maps, readers with channel offsets, cost, saving a map.

    ``cost`` is FLOPs at the traced size unless told.
    """
    chosen = Flops() if cost is None else cost
    delta = chosen.delta_cost(graph, graph.alive)
    total = chosen.total(graph, graph.alive)
    rows = [("layer", "kind", "in", "out", "prunable", "saved by a map", "readers (channel offset)")]
    for layer in graph.readers:
        maps = torch.tensor(sorted(set(layer.outputs.tolist())), dtype=torch.int64)
        free = maps[graph.candidates()[maps]]
        saved = f"{-float(delta[free].double().mean()):.6g}" if len(free) else "-"
        width = (str(len(layer.inputs)), str(len(layer.outputs)), str(len(free)))
        rows.append((layer.name, layer.kind, *width, saved, _readers(graph, layer)))
    widths = [max(len(row[k]) for row in rows) for k in range(6)]
    lines = ["  ".join([*(cell.ljust(w) for cell, w in zip(row, widths, strict=False)), row[6]]) for row in rows]
    present = int(graph.alive[:-1].sum())
    lines.append(f"{present} maps, {int(graph.candidates().sum())} prunable, {type(chosen).__name__} {total:,}")
    return "\n".join(lines)


def _readers(graph: ChannelGraph, layer: Layer) -> str:
    found = []
    for reader in graph.readers:
        positions = torch.isin(reader.inputs, layer.outputs).nonzero().flatten()
        if len(positions):
            found.append(f"{reader.name}@{int(positions[0])}")
    return ", ".join(found) or "(output)"
