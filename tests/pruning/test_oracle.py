"""An independent library must cut the same channels with the same result."""

import copy
import warnings

import pytest
import torch
from torch import nn

from fastgaze.pruning import ChannelGraph, compact
from tests.pruning.nets import make, removable_choice

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import torch_pruning  # type: ignore[import-untyped]


@pytest.mark.parametrize(("name", "share"), [("lenet", 0.3), ("vgg11", 0.3), ("densenet", 0.04), ("resnet", 0.3)])
@pytest.mark.filterwarnings("ignore")
def test_torch_pruning_removes_the_same_channels_with_the_same_result(name: str, share: float) -> None:
    net, x = make(name)
    other = copy.deepcopy(net)
    graph = ChannelGraph.trace(net, x)
    chosen = removable_choice(graph, share, 2)
    offsets: dict[str, list[int]] = {}
    for index in chosen:
        producer, channel = graph.maps[index].producers[0]
        offsets.setdefault(producer, []).append(channel)
    graph.mark_removed(chosen)
    compact(graph)

    dependencies = torch_pruning.DependencyGraph().build_dependency(other, example_inputs=x)
    for producer, channels in offsets.items():
        module = other.get_submodule(producer)
        cut = (
            torch_pruning.prune_conv_out_channels
            if isinstance(module, nn.Conv2d)
            else torch_pruning.prune_linear_out_channels
        )
        dependencies.get_pruning_group(module, cut, idxs=channels).prune()

    for (key, a), b in zip(net.named_parameters(), other.parameters(), strict=True):
        assert torch.equal(a, b), key
    with torch.no_grad():
        assert torch.allclose(net(x), other(x), atol=1e-6)
