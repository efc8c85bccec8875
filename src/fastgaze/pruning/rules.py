"""For rules of your own: what the tracer is to do with a module or a function that it does not know.

A rule gets a ``Call`` and says what its result has to do with the maps that went in. ``pointwise``, ``moves``,
``over_space`` and ``blocks`` are ready rules. ``makes`` gives the result new maps: those of a layer with weights, which
is a ``Layer`` such as ``Convolution`` or ``Linear``. ``register`` names the class of modules or the function that a
rule is for.
"""

from fastgaze.pruning.layers.kinds import Convolution, Linear
from fastgaze.pruning.layers.layer import Layer
from fastgaze.pruning.tracing.modules import makes
from fastgaze.pruning.tracing.operations import blocks, moves, over_space, pointwise, register
from fastgaze.pruning.tracing.tracer import Call

__all__ = ["Call", "Convolution", "Layer", "Linear", "blocks", "makes", "moves", "over_space", "pointwise", "register"]
