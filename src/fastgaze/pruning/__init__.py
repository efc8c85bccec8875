"""Fisher pruning of any convolutional network: torch, and no other room of this package.

graph = ChannelGraph.trace(model.network, example)
pruner = Pruner(graph, signal=Fisher(), cost=Flops((480, 640)), objective=BetaStar(), optimizer=optimizer)
for batch in batches:
    with pruner.observe():            # probes active; the loss is the mean over images
        loss(model, batch).backward()
    optimizer.step()
    optimizer.zero_grad()
    pruner.prune(8)                   # removes 8 maps, slices the optimizer's state, forgets the signals
"""

from fastgaze.pruning.compact import compact
from fastgaze.pruning.cost import Cost, Flops
from fastgaze.pruning.graph import ChannelGraph
from fastgaze.pruning.layers import Layer
from fastgaze.pruning.history import History, Removal
from fastgaze.pruning.latency import Latency, LatencyTable, LayerShape
from fastgaze.pruning.loop import Until, load_run, run, save_run
from fastgaze.pruning.objective import Beta, BetaStar, NoCost, Objective, Target
from fastgaze.pruning.parameters import ParameterPruner
from fastgaze.pruning.probe import Statistics, masked, probed
from fastgaze.pruning.pruner import Pruner
from fastgaze.pruning.trace import Map
from fastgaze.pruning.signals import Fisher, L1Activity, L1Weight, Molchanov, Random, Signal

__all__ = [
    "Beta",
    "BetaStar",
    "ChannelGraph",
    "Cost",
    "Fisher",
    "Flops",
    "History",
    "L1Activity",
    "L1Weight",
    "Latency",
    "LatencyTable",
    "Layer",
    "LayerShape",
    "Map",
    "Molchanov",
    "NoCost",
    "Objective",
    "ParameterPruner",
    "Pruner",
    "Random",
    "Removal",
    "Signal",
    "Statistics",
    "Target",
    "Until",
    "compact",
    "load_run",
    "masked",
    "probed",
    "run",
    "save_run",
]
