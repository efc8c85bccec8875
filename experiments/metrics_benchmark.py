"""How long the metrics of one image take, beside pysaliency's.

    python -m experiments.metrics_benchmark

One 600x800 image with 150 fixations and 20,000 fixations of other images. Both libraries compute the same numbers
from the same arrays, in turn; CPU time, median over the rounds. Must hold: all metrics together stay below 50 ms and
below pysaliency's. ``protocol`` is everything that ``fastgaze evaluate`` computes for an image and a model, blurring
included.
"""

import argparse
import statistics
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments import common
from experiments.common import RESULTS
from fastgaze.evaluation import metrics
from fastgaze.evaluation.protocols import Case, score

SIZE = (600, 800)
LIMIT = 50.0  # milliseconds
Metric = Callable[[], float]


def scene() -> tuple[Case, NDArray[np.float64], NDArray[np.float64]]:
    """A case, a log density and the (x, y) of the other images' fixations."""
    rng = np.random.default_rng(0)
    grids = [np.kron(rng.normal(size=(12, 16)), np.ones((50, 50))) + 0.01 * rng.normal(size=SIZE) for _ in range(2)]
    log_density, bias = (grid - np.logaddexp.reduce(grid, axis=None) for grid in grids)
    points, others = (rng.random((n, 2)) * (SIZE[1], SIZE[0]) for n in (150, 20_000))
    counts = np.bincount(metrics.cells(SIZE, others), minlength=SIZE[0] * SIZE[1])
    return Case("benchmark", points, bias, counts, np.empty(0, np.int64)), log_density, others


def ours(case: Case, log_density: NDArray[np.float64], others: NDArray[np.float64]) -> dict[str, Metric]:
    """Our metrics, checks of the input included."""
    density, empirical, points = np.exp(log_density), case.empirical, case.fixations
    epsilon = metrics.MIT_EPSILON
    return {
        "auc": lambda: metrics.auc(density, points),
        "sauc": lambda: metrics.shuffled_auc(density, points, others),
        "nss": lambda: metrics.nss(density, points),
        "sim": lambda: metrics.sim(density, empirical),
        "kl": lambda: metrics.kl_divergence(density, empirical, minimum=0, regularization=epsilon),
        "cc": lambda: metrics.cc(density, empirical),
        "log_likelihood": lambda: metrics.log_likelihood(log_density, points),
        "information_gain": lambda: metrics.information_gain(log_density, points, case.center_bias),
    }


def theirs(case: Case, log_density: NDArray[np.float64], others: NDArray[np.float64]) -> dict[str, Metric]:
    """The functions in which pysaliency's models compute the same."""
    np.trapz, np.string_ = np.trapezoid, np.bytes_  # type: ignore[attr-defined]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import pysaliency.metrics as reference
        from pysaliency.roc import general_rocs_per_positive
    density, empirical = np.exp(log_density), case.empirical
    x, y = case.fixations.astype(int).T
    other_x, other_y = others.astype(int).T

    def gain() -> float:
        return float(np.mean(log_density[y, x] - case.center_bias[y, x]) / np.log(2))

    return {
        "auc": lambda: general_rocs_per_positive(density[y, x], density.flatten()).mean(),
        "sauc": lambda: general_rocs_per_positive(density[y, x], density[other_y, other_x]).mean(),
        "nss": lambda: reference.NSS(density, x, y).mean(),
        "sim": lambda: reference.SIM(density, empirical),
        "kl": lambda: reference.MIT_KLDiv(density, empirical),
        "cc": lambda: reference.CC(density, empirical),
        "log_likelihood": lambda: float(np.mean(log_density[y, x])),
        "information_gain": gain,
    }


def milliseconds(metric: Metric) -> float:
    """CPU time of one call."""
    start = time.process_time()
    metric()
    return 1e3 * (time.process_time() - start)


def measure(rounds: int) -> dict[str, Any]:
    """Median milliseconds of each metric in both libraries, and of the whole protocol."""
    case, log_density, others = scene()
    first, second = ours(case, log_density, others), theirs(case, log_density, others)
    for name in first:
        assert abs(first[name]() - second[name]()) < 1e-6, f"{name} differs"
    times = [{n: (milliseconds(first[n]), milliseconds(second[n])) for n in first} for _ in range(rounds)]
    whole = [milliseconds(lambda: score("tuebingen", log_density, fresh(case))["auc"]) for _ in range(rounds)]
    median = {n: tuple(statistics.median(t[n][i] for t in times) for i in (0, 1)) for n in first}
    totals = [statistics.median(sum(t[n][i] for n in first) for t in times) for i in (0, 1)]
    return {"metrics": median, "all": totals, "protocol": statistics.median(whole), "rounds": rounds}


def fresh(case: Case) -> Case:
    """The same case without what it has computed already."""
    return Case(case.name, case.fixations, case.center_bias, case.others, case.sampled)


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    return common.make_parser(__doc__, __file__, data=False, out=RESULTS / "metrics_benchmark.json", rounds=15)


def main(arguments: Sequence[str] | None = None) -> None:
    """Time both libraries and print whether the limits hold."""
    options = common.parse(make_parser(), arguments)
    record = common.about(options, size=list(SIZE), rounds=options.rounds, threads=1)
    result = measure(options.rounds)
    print(f"{'CPU ms, 600x800, 150 fixations':32} {'fastgaze':>9} {'pysaliency':>11}")
    for name, (mine, reference) in [*result["metrics"].items(), ("all together", result["all"])]:
        print(f"{name:32} {mine:9.2f} {reference:11.2f}")
    print(f"{'protocol tuebingen, blur included':32} {result['protocol']:8.2f}")
    mine, reference = result["all"]
    holds = mine < LIMIT and mine <= reference
    print("holds" if holds else f"DOES NOT HOLD: {mine:.1f} ms, pysaliency {reference:.1f}")
    common.write_record(options.out, record | result)


if __name__ == "__main__":
    main()
