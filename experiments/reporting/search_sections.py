"""The random search over beta and the number of maps: how much cost a weight on the cost saves at equal quality."""

from pathlib import Path

import numpy as np
import numpy.typing as npt

from experiments.common import Record
from experiments.reporting import drawings, paper
from experiments.reporting.document import Block, Command, Heading, Missing, Picture, Section, Table, Text
from experiments.reporting.inputs import Inputs, command, missing
from experiments.reporting.variant_sections import trained_at
from experiments.reporting.verdicts import Claim, Estimate, Verdict, above, not_measured
from fastgaze.core.pareto import pareto

RESAMPLES = 1000
LEVELS = 20  # of loss, at which two fronts are compared
Trials = npt.NDArray[np.float64]
"""(trials, 2): loss, or anything else of which less is better, and GFLOP."""


def random_search(inputs: Inputs, images: Path | None) -> Section:
    """Beta and the number of maps, drawn at random."""
    blocks: list[Block] = [Heading("Random search over β and the number of maps")]
    record = inputs.read("sweep")
    claims = [_loss_claim(record), _auc_claim(inputs, record)]
    if record is None:
        return [*blocks, missing("search", "the random search")], claims
    points, line = record["points"], command("search", record)
    planned = record["settings"].get("trials", len(points))
    if len(points) < planned:
        blocks.append(Missing(f"{planned - len(points)} of {planned} trials", line))
    if images is not None:
        drawings.search(points, images / "sweep.png")
    bands = "Lines: the best loss up to a cost; bands: 95% intervals over trials, as many of either kind in every draw."
    blocks += [
        Picture("images/results/sweep.png", f"{search_words(record)} {bands}"),
        Text(_sentence(points)),
        _trials(record, "The trials of the figure above, with its settings, cheapest first."),
        Command(line),
    ]
    return blocks, claims


def search_words(record: Record) -> str:
    """Every setting of the search, from its record."""
    s, points = record["settings"], record["points"]
    zero = sum(p["objective"] == "none" for p in points)
    low, high = s["beta"]
    least, most = s["removed"]
    return (
        f"{len(points)} trials from `{s['start']}`, {zero} of them with β = 0: β drawn log-uniformly from {low:g} to "
        f"{high:g} nats per GFLOP at 640x480, {least:.0%} to {most:.0%} of the maps removed, {s['share']:.0%} of them "
        f"every {s['steps']} steps of {s['batch']} images ({s['optimizer']}, rate {s['learning_rate']:g}), then "
        f"{s['tuning_steps']} steps of tuning; validation loss in nats on {s['validation_images']} images of SALICON "
        f"val at {trained_at(s)}; torch, {s['precision']}, one thread; one seed."
    )


def _trials(record: Record, about: str) -> Table:
    header = ("trial", "β, nats per GFLOP", "removed maps", "GFLOP at 640x480", "loss, nats", "on the front of all")
    rows = tuple(
        (
            str(p["number"]),
            f"{p['beta']:.2g}",
            str(p["removed"]),
            f"{p['gflop']:.2f}",
            f"{p['loss']:.4f}",
            "yes" if p["number"] in record["pareto"] else "",
        )
        for p in record["points"]
    )
    return Table(header, rows, about)


# Costs at equal quality


def _split(points: list[Record]) -> tuple[Trials, Trials]:
    """Trials with beta > 0, and those with beta = 0."""
    kinds = ([(p["loss"], p["gflop"]) for p in points if p["objective"] == kind] for kind in ("beta", "none"))
    ours, others = (np.array(found, np.float64).reshape(-1, 2) for found in kinds)
    return ours, others


def cost_ratios(ours: Trials, others: Trials) -> npt.NDArray[np.float64]:
    """Cost of the others' front over that of our front at equally spaced levels of the loss that both reach."""
    fronts = [np.array(_front(trials)) for trials in (ours, others)]
    if min(map(len, fronts)) < 2:
        return np.empty(0)
    low, high = max(front[0, 0] for front in fronts), min(front[-1, 0] for front in fronts)
    if low >= high:
        return np.empty(0)
    levels = np.linspace(low, high, LEVELS)
    costs = [np.interp(levels, front[:, 0], np.log(front[:, 1])) for front in fronts]
    ratios: npt.NDArray[np.float64] = np.exp(costs[1] - costs[0])
    return ratios


