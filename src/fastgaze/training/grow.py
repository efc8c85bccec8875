"""From a pruned network back to a wide one that starts with the same predictions.

Dense-sparse-dense training (Han et al. 2017): what a small network learned cheaply is kept, the maps that pruning
removed come back with their pretrained weights, and training goes on at full width.
"""

import torch
from torch import Tensor, nn

from fastgaze.core.errors import ArgumentError
from fastgaze.core.spec import VGGSpec
from fastgaze.networks.gaze import GazeModel


@torch.no_grad()
def grow_into(small: GazeModel, wide: GazeModel) -> None:
    """Put ``small`` into the first maps of every layer of ``wide``, in place; the other maps do not reach them yet."""
    for model in (small, wide):
        if not isinstance(model.spec.trunk, VGGSpec) or len(model.spec.trunk.taps) != 1:
            raise ArgumentError(f"cannot grow a {model.spec.architecture}: its trunk is no VGG with one tap")
    kinds = (nn.Conv2d, nn.PReLU)
    before = [module for module in small.network.modules() if isinstance(module, kinds)]
    after = [module for module in wide.network.modules() if isinstance(module, kinds)]
    if [type(module) for module in before] != [type(module) for module in after]:
        raise ArgumentError(f"a {small.spec.architecture} of other depth cannot grow into a {wide.spec.architecture}")
    for narrow, broad in zip(before, after, strict=True):
        if any(a > b for a, b in zip(narrow.weight.shape, broad.weight.shape, strict=True)):
            raise ArgumentError(f"a layer of {len(narrow.weight)} maps does not fit into one of {len(broad.weight)}")
        out = len(narrow.weight)
        if isinstance(narrow, nn.Conv2d):
            broad.weight[:out] = 0  # what the other maps would add
            broad.weight[:out, : narrow.in_channels] = narrow.weight
            assert isinstance(narrow.bias, Tensor)
            assert isinstance(broad.bias, Tensor)
            broad.bias[:out] = narrow.bias
        else:
            broad.weight[:out] = narrow.weight
    wide.tail.load_state_dict(small.tail.state_dict())
