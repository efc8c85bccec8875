"""The paper's networks: their maps, their cost, and a pruned one that is saved as a spec and weights."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from fastgaze.core.cost import prunable_maps
from fastgaze.networks import GazeModel, create_model, load_checkpoint, save_checkpoint
from fastgaze.pruning import ChannelGraph, Flops, Pruner, compact, masked
from tests.pruning.nets import randomize, removable_choice


def traced(name: str) -> tuple[GazeModel, ChannelGraph, Tensor]:
    torch.manual_seed(0)
    model = create_model(name).eval()
    assert isinstance(model, GazeModel)
    randomize(model)
    x = torch.rand(1, 3, 48, 32)
    return model, ChannelGraph.trace(model.network, x), x


@pytest.mark.parametrize(("name", "maps", "gflop"), [("fastgaze", 2803, 91.75), ("densegaze", 7219, 32.28)])
def test_maps_and_flops_are_those_of_the_paper(name: str, maps: int, gflop: float) -> None:
    model, graph, _ = traced(name)
    assert len(graph.maps) == maps == prunable_maps(model.spec)
    assert int(graph.prunable.sum()) == maps - 1  # the output map stays
    assert Flops((480, 640)).total(graph) / 1e9 == pytest.approx(gflop, abs=0.01)


@pytest.mark.parametrize("name", ["fastgaze", "densegaze"])
def test_a_pruned_network_is_saved_and_loaded_as_spec_and_weights(name: str, tmp_path: Path) -> None:
    model, graph, x = traced(name)
    graph.mark_removed(removable_choice(graph, 0.6, 1))
    with torch.no_grad(), masked(graph):
        expected = model(x)
    compact(graph)
    save_checkpoint(model, tmp_path / "pruned.safetensors")
    loaded, _ = load_checkpoint(tmp_path / "pruned.safetensors")
    assert loaded.spec == model.spec
    with torch.no_grad():
        assert torch.allclose(loaded(x), expected, atol=1e-5, rtol=1e-5)


def test_costs_of_the_pruner_and_of_the_spec_agree() -> None:
    from fastgaze.core.cost import flops

    model, graph, _ = traced("densegaze")
    graph.mark_removed(removable_choice(graph, 0.5, 4))
    compact(graph)
    assert Flops((480, 640)).total(graph) == flops(model.spec, (480, 640))


def test_signals_reach_every_map_of_densegaze_under_autocast() -> None:
    model, graph, x = traced("densegaze")
    pruner = Pruner(graph, cost=Flops((480, 640)))
    model.train()
    with pruner.observe(), torch.autocast("cpu", torch.bfloat16):
        loss = -model(x)[:, 5, 7].mean()
        loss.backward()
    assert torch.isfinite(pruner.delta_loss()).all()
    assert (pruner.delta_loss() > 0).double().mean() > 0.5
    before = pruner.total_cost
    assert pruner.prune(share=0.01).cost < before