def _front(trials: Trials) -> list[tuple[float, float]]:
    """By loss, from low to high."""
    pairs = [(float(loss), float(cost)) for loss, cost in trials]
    return pareto(pairs, cost=lambda trial: trial[0], loss=lambda trial: trial[1])


def mean_ratio(ours: Trials, others: Trials) -> Estimate | None:
    """Geometric mean of the cost ratios, with a bootstrap interval over trials; None if nothing can be compared.

    Every draw has as many trials of either kind, since the front of more trials lies lower by chance alone. Where more
    than a tenth of the draws have no range of loss in common, there are too few trials for an interval.
    """
    few = min(len(ours), len(others))
    whole = cost_ratios(ours, others)
    if not len(whole):
        return None
    rng = np.random.default_rng(0)
    drawn = []
    for _ in range(RESAMPLES):
        ratios = cost_ratios(*(trials[rng.integers(len(trials), size=few)] for trials in (ours, others)))
        if len(ratios):
            drawn.append(np.log(ratios).mean())
    if len(drawn) < 0.9 * RESAMPLES:
        return Estimate(float(np.exp(np.log(whole).mean())))
    low, middle, high = np.exp(np.quantile(drawn, [0.025, 0.5, 0.975]))
    return Estimate(float(middle), float(low), float(high))


def _ratio_words(ours: Trials, others: Trials, equal: str) -> str:
    found, whole = mean_ratio(ours, others), cost_ratios(ours, others)
    assert found is not None
    interval = "" if found.bounded else " (too few trials for an interval)"
    return (
        f"at equal {equal} β = 0 needs {found.shown(2)} times the GFLOP of β > 0 on average{interval}, at most "
        f"{whole.max():.2f} and at least {whole.min():.2f} times; {len(ours)} trials with β > 0, {len(others)} without"
    )


def _sentence(points: list[Record]) -> str:
    ours, others = _split(points)
    if not len(cost_ratios(ours, others)):
        return "The two fronts have no range of loss in common, so their costs cannot be compared."
    words = _ratio_words(ours, others, "validation loss")
    return f"{words[0].upper()}{words[1:]}."


def _loss_claim(record: Record | None) -> Claim:
    text = "At equal validation loss, pruning with β > 0 is cheaper than with β = 0"
    printed = "at equal AUC, see the next line"
    ours, others = _split([] if record is None else record["points"])
    found = mean_ratio(ours, others)
    if found is None:
        return not_measured(text, printed, command("search", record))
    return Claim(text, printed, _ratio_words(ours, others, "loss"), above(found, 1.0), command("search", record))


def _auc_claim(inputs: Inputs, record: Record | None) -> Claim:
    """The paper's own comparison, of the trials that `experiments.front` has scored."""
    text = "At equal AUC on CAT2000, pruning with β > 0 is cheaper than with β = 0"
    printed = f"up to {paper.SPEEDUP_REGULARISED}x"
    line = f"{command('search', record)} && {command('front')}"
    scored = [facts for facts in inputs.models().values() if facts.get("source") == "search"]
    points = [
        {
            "loss": -facts["scores"]["cat2000"]["means"]["auc"],
            "gflop": facts["gflop_640x480"],
            "objective": "none" if facts["kind"] == "unregularised" else "beta",
        }
        for facts in scored
    ]
    ours, others = _split(points)
    found = mean_ratio(ours, others)
    if found is None:
        return not_measured(text, printed, line)
    words, planned = _ratio_words(ours, others, "AUC"), len((record or {"points": points})["points"])
    if len(points) < planned:
        return Claim(text, printed, f"{words}; {len(points)} of {planned} trials are scored", Verdict.UNDECIDED, line)
    return Claim(text, printed, words, above(found, 1.0), line)
