from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

from fastgaze.core.errors import PruningError
from fastgaze.pruning import ChannelGraph, Flops, History, NoCost, Pruner, Random, Removal, Signal, Until, run
from tests.pruning.nets import image_losses, make


class KilledError(Exception):
    pass


def workshop(
    kind: str = "sgd", kill_at: int = -1, signal: Signal | None = None, update: bool = True
) -> tuple[nn.Module, Pruner, Callable[[int], float]]:
    """A fresh network and a step that trains on batch k and consumes random numbers."""
    net, x = make("prelu", batch=16)
    optimizer: torch.optim.Optimizer = (
        torch.optim.SGD(net.parameters(), lr=1e-3, momentum=0.9)
        if kind == "sgd"
        else torch.optim.AdamW(net.parameters(), lr=1e-3)
    )
    pruner = Pruner(ChannelGraph.trace(net, x), cost=Flops(update=update), optimizer=optimizer, signal=signal)

    def step(number: int) -> float:
        if number == kill_at:
            raise KilledError
        batch = x[4 * (number % 4) : 4 * (number % 4) + 4]
        optimizer.zero_grad()
        with pruner.observe():
            loss = image_losses(net, batch + 0.1 * torch.randn_like(batch)).mean()
            loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        return float(loss.detach())

    return net, pruner, step


@pytest.mark.parametrize("kind", ["sgd", "adam"])
@pytest.mark.parametrize("kill_at", [0, 7, 20])
def test_a_killed_run_goes_on_to_the_same_network(tmp_path: Path, kind: str, kill_at: int) -> None:
    torch.manual_seed(5)
    start = torch.get_rng_state()
    whole, pruner, step = workshop(kind)
    torch.set_rng_state(start)
    expected = run(pruner, step, Until(maps_left=9), steps=3, per_round=2)

    _, pruner, step = workshop(kind, kill_at)
    torch.set_rng_state(start)
    with pytest.raises(KilledError):
        run(pruner, step, Until(maps_left=9), steps=3, per_round=2, checkpoint=tmp_path / "run.safetensors", every=2)
    net, pruner, step = workshop(kind)
    torch.set_rng_state(start)
    history = run(
        pruner, step, Until(maps_left=9), steps=3, per_round=2, checkpoint=tmp_path / "run.safetensors", every=2
    )

    assert history == expected
    for a, b in zip(net.state_dict().values(), whole.state_dict().values(), strict=True):
        assert torch.equal(a, b)


def test_a_finished_run_is_only_loaded(tmp_path: Path) -> None:
    net, pruner, step = workshop(signal=Random(3), update=False)
    history = run(pruner, step, Until(maps_left=15), checkpoint=tmp_path / "run", steps=1)
    again, other, never = workshop(kill_at=0, signal=Random(3), update=False)
    assert run(other, never, Until(maps_left=15), checkpoint=tmp_path / "run", steps=1) == history
    assert [p.shape for p in again.parameters()] == [p.shape for p in net.parameters()]


def test_the_loop_counts_steps_and_records_losses() -> None:
    _, pruner, step = workshop()
    seen: list[Removal] = []
    losses: list[float] = []

    def counted(number: int) -> float:
        assert number == len(losses)
        losses.append(step(number))
        return losses[-1]

    history = run(pruner, counted, Until(maps_left=15), steps=4, per_round=3, on_round=seen.append)
    assert history.removals == seen
    assert [removal.step for removal in seen] == [4 * (k + 1) for k in range(len(seen))]
    assert seen[0].loss == pytest.approx(sum(losses[:4]) / 4)
    assert seen[0].images == 16


def test_the_loop_stops_at_a_number_of_maps_a_cost_or_a_loss() -> None:
    _, pruner, step = workshop()
    total, maps = pruner.total_cost, pruner.maps_left
    run(pruner, step, Until(maps_left=maps - 7), steps=1, per_round=4)
    assert pruner.maps_left == maps - 7
    run(pruner, step, Until(maps_left=maps - 9), steps=1, share=0.5)
    assert pruner.maps_left == maps - 9
    run(pruner, step, Until(cost=0.5 * total), steps=1)
    assert pruner.history.removals[-2].cost > 0.5 * total >= pruner.total_cost
    left = pruner.maps_left
    run(pruner, step, Until(loss=1e-9), steps=1)
    assert pruner.maps_left == left
    with pytest.raises(PruningError, match="no map can be removed"):
        run(pruner, step, Until(cost=1.0), steps=1, per_round=50)
    with pytest.raises(PruningError, match="no limit"):
        Until()


