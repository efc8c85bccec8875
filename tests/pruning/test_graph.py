import pytest
import torch
from torch import nn

from fastgaze.core.errors import PruningError
from fastgaze.pruning import ChannelGraph, Flops, compact
from fastgaze.pruning.graph import Choice
from tests.pruning.nets import NETS, make


def test_lenet_has_580_maps_and_its_ten_outputs_stay() -> None:
    net, x = make("lenet")
    graph = ChannelGraph.trace(net, x)
    assert len(graph.maps) == 20 + 50 + 500 + 10
    assert int(graph.candidates().sum()) == 570
    assert not graph.prunable[-10:].any()


def test_flatten_spreads_a_map_over_its_positions() -> None:
    net, x = make("lenet")
    graph = ChannelGraph.trace(net, x)
    assert graph.layer("5").inputs.tolist() == [20 + k for k in range(50) for _ in range(16)]


def test_concatenation_gives_every_reader_its_offset() -> None:
    net, x = make("grouped")
    graph = ChannelGraph.trace(net, x)
    first, last = graph.layer("first"), graph.layer("last")
    assert torch.equal(last.inputs[:12], first.outputs)
    assert torch.equal(last.inputs[12:], graph.layer("twice").outputs)


def test_groups_and_repeated_layers_tie_maps() -> None:
    net, x = make("grouped")
    graph = ChannelGraph.trace(net, x)
    assert graph.layer("first").outputs.tolist() == [k % 4 for k in range(12)]
    # `twice` reads its own output and the grouped layer's: one set of maps, tied over three groups
    assert torch.equal(graph.layer("twice").inputs, graph.layer("twice").outputs)
    assert len(set(graph.layer("grouped").outputs.tolist())) == 6


def test_residual_addition_ties_all_layers_of_a_stage() -> None:
    net, x = make("resnet")
    graph = ChannelGraph.trace(net, x)
    assert torch.equal(graph.layer("stem.0").outputs, graph.layer("stages.1.conv2").outputs)
    assert str(graph.maps[3]) == "stem.0[3]+stages.0.conv2[3]+stages.1.conv2[3]"


def test_depthwise_layers_carry_maps_and_gates_tie_them() -> None:
    net, x = make("mobile")
    graph = ChannelGraph.trace(net, x)
    expand = graph.layer("expand.0").outputs.tolist()
    assert graph.layer("depthwise.0").outputs.tolist() == [k for k in expand for _ in range(2)]
    assert torch.equal(graph.layer("excite").outputs, graph.layer("depthwise.0").outputs)


@pytest.mark.parametrize("name", NETS)
def test_tracing_changes_nothing(name: str) -> None:
    net, x = make(name)
    net.train()
    before = {key: value.clone() for key, value in net.state_dict().items()}
    ChannelGraph.trace(net, x).shapes()
    assert all(torch.equal(before[key], value) for key, value in net.state_dict().items())
    assert all(module.training for module in net.modules())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in net.modules())


def test_layers_that_share_a_parameter_keep_their_maps() -> None:
    net = nn.Sequential(nn.Conv2d(3, 3, 1), nn.Conv2d(3, 3, 1), nn.Conv2d(3, 5, 1), nn.Conv2d(5, 2, 1))
    net[1].weight = net[0].weight
    graph = ChannelGraph.trace(net, torch.randn(1, 3, 4, 4))
    assert [str(m) for m in graph.maps if m.prunable] == [f"2[{k}]" for k in range(5)]
    assert "1.weight is the same parameter as 0.weight" in str(graph.kept[0])
    with pytest.raises(PruningError, match=r"1\.weight is the same parameter as 0\.weight"):
        ChannelGraph.trace(net, torch.randn(1, 3, 4, 4), unknown="refuse")


def test_layers_are_chosen_by_name_prefix_pattern_class_or_predicate() -> None:
    net, x = make("resnet")
    graph = ChannelGraph.trace(net, x)

    def names(choice: Choice | list[Choice]) -> list[str]:
        return [layer.name for layer in graph.select(choice) if layer.makes]

    assert names("stages.0.conv1") == ["stages.0.conv1"]
    assert names("stages.1") == ["stages.1.conv1", "stages.1.conv2"]
    assert names(["stages.*.conv2"]) == [f"stages.{k}.conv2" for k in range(4)]
    assert names(nn.Linear) == ["head"]
    assert names(lambda layer: layer.kernel == (1, 1)) == ["stages.2.short.0"]


def test_impossible_removals_are_refused() -> None:
    net, x = make("prelu")
    graph = ChannelGraph.trace(net, x)
    graph.mark_removed([4])
    with pytest.raises(PruningError, match="already removed"):
        graph.mark_removed([4])
    with pytest.raises(PruningError, match="cannot be removed: it is tied to an input or output"):
        graph.mark_removed([len(graph.maps) - 1])
    with pytest.raises(PruningError, match="last of its layer"):
        graph.mark_removed(range(12, 20))
    with pytest.raises(PruningError, match="does not exist"):
        graph.mark_removed([999])
    with pytest.raises(PruningError, match="no layer 'x'"):
        graph.maps_of(["x"])


def test_a_size_that_the_network_cannot_take_is_refused() -> None:
    net, x = make("lenet")
    with pytest.raises(PruningError, match=r"does not accept .*1, 1, 32, 32"):
        Flops((32, 32)).total(ChannelGraph.trace(net, x))


def test_description_names_layers_widths_readers_and_the_total() -> None:
    net, x = make("prelu")
    graph = ChannelGraph.trace(net, x)
    graph.mark_removed([0])
    compact(graph)
    text = graph.describe()
    assert "2      conv  11  8    8 " in text
    assert "6@0" in text
    assert f"24 maps, 23 prunable, Flops {Flops().total(graph):,}" in text


def test_description_has_depthwise_layers_and_costs() -> None:
    net, x = make("mobile")
    graph = ChannelGraph.trace(net, x)
    (line,) = [line for line in graph.describe().splitlines() if line.startswith("depthwise.0")]
    assert line.split()[:6] == ["depthwise.0", "depthwise", "32", "32", "16", f"{11 * 8 * 32 * (2 * 9 + 1):,}"]
