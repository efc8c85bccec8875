"""LeNet's table is complete, resumes and chooses on validation digits; bookkeeping is cheap beside the passes."""

from pathlib import Path

import pytest
import torch

from experiments import lenet_mnist, pruning_benchmark
from experiments.common import read_record
from experiments.lenet import LeNet5
from fastgaze.pruning import ChannelGraph, Flops


def test_lenet_table_has_every_method_and_is_not_made_twice(
    small_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--data", str(small_data), "--tiny", "--work", str(tmp_path), "--out", str(tmp_path / "table.json")]
    lenet_mnist.main(options)
    record = read_record(tmp_path / "table.json")
    assert record is not None
    assert {row["method"] for row in record["rows"]} == {
        "unpruned",
        "Fisher (beta = 0)",
        "Fisher (beta > 0)",
        "Fisher (beta*)",
        "single parameters, Fisher",
        "single parameters, magnitude (Han et al.)",
    }
    assert all(row["cost_percent"] <= 26 for row in record["rows"] if row["method"] != "unpruned")
    assert all(0 <= row["error_percent"] <= 100 for row in record["rows"])
    capsys.readouterr()
    lenet_mnist.main(options)  # everything is on disk: only the table is printed
    assert "{" not in capsys.readouterr().out


def test_the_table_takes_the_beta_that_is_best_on_the_validation_digits() -> None:
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
    net = LeNet5()
    graph = ChannelGraph.trace(net, torch.zeros(1, 1, 28, 28))
    assert lenet_mnist.sparse_cost(net, graph) == Flops().total(graph)


@pytest.mark.slow
def test_bookkeeping_is_cheap(tmp_path: Path) -> None:
    pruning_benchmark.main(["--out", str(tmp_path / "b.json"), "--maps", "200", "--pairs", "4"])
    result = read_record(tmp_path / "b.json")
    assert result is not None
    assert result["outside"]["share"] < 0.1
    assert result["scoring_fastgaze"]["ratio"] < 1.2
