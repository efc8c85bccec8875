"""Fisher pruning of any convolutional network: torch, and no other room of this package but its errors and files.

graph = ChannelGraph.trace(network, example)
pruner = Pruner(graph, signal=Fisher(), cost=Flops((480, 640)), objective=BetaStar(), optimizer=optimizer)
while pruner.total_cost > pruner.part(0.5):       # half the FLOPs
    for batch in some_batches:
        with pruner.observe():                    # probes active; the loss is the mean over images
            loss(network, batch).backward()
        optimizer.zero_grad()
    for batch in other_batches:
        train_step(batch)                         # as usual: BatchNorm's statistics follow in these steps only
    pruner.prune(8)                               # removes 8 maps, slices the optimizer's state, forgets the signals
recalibrate(network, batches)                     # the statistics of BatchNorm
"""

from fastgaze.pruning.batchnorm import recalibrate
from fastgaze.pruning.compact import compact
from fastgaze.pruning.cost import Cost, Flops, Memory, Parameters
from fastgaze.pruning.graph import ChannelGraph
from fastgaze.pruning.history import History, Removal
from fastgaze.pruning.latency import Latency, LatencyTable, LayerShape
from fastgaze.pruning.layers.layer import Layer
from fastgaze.pruning.loop import Until, load_run, run, save_run
from fastgaze.pruning.objective import Beta, BetaStar, NoCost, Objective, Target
from fastgaze.pruning.parameters import ParameterPruner
from fastgaze.pruning.probe import Statistics, masked, probed
from fastgaze.pruning.pruner import Pruner
from fastgaze.pruning.signals import Fisher, L1Activity, L1Weight, Molchanov, Random, Signal
from fastgaze.pruning.tracing.operations import register
from fastgaze.pruning.tracing.places import Kept
from fastgaze.pruning.tracing.trace import Map
from fastgaze.pruning.tracing.tracer import Call

__all__ = [
    "Beta",
    "BetaStar",
    "Call",
    "ChannelGraph",
    "Cost",
    "Fisher",
    "Flops",
    "History",
    "Kept",
    "L1Activity",
    "L1Weight",
    "Latency",
    "LatencyTable",
    "Layer",
    "LayerShape",
    "Map",
    "Memory",
    "Molchanov",
    "NoCost",
    "Objective",
    "ParameterPruner",
    "Parameters",
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
    "recalibrate",
    "register",
    "run",
    "save_run",
]
