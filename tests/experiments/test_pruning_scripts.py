"""The recipes run from end to end on a handful of made-up digits."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.data.test_mnist import write_idx

RECIPES = Path(__file__).parents[2] / "experiments"


@pytest.fixture(autouse=True)
def _recipes_on_path(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(sys, "path", [str(RECIPES), *sys.path])
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Bright squares whose place is the class."""
    folder = tmp_path_factory.mktemp("digits")
    rng = np.random.default_rng(0)
    for part, count in (("train", 200), ("t10k", 50)):
        labels = rng.integers(0, 10, count)
        images = rng.integers(0, 60, (count, 28, 28))
        for image, label in zip(images, labels, strict=True):
            image[4 + 4 * (label // 2) : 8 + 4 * (label // 2), 6 + 10 * (label % 2) : 12 + 10 * (label % 2)] = 250
        write_idx(folder / f"{part}-images-idx3-ubyte.gz", images)
        write_idx(folder / f"{part}-labels-idx1-ubyte.gz", labels)
    return folder


def test_lenet_table_and_comparison_from_end_to_end(
    digits: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import lenet_mnist
    import pruning_comparison

    options = [
        "--data",
        str(digits),
        "--seeds",
        "1",
        "--tiny",
        "--work",
        str(tmp_path),
        "--json",
        str(tmp_path / "t.json"),
    ]
    lenet_mnist.main(options)
    rows = json.loads((tmp_path / "t.json").read_text())["rows"]
    found = {(row["method"], round(row["cost_percent"])) for row in rows}
    assert {method for method, _ in found} == {
        "unpruned",
        "Fisher (beta = 0)",
        "Fisher (beta > 0)",
        "Fisher (beta*)",
        "single parameters, Fisher",
        "single parameters, magnitude (Han et al.)",
    }
    assert all(row["cost_percent"] <= 26 for row in rows if row["method"] != "unpruned")
    assert all(0 <= row["error_percent"] <= 100 for row in rows)
    capsys.readouterr()
    lenet_mnist.main(options)  # everything is on disk: only the table is printed
    assert "{" not in capsys.readouterr().out

    checkpoint = str(tmp_path / "unpruned-seed1.safetensors")
    out = tmp_path / "figure"
    small = ["--images", "20", "--batch", "10", "--maps", "150", "--lowest", "20", "--betas", "0.01"]
    pruning_comparison.main(["--checkpoint", checkpoint, "--data", str(digits), "--out", str(out), *small])
    curves = json.loads(out.with_suffix(".json").read_text())["curves"]
    assert {"Fisher, beta*", "Fisher, beta*, frozen costs", "L1A", "L1W", "Molchanov, normalised, cost"} < set(curves)
    for points in curves.values():
        costs = [point["cost_percent"] for point in points]
        assert costs[0] == 100
        assert costs == sorted(costs, reverse=True)
        assert points[0]["loss"] == curves["L1W"][0]["loss"]
    assert out.with_suffix(".png").stat().st_size > 10_000


def test_the_table_takes_the_beta_that_is_best_on_the_validation_digits() -> None:
    import lenet_mnist

    def entry(seed: int, beta: float, validation: float, error: float) -> dict[str, object]:
        return {
            "seed": seed, "method": "m", "target_percent": 10.0, "error_percent": error, "cost_percent": 9.0,
            "validation_error_percent": validation, "validation_loss": 0.1, "widths": [], "beta": beta,
        }  # fmt: skip

    rows = [entry(0, 0.1, 0.9, 0.5), entry(0, 0.2, 0.8, 0.7), entry(1, 0.1, 0.6, 0.9), entry(1, 0.2, 0.7, 0.1)]
    (summary,) = lenet_mnist.summarize(rows)
    assert summary["error_percent"] == pytest.approx(0.8)
    assert summary["error_spread"] == pytest.approx(0.1414, abs=1e-4)
    assert summary["betas"] == [0.2, 0.1]


def test_sparse_cost_of_a_dense_network_is_its_flops() -> None:
    import lenet_mnist

    from fastgaze.networks import create_model
    from fastgaze.pruning import ChannelGraph, Flops

    net = create_model("lenet5")
    graph = ChannelGraph.trace(net, torch.zeros(1, 1, 28, 28))
    assert lenet_mnist.sparse_cost(net, graph) == Flops().total(graph)


@pytest.mark.slow
def test_bookkeeping_is_cheap(tmp_path: Path) -> None:
    import pruning_benchmark

    pruning_benchmark.main(["--json", str(tmp_path / "b.json"), "--maps", "200", "--pairs", "4"])
    result = json.loads((tmp_path / "b.json").read_text())
    assert result["outside"]["share"] < 0.1
    assert result["scoring_fastgaze"]["ratio"] < 1.2