def test_a_foreign_file_is_refused(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    save_file({"x": torch.zeros(1)}, tmp_path / "other")
    _, pruner, step = workshop()
    with pytest.raises(PruningError, match="not a pruning checkpoint"):
        run(pruner, step, Until(maps_left=1), checkpoint=tmp_path / "other")
    (tmp_path / "cut").write_bytes((tmp_path / "other").read_bytes()[:9])
    with pytest.raises(PruningError, match="not a readable pruning checkpoint"):
        run(pruner, step, Until(maps_left=1), checkpoint=tmp_path / "cut")
    with pytest.raises(PruningError, match="not a pruning history"):
        History.from_json({"maps": 3})


def test_fisher_pruning_hurts_less_than_random_pruning() -> None:
    """A regression task with half of the hidden maps useless: Fisher finds them, chance does not."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU(), nn.Conv2d(16, 1, 1))
    with torch.no_grad():
        net.get_parameter("2.weight")[:, ::2] *= 1e-3
    x = torch.randn(32, 3, 8, 8)
    goal = net(x).detach() + 0.1 * torch.randn(32, 1, 6, 6)
    removed = {}
    for signal in (None, Random(0)):
        twin = nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU(), nn.Conv2d(16, 1, 1))
        twin.load_state_dict(net.state_dict())
        pruner = Pruner(ChannelGraph.trace(twin, x), signal=signal, objective=NoCost())
        with pruner.observe():
            (twin(x) - goal).square().sum((1, 2, 3)).mean().backward()
        removed[signal is None] = set(pruner.prune(8).indices)
    assert removed[True] == set(range(0, 16, 2))
    assert removed[False] != removed[True]


def test_a_run_that_its_loss_ended_ends_there_again(tmp_path: Path) -> None:
    _, pruner, step = workshop()
    free = run(pruner, step, Until(maps_left=9), steps=3, per_round=2)
    losses = [removal.loss or 0.0 for removal in free.removals]
    budget = max(losses[:2]) + 1e-6  # ends the run after some rounds
    torch.manual_seed(5)
    histories = []
    for _ in range(2):
        _, pruner, step = workshop()
        torch.manual_seed(5)
        until = Until(loss=budget, maps_left=9)
        histories.append(run(pruner, step, until, steps=3, per_round=2, checkpoint=tmp_path / "run.safetensors"))
    assert histories[0] == histories[1]


def test_a_run_that_only_masks_can_be_resumed(tmp_path: Path) -> None:
    file = tmp_path / "run.safetensors"

    def masking() -> tuple[nn.Module, Pruner]:
        net, x = make("prelu", batch=4)
        pruner = Pruner(ChannelGraph.trace(net, x), compacting=False)
        return net, pruner

    _, x = make("prelu", batch=4)
    outputs = []
    for maps in (15, 15, 12):
        net, pruner = masking()

        def step(_number: int, net: nn.Module = net, pruner: Pruner = pruner) -> float:
            with pruner.observe():
                loss = image_losses(net, x).mean()
                loss.backward()  # type: ignore[no-untyped-call]
            return float(loss.detach())

        run(pruner, step, Until(maps_left=maps), steps=1, checkpoint=file)
        assert pruner.maps_left == maps
        outputs.append(net(x).detach())
    assert torch.equal(outputs[0], outputs[1])
    assert not torch.equal(outputs[0], outputs[2])


def test_early_stopping_ends_a_run_when_the_combined_cost_no_longer_falls(tmp_path: Path) -> None:
    """L + beta C falls for five rounds, in which the loss stays the same, and rises with the loss from then on."""

    def stopped(losses: list[float], patience: int) -> History:
        _, pruner, _ = workshop(signal=Random(3))
        until = Until(maps_left=9, patience=patience, beta=1.0, unit=pruner.total_cost)
        return run(pruner, lambda k: losses[k], until, steps=1, checkpoint=tmp_path / f"{losses[-1]}-{patience}")

    rising = [1.0] * 5 + [2.0 + k for k in range(30)]
    for patience in (1, 3):
        history = stopped(rising, patience)
        assert len(history.removals) == 5 + patience
        assert stopped(rising, patience) == history  # a finished run stays finished
    assert stopped([1.0] * 99, 1).removals[-1].left == 9  # the cost falls in every round


@pytest.mark.parametrize("until", [{"patience": 3}, {"patience": 0, "beta": 1.0}])
def test_early_stopping_needs_a_weight_and_a_patience(until: dict[str, float]) -> None:
    with pytest.raises(PruningError, match="patience of 1 or more and a beta above 0"):
        Until(**until)  # type: ignore[arg-type]
